"""`golem:api/context@1.1.x`: spans of the guest's own, and what it may read of its trace.

A span is marked in the oplog by `executor.durable.marks`; all that is read is rebuilt by replay. An
`invocation-context` is the span that was current when it was asked for, with those it lies in.
"""

from typing import Any, Final

import msgspec

from executor.durable import marks
from executor.durable.definition import HostFunctionRow, Local
from executor.durable.trace import Span, traceparent
from executor.host.interface import InterfaceTable, host_interface
from executor.host.state import HostState
from executor.host.wasi.clocks import WALL_CLOCK, Datetime, datetime_of
from executor.wasm.values import Variant

CONTEXT: Final = """
interface golem:api/context@1.1.6 {
  use wasi:clocks/wall-clock@0.2.0.{datetime};

  variant attribute-value { %string(string) }
  record attribute { key: string, value: attribute-value }
  record attribute-chain { key: string, values: list<attribute-value> }
  type trace-id = string;
  type span-id = string;

  resource span {
    started-at: func() -> datetime;
    set-attribute: func(name: string, value: attribute-value);
    set-attributes: func(attributes: list<attribute>);
    finish: func();
  }

  resource invocation-context {
    trace-id: func() -> trace-id;
    span-id: func() -> span-id;
    parent: func() -> option<invocation-context>;
    get-attribute: func(key: string, inherited: bool) -> option<attribute-value>;
    get-attributes: func(inherited: bool) -> list<attribute>;
    get-attribute-chain: func(key: string) -> list<attribute-value>;
    get-attribute-chains: func() -> list<attribute-chain>;
    trace-context-headers: func() -> list<tuple<string, string>>;
  }

  start-span: func(name: string) -> span;
  current-context: func() -> invocation-context;
  allow-forwarding-trace-context-headers: func(allow: bool) -> bool;
}
"""


class SeenTrace(msgspec.Struct, frozen=True):
    """An `invocation-context` resource."""

    trace_id: str
    span: Span


def start_span(state: Any, name: str) -> int:
    number: int = state.handles.add(marks.start_span(state.session, name))
    return number


def started_at(state: HostState, number: int) -> Datetime:
    return datetime_of(state.handles.get(number, Span).started_ns)


def set_attribute(state: Any, number: int, name: str, value: Variant) -> None:
    span = state.handles.get(number, Span)
    marks.set_span_attribute(state.session, span, name, str(value.payload))


def set_attributes(state: Any, number: int, attributes: list[dict[str, Any]]) -> None:
    for attribute in attributes:
        set_attribute(state, number, attribute["key"], attribute["value"])


def finish(state: Any, number: int) -> None:
    marks.finish_span(state.session, state.handles.get(number, Span))


def drop_span(state: Any, number: int) -> None:
    """The end of a span that the guest no longer holds."""
    finish(state, number)
    state.handles.drop(number)


def current_context(state: Any) -> int:
    trace = state.session.trace
    number: int = state.handles.add(SeenTrace(trace.trace_id, trace.current))
    return number


def trace_id(state: HostState, number: int) -> str:
    return state.handles.get(number, SeenTrace).trace_id


def span_of(state: HostState, number: int) -> Span:
    return state.handles.get(number, SeenTrace).span


def span_id(state: HostState, number: int) -> str:
    return span_of(state, number).span_id


def parent(state: HostState, number: int) -> int | None:
    seen = state.handles.get(number, SeenTrace)
    outer = seen.span.parent
    return None if outer is None else state.handles.add(SeenTrace(seen.trace_id, outer))


def attribute_value(value: str) -> Variant:
    return Variant("string", value)


def get_attribute(state: HostState, number: int, key: str, inherited: bool) -> Variant | None:
    span = span_of(state, number)
    own = span.attributes.get(key)
    values = span.chain(key) if inherited else [] if own is None else [own]
    return attribute_value(values[0]) if values else None


def get_attributes(state: HostState, number: int, inherited: bool) -> list[dict[str, object]]:
    span = span_of(state, number)
    keys = span.keys() if inherited else sorted(span.attributes)
    return [{"key": key, "value": attribute_value(span.chain(key)[0])} for key in keys]


def get_attribute_chain(state: HostState, number: int, key: str) -> list[Variant]:
    return [attribute_value(value) for value in span_of(state, number).chain(key)]


def get_attribute_chains(state: HostState, number: int) -> list[dict[str, object]]:
    keys = span_of(state, number).keys()
    return [{"key": key, "values": get_attribute_chain(state, number, key)} for key in keys]


def trace_context_headers(state: HostState, number: int) -> list[tuple[str, str]]:
    seen = state.handles.get(number, SeenTrace)
    return [("traceparent", traceparent(seen.trace_id, seen.span))]


def allow_forwarding(state: Any, allow: bool) -> bool:
    trace = state.session.trace
    before: bool = trace.forwards
    trace.forwards = allow
    return before


OF_CONTEXT: Final = "[method]invocation-context"
ROWS: Final[tuple[HostFunctionRow, ...]] = (
    Local("start-span", start_span),
    Local("current-context", current_context),
    Local("allow-forwarding-trace-context-headers", allow_forwarding),
    Local("[method]span.started-at", started_at),
    Local("[method]span.set-attribute", set_attribute),
    Local("[method]span.set-attributes", set_attributes),
    Local("[method]span.finish", finish),
    Local(f"{OF_CONTEXT}.trace-id", trace_id),
    Local(f"{OF_CONTEXT}.span-id", span_id),
    Local(f"{OF_CONTEXT}.parent", parent),
    Local(f"{OF_CONTEXT}.get-attribute", get_attribute),
    Local(f"{OF_CONTEXT}.get-attributes", get_attributes),
    Local(f"{OF_CONTEXT}.get-attribute-chain", get_attribute_chain),
    Local(f"{OF_CONTEXT}.get-attribute-chains", get_attribute_chains),
    Local(f"{OF_CONTEXT}.trace-context-headers", trace_context_headers),
)

TABLES: Final[tuple[InterfaceTable, ...]] = (
    host_interface(CONTEXT, "1.1", ROWS, drops={"span": drop_span}, uses=WALL_CLOCK.wit.types),
)
