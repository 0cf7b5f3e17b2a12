"""An entry of the store as the reference writes it: its kind and what the rules determine."""

from oplog.codec import decode_value
from oplog.entry import (
    ABSENT,
    BeginAtomicRegion,
    CancelPendingInvocation,
    Create,
    Decision,
    End,
    EndAtomicRegion,
    Error,
    Exited,
    Interrupted,
    InvocationFinished,
    InvocationStarted,
    Jump,
    Log,
    NoOp,
    Outcome,
    PendingInvocation,
    Raw,
    Resumed,
    Revert,
    SetIdempotenceMode,
    SetPersistenceLevel,
    SetRetryPolicy,
    Start,
)
from oplog.entry import Entry as Stored
from tests.conformance.model.regions import Entry


def decoded(raw: Raw) -> object:
    """A recorded value; a recorded retry policy is its number of attempts."""
    if raw is ABSENT or not bytes(raw):
        return None
    value = decode_value(raw)
    if isinstance(value, dict) and "max-attempts" in value:
        return value["max-attempts"]
    return value


def program_of(arguments: Raw) -> object:
    """The one argument of the guest's function."""
    (program,) = decode_value(arguments)
    return program


def outcome_fields(outcome: Outcome) -> dict[str, object]:
    if outcome.failure is not None:
        return {"outcome": "failure", "value": outcome.failure.kind}
    if outcome.exit is not None:
        return {"outcome": "exit", "value": outcome.exit}
    result = decode_value(outcome.result)
    ((kind, value),) = result.items()
    return {"outcome": kind, "value": value}


def region_kind_and_fields(index: int, entry: Jump | Revert) -> tuple[str, dict[str, object]]:
    assert entry.region.last == index, entry
    first = entry.region.first
    if isinstance(entry, Jump):
        return "jump", {"first": first, "subtree": entry.subtree}
    return "revert", {"first": first}


def view(index: int, entry: Stored) -> Entry:
    """What the reference would have appended as entry `index`."""
    kind, fields = kind_and_fields(index, entry)
    return Entry(kind, fields, entry.at)


def kind_and_fields(index: int, entry: Stored) -> tuple[str, dict[str, object]]:
    match entry:
        case Create():
            return "create", {}
        case Start(function=function, function_type=kind, request=request):
            fields = {"function": function, "function_type": kind, "request": decoded(request)}
            return "start", fields
        case End(start_index=start, response=response):
            return "end", {"start_index": start, "response": decoded(response)}
        case InvocationStarted(key=key, arguments=arguments):
            return "invocation-started", {"key": key, "arguments": program_of(arguments)}
        case InvocationFinished(outcome=outcome):
            return "invocation-finished", outcome_fields(outcome)
        case Jump() | Revert():
            return region_kind_and_fields(index, entry)
        case EndAtomicRegion(begin_index=begin):
            return "end-atomic-region", {"begin_index": begin}
        case SetRetryPolicy(attempts_max=attempts):
            return "set-retry-policy", {"value": attempts}
        case SetPersistenceLevel(level=level):
            return "set-persistence-level", {"value": level}
        case SetIdempotenceMode(idempotent=on):
            return "set-idempotence-mode", {"value": on}
        case PendingInvocation(key=key, arguments=arguments):
            return "pending-invocation", {"key": key, "arguments": program_of(arguments)}
        case Error(retry_from=retry_from, kind=kind, retry_at=retry_at):
            return "error", {"retry_from": retry_from, "kind": kind, "last": retry_at is None}
        case Log(level=level, text=text):
            return "log", {"level": level, "text": text}
        case Decision(start_index=start, choice=choice):
            return "decision", {"start_index": start, "choice": choice}
        case CancelPendingInvocation(key=key):
            return "cancel-pending-invocation", {"key": key}
        case Exited(code=code):
            return "exited", {"code": code}
        case NoOp() | BeginAtomicRegion() | Interrupted() | Resumed():
            return MARKS[type(entry)], {}
        case _:
            raise AssertionError(f"entry {index}: the reference knows no {entry}")


MARKS: dict[type, str] = {
    NoOp: "no-op",
    BeginAtomicRegion: "begin-atomic-region",
    Interrupted: "interrupted",
    Resumed: "resumed",
}
