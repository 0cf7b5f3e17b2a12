from executor.durable.trace import Trace
from oplog.entry import InvocationStarted

ID = bytes(range(16))


def started(key="k", at=5):
    return InvocationStarted(at=at, key=key, function="demo:a/b.{c}")


def trace_of(key="k", worker_id=ID):
    trace = Trace("c/w", worker_id)
    trace.enter_invocation(started(key))
    return trace


def begin(trace, **attributes):
    return trace.begin(7, attributes, trace.next_id())


def test_an_invocation_has_a_root_and_a_span_of_its_own():
    trace = trace_of()
    invocation = trace.current
    assert invocation.attributes == {
        "name": "invoke-exported-function",
        "idempotency_key": "k",
        "function_name": "demo:a/b.{c}",
        "worker_id": "c/w",
    }
    assert invocation.started_ns == invocation.parent.started_ns == 5
    assert invocation.parent.parent is None
    assert (len(trace.trace_id), len(invocation.span_id)) == (32, 16)


def test_every_attempt_of_an_invocation_has_the_same_ids_and_no_other_has_them():
    def ids(trace):
        spans = [begin(trace), begin(trace)]
        return [trace.trace_id, trace.current.parent.parent.span_id, *[s.span_id for s in spans]]

    first = ids(trace_of())
    assert first == ids(trace_of())
    assert len(set(first)) == len(first)
    for other in (trace_of("k2"), trace_of(worker_id=bytes(16))):
        assert not set(first) & set(ids(other))


def test_the_innermost_span_that_is_not_finished_is_the_current_one():
    trace = trace_of()
    invocation = trace.current
    outer, inner = begin(trace), begin(trace)
    assert (trace.current, inner.parent, outer.parent) == (inner, outer, invocation)
    trace.end(outer)
    assert trace.current is inner
    trace.end(inner)
    assert trace.current is invocation


def test_a_span_of_another_invocation_is_never_the_current_one():
    trace = trace_of()
    kept = begin(trace)
    trace.enter_invocation(started("k2"))
    invocation = trace.current
    assert invocation.attributes["idempotency_key"] == "k2"
    trace.end(kept)
    assert trace.current is invocation


def test_attributes_are_found_from_the_inside_out():
    trace = trace_of()
    begin(trace, currency="EUR", who="ann")
    inner = begin(trace, currency="CHF")
    assert inner.chain("currency") == ["CHF", "EUR"]
    assert inner.chain("nothing") == []
    assert inner.keys() == [
        *("currency", "function_name", "idempotency_key", "name", "who", "worker_id"),
    ]


def test_before_any_invocation_there_is_a_trace_too():
    trace = Trace("c/w", ID)
    assert trace.current.parent is None
    assert begin(trace).parent is not None
