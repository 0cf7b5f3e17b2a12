"""Claims: a replaying guest asks for something, and the next recorded entry must be just that.

With one lane of guest code a claim matches the next guest-driven entry or nothing. A mismatch is a
divergence: it is reported with what was recorded and what was requested, and is never tolerated,
skipped or repaired.
"""

from enum import Enum
from typing import TypeAlias

from msgspec.structs import replace

from executor.errors import Divergence
from executor.replay.cursor import Cursor
from oplog.codec import decode_value
from oplog.entry import (
    ABSENT,
    KIND_OF,
    BeginAtomicRegion,
    Cancelled,
    CompletionDelivered,
    CompletionDiscarded,
    EndAtomicRegion,
    Entry,
    InvocationFinished,
    InvocationStarted,
    NoOp,
    Outcome,
    Raw,
    SetIdempotenceMode,
    SetPersistenceLevel,
    SetRetryPolicy,
    SpanAttribute,
    SpanFinished,
    SpanStarted,
    Start,
)
from oplog.errors import OplogCorruptError

Mark: TypeAlias = (
    NoOp
    | BeginAtomicRegion
    | EndAtomicRegion
    | SetRetryPolicy
    | SetPersistenceLevel
    | SetIdempotenceMode
    | SpanStarted
    | SpanFinished
    | SpanAttribute
)
"""A positional entry that stands for one call of the guest by itself."""

SHOWN_VALUE_CHARACTERS_MAX = 200


def claim_start(
    cursor: Cursor,
    worker: str,
    *,
    function: str,
    function_type: str,
    request: Raw,
    parent_start: int | None = None,
) -> tuple[int, int] | None:
    """Consumes the `start` of this very call; answers (index, at), or None if drained.

    Raises: Divergence if something else is recorded next.
    """
    found = cursor.peek()
    if found is None:
        return None
    index, entry = found
    if (
        type(entry) is Start
        and entry.function == function
        and entry.function_type == function_type
        and entry.parent_start == parent_start
        and same_bytes(entry.request, request)
    ):
        cursor.take()
        return index, entry.at
    raise Divergence(
        worker=worker,
        index=index,
        recorded=describe(entry),
        requested=f"start {function} {function_type} {show_value(request)}",
    )


def claim_mark(cursor: Cursor, worker: str, mark: Mark) -> tuple[int, int] | None:
    """Consumes the recorded mark that equals `mark` in all but its time, as `claim_start` does.

    Raises: Divergence if something else is recorded next.
    """
    found = cursor.peek()
    if found is None:
        return None
    index, entry = found
    if type(entry) is type(mark) and replace(entry, at=mark.at) == mark:
        cursor.take()
        return index, entry.at
    raise Divergence(worker=worker, index=index, recorded=describe(entry), requested=describe(mark))


class Claim(Enum):
    MISSED = "missed"
    """The recorded guest found nothing there at this point."""
    DRAINED = "drained"


def claim_delivery(
    cursor: Cursor, worker: str, start_index: int, missed_reads: int
) -> CompletionDelivered | Claim:
    """What the recorded guest found when it read the deferred call at `start_index`, after
    `missed_reads` reads of it that found nothing.

    A read that finds nothing is not recorded: it is one if something else is recorded next, or a
    later read of the same call. Raises: Divergence if the marker says an earlier one.
    """
    found = cursor.peek()
    if found is None:
        return Claim.DRAINED
    index, entry = found
    if not isinstance(entry, CompletionDelivered) or entry.start_index != start_index:
        return Claim.MISSED
    if entry.missed_reads > missed_reads:
        return Claim.MISSED
    if entry.missed_reads < missed_reads:
        raise Divergence(
            worker=worker,
            index=index,
            recorded=describe(entry),
            requested=f"read {missed_reads + 1} of the call at {start_index}",
        )
    cursor.take()
    return entry


def claim_drop(
    cursor: Cursor, worker: str, start_index: int
) -> Cancelled | CompletionDiscarded | Claim:
    """Consumes what the guest recorded when it dropped the call at `start_index` unread.

    Raises: Divergence if something else is recorded next.
    """
    found = cursor.peek()
    if found is None:
        return Claim.DRAINED
    index, entry = found
    if isinstance(entry, Cancelled | CompletionDiscarded) and entry.start_index == start_index:
        cursor.take()
        return entry
    raise Divergence(
        worker=worker,
        index=index,
        recorded=describe(entry),
        requested=f"to drop the call at {start_index} unread",
    )


def claim_invocation(cursor: Cursor, worker: str) -> tuple[int, InvocationStarted] | None:
    """Consumes the next `invocation-started`, or answers None if drained."""
    found = cursor.peek()
    if found is None:
        return None
    index, entry = found
    if isinstance(entry, InvocationStarted):
        cursor.take()
        return index, entry
    raise Divergence(
        worker=worker,
        index=index,
        recorded=describe(entry),
        requested="the next invocation: the guest has nothing more to do in this one",
    )


def claim_outcome(cursor: Cursor, worker: str, outcome: Outcome) -> int | None:
    """Compares a replayed outcome with the recorded one, as canonical bytes.

    Answers the `at` of the consumed entry, or None if the cursor is drained: the invocation had
    not finished. Raises: Divergence if another outcome, or anything else, is recorded next.
    """
    found = cursor.peek()
    if found is None:
        return None
    index, entry = found
    if isinstance(entry, InvocationFinished) and same_outcome(entry.outcome, outcome):
        cursor.take()
        return entry.at
    raise Divergence(
        worker=worker,
        index=index,
        recorded=describe(entry),
        requested=f"invocation-finished {show_outcome(outcome)}",
    )


def same_bytes(left: Raw, right: Raw) -> bool:
    """Whether two raw values are the same canonical bytes; an absent one equals only itself."""
    return bool(left == right)


def same_outcome(recorded: Outcome, replayed: Outcome) -> bool:
    return (
        same_bytes(recorded.result, replayed.result)
        and recorded.exit == replayed.exit
        and (recorded.failure is None) == (replayed.failure is None)
    )


def describe(entry: Entry) -> str:
    """An entry in one line of a divergence report."""
    kind = KIND_OF[type(entry)]
    match entry:
        case Start():
            return f"{kind} {entry.function} {entry.function_type} {show_value(entry.request)}"
        case InvocationStarted():
            return f"{kind} {entry.function} {show_value(entry.arguments)}"
        case InvocationFinished():
            return f"{kind} {show_outcome(entry.outcome)}"
        case _:
            fields = {name: getattr(entry, name) for name in entry.__struct_fields__}
            shown = [f"{name} {value}" for name, value in fields.items() if name != "at"]
            return " ".join([kind, *shown])


def show_outcome(outcome: Outcome) -> str:
    if outcome.failure is not None:
        return f"failure {outcome.failure.kind}: {outcome.failure.message}"
    if outcome.exit is not None:
        return f"exit {outcome.exit}"
    return f"result {show_value(outcome.result)}"


def show_value(raw: Raw) -> str:
    """A recorded value for people, cut at 200 characters."""
    if raw is ABSENT or not bytes(raw):
        return "()"
    try:
        text = repr(decode_value(raw))
    except OplogCorruptError:
        text = bytes(raw).hex()
    if len(text) > SHOWN_VALUE_CHARACTERS_MAX:
        return text[:SHOWN_VALUE_CHARACTERS_MAX] + "…"
    return text
