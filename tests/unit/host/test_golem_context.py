import pytest

from executor.errors import GuestError
from executor.wasm.values import Variant
from oplog.entry import SpanAttribute, SpanFinished, SpanStarted

CONTEXT = "golem:api/context"
SPAN = f"{CONTEXT}.[method]span"
SEEN = f"{CONTEXT}.[method]invocation-context"


def text(value):
    return Variant("string", value)


def test_a_span_is_started_told_of_and_finished_by_one_entry_each(guest):
    outer = guest.call(f"{CONTEXT}.current-context")
    span = guest.call(f"{CONTEXT}.start-span", "charge")
    guest.call(f"{SPAN}.set-attribute", span, "currency", text("EUR"))
    guest.call(
        f"{SPAN}.set-attributes",
        span,
        [{"key": "a", "value": text("1")}, {"key": "b", "value": text("2")}],
    )
    guest.call(f"{SPAN}.finish", span)
    guest.call(f"{SPAN}.finish", span)
    guest.drop(CONTEXT, "span", span)
    started, *attributes, finished = guest.session.marks
    assert isinstance(started, SpanStarted)
    assert started.attributes == {"name": "charge"}
    assert started.parent == guest.call(f"{SEEN}.span-id", outer)
    assert [(mark.key, mark.value) for mark in attributes] == [
        ("currency", "EUR"),
        ("a", "1"),
        ("b", "2"),
    ]
    assert all(isinstance(mark, SpanAttribute) for mark in attributes)
    assert isinstance(finished, SpanFinished)
    assert {mark.span_id for mark in guest.session.marks} == {started.span_id}


def test_a_span_ends_when_it_is_dropped_and_refuses_attributes_afterwards(guest):
    span = guest.call(f"{CONTEXT}.start-span", "charge")
    inner = guest.call(f"{CONTEXT}.start-span", "inner")
    guest.drop(CONTEXT, "span", inner)
    assert isinstance(guest.session.marks[-1], SpanFinished)
    guest.call(f"{SPAN}.finish", span)
    assert guest.session.trace.current.attributes["name"] == "invoke-exported-function"
    with pytest.raises(GuestError, match="is finished"):
        guest.call(f"{SPAN}.set-attribute", span, "late", text("x"))


def test_a_context_is_the_span_that_was_current_and_tells_of_all_it_lies_in(guest):
    span = guest.call(f"{CONTEXT}.start-span", "charge")
    guest.call(f"{SPAN}.set-attribute", span, "currency", text("EUR"))
    seen = guest.call(f"{CONTEXT}.current-context")
    guest.call(f"{CONTEXT}.start-span", "later")
    trace_id = guest.call(f"{SEEN}.trace-id", seen)
    span_id = guest.call(f"{SEEN}.span-id", seen)
    assert span_id == guest.session.marks[0].span_id
    assert guest.call(f"{SEEN}.trace-context-headers", seen) == [
        ("traceparent", f"00-{trace_id}-{span_id}-00")
    ]
    assert guest.call(f"{SEEN}.get-attribute", seen, "name", False) == text("charge")
    assert guest.call(f"{SEEN}.get-attribute", seen, "idempotency_key", False) is None
    assert guest.call(f"{SEEN}.get-attribute", seen, "idempotency_key", True) == text("key-1")
    own = guest.call(f"{SEEN}.get-attributes", seen, False)
    assert own == [
        {"key": "currency", "value": text("EUR")},
        {"key": "name", "value": text("charge")},
    ]
    inherited = guest.call(f"{SEEN}.get-attributes", seen, True)
    assert [attribute["key"] for attribute in inherited] == [
        *("currency", "function_name", "idempotency_key", "name", "worker_id"),
    ]
    names = [text("charge"), text("invoke-exported-function")]
    assert guest.call(f"{SEEN}.get-attribute-chain", seen, "name") == names
    chains = guest.call(f"{SEEN}.get-attribute-chains", seen)
    assert {"key": "name", "values": names} in chains
    invocation = guest.call(f"{SEEN}.parent", seen)
    root = guest.call(f"{SEEN}.parent", invocation)
    assert guest.call(f"{SEEN}.parent", root) is None
    assert guest.call(f"{SEEN}.trace-id", root) == trace_id


def test_times_of_spans_are_those_of_their_entries(guest):
    span = guest.call(f"{CONTEXT}.start-span", "charge")
    at = guest.session.marks[0].at
    assert guest.call(f"{SPAN}.started-at", span) == {
        "seconds": at // 10**9,
        "nanoseconds": at % 10**9,
    }


def test_headers_are_forwarded_until_the_guest_says_otherwise(guest):
    allow = f"{CONTEXT}.allow-forwarding-trace-context-headers"
    assert [guest.call(allow, value) for value in (False, True, True)] == [True, False, True]


def test_a_zone_that_persists_nothing_has_spans_without_entries(guest):
    api = "golem:api/host"
    guest.call(f"{api}.set-oplog-persistence-level", Variant("persist-nothing"))
    guest.session.marks.clear()
    span = guest.call(f"{CONTEXT}.start-span", "charge")
    guest.call(f"{SPAN}.set-attribute", span, "currency", text("EUR"))
    guest.call(f"{SPAN}.finish", span)
    assert guest.session.marks == []
