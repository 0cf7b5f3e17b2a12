"""The script of `shem torture`: what one would type behind `shem invoke`, a line each.

    # placed, paid for and looked at
    alice place '{id: "o-1", items: []}' --key order-1
    alice place '{id: "o-2", items: []}' --no-wait
    orders/bob status '"o-1"' --env CURRENCY=EUR

Quoting is the shell's; a `#` begins a comment; a line whose quotes are open, or that ends with a
backslash, goes on with the next one. `--no-wait` asks for the invocation without waiting, so that
it runs beside the lines that follow. The worker's component may be left out. A line without a key
has `line-N`, so that it has the same one in every run.
"""

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

import click

from executor.cli.parse import WaveArgumentsCommand, pair, unicode_text
from executor.errors import RequestError, UsageError
from executor.requests import WaveArguments, canonical_request, check_key, resolve_path
from executor.torture.plan import AnyStep, Invoke, Submit
from executor.wasm.types import FuncType
from executor.worker.reader import worker_parts

FORM: Final = "WORKER FUNCTION [ARG]... [--key K] [--env K=V]... [--arg A]... [--no-wait]"
SEGMENT: Final = re.compile(r"""\s+|'[^']*'|"(?:\\.|[^"\\])*"|\\.|[^\s'"\\]""", re.DOTALL)
"""Of a command line; what has no end on this line is none."""
COMMENT: Final = re.compile(r"#[^\n]*")
LINE: Final = WaveArgumentsCommand(
    "line",
    add_help_option=False,
    params=[
        click.Argument(["worker"], metavar="WORKER"),
        click.Argument(["function"], metavar="FUNCTION"),
        click.Argument(["arguments"], metavar="[ARG]...", nargs=-1),
        click.Option(["--key"]),
        click.Option(["--env"], type=pair, multiple=True),
        click.Option(["--arg", "args"], type=unicode_text, multiple=True),
        click.Option(["--no-wait"], is_flag=True),
    ],
)


class ScriptLine(NamedTuple):
    number: int
    """Of its first line in the script."""
    request: Invoke
    waits: bool


def read_script(text: str, where: str, component: str) -> list[ScriptLine]:
    """The invocations of a script for `component`.

    Raises: UsageError naming the line; also if there is none.
    """
    lines = []
    for number, words in split_lines(text, where):
        given = words[2:] if words[:2] == ["shem", "invoke"] else words
        lines.append(read_line(given, number, f"{where}:{number}", component))
    if not lines:
        raise UsageError("the script asks for nothing", where=where, hint=f"write lines of {FORM}")
    return lines


def split_lines(text: str, where: str) -> Iterator[tuple[int, list[str]]]:
    """The words of each line that has some, with its number. Raises: UsageError."""
    first, held = 0, ""
    for number, line in enumerate(text.splitlines(), 1):
        first, held = (first, f"{held}\n{line}") if held else (number, line)
        plain = without_comments(held)
        if plain is not None:
            held = ""
            if words := shlex.split(plain):
                yield first, words
    if held:
        raise UsageError("a quote is not closed", where=f"{where}:{first}", hint="close it")


def without_comments(text: str) -> str | None:
    """What the shell would read; None if it would wait for another line."""
    kept = []
    at, begins_word = 0, True
    while at < len(text):
        comment = COMMENT.match(text, at) if begins_word else None
        found = comment or SEGMENT.match(text, at)
        if found is None:
            return None
        if comment is None:
            kept.append(found[0].replace("\\\n", "") if found[0][0] != "'" else found[0])
        at, begins_word = found.end(), found[0].isspace()
    return "".join(kept)


def read_line(words: list[str], number: int, place: str, component: str) -> ScriptLine:
    try:
        given = LINE.make_context(place, words).params
    except click.UsageError as error:
        raise UsageError(
            error.format_message().rstrip("."),
            where=place,
            hint=f"write {FORM}",
        ) from error
    worker = given["worker"]
    worker = worker if "/" in worker else f"{component}/{worker}"
    key = given["key"] if given["key"] is not None else f"line-{number}"
    try:
        named, _ = worker_parts(worker)
        check_key(key)
    except UsageError as error:
        error.where = place
        raise
    if named != component:
        raise UsageError(
            f"{worker} is a worker of another component than {component}",
            where=place,
            hint=f"write {component}/NAME, or NAME alone",
        )
    request = Invoke(
        worker=worker,
        function=given["function"],
        arguments=given["arguments"],
        key=key,
        env=dict(given["env"]) or None,
        args=given["args"] or None,
    )
    return ScriptLine(number, request, not given["no_wait"])


def check_lines(lines: list[ScriptLine], where: str, exports: Mapping[str, FuncType]) -> None:
    """Raises: UnknownFunction or BadArguments naming the first line that cannot be asked for."""
    for line in lines:
        request = line.request
        try:
            path = resolve_path(tuple(exports), request.function, request.worker.partition("/")[0])
            canonical_request(path, exports[path], WaveArguments(request.arguments))
        except RequestError as error:
            error.where = ": ".join(filter(None, (f"{where}:{line.number}", error.where)))
            raise


def steps_of(lines: list[ScriptLine]) -> tuple[AnyStep, ...]:
    """What a client does: each line is asked for, which is promised before it runs, and awaited
    then; in the end those that were not.
    """
    steps: list[AnyStep] = []
    for line in lines:
        request = line.request
        steps.append(
            Submit(
                worker=request.worker,
                function=request.function,
                arguments=request.arguments,
                key=request.key,
                env=request.env,
                args=request.args,
            )
        )
        if line.waits:
            steps.append(request)
    return (*steps, *(line.request for line in lines if not line.waits))
