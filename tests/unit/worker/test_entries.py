"""Pages of a worker's entries: bounded in number and in bytes, with large values in place."""

from executor.worker.entries import PAGE_VALUE_BYTES, WorkerEntries
from oplog.codec import encode_value
from oplog.entry import Create, End, HostStreamFrame, Raw
from oplog.memory_engine import MemoryEngine
from oplog.payload import INLINE_BYTES_MAX, REFERENCE_BYTES
from oplog.reader import PAGE_BYTES, STEP_ENTRIES, Reader
from oplog.store import Store
from tests.support.executors import LastingEngine
from tests.support.python_guest import WORKER_ID, write

LARGE = Raw(encode_value(bytes(INLINE_BYTES_MAX + 1)))


def entries_of(*entries):
    engine = MemoryEngine()
    store = Store(LastingEngine(engine))
    write(store, entries)
    store.close()
    return WorkerEntries(Reader(engine), WORKER_ID)


def end(index, content):
    return End(at=index, start_index=index, response=Raw(encode_value(content)))


def pages(entries):
    found = []
    while page := entries.page(1 + sum(map(len, found))):
        found.append(page)
    return found


def test_small_entries_come_a_thousand_at_a_time():
    create = Create(at=1, name="c/w", component="c")
    found = pages(entries_of(create, *(end(index, index) for index in range(2, 2501))))
    assert [len(page) for page in found] == [1024, 1024, 452]
    assert [index for page in found for index, _ in page] == list(range(1, 2501))


def test_entries_that_are_not_so_small_end_a_page_by_their_bytes():
    """A body of 60 KB a piece, as it is read from a stream."""
    content = bytes(60_000)
    found = pages(entries_of(*(end(index, content) for index in range(1, 1001))))
    assert sum(map(len, found)) == 1000
    for page in found:
        before_last_step = len(page) - STEP_ENTRIES
        assert before_last_step * len(content) < PAGE_BYTES


def test_large_values_end_a_page_and_a_replay_does_not_look_at_those_of_frames():
    frame = HostStreamFrame(at=1, parent_start=1, stream="request-body", payload=LARGE)
    entries = entries_of(*[frame] * 300)
    page = entries.page(1)
    assert len(page) < 300
    assert sum(len(entry.payload) for _, entry in page) < PAGE_VALUE_BYTES + 2 * INLINE_BYTES_MAX
    assert {len(entry.payload) for _, entry in page} == {len(LARGE)}
    replayed = entries.replayed(1, 1024)
    assert [index for index, _ in replayed] == list(range(1, 301))
    assert {len(entry.payload) for _, entry in replayed} == {REFERENCE_BYTES}
    assert entries.frame(300) == bytes(INLINE_BYTES_MAX + 1)
