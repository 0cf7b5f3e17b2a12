"""One entry of an oplog as one line: index, time, kind, and what matters of its fields.

Values are compact JSON, and control characters are escaped: no text of a guest or of a caller can
move a terminal's cursor or begin a line.
"""

import json
from typing import Final

from rich.text import Text

from executor.cli.output import printable, shortened
from executor.records import OplogRecord, time_text
from executor.server.shapes import entry_fields
from oplog.entry import (
    HINTS,
    KIND_OF,
    BeginAtomicRegion,
    Cancelled,
    Create,
    Decision,
    End,
    EndAtomicRegion,
    Error,
    Exited,
    InvocationFinished,
    InvocationStarted,
    Jump,
    Log,
    PendingInvocation,
    Revert,
    SetIdempotenceMode,
    SetPersistenceLevel,
    SetRetryPolicy,
    SpanAttribute,
    SpanFinished,
    SpanStarted,
    Start,
)

KIND_WIDTH: Final = 20
TYPE_WIDTH: Final = 12
VALUE_LENGTH_MAX: Final = 160
"""Characters of a value that a line shows; `--json` has the whole."""

WHOLE: Final = slice(None)
TO_MILLISECONDS: Final = slice(len("2026-11-30T"), len("2026-11-30T10:08:10.123"))
"""The part of a time that a terminal has room for."""

STYLES: Final[dict[type, str]] = {
    Create: "bold",
    Start: "cyan",
    End: "green",
    Cancelled: "yellow",
    InvocationStarted: "bold blue",
    InvocationFinished: "bold blue",
    BeginAtomicRegion: "magenta",
    EndAtomicRegion: "magenta",
    Jump: "magenta",
    SetRetryPolicy: "magenta",
    SpanStarted: "magenta",
    SpanFinished: "magenta",
    SpanAttribute: "magenta",
    SetPersistenceLevel: "magenta",
    SetIdempotenceMode: "magenta",
    Decision: "bold yellow",
    Revert: "bold yellow",
    PendingInvocation: "blue",
    Error: "red",
    Exited: "red",
}


def entry_text(record: OplogRecord, index_width: int, shown_time: slice = WHOLE) -> Text:
    """The line, with that part of the time.

    A hidden entry is marked `~` and dim; a hint is dim but for its kind.
    """
    entry = record.entry
    style = STYLES.get(type(entry), "")
    dim = "dim" if record.hidden or type(entry) in HINTS else ""
    text = Text(no_wrap=True, end="")
    text.append(f"{record.index:>{index_width}}", "dim")
    text.append("~ " if record.hidden else "  ", "red")
    text.append(f"{time_text(entry.at)[shown_time]}  ", "dim")
    text.append(f"{KIND_OF[type(entry)]:<{KIND_WIDTH}}  ", "dim" if record.hidden else style)
    text.append(printable(_summary(record)), dim)
    text.rstrip()
    text.end = "\n"
    return text


def _summary(record: OplogRecord) -> str:
    fields = entry_fields(record)
    entry = record.entry
    match entry:
        case Create():
            return (
                f"{entry.name}  component {entry.component} revision {entry.revision}"
                + (f"  env {_value(fields['env'])}" if entry.env else "")
                + (f"  args {_value(fields['args'])}" if entry.args else "")
                + (f"  allow-net {' '.join(entry.allow_net)}" if entry.allow_net else "")
            )
        case Start():
            return f"{entry.function_type:<{TYPE_WIDTH}}  {entry.function}" + (
                f"  {_value(fields['request'])}" if "request" in fields else ""
            )
        case End():
            return f"#{entry.start_index}" + (
                f"  {_value(fields['response'])}" if "response" in fields else ""
            )
        case PendingInvocation() | InvocationStarted():
            arguments = _value(fields["arguments"])
            return f"{_word(entry.key)}  {entry.function}  {arguments}"
        case InvocationFinished():
            return _outcome(fields["outcome"])
        case Log():
            about = f"{_value(entry.context)}  " if entry.context else ""
            return f"{entry.level:<6}  {about}{_value(entry.text)}"
        case _:
            return "  ".join(
                f"{name} {_word(value) if isinstance(value, str) else _value(value)}"
                for name, value in fields.items()
                if name not in {"at", "text"}
            )


def _outcome(outcome: object) -> str:
    match outcome:
        case {"failure": {"kind": kind, "message": message}}:
            return f"failed: {kind}: {_value(message)}"
        case {"exit": code}:
            return f"exit {code}"
        case {"result": value}:
            return _value(value)
        case _:
            return ""


def _value(value: object) -> str:
    return _word(json.dumps(value, ensure_ascii=False))


def _word(text: str) -> str:
    return shortened(text, VALUE_LENGTH_MAX)
