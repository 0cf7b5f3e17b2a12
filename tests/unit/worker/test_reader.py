"""Reading a store a page at a time, while workers come, go and write."""

import secrets

import msgspec
import pytest

from executor.errors import StoreError, UsageError, WorkerDeleted, WorkerNotFound
from executor.services.components import RevisionRow, deployment
from executor.worker.reader import StoreReader
from executor.worker.rows import delete_rows, read_status, read_worker_id
from oplog.codec import encode_entry
from oplog.engine import Batch
from oplog.entry import (
    Create,
    Decision,
    End,
    InvocationStarted,
    Log,
    PendingInvocation,
    Raw,
)
from oplog.errors import OplogCorruptError
from oplog.memory_engine import MemoryEngine
from oplog.payload import INLINE_BYTES_MAX
from tests.support.engines import DelegatingEngine
from tests.support.executors import write_oplog

PAGE = 1_024
LINES = 2_500


class CountingEngine(DelegatingEngine):
    """Keeps how many entries each read answered."""

    def __init__(self, inner):
        super().__init__(inner)
        self.reads = []

    def read_entries(self, worker_id, first, limit):
        page = super().read_entries(worker_id, first, limit)
        self.reads.append(len(page))
        return page


def raw(value):
    return Raw(msgspec.msgpack.encode(value))


def add_worker(engine, name, *entries):
    worker_id = secrets.token_bytes(16)
    create = Create(at=1, name=name, component=name.partition("/")[0])
    write_oplog(engine, worker_id, list(enumerate((create, *entries), 1)))
    return worker_id


def append(engine, worker_id, index, entry):
    assert engine.write([Batch(entries=[(worker_id, index, encode_entry(entry))])]) == [None]


def delete_worker(engine, name):
    worker_id = read_worker_id(engine, name)
    rows = delete_rows(engine, worker_id, read_status(engine, worker_id))
    assert engine.write([Batch(rows=tuple(rows), deletes=(worker_id,))]) == [None]


def deploy(engine, name):
    row = RevisionRow(
        component=name,
        component_id="8d2f9c1e-0000-4000-8000-000000000001",
        revision=0,
        digest="ab",
        size_bytes=1,
        deployed_at=1,
        imports=(),
        exports=(),
    )
    assert engine.write([deployment(row, {"ab": b"x"})]) == [None]


@pytest.fixture
def engine():
    return MemoryEngine()


def pending(key):
    return PendingInvocation(at=1, key=key, function="f")


# -- oplogs ----------------------------------------------------------------------------------------


def test_an_oplog_is_read_a_page_at_a_time_and_no_further_than_asked(engine):
    add_worker(engine, "a/w", *(Log(at=1, level="stdout", text=f"{n}") for n in range(LINES)))
    counting = CountingEngine(engine)
    reader = StoreReader(counting)
    records = reader.oplog("a/w")
    assert next(records).index == 1
    assert max(counting.reads) <= PAGE
    assert sum(counting.reads) <= PAGE + 1_000  # the page, and the tail of the status
    assert [record.index for record in records] == list(range(2, LINES + 2))
    assert max(counting.reads) <= PAGE
    counting.reads.clear()
    assert [record.index for record in reader.oplog("a/w", 5, 3)] == [5, 6, 7]
    assert counting.reads[-1] == 3
    assert [record.index for record in reader.oplog("a/w", 0, 1)] == [1]
    assert list(reader.oplog("a/w", LINES + 2)) == []
    assert list(reader.oplog("a/w", 1, 0)) == []


def test_a_limit_counts_what_a_search_has_found(engine):
    add_worker(engine, "a/w", *(Log(at=1, level="stdout", text=f"line {n}") for n in range(LINES)))
    reader = StoreReader(engine)
    found = [record.index for record in reader.oplog("a/w", search="99")]
    assert found[:3] == [101, 201, 301]
    assert [record.index for record in reader.oplog("a/w", 150, 2, search="99")] == [201, 301]
    with pytest.raises(UsageError, match="closes nothing"):
        list(reader.oplog("a/w", search="line)"))


def test_a_large_value_is_searched_and_shown_whole_in_every_kind_of_entry(engine):
    large = raw("x" * INLINE_BYTES_MAX + "needle")
    worker_id = add_worker(
        engine,
        "a/w",
        PendingInvocation(at=1, key="k", function="f", arguments=large),
        InvocationStarted(at=1, key="k", function="f", arguments=large),
        End(at=1, start_index=9, response=large),
        Decision(at=1, start_index=9, choice="value", value=large),
    )
    stored = engine.read_entries(worker_id, 1, 9)
    assert all(len(encoded) < 200 for _, encoded in stored), "the values are beside the oplog"
    found = StoreReader(engine).oplog("a/w", search="needle")
    assert [record.index for record in found] == [2, 3, 4, 5]


def test_following_shows_each_entry_once_and_ends_with_a_word_when_the_worker_is_deleted(engine):
    worker_id = add_worker(engine, "a/w", pending("k1"))
    turns = iter(range(4))

    def wait():
        match next(turns):
            case 0:
                append(engine, worker_id, 3, Log(at=1, level="stdout", text="more"))
            case 2:
                append(engine, worker_id, 4, Log(at=1, level="stdout", text="still more"))
            case 3:
                delete_worker(engine, "a/w")
                add_worker(engine, "a/w", *(pending(f"{n}") for n in range(9)))

    seen = []

    records = StoreReader(engine).follow_oplog("a/w", wait=wait)
    with pytest.raises(WorkerDeleted, match="was deleted"):
        seen.extend(record.index for record in records)
    assert seen == [1, 2, 3, 4]


def test_an_oplog_whose_worker_is_deleted_meanwhile_just_ends(engine):
    large = raw("x" * INLINE_BYTES_MAX + "needle")
    logs = [Log(at=1, level="stdout", text="x")] * PAGE
    end = End(at=1, start_index=1, response=large)
    add_worker(engine, "a/w", *logs, end)
    records = StoreReader(engine).oplog("a/w")
    assert next(records).index == 1
    delete_worker(engine, "a/w")
    assert len(list(records)) == PAGE - 1

    class Deleting(DelegatingEngine):
        """Deletes the worker between an entry and the value that it refers to."""

        def read_payload(self, digest):
            delete_worker(self.inner, "a/w")
            return super().read_payload(digest)

    add_worker(engine, "a/w", end)
    assert list(StoreReader(Deleting(engine)).oplog("a/w")) == []

    class Damaged(DelegatingEngine):
        def read_payload(self, digest):
            raise OplogCorruptError("payload is not in the store")

    add_worker(engine, "a/w", end)
    with pytest.raises(StoreError, match="entry 2 is damaged: payload is not in the store") as told:
        list(StoreReader(Damaged(engine)).oplog("a/w"))
    assert (told.value.kind, told.value.where) == ("store-corrupt", "a/w")


# -- workers ---------------------------------------------------------------------------------------


def names(page):
    return [worker.worker for worker in page.workers]


def pages(reader, component=None, **options):
    page = reader.workers(component, **options)
    yield page
    while page.cursor is not None:
        page = reader.workers(component, cursor=page.cursor, **options)
        yield page


@pytest.mark.parametrize("limit", [1, 2, 3, 50])
def test_pages_of_workers_are_in_the_order_of_names_and_hold_each_once(engine, limit):
    deploy(engine, "a")
    deploy(engine, "b")
    long_ones = [f"a/{letter * 200}é{letter}" for letter in "xy"]
    wanted = sorted(["a/é", "a/m", *long_ones, "b/x", "b/y"])
    for name in wanted:
        add_worker(engine, name, *([pending("k")] if name == "a/m" else []))
    reader = StoreReader(engine)

    def listed(component=None, **options):
        found = [names(page) for page in pages(reader, component, limit=limit, **options)]
        assert all(len(page) <= limit for page in found)
        return [name for page in found for name in page]

    assert listed() == wanted
    assert listed("a") == [name for name in wanted if name.startswith("a/")]
    assert listed(status="idle") == wanted
    assert listed("b", status="idle") == ["b/x", "b/y"]
    assert listed(status="failed") == []


def test_workers_may_come_and_go_between_two_pages(engine):
    for name in ("a/1", "a/2", "a/3", "a/4"):
        add_worker(engine, name)
    reader = StoreReader(engine)
    first = reader.workers(limit=2)
    assert names(first) == ["a/1", "a/2"]
    delete_worker(engine, "a/2")
    delete_worker(engine, "a/3")
    add_worker(engine, "a/0")
    add_worker(engine, "a/5")
    second = reader.workers(limit=2, cursor=first.cursor)
    assert names(second) == ["a/4", "a/5"]
    assert names(reader.workers(limit=2, cursor=second.cursor)) == []


def test_a_worker_that_has_left_the_state_asked_for_is_not_listed_in_it(engine):
    """Index rows are read before the status is, and a worker goes on in between."""
    worker_id = add_worker(engine, "a/1")

    class Going(DelegatingEngine):
        def read_row(self, table, key):
            if table == "workers":
                started = InvocationStarted(at=1, key="k", function="f")
                append(self.inner, worker_id, 2, started)
            return super().read_row(table, key)

    assert names(StoreReader(Going(engine)).workers(status="idle")) == []


@pytest.mark.parametrize("cursor", ["next", "abc", "00", "612f3", "61", "é"])
def test_a_cursor_that_no_page_gave_is_refused(engine, cursor):
    with pytest.raises(UsageError, match="is no cursor"):
        StoreReader(engine).workers(cursor=cursor)


def test_a_worker_that_is_unknown_is_named(engine):
    with pytest.raises(WorkerNotFound, match="a/none"):
        next(StoreReader(engine).oplog("a/none"))
