import os
import time

import pytest

from oplog.engine import Row
from oplog.entry import BeginAtomicRegion, NoOp, Raw, Start
from oplog.errors import OplogError, OplogFullError
from oplog.reader import Reader
from oplog.writer import ASK_ENTRIES, FULL_BYTES
from tests.support.engines import Heard, Hold, committed, log_of, refuse_for

ENTRY = NoOp(at=1)
MIB = 1 << 20


def eventually(condition):
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


def test_a_buffer_of_1024_entries_asks_for_its_commit(store):
    writer = store.writer(os.urandom(16), 0)
    for _ in range(ASK_ENTRIES - 1):
        writer.append(ENTRY)
    time.sleep(0.02)
    assert writer.committed_index == 0
    writer.append(ENTRY)
    eventually(lambda: writer.committed_index == ASK_ENTRIES)
    for _ in range(ASK_ENTRIES):
        writer.append(ENTRY)
    eventually(lambda: writer.committed_index == 2 * ASK_ENTRIES)


def test_a_buffer_of_one_mebibyte_asks_for_its_commit(store):
    writer = store.writer(os.urandom(16), 0)
    for round_number in (1, 2):
        for _ in range(21):
            writer.append(log_of(50_000))
        eventually(lambda wanted=21 * round_number: writer.committed_index == wanted)


def test_payloads_count_towards_the_buffer(store):
    writer = store.writer(os.urandom(16), 0)
    content = Raw(b"\xc6" + MIB.to_bytes(4, "big") + bytes(MIB))
    writer.append(Start(at=1, function="f", function_type="t", request=content))
    eventually(lambda: writer.committed_index == 1)
    (_, entry), *_ = Reader(store.engine).read(writer.worker_id, 1, 1)
    assert len(entry.request) == 35
    assert bytes(store.resolve(entry.request)) == bytes(content)
    small = Raw(b"\x90")
    assert store.resolve(small) is small


def test_a_full_writer_is_drained_by_the_commit_in_flight_and_wakes_once(store, engine):
    hold = engine.on_write = Hold()
    writer = store.writer(os.urandom(16), 0)
    while not writer.full:
        writer.append(log_of(MIB))
    assert writer.buffered_bytes >= FULL_BYTES
    woken = Heard()
    writer.on_drained(woken)
    assert woken.calls == []
    hold.go.set()
    woken.wait()
    assert woken.threads == ["oplog-committer"]
    assert not writer.full
    writer.append(ENTRY)
    assert committed(writer) is None
    assert len(woken.calls) == 1


def test_a_writer_that_was_drained_before_it_was_asked_wakes_all_the_same(store):
    writer = store.writer(os.urandom(16), 0)
    woken = Heard()
    writer.on_drained(woken)
    woken.wait()


def test_discarding_drops_what_is_not_in_flight(store, engine):
    hold = engine.on_write = Hold()
    writer = store.writer(os.urandom(16), 0)
    first, same, lost = Heard(), Heard(), Heard()
    writer.append(ENTRY)
    writer.commit(first)
    assert hold.entered.wait(30)
    writer.commit(same)
    writer.append(BeginAtomicRegion(at=2))
    writer.append(Start(at=1, function="f", function_type="t", request=Raw(bytes(99_999))))
    writer.attach([Row("promises", b"lost", b"")])
    writer.commit(lost)
    writer.discard()
    assert writer.last_index == 1
    hold.go.set()
    assert first.wait() is None
    assert same.wait() is None
    assert "discarded" in str(lost.wait())
    assert writer.failed is None
    assert writer.buffered_bytes == 0
    assert writer.append(ENTRY) == 2
    assert committed(writer) is None
    assert store.engine.last_index(writer.worker_id) == 2
    assert wrote_alone(engine)


def test_a_loss_takes_with_it_what_was_appended_meanwhile_with_rows_and_large_values(store, engine):
    writer = store.writer(os.urandom(16), 0)
    hold, full, failed = Hold(), OplogFullError("no room"), Heard()

    def held_and_refused(batches):
        hold(batches)
        return [full]

    engine.on_write = held_and_refused
    writer.append(ENTRY)
    writer.commit(failed)
    assert hold.entered.wait(30)
    writer.append(Start(at=1, function="f", function_type="t", request=Raw(bytes(99_999))))
    writer.attach([Row("promises", b"lost", b"")])
    hold.go.set()
    assert failed.wait() is full
    engine.on_write = lambda _: None
    writer.clear_failure()
    assert writer.append(ENTRY) == 1
    assert committed(writer) is None
    assert wrote_alone(engine)


def wrote_alone(engine):
    """Whether the last transaction held one entry and nothing else."""
    [batch] = engine.groups[-1]
    return (len(batch.entries), list(batch.rows), list(batch.payloads)) == (1, [], [])


@pytest.mark.parametrize("waited_for", [True, False], ids=["asked for", "by itself"])
def test_a_loss_is_told_once_whoever_asked_for_the_commit(store, engine, waited_for):
    writer = store.writer(os.urandom(16), 0)
    other = store.writer(os.urandom(16), 0)
    writer.on_failed, other.on_failed = Heard(), Heard()
    full = OplogFullError("no room")
    engine.on_write = refuse_for(writer.worker_id, full)
    if waited_for:
        writer.append(ENTRY)
        assert committed(writer) is full
    else:
        for _ in range(ASK_ENTRIES):
            writer.append(ENTRY)
    other.append(ENTRY)
    assert committed(other) is None
    assert writer.on_failed.wait() is full
    assert writer.on_failed.threads == ["oplog-committer"]
    assert committed(writer) is full  # nothing more is lost by asking again
    store.close()
    assert writer.on_failed.calls == [full]


def test_every_writer_hears_that_the_store_is_lost_though_it_asked_for_nothing(store, engine):
    idle = store.writer(os.urandom(16), 0)
    idle.on_failed = Heard()
    writer = store.writer(os.urandom(16), 0)

    def broken(_batches):
        raise OplogError("the disk is gone")

    engine.on_write = broken
    writer.append(ENTRY)
    assert str(committed(writer)) == "the disk is gone"
    assert str(idle.on_failed.wait()) == "the disk is gone"
