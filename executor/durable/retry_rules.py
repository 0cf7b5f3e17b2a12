"""Rules of a deployment: which failures have a retry policy of their own.

    RetryRule(name="rates", functions=("demo:rates/*",), statuses=(429, "5xx"),
              policy=RetryPolicy(attempts_max=10, max_delay_s=60))

A rule fits a failure if everything fits that it names: the function, the error and the status. Of
the rules that fit, the first one counts; if none does, the worker's own policy, which is the
deployment's until the guest sets another. Rules are recorded in `create` and hold for the worker's
life: neither a guest nor a later deployment changes them.

| predicate | fits                                                                              |
|-----------|-----------------------------------------------------------------------------------|
| functions | the name of the call's function, where `*` stands for anything; a trap has none   |
| errors    | the kind of the error, or a part of its text, in capitals or not                  |
| statuses  | the status of HTTP, where `x` stands for any digit                                |

An answer with a status, as of `wasi:http`, is no failure: only a rule that names its status makes
it one.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from executor.durable.retry import (
    NEVER,
    Chosen,
    RetryPolicy,
    TransientAnswer,
    TransientError,
    policy_of,
    recorded_policy,
)
from executor.errors import UsageError
from oplog import entry as entries

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
STATUS: Final = re.compile(r"[45][0-9x][0-9x]")
RULES_MAX: Final = 64
"""They are in the first entry of each worker."""
TEXT_MAX: Final = 1_024
HINT: Final = "see `shem deploy --help`"


class RetryRule(msgspec.Struct, frozen=True, kw_only=True):
    """The policy of the failures that it fits. At least one of the three is named."""

    name: str
    """Unique in a deployment; `error` entries tell it."""
    functions: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    statuses: tuple[int | str, ...] = ()
    policy: RetryPolicy = RetryPolicy()


Deployable = RetryPolicy | Sequence[RetryPolicy | RetryRule] | None
"""What may be deployed: the workers' own policy, or that one and rules, in their order."""


# -- choosing --------------------------------------------------------------------------------------


class RetryRules:
    """Those of one worker. Immutable."""

    def __init__(self, rules: Sequence[entries.RetryRule] = ()) -> None:
        self._rules = [CompiledRule(rule) for rule in rules]

    def choose(self, function: str, failure: TransientError, own: RetryPolicy) -> Chosen:
        """The policy of a failure that a call of `function` met, "" for a trap."""
        is_answer = (
            isinstance(failure, TransientAnswer)
            and failure.status is not None
            and not failure.function
        )
        function = failure.function or function
        for rule in self._rules:
            if (rule.statuses or not is_answer) and rule.fits(function, failure):
                return rule.chosen
        return Chosen(NEVER if is_answer else own)


class CompiledRule:
    def __init__(self, rule: entries.RetryRule) -> None:
        self.statuses = [re.compile(status.replace("x", ".")) for status in rule.statuses]
        self.chosen = Chosen(policy_of(rule.policy), rule.name)
        self._functions = [compile_glob(glob) for glob in rule.functions]
        self._errors = [error.casefold() for error in rule.errors]

    def fits(self, function: str, failure: TransientError) -> bool:
        return (
            (not self._functions or any(glob.fullmatch(function) for glob in self._functions))
            and (not self._errors or self._fits_error(failure))
            and (not self.statuses or self._fits_status(failure.status))
        )

    def _fits_error(self, failure: TransientError) -> bool:
        kind, text = failure.kind.casefold(), str(failure).casefold()
        return any(error == kind or error in text for error in self._errors)

    def _fits_status(self, status: int | None) -> bool:
        return status is not None and any(one.fullmatch(str(status)) for one in self.statuses)


def compile_glob(glob: str) -> re.Pattern[str]:
    """Only `*` is special: names of functions have brackets in them."""
    return re.compile(".*".join(re.escape(part) for part in glob.split("*")), re.DOTALL)


# -- deploying -------------------------------------------------------------------------------------


def split(retry: Deployable) -> tuple[RetryPolicy | None, tuple[RetryRule, ...]]:
    """The workers' own policy, and the rules. Raises: UsageError."""
    if retry is None or isinstance(retry, RetryPolicy):
        return retry, ()
    if not isinstance(retry, Sequence):
        raise UsageError("is made of RetryPolicy and RetryRule", where="retry", hint=HINT)
    policies = [one for one in retry if isinstance(one, RetryPolicy)]
    rules = [one for one in retry if isinstance(one, RetryRule)]
    if len(policies) + len(rules) < len(retry):
        raise UsageError("is made of RetryPolicy and RetryRule", where="retry", hint=HINT)
    if len(policies) > 1:
        raise UsageError(
            "a worker has one policy of its own, and here are two",
            where="retry",
            hint="a policy for some failures is a rule with a name: --retry NAME:…",
        )
    return (policies[0] if policies else None), tuple(rules)


def joined(
    policy: entries.Retry | None, rules: Sequence[entries.RetryRule]
) -> list[RetryPolicy | RetryRule]:
    """What was deployed, so that it can be deployed again."""
    return [
        *([] if policy is None else [policy_of(policy)]),
        *(
            RetryRule(
                name=rule.name,
                functions=rule.functions,
                errors=rule.errors,
                statuses=rule.statuses,
                policy=policy_of(rule.policy),
            )
            for rule in rules
        ),
    ]


def recorded_retry_rules(rules: Sequence[RetryRule]) -> tuple[entries.RetryRule, ...]:
    """A deployment's rules as its workers record them. Raises: UsageError."""
    if len(rules) > RULES_MAX:
        raise UsageError(f"a component has at most {RULES_MAX} rules", where="retry", hint=HINT)
    names = [rule.name for rule in rules]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"two rules are called {name!r}", where="retry", hint=HINT)
    return tuple(recorded_rule(rule) for rule in rules)


def recorded_rule(rule: RetryRule) -> entries.RetryRule:
    """Raises: UsageError."""
    where = f"retry rule {rule.name!r}"
    functions, errors, statuses = (
        alternatives(given, where) for given in (rule.functions, rule.errors, rule.statuses)
    )
    why = ""
    if not NAME.fullmatch(rule.name):
        why = "a name has 1 to 64 letters, digits, '.', '_' and '-'"
    elif not functions and not errors and not statuses:
        why = "it names no function, error or status: without a name it is the workers' own policy"
    elif wrong := next((one for one in statuses if not STATUS.fullmatch(one)), None):
        why = f"{wrong!r} is no status from 400 to 599, as 503 or 5xx"
    elif any(not 0 < len(one) <= TEXT_MAX for one in (*functions, *errors)):
        why = f"a function or error has 1 to {TEXT_MAX} characters"
    if why:
        raise UsageError(why, where=where, hint=HINT)
    return entries.RetryRule(
        name=rule.name,
        functions=functions,
        errors=errors,
        statuses=statuses,
        policy=recorded_policy(rule.policy, where),
    )


def alternatives(given: Sequence[int | str], where: str) -> tuple[str, ...]:
    """Raises: UsageError."""
    texts = (given,) if isinstance(given, str) else tuple(map(str, given))
    for text in texts:
        if text.encode(errors="ignore").decode() != text:
            raise UsageError(f"{text!r} is not Unicode text", where=where, hint=HINT)
    return texts


def refuse_unmatched(rules: Sequence[entries.RetryRule], imported: Iterable[str]) -> None:
    """Raises: UsageError for a function that no import has: the rule would never fit."""
    names = list(imported)
    for rule in rules:
        for glob in rule.functions:
            if not any(compile_glob(glob).fullmatch(name) for name in names):
                raise UsageError(
                    f"the component imports no function {glob}",
                    where=f"retry rule {rule.name!r}",
                    hint="write demo:bank/api.charge or demo:bank/*, without a version",
                )
