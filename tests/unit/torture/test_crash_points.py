import threading
from uuid import UUID

import pytest
import trio

from executor.durable.effects import Effect
from executor.errors import UsageError
from executor.torture.crash_points import (
    CountingPoint,
    CrashingEngine,
    CrashPoint,
    crashing_perform,
    crashing_store,
    crashing_writer,
    parse_crash_point,
)
from oplog.codec import encode_entry
from oplog.engine import Batch, Row
from oplog.entry import InvocationFinished, NoOp, Outcome
from oplog.memory_engine import MemoryEngine
from oplog.store import Store

WORKER = UUID(int=7).bytes


class Killed(BaseException):
    pass


def die():
    raise Killed


def point(kind, number=1):
    return CrashPoint(kind, number, die)


@pytest.mark.parametrize(
    ("text", "kind", "number"),
    [
        ("append:1", "append", 1),
        ("commit:12", "commit", 12),
        ("before-effect:3", "before-effect", 3),
        ("after-effect:3", "after-effect", 3),
        ("before-result", "before-result", 1),
        ("after-result", "after-result", 1),
        ("before-result:2", "before-result", 2),
        ("after-result:3", "after-result", 3),
    ],
)
def test_every_point_is_written_as_documented(text, kind, number):
    parsed = parse_crash_point(text)
    assert (parsed.kind, parsed._left) == (kind, number)


def test_a_bad_point_is_refused_with_the_forms_there_are():
    with pytest.raises(UsageError, match="is not a crash point") as refused:
        parse_crash_point("before-result:0")
    assert "append:N, commit:N, before-effect:N, after-effect:N" in refused.value.hint


def test_a_kind_that_is_reached_often_needs_its_number():
    with pytest.raises(UsageError, match="'append' is not a crash point"):
        parse_crash_point("append")


def test_a_counting_point_kills_nobody_and_counts_every_kind():
    counting = CountingPoint()
    for kind in ("append", "commit", "append"):
        counting.reach(kind)
    assert counting.counts == {"append": 2, "commit": 1}


def test_only_events_of_its_own_kind_count():
    chosen = point("append", 2)
    chosen.reach("commit")
    chosen.reach("append")
    chosen.reach("before-result")
    with pytest.raises(Killed):
        chosen.reach("append")
    chosen.reach("append")


def test_a_writer_dies_after_the_entry_is_ordered_and_before_it_is_committed():
    engine = MemoryEngine()
    store = Store(engine)
    store.writer_class = crashing_writer(point("append", 2))
    writer = store.writer(WORKER, 0)
    assert writer.append(NoOp(at=1)) == 1
    with pytest.raises(Killed):
        writer.append(NoOp(at=2))
    assert (writer.last_index, writer.committed_index) == (2, 0)
    assert engine.last_index(WORKER) == 0
    store.close()


def test_before_result_dies_at_the_first_outcome_only():
    store = Store(MemoryEngine())
    store.writer_class = crashing_writer(point("before-result"))
    writer = store.writer(WORKER, 0)
    writer.append(NoOp(at=1))
    with pytest.raises(Killed):
        writer.append(InvocationFinished(at=2, outcome=Outcome(exit=0)))
    assert writer.last_index == 2
    store.close()


def test_entries_of_all_workers_and_threads_count_together():
    deaths = []
    chosen = CrashPoint("append", 40, lambda: deaths.append(threading.get_ident()))
    store = Store(MemoryEngine())
    store.writer_class = crashing_writer(chosen)
    writers = [store.writer(UUID(int=n).bytes, 0) for n in range(1, 5)]
    threads = [
        threading.Thread(target=lambda w=writer: [w.append(NoOp(at=1)) for _ in range(10)])
        for writer in writers
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(deaths) == 1
    store.close()


def batch(index, entry):
    return Batch(entries=((WORKER, index, encode_entry(entry)),))


def test_an_engine_dies_when_the_transaction_has_returned():
    inner = MemoryEngine()
    engine = CrashingEngine(inner, point("commit", 2))
    assert engine.write([batch(1, NoOp(at=1))]) == [None]
    with pytest.raises(Killed):
        engine.write([batch(2, NoOp(at=1))])
    assert inner.last_index(WORKER) == 2


def test_after_result_dies_once_the_outcome_is_committed():
    inner = MemoryEngine()
    engine = CrashingEngine(inner, point("after-result"))
    engine.write([batch(1, NoOp(at=1))])
    with pytest.raises(Killed):
        engine.write([batch(2, InvocationFinished(at=1, outcome=Outcome(exit=0)))])
    assert inner.last_index(WORKER) == 2


def test_an_outcome_that_was_refused_is_no_result():
    engine = CrashingEngine(MemoryEngine(), point("after-result"))
    [refused] = engine.write([batch(9, InvocationFinished(at=1, outcome=Outcome(exit=0)))])
    assert refused is not None


def test_everything_else_of_the_engine_goes_through():
    inner = MemoryEngine()
    engine = CrashingEngine(inner, point("commit", 99))
    engine.write([Batch(rows=(Row("keyvalue", b"a", b"1"), Row("keyvalue", b"b", b"2")))])
    engine.write([batch(1, NoOp(at=1))])
    assert engine.epoch == inner.epoch
    assert engine.read_entries(WORKER, 1, 5) == inner.read_entries(WORKER, 1, 5)
    assert engine.last_index(WORKER) == 1
    assert engine.read_row("keyvalue", b"a") == b"1"
    assert engine.read_rows("keyvalue", after=b"a", limit=5) == [(b"b", b"2")]
    engine.probe()
    engine.close()
    assert inner.read_row.__self__ is inner


def effect(function_type, ran):
    async def run():
        ran.append(function_type)
        return "answer"

    return Effect(function="a:b/c.d", function_type=function_type, key="k", run=run)


@pytest.mark.parametrize(
    ("kind", "runs"),
    [
        ("before-effect", ["read-local", "read-remote"]),
        ("after-effect", ["read-local", "read-remote", "write-remote"]),
    ],
)
def test_only_remote_effects_count_and_after_is_after_they_ran(kind, runs):
    ran = []
    perform = crashing_perform(point(kind, 2))

    async def calls():
        assert await perform(effect("read-local", ran)) == "answer"
        assert await perform(effect("read-remote", ran)) == "answer"
        await perform(effect("write-remote", ran))

    with pytest.raises(Killed):
        trio.run(calls)
    assert ran == runs


def test_a_crash_point_opens_its_own_store_with_wrapped_engine_and_writers(tmp_path):
    store = crashing_store(tmp_path / "store", point("append"))
    assert isinstance(store.engine, CrashingEngine)
    with pytest.raises(Killed):
        store.writer(WORKER, 0).append(NoOp(at=1))
    store.close()
