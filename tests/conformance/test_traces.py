"""Spans of a guest: entries of the oplog, the same ids in every attempt, replayed by claim."""

import pytest
from msgspec.structs import replace

from executor.errors import Divergence
from oplog.entry import End, InvocationStarted, SpanAttribute, SpanFinished, SpanStarted, Start
from tests.support.executors import (
    LastingEngine,
    copy_oplog,
    deployed,
    kinds,
    opened,
    run,
    worker_entries,
)
from tests.support.wat_guests import TRACER

WORKER = "tracer/w"


async def traced(shem, key):
    [(name, value)] = await shem.invoke(WORKER, "trace", ["charge"], key=key)
    assert name == "traceparent"
    version, trace_id, span_id, flags = value.split("-")
    assert (version, flags) == ("00", "00")
    return trace_id, span_id


def test_a_span_is_seen_in_the_oplog_and_outlives_a_crash():
    async def case():
        engine = LastingEngine()
        async with deployed(TRACER, "tracer", engine) as shem:
            trace_id, span_id = await traced(shem, "1")
            shown = kinds(engine, WORKER)
            first = shown.index(InvocationStarted) + 1
            assert shown[first : first + 5] == [
                *(SpanStarted, SpanAttribute, Start, End, SpanFinished),
            ]
            started = worker_entries(engine, WORKER)[first][1]
            assert (started.span_id, started.attributes) == (span_id, {"name": "charge"})
            assert (await shem.crash(WORKER)).divergence is None
            other = await traced(shem, "2")
            assert not {trace_id, span_id} & set(other)
            assert (await shem.replay(WORKER)).divergence is None

    run(case)


def test_an_invocation_that_is_taken_up_again_has_the_ids_that_it_had():
    async def case():
        source = LastingEngine()
        async with deployed(TRACER, "tracer", source) as shem:
            ids = await traced(shem, "k")
        for count in range(2, len(worker_entries(source, WORKER))):
            target = LastingEngine()
            copy_oplog(source, target, WORKER, count)
            async with opened(target) as shem:
                assert await traced(shem, "k") == ids, count

    run(case)


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        (SpanStarted, {"attributes": {"name": "other"}}),
        (SpanAttribute, {"value": "other"}),
        (SpanFinished, {"span_id": "00f067aa0ba902b7"}),
    ],
)
def test_a_span_other_than_the_recorded_one_is_a_divergence(kind, change):
    def tampered(entries):
        return [(i, replace(e, **change) if isinstance(e, kind) else e) for i, e in entries]

    async def case():
        source, target = LastingEngine(), LastingEngine()
        async with deployed(TRACER, "tracer", source) as shem:
            await traced(shem, "k")
        copy_oplog(source, target, WORKER, len(worker_entries(source, WORKER)), tampered)
        async with opened(target) as shem:
            with pytest.raises(Divergence) as found:
                await shem.invoke(WORKER, "trace", ["again"])
            assert kind in {
                type(entry)
                for index, entry in worker_entries(target, WORKER)
                if index == found.value.index
            }

    run(case)
