import logging
import os
import threading

import pytest

from oplog.engine import Batch, BatchRefusedError, Row
from oplog.entry import BeginAtomicRegion, NoOp, Raw, Start
from oplog.errors import FencedError, OplogError, OplogFullError
from oplog.reader import Reader
from oplog.store import Store
from oplog.writer import ASK_ENTRIES
from tests.support.engines import Heard, Hold, committed, refuse_for

ENTRY = NoOp(at=1)
MIB = 1 << 20


# What is appended, what is durable.


def test_entries_have_indices_from_one_and_are_durable_when_the_callback_comes(store):
    writer = store.writer(os.urandom(16), 0)
    assert [writer.append(ENTRY) for _ in range(3)] == [1, 2, 3]
    assert (writer.last_index, writer.committed_index) == (3, 0)
    assert writer.buffered_bytes > 0
    assert store.engine.last_index(writer.worker_id) == 0
    assert committed(writer) is None
    assert (writer.last_index, writer.committed_index, writer.buffered_bytes) == (3, 3, 0)
    assert Reader(store.engine).read(writer.worker_id, 2, 10) == [(2, ENTRY), (3, ENTRY)]


def test_a_writer_goes_on_behind_the_last_committed_entry(store):
    first = store.writer(os.urandom(16), 0)
    first.append(ENTRY)
    assert committed(first) is None
    second = store.writer(first.worker_id, store.engine.last_index(first.worker_id))
    assert second.append(BeginAtomicRegion(at=2)) == 2
    assert committed(second) is None
    assert store.engine.last_index(first.worker_id) == 2


def test_a_commit_with_nothing_appended_is_answered_without_a_transaction(store, engine):
    writer = store.writer(os.urandom(16), 0, lambda: [Row("workers", b"k", b"v")])
    assert committed(writer) is None
    assert engine.groups == []


def test_callbacks_run_on_the_committer_thread_in_the_order_of_asking(store, engine):
    hold = engine.on_write = Hold()
    writers = [store.writer(os.urandom(16), 0) for _ in range(5)]
    order = []
    done = Heard()
    for number, writer in enumerate(writers):
        writer.append(ENTRY)
        writer.commit(lambda _, number=number: order.append(number))
    store.submit(Batch(rows=[Row("meta", b"k", b"v")]), done)
    hold.go.set()
    assert done.wait() is None
    assert order == [0, 1, 2, 3, 4]
    assert done.threads == ["oplog-committer"]


def test_everything_asked_for_during_a_commit_is_written_in_the_next_one(store, engine):
    hold = engine.on_write = Hold()
    writers = [store.writer(os.urandom(16), 0) for _ in range(64)]
    heard = [Heard() for _ in writers]
    writers[0].append(ENTRY)
    writers[0].commit(heard[0])
    assert hold.entered.wait(30)
    for writer, one in list(zip(writers, heard, strict=True))[1:]:
        writer.append(ENTRY)
        writer.commit(one)
    hold.go.set()
    assert [one.wait() for one in heard] == [None] * 64
    assert [len(group) for group in engine.groups] == [1, 63]


def test_entries_appended_during_a_commit_are_not_called_durable_by_it(store, engine):
    hold = engine.on_write = Hold()
    writer = store.writer(os.urandom(16), 0)
    writer.append(ENTRY)
    first = Heard()
    writer.commit(first)
    assert hold.entered.wait(30)
    writer.append(ENTRY)
    hold.go.set()
    assert first.wait() is None
    assert (writer.committed_index, writer.last_index) == (1, 2)
    assert writer.buffered_bytes > 0
    assert committed(writer) is None
    assert writer.committed_index == 2


def test_rows_are_those_of_the_tail_that_is_committed_with_them(store, engine):
    seen = []

    def rows():
        seen.append((writer.last_index, threading.current_thread().name))
        return [Row("workers", writer.worker_id, b"%d" % writer.last_index)]

    writer = store.writer(os.urandom(16), 0, rows)
    for _ in range(7):
        writer.append(ENTRY)
    assert committed(writer) is None
    assert seen == [(7, "oplog-committer")]
    assert store.engine.read_row("workers", writer.worker_id) == b"7"
    (batch,) = engine.groups[0]
    assert len(batch.entries) == 7
    assert len(batch.rows) == 1


def test_status_rows_are_never_ahead_of_the_log_nor_behind_it(store):
    writer = store.writer(
        os.urandom(16), 0, lambda: [Row("workers", writer.worker_id, b"%d" % writer.last_index)]
    )
    stop = threading.Event()

    def append():
        while not stop.is_set():
            writer.append(ENTRY)
            if writer.last_index % 7 == 0:
                writer.commit(lambda _: None)

    thread = threading.Thread(target=append)
    thread.start()
    try:
        for _ in range(2000):
            before = store.engine.last_index(writer.worker_id)
            row = int(store.engine.read_row("workers", writer.worker_id) or b"0")
            assert before <= row <= store.engine.last_index(writer.worker_id)
    finally:
        stop.set()
        thread.join()


def test_appends_of_many_threads_get_each_index_once(store):
    writer = store.writer(os.urandom(16), 0)
    indices = []

    def append():
        indices.extend([writer.append(ENTRY) for _ in range(3000)])

    threads = [threading.Thread(target=append) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(indices) == list(range(1, 12001))
    assert committed(writer) is None
    assert store.engine.last_index(writer.worker_id) == 12000


# Failures.


def test_a_worker_without_room_fails_alone(store, engine):
    poor, rich = store.writer(os.urandom(16), 0), store.writer(os.urandom(16), 0)
    engine.on_write = refuse_for(poor.worker_id, OplogFullError("no room"))
    heard = [Heard(), Heard()]
    for writer, one in zip((poor, rich), heard, strict=True):
        writer.append(ENTRY)
        writer.commit(one)
    assert isinstance(heard[0].wait(), OplogFullError)
    assert heard[1].wait() is None
    assert (poor.last_index, poor.committed_index, poor.buffered_bytes) == (0, 0, 0)
    assert isinstance(poor.failed, OplogFullError)
    assert rich.failed is None
    assert store.closed_by is None


def test_a_failed_writer_refuses_until_its_failure_is_cleared(store, engine):
    writer = store.writer(os.urandom(16), 0)
    engine.on_write = refuse_for(writer.worker_id, OplogFullError("no room"))
    writer.append(ENTRY)
    assert isinstance(committed(writer), OplogFullError)
    for entry in (ENTRY, Start(at=1, function="f", function_type="t", request=Raw(bytes(99_999)))):
        with pytest.raises(OplogFullError, match="no room") as caught:
            writer.append(entry)
        assert caught.value is not writer.failed
    assert isinstance(committed(writer), OplogFullError)
    woken = Heard()
    writer.on_drained(woken)
    woken.wait()
    engine.on_write = lambda _: None
    writer.clear_failure()
    assert writer.append(ENTRY) == 1
    assert committed(writer) is None


def test_what_was_appended_during_a_failing_commit_is_lost_with_it(store, engine):
    writer = store.writer(os.urandom(16), 0)
    hold = Hold()
    refuse = refuse_for(writer.worker_id, OplogFullError("no room"))
    engine.on_write = lambda batches: hold(batches) or refuse(batches)
    first, second, woken = Heard(), Heard(), Heard()
    writer.append(ENTRY)
    writer.commit(first)
    assert hold.entered.wait(30)
    writer.append(ENTRY)
    writer.commit(second)
    writer.on_drained(woken)
    hold.go.set()
    assert isinstance(first.wait(), OplogFullError)
    assert isinstance(second.wait(), OplogFullError)
    woken.wait()
    assert len(engine.groups) == 1
    assert writer.last_index == 0


def test_a_writer_stands_in_the_queue_once_however_it_got_there(store, engine):
    writer = store.writer(os.urandom(16), 0)
    refuse = refuse_for(writer.worker_id, OplogFullError("no room"))
    hold = Hold()
    engine.on_write = lambda batches: hold(batches) or refuse(batches)
    queued, last = [], Heard()

    def go_on(_):
        writer.clear_failure()
        engine.on_write = lambda _: None
        for _ in range(2 * ASK_ENTRIES):
            writer.append(ENTRY)
        writer.commit(last)
        queued.append(store._asked.count(writer))

    writer.append(ENTRY)
    writer.commit(go_on)
    assert hold.entered.wait(30)
    writer.append(ENTRY)
    writer.commit(lambda _: None)
    hold.go.set()
    assert last.wait() is None
    assert queued == [1]
    assert store.engine.last_index(writer.worker_id) == 2 * ASK_ENTRIES


def test_an_engine_that_does_not_answer_for_each_batch_closes_the_store(engine, caplog):
    engine.on_write = lambda _: []
    store = Store(engine)
    writer = store.writer(os.urandom(16), 0)
    writer.append(ENTRY)
    assert "one result a batch" in str(committed(writer))
    store.close()
    assert store.closed_by is not None


def test_two_writers_of_one_worker_cannot_both_commit(store):
    worker_id = os.urandom(16)
    one, other = store.writer(worker_id, 0), store.writer(worker_id, 0)
    one.append(ENTRY)
    other.append(BeginAtomicRegion(at=2))
    assert committed(one) is None
    assert isinstance(committed(other), BatchRefusedError)
    assert Reader(store.engine).read(worker_id, 1, 10) == [(1, ENTRY)]


def test_a_writer_of_a_deleted_worker_cannot_bring_it_back(store):
    writer = store.writer(os.urandom(16), 0)
    writer.append(ENTRY)
    assert committed(writer) is None
    done = Heard()
    store.submit(Batch(deletes=[writer.worker_id]), done)
    assert done.wait() is None
    writer.append(ENTRY)
    assert isinstance(committed(writer), BatchRefusedError)
    assert store.engine.last_index(writer.worker_id) == 0


@pytest.mark.parametrize(
    "rows",
    [
        lambda: 1 // 0,
        lambda: [Row("nowhere", b"k", b"v")],
        lambda: (_ for _ in ()).throw(SystemExit),
    ],
    ids=["raises", "not a row of the store", "exits"],
)
def test_a_writer_whose_rows_cannot_be_made_fails_alone(store, caplog, rows):
    bad, good = store.writer(os.urandom(16), 0, rows), store.writer(os.urandom(16), 0)
    heard = [Heard(), Heard()]
    for writer, one in zip((bad, good), heard, strict=True):
        writer.append(ENTRY)
        writer.commit(one)
    error = heard[0].wait()
    assert isinstance(error, OplogError)
    assert "its rows cannot be made" in str(error)
    assert heard[1].wait() is None
    assert store.engine.last_index(bad.worker_id) == 0
    assert any(bad.worker_id.hex() in record.message for record in caplog.records)


@pytest.mark.parametrize("error", [ValueError("bug"), SystemExit(), KeyboardInterrupt()])
def test_a_callback_that_raises_is_logged_and_the_others_are_called(store, engine, caplog, error):
    def bad(_):
        raise error

    hold = engine.on_write = Hold()
    writer = store.writer(os.urandom(16), 0)
    heard = Heard()
    writer.append(ENTRY)
    writer.commit(bad)
    store.submit(Batch(rows=[Row("meta", b"k", b"v")]), bad)
    writer.commit(heard)
    hold.go.set()
    assert heard.wait() is None
    assert committed(writer) is None
    assert [r.levelno for r in caplog.records] == [logging.ERROR] * 2
    assert caplog.records[0].exc_info[1] is error


def test_a_batch_that_can_never_be_written_is_refused_at_once(store):
    heard = Heard()
    with pytest.raises(ValueError, match="no table"):
        store.submit(Batch(rows=[Row("nowhere", b"k", b"v")]), heard)
    assert heard.calls == []


def test_a_submitted_batch_that_is_refused_changes_nothing(store):
    worker_id = os.urandom(16)
    heard = Heard()
    rows = [Row("workers", worker_id, b"v")]
    store.submit(Batch(entries=[(worker_id, 5, b"\x80")], rows=rows), heard)
    assert isinstance(heard.wait(), BatchRefusedError)
    assert store.engine.read_row("workers", worker_id) is None
    assert store.closed_by is None


@pytest.mark.parametrize(
    "error", [FencedError("newer"), OplogError("broken disk"), RuntimeError("bug"), SystemExit()]
)
def test_any_other_failure_closes_the_store_and_everybody_hears_it(engine, caplog, error):
    hold = Hold()

    def fail(batches):
        hold(batches)
        raise error

    engine.on_write = fail
    store = Store(engine)
    asking, idle = store.writer(os.urandom(16), 0), store.writer(os.urandom(16), 0)
    heard = [Heard() for _ in range(4)]
    asking.append(ENTRY)
    idle.append(ENTRY)
    asking.commit(heard[0])
    assert hold.entered.wait(30)
    asking.append(ENTRY)
    asking.commit(heard[1])
    store.submit(Batch(rows=[Row("meta", b"k", b"v")]), heard[2])
    idle.on_drained(heard[3])
    hold.go.set()
    wanted = type(error) if isinstance(error, OplogError) else OplogError
    assert [type(one.wait()) for one in heard[:3]] == [wanted] * 3
    heard[3].wait()
    store.close()
    assert isinstance(store.closed_by, wanted)
    assert engine.closed
    for call in (
        lambda: asking.append(ENTRY),
        lambda: idle.append(ENTRY),
        lambda: idle.commit(Heard()),
        lambda: idle.on_drained(Heard()),
        lambda: store.writer(os.urandom(16), 0),
        lambda: store.submit(Batch(), Heard()),
    ):
        with pytest.raises(wanted, match=str(store.closed_by)[:10]):
            call()
    assert len(engine.groups) == 1
