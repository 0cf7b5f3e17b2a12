r"""The notation of retry policies and rules, for `--retry`: read and written.

    max-attempts=5,min-delay=100ms,max-delay=1s,multiplier=3,jitter=0.15    the workers' own policy
    rates:function=demo:rates/*,status=429|5xx,max-attempts=10              a rule, by its name
    gone:error="no such user, or none",never

Fields are divided by commas and alternatives by `|`; a text that holds one of them is quoted, with
`\` before a quote or a backslash. Errors say at which column, counted from 1.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any, Final, NoReturn

import click

from executor.cli.parse import unicode_text
from executor.durable.retry import NEVER, RetryPolicy
from executor.durable.retry_rules import RetryRule

DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")
DURATIONS_S: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0}
PREFIX: Final = re.compile(r'\s*([^=,":]*?)\s*:')
QUOTED: Final = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
PREDICATES: Final = {"function": "functions", "error": "errors", "status": "statuses"}


def retry_option(text: str) -> RetryPolicy | RetryRule:
    """Raises click's own error with the column."""
    named = PREFIX.match(unicode_text(text))
    when: dict[str, tuple[str, ...]] = {}
    fields: dict[str, Any] = {}
    never = 0
    for column, part in divided(text, named.end() if named else 0, len(text), ","):
        name, divider, value = (one.strip() for one in part.partition("="))
        if part == "never":
            never = column
        elif divider and named and name in PREDICATES:
            refuse_second(column, name, PREDICATES[name] in when)
            begin = column + part.index("=")
            end = column - 1 + len(part)
            when[PREDICATES[name]] = tuple(
                unquoted(at, one) for at, one in divided(text, begin, end, "|")
            )
        elif divider and name in RETRY_FIELDS:
            field, read = RETRY_FIELDS[name]
            refuse_second(column, name, field in fields)
            fields[field] = number(column, name, value, read)
        else:
            refuse_unknown(column, part, name, in_rule=named is not None)
    if never and fields:
        refuse(never, "never stands without fields of a policy")
    policy = NEVER if never else RetryPolicy(**fields)
    return RetryRule(name=named[1], policy=policy, **when) if named else policy


def divided(text: str, begin: int, end: int, mark: str) -> Iterator[tuple[int, str]]:
    """The parts of `text[begin:end]` between marks outside of quotes, stripped, with columns."""
    at = start = begin
    while at <= end:
        if at == end or text[at] == mark:
            part = text[start:at]
            yield start + len(part) - len(part.lstrip()) + 1, part.strip()
            start = at + 1
        elif text[at] == '"':
            quoted = QUOTED.match(text, at, end)
            if quoted is None:
                refuse(at + 1, "a quote has no end")
            at = quoted.end() - 1
        at += 1


def unquoted(column: int, text: str) -> str:
    quoted = QUOTED.fullmatch(text)
    if quoted is not None:
        return re.sub(r"\\(.)", r"\1", quoted[1], flags=re.DOTALL)
    if '"' in text:
        refuse(column, f"{text} is quoted in part: quote all of it")
    return text


def number(column: int, name: str, value: str, read: Callable[[str], float]) -> float:
    try:
        return read(value)
    except ValueError:
        what = "a duration, as 100ms, 1.5s or 2m" if read is duration_s else "a number"
        refuse(column, f"{value!r} is not {what}, for {name}")


def refuse_second(column: int, name: str, seen: bool) -> None:
    if seen:
        refuse(column, f"{name} is given twice")


def refuse_unknown(column: int, part: str, name: str, *, in_rule: bool) -> NoReturn:
    if name in PREDICATES and not in_rule:
        refuse(column, f"{name} is for a rule, which has a name: NAME:{part}")
    known = ", ".join((*PREDICATES, *RETRY_FIELDS) if in_rule else RETRY_FIELDS)
    refuse(column, f"{part!r} is none of {known}, with =VALUE, and not never")


def refuse(column: int, why: str) -> NoReturn:
    raise click.BadParameter(f"column {column}: {why}")


def duration_s(text: str) -> float:
    """Seconds in `100ms`, `1.5s`, `2m` or `1h`. Raises: ValueError."""
    found = DURATION.fullmatch(text)
    if found is None:
        raise ValueError
    return float(found[1]) * DURATIONS_S[found[2]]


RETRY_FIELDS: Final[dict[str, tuple[str, Callable[[str], float]]]] = {
    "max-attempts": ("attempts_max", int),
    "min-delay": ("min_delay_s", duration_s),
    "max-delay": ("max_delay_s", duration_s),
    "multiplier": ("multiplier", float),
    "jitter": ("max_jitter_factor", float),
}
"""What each field of a policy is called, and how it is read."""


# -- written ---------------------------------------------------------------------------------------


def retry_text(retry: RetryPolicy | RetryRule) -> str:
    """The notation that `retry_option` reads."""
    if isinstance(retry, RetryPolicy):
        return policy_text(retry)
    parts = [
        f"{name}={'|'.join(quoted_text(str(one)) for one in getattr(retry, field))}"
        for name, field in PREDICATES.items()
        if getattr(retry, field)
    ]
    return f"{retry.name}:{','.join([*parts, policy_text(retry.policy)])}"


def policy_text(policy: RetryPolicy) -> str:
    if policy == NEVER:
        return "never"
    return ",".join(
        f"{name}={(duration_text if read is duration_s else number_text)(getattr(policy, field))}"
        for name, (field, read) in RETRY_FIELDS.items()
    )


def quoted_text(text: str) -> str:
    if text == text.strip() and not re.search(r'[,|"]', text):
        return text
    escaped = re.sub(r'(["\\])', r"\\\1", text)
    return f'"{escaped}"'


def duration_text(seconds: float) -> str:
    """To the nanosecond."""
    amount, unit = (f"{seconds * 1_000:.6f}", "ms") if seconds < 1 else (f"{seconds:.9f}", "s")
    return amount.rstrip("0").rstrip(".") + unit


def number_text(number: float | None) -> str:
    """No jitter is a jitter of nothing."""
    return f"{number or 0:.15g}"
