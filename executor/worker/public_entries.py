"""Entries as a guest reads them: values of `golem:api/oplog.oplog-entry`.

An entry that the interface has no word for (a mode, a mark of delivery, an owner's decision) is
left out. A call is one entry, that of its start, with the answer from its end; a call that never
ended has no answer. The answers of `golem:api/oplog` itself are left out, or each look at one's own
oplog would hold all looks before it; so is every value over 64 KiB. Values have their WIT types
where the host or the component declares the function, and else those that their recorded form
shows. Pure.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

import msgspec

from executor.durable.definition import Local, Written
from executor.durable.trace import Span, Trace
from executor.host import INTERFACES
from executor.host.golem.rpc import uuid_record
from executor.host.golem.wit_value import NOTHING, plain_wit_value, wit_value
from executor.host.wasi.clocks import datetime_of
from executor.wasm.plain import from_plain
from executor.wasm.types import FuncType, TupleType, WitType
from executor.wasm.values import Variant
from executor.wasm.wit import parse_type
from oplog.codec import decode_value
from oplog.entry import (
    ABSENT,
    BeginAtomicRegion,
    CancelPendingInvocation,
    Create,
    End,
    EndAtomicRegion,
    Entry,
    Error,
    Exited,
    Interrupted,
    InvocationFinished,
    InvocationStarted,
    Jump,
    Log,
    NoOp,
    PendingInvocation,
    Raw,
    Revert,
    SetPersistenceLevel,
    SetRetryPolicy,
    SpanAttribute,
    SpanFinished,
    SpanStarted,
    Start,
    Suspend,
)

OWN_INTERFACE: Final = "golem:api/oplog."
VALUE_BYTES_MAX: Final = 64 * 1024
"""Each byte of a list is a node of its own."""
Fields = dict[str, object]


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """Whose entries they are."""

    id: bytes
    name: str
    """With the component."""
    component_id: str
    component_bytes: int
    exports: Mapping[str, FuncType]

    @property
    def worker_id(self) -> Fields:
        name = self.name.partition("/")[2]
        return {"component-id": {"uuid": uuid_record(self.component_id)}, "worker-name": name}


class Signature(msgspec.Struct, frozen=True):
    """What is recorded of a function that the host offers."""

    params: tuple[WitType, ...]
    answer: WitType | None


@cache
def host_signatures() -> Mapping[str, Signature | None]:
    """By the name that a `start` has; None for one that differs from version to version."""
    found: dict[str, Signature | None] = {}
    for table in INTERFACES:
        for row in table.functions:
            if isinstance(row, Local):
                continue
            wit = table.wit.functions[row.name]
            answer = wit.result
            if not isinstance(row, Written) and row.answer is not None:
                answer = parse_type(row.answer, table.wit.types)
            params = tuple(wit_type for _, wit_type in wit.params)
            signature = Signature(params, answer)
            name = f"{table.name}.{row.name}"
            found[name] = signature if found.get(name, signature) == signature else None
    return found


class Beside(msgspec.Struct, frozen=True, kw_only=True):
    """What another entry has to say of one."""

    end: End | None = None
    """Of a start."""
    function: str = ""
    """Of the invocation that is finished."""


def public_entry(subject: Subject, entry: Entry, beside: Beside) -> Variant | None:
    """The entry as a guest reads it; None for one that it does not see."""
    at = datetime_of(entry.at)
    match entry:
        case NoOp():
            return Variant("no-op", at)
        case BeginAtomicRegion():
            return Variant("begin-atomic-region", at)
        case Suspend():
            return Variant("suspend", at)
        case Interrupted():
            return Variant("interrupted", at)
        case Exited():
            return Variant("exited", at)
        case InvocationFinished() if entry.outcome.exit is not None:
            return None  # told by the `exited` before it
        case _:
            told = parameters(subject, entry, beside)
    return None if told is None else Variant(told[0], {"timestamp": at, **told[1]})


def parameters(subject: Subject, entry: Entry, beside: Beside) -> tuple[str, Fields] | None:
    """The case of an entry that has fields, and those."""
    match entry:
        case Start():
            return "imported-function-invoked", imported(entry, beside.end)
        case Create():
            return "create", created(subject, entry)
        case PendingInvocation():
            return "pending-worker-invocation", {"invocation": invocation(subject, entry)}
        case InvocationStarted():
            return "exported-function-invoked", invoked(subject, entry)
        case InvocationFinished(outcome=outcome) if outcome.failure is not None:
            return "error", {"error": outcome.failure.message}
        case Error():
            return "error", {"error": entry.details}
        case InvocationFinished():
            return "exported-function-completed", {
                "response": result_value(subject, beside.function, entry.outcome.result),
                "consumed-fuel": 0,
            }
        case Jump():
            return "jump", {"start": entry.region.first, "end": entry.region.last}
        case Revert():
            return "revert", {"start": entry.region.first, "end": entry.region.last}
        case EndAtomicRegion():
            return "end-atomic-region", {"begin-index": entry.begin_index}
        case SetRetryPolicy():
            return "change-retry-policy", {"retry-policy": policy(entry)}
        case SetPersistenceLevel():
            return "change-persistence-level", {"persistence-level": Variant(entry.level)}
        case Log():
            return "log", logged(entry)
        case CancelPendingInvocation():
            return "cancel-invocation", {"idempotency-key": entry.key}
        case SpanStarted() | SpanFinished() | SpanAttribute():
            return span_told(entry)
        case _:
            return None


def logged(entry: Log) -> Fields:
    return {"level": entry.level, "context": entry.context, "message": entry.text}


def created(subject: Subject, entry: Create) -> Fields:
    """There are no accounts and no plugins, and what a memory begins with is not known."""
    return {
        "worker-id": subject.worker_id,
        "component-version": entry.revision,
        "args": list(entry.args),
        "env": list(entry.env.items()),
        "account-id": {"value": ""},
        "parent": None,
        "component-size": subject.component_bytes,
        "initial-total-linear-memory-size": 0,
        "initial-active-plugins": [],
    }


def imported(start: Start, end: End | None) -> Fields:
    known = host_signatures().get(start.function)
    request: object = NOTHING
    response: object = NOTHING
    if start.request is not ABSENT:
        request = request_value(known, start.request)
    if end is not None and not start.function.startswith(OWN_INTERFACE):
        response = any_value(None if known is None else known.answer, end.response)
    return {
        "function-name": start.function,
        "request": request,
        "response": response,
        "wrapped-function-type": Variant(start.function_type),
    }


def request_value(known: Signature | None, raw: Raw) -> object:
    """The arguments as one tuple."""
    if len(raw) > VALUE_BYTES_MAX:
        return NOTHING
    plain: Any = decode_value(raw)
    if known is None or len(plain) != len(known.params):
        return plain_wit_value(plain)
    values = tuple(from_plain(one, part) for one, part in zip(known.params, plain, strict=True))
    return wit_value(TupleType(known.params), values)


def any_value(wit_type: WitType | None, raw: Raw) -> object:
    if raw is ABSENT or len(raw) > VALUE_BYTES_MAX:
        return NOTHING
    plain = decode_value(raw)
    if wit_type is None:
        return plain_wit_value(plain)
    return wit_value(wit_type, from_plain(wit_type, plain))


def result_value(subject: Subject, function: str, raw: Raw) -> object:
    wit = subject.exports.get(function)
    return any_value(None if wit is None else wit.result, raw)


def argument_values(subject: Subject, function: str, raw: Raw) -> list[object]:
    if len(raw) > VALUE_BYTES_MAX:
        return []
    plain: Any = decode_value(raw)
    wit = subject.exports.get(function)
    if wit is None or len(wit.params) != len(plain):
        return [plain_wit_value(part) for part in plain]
    pairs = zip(wit.params, plain, strict=True)
    return [wit_value(one, from_plain(one, part)) for (_, one), part in pairs]


def invocation(subject: Subject, entry: PendingInvocation) -> Variant:
    return Variant(
        "exported-function",
        {
            "idempotency-key": entry.key,
            "function-name": entry.function,
            "input": argument_values(subject, entry.function, entry.arguments),
        },
    )


def invoked(subject: Subject, entry: InvocationStarted) -> Fields:
    trace = Trace(subject.name, subject.id)
    trace.enter_invocation(entry)
    stack = []
    span: Span | None = trace.current
    while span is not None:
        stack.append(Variant("local-span", span_fields(span)))
        span = span.parent
    return {
        "function-name": entry.function,
        "request": argument_values(subject, entry.function, entry.arguments),
        "idempotency-key": entry.key,
        "trace-id": trace.trace_id,
        "trace-states": [],
        "invocation-context": [stack],
    }


def span_fields(span: Span) -> Fields:
    return {
        "span-id": span.span_id,
        "start": datetime_of(span.started_ns),
        "parent": None if span.parent is None else span.parent.span_id,
        "linked-context": None,
        "attributes": attributes(span.attributes),
        "inherited": False,
    }


def attributes(held: Mapping[str, str]) -> list[Fields]:
    return [{"key": key, "value": Variant("string", value)} for key, value in held.items()]


def span_told(entry: SpanStarted | SpanFinished | SpanAttribute) -> tuple[str, Fields]:
    match entry:
        case SpanStarted():
            return "start-span", {
                "span-id": entry.span_id,
                "parent": entry.parent or None,
                "linked-context": None,
                "attributes": attributes(entry.attributes),
            }
        case SpanFinished():
            return "finish-span", {"span-id": entry.span_id}
        case SpanAttribute():
            value = Variant("string", entry.value)
            fields = {"span-id": entry.span_id, "key": entry.key, "value": value}
            return "set-span-attribute", fields


def policy(entry: SetRetryPolicy) -> Fields:
    return {
        "max-attempts": entry.attempts_max,
        "min-delay": entry.min_delay_ns,
        "max-delay": entry.max_delay_ns,
        "multiplier": entry.multiplier,
        "max-jitter-factor": entry.max_jitter_factor,
    }
