"""Streams, errors and exit codes of the command line.

Stdout carries the result and nothing else. An error is one line on stderr,
`shem: what: where: what to do`, or with `--json` one object `{kind, message, where, hint}` there.
Colours appear on terminals only, and not where `NO_COLOR` is set.
"""

import errno
import json
import os
import re
import select
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import click
from rich.cells import cell_len
from rich.console import Console

from executor.cli.ending import INTERRUPTED
from executor.cli.signals import GOES_ON, Terminated
from executor.errors import ComponentRejected, RequestError, ShemError
from executor.path_text import legible
from executor.records import ErrorRecord
from executor.server.shapes import error_json
from executor.worker.commits import refusal_words
from oplog.errors import OplogError

EXIT_DONE: Final = 0
EXIT_GUEST: Final = 1
EXIT_USAGE: Final = 2
EXIT_NOT_FOUND: Final = 3
EXIT_REFUSED: Final = 4
EXIT_SYSTEM: Final = 5
EXIT_INTERRUPTED: Final = INTERRUPTED

UNPRINTABLE: Final = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Control characters, line separators, and what turns the direction of writing."""
LONG_WORD: Final = re.compile(r"(\S{100})\S{300,}(\S{50})")
"""Longer than a worker's name can be; a refusal may repeat whatever was given."""
ECHOED_MAX: Final = 1_500
"""Characters of a part of a refusal."""

EXIT_CODES: Final[dict[str, int]] = {
    "usage": EXIT_USAGE,
    "bad-arguments": EXIT_USAGE,
    "component-rejected": EXIT_USAGE,
    "unknown-component": EXIT_NOT_FOUND,
    "unknown-worker": EXIT_NOT_FOUND,
    "unknown-function": EXIT_NOT_FOUND,
    "unknown-key": EXIT_NOT_FOUND,
    "unknown-file": EXIT_NOT_FOUND,
    "unknown-promise": EXIT_NOT_FOUND,
    "key-conflict": EXIT_REFUSED,
    "exists": EXIT_REFUSED,
    "busy": EXIT_REFUSED,
    "uncertain": EXIT_REFUSED,
    "guest-trap": EXIT_GUEST,
    "guest-error": EXIT_GUEST,
    "guest-exit": EXIT_GUEST,
    "previous-failed": EXIT_GUEST,
    "deleted": EXIT_GUEST,
    "cancelled": EXIT_GUEST,
    "interrupted": EXIT_INTERRUPTED,
    "limit": EXIT_SYSTEM,
    "divergence": EXIT_SYSTEM,
    "disk-full": EXIT_SYSTEM,
    "store-corrupt": EXIT_SYSTEM,
    "store-format": EXIT_SYSTEM,
    "store-error": EXIT_SYSTEM,
    "host-binding": EXIT_SYSTEM,
    "internal": EXIT_SYSTEM,
}
"""Every kind of error there is, and what a script sees of it."""


def exit_code(kind: str) -> int:
    return EXIT_CODES[kind]


def write_line(line: str) -> None:
    """One line to stdout, as UTF-8 whatever the locale says."""
    write_text(printable(line))


def write_note(line: str) -> None:
    """One line to stderr."""
    write_remark(printable(line))


def write_report(text: str) -> None:
    """What is no answer to the command: a worker or a process that stands still, and why."""
    write_note(f"shem: {one_line(text)}")


def wait_while_read(duration_s: float) -> None:
    """Blocks. Raises: BrokenPipeError as soon as whoever read stdout is gone."""
    watched = select.poll()
    watched.register(sys.stdout, 0)  # errors and a hang-up are told unasked
    if watched.poll(duration_s * 1_000):
        raise BrokenPipeError


def write_text(text: str) -> None:
    """Lines to stdout, as they are."""
    click.echo(encoded(text))


def write_remark(text: str) -> None:
    """Lines to stderr. Where that cannot be written the exit code has to say it all."""
    with suppress(OSError):
        click.echo(encoded(text), err=True)


def encoded(text: str) -> bytes:
    """UTF-8. What is no Unicode text, a terminal may pass any bytes, is shown as its escape."""
    return legible(text).encode(errors="backslashreplace")


def printable(text: str) -> str:
    """The text with the escapes of what would begin a line, move a terminal's cursor, or turn the
    order of what stands beside it.
    """
    return UNPRINTABLE.sub(lambda found: repr(found[0])[1:-1], text)


def shortened(text: str, length_max: int) -> str:
    """The beginning of a text that is longer than so many characters."""
    return text if len(text) <= length_max else f"{text[: length_max - 1]}…"


def write_json(value: object) -> None:
    """One JSON text on one line of stdout."""
    write_text(json_line(value))


def json_line(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def write_error(error: ErrorRecord, *, as_json: bool) -> None:
    """The error on stderr, in one line either way."""
    if as_json:
        write_remark(json_line(error_json(error)))
        return
    parts = (one_line(error.message), error.where, error.hint)
    write_note(": ".join(("shem", *(part for part in parts if part))))


def one_line(text: str) -> str:
    """The text with its line breaks as `; `, so that an error stays one line of a log."""
    return "; ".join(line.strip() for line in text.splitlines() if line.strip())


def write_traceback(error: BaseException) -> None:
    """For `--debug`: where the error came from, on stderr."""
    write_remark("".join(traceback.format_exception(error)).rstrip())


def leaf_error(error: BaseException) -> BaseException:
    """The one error that a group of them is about.

    An interrupt by the user counts first, then a refusal of the library, then whatever comes
    first; tasks that were cancelled because of it say nothing.
    """
    leaves = _leaves(error)
    for wanted in (KeyboardInterrupt, ShemError, OplogError, Exception):
        for leaf in leaves:
            if isinstance(leaf, wanted):
                return leaf
    return leaves[0]


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in _leaves(inner)]
    return [error]


def error_record(error: BaseException) -> ErrorRecord:
    """Any exception as what the user is told: kind, sentence, where, what to do. Of a refusal that
    repeats what was given, the middle is left out where it is very long.
    """
    record = _error_record(error)
    if not isinstance(error, RequestError | click.ClickException):
        return record
    if isinstance(error, ComponentRejected):
        return record
    return ErrorRecord(
        kind=record.kind,
        message=abridged(record.message),
        where=abridged(record.where),
        hint=abridged(record.hint),
    )


def abridged(text: str) -> str:
    """Beginning and end of each very long word, and of the whole if it is very long still."""
    text = LONG_WORD.sub(r"\1…\2", text)
    half = ECHOED_MAX // 2
    return text if len(text) <= ECHOED_MAX else f"{text[:half]}…{text[-half:]}"


def _error_record(error: BaseException) -> ErrorRecord:
    match error:
        case ShemError():
            return ErrorRecord(
                kind=error.kind, message=_sentence(error), where=error.where, hint=error.hint
            )
        case click.UsageError():
            command = error.ctx.command_path if error.ctx else "shem"
            return ErrorRecord(
                kind="usage",
                message=" ".join(error.format_message().split()).rstrip("."),
                where=command,
                hint=f"see `{command} --help`",
            )
        case click.ClickException():
            return ErrorRecord(
                kind="usage", message=error.format_message(), hint="see `shem --help`"
            )
        case KeyboardInterrupt():
            return ErrorRecord(
                kind="interrupted",
                message="ended by SIGTERM" if isinstance(error, Terminated) else "interrupted",
                hint=GOES_ON,
            )
        case OSError(errno=errno.EMFILE | errno.ENFILE):
            return ErrorRecord(
                kind="limit",
                message=error.strerror or str(error),
                where=str(error.filename or ""),
                hint="have more files open at a time (`ulimit -n`); what was accepted is kept",
            )
        case OSError(filename=None):  # of a stream: whatever is done to a file names it
            full = error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
            return ErrorRecord(
                kind="disk-full" if full else "internal",
                message=f"the output cannot be written: {error.strerror or error}",
                hint="what the command did is done; write its output elsewhere",
            )
        case OplogError():
            kind, hint = refusal_words(error)
            return ErrorRecord(kind=kind, message=error.message, where=error.where, hint=hint)
        case _:
            return ErrorRecord(
                kind="internal",
                message=f"{type(error).__name__}: {error}" if str(error) else type(error).__name__,
                hint="the same command with --debug shows where",
            )


def _sentence(error: ShemError) -> str:
    missing = error.imports if isinstance(error, ComponentRejected) else ()
    return "\n".join((error.message, *(item for item in missing if item not in error.message)))


def table(rows: Sequence[Sequence[object]]) -> list[str]:
    """Rows as lines with aligned columns, two spaces between; the first row is the heading.

    A column of numbers is aligned to the right.
    """
    texts = [[printable(str(cell)) for cell in row] for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(*texts, strict=True)]
    numeric = [all(isinstance(row[n], int) for row in rows[1:]) for n in range(len(widths))]
    return ["  ".join(_aligned(row, widths, numeric)).rstrip() for row in texts]


def _aligned(row: Sequence[str], widths: Sequence[int], numeric: Sequence[bool]) -> list[str]:
    cells = []
    for text, width, right in zip(row, widths, numeric, strict=True):
        space = " " * (width - cell_len(text))
        cells.append(space + text if right else text + space)
    return cells


def stdout_console() -> Console:
    """A console for coloured lines: colours on terminals only, no wrapping, no markup."""
    return Console(file=sys.stdout, highlight=False, markup=False, emoji=False, soft_wrap=True)


def stderr_console() -> Console:
    return Console(stderr=True, highlight=False, markup=False, emoji=False)


def discard_stdout() -> None:
    """What is still buffered cannot be written, and must not raise at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
