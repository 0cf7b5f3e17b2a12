"""Who waits for a promise is woken however many wait, and others get their turn meanwhile."""

import pytest
import trio
from trio.testing import trio_test

from executor.services.promises import PromiseId, PromiseRow, creation, encode_row
from executor.worker import wakeups
from executor.worker.wakeups import Wakeups, promise_prefix
from oplog.engine import Batch, Row
from oplog.memory_engine import MemoryEngine
from tests.support.sources import FakeSources
from tests.support.stores import memory_stores

PROMISE = PromiseId(b"m" * 16, 3)
PENDING = PromiseId(b"m" * 16, 4)
COUNT = 500


class Looked(MemoryEngine):
    """Tells when rows of waiters are read, and of promises."""

    def __init__(self):
        super().__init__()
        self.told = []
        self.promises_read = []

    def read_row(self, table, key):
        if table == "promises":
            self.promises_read.append(key)
        return super().read_row(table, key)

    def read_rows(self, table, *arguments, **more):
        page = super().read_rows(table, *arguments, **more)
        if table == "wakeups" and page:
            self.told.append("page")
        return page


def put(engine, *rows):
    assert engine.write([Batch(rows=rows)]) == [None]


def waiter(number, promise):
    return Row("wakeups", promise_prefix(str(promise)) + number.to_bytes(16, "big"), b"")


@trio_test
async def test_waiters_are_woken_a_page_at_a_time_and_others_run_between_pages(monkeypatch):
    monkeypatch.setattr(wakeups, "PAGE_ROWS", 50)
    engine = Looked()
    completed = encode_row(PromiseRow(created_at=1, completed_at=2, value=b"x"))
    put(engine, creation(PENDING, 1), Row("promises", PROMISE.row_key, completed))
    for promise in (PROMISE, PENDING):
        put(engine, *(waiter(number, promise) for number in range(COUNT)))
    promises = memory_stores(engine).promises
    waking = Wakeups(engine, FakeSources(), promises)
    woken = []
    waking.wake = woken.append

    async def others():
        while True:
            engine.told.append("turn")
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(waking.run)
        nursery.start_soon(others)
        for start in (lambda: promises.on_settled(PROMISE), waking.start_over):
            woken.clear()
            engine.told.clear()
            engine.promises_read.clear()
            start()
            with trio.fail_after(20):
                while len(woken) < COUNT:
                    await trio.lowlevel.checkpoint()
            assert woken == [number.to_bytes(16, "big") for number in range(COUNT)]
            assert engine.told.count("page") >= COUNT // 50
            assert "page page" not in " ".join(engine.told)
            assert len(engine.promises_read) <= 2, "one reading a promise, however many wait"
        nursery.cancel_scope.cancel()


@trio_test
async def test_whether_a_promise_is_settled_is_seen_without_its_value():
    engine = MemoryEngine()
    row = encode_row(PromiseRow(created_at=1, completed_at=2, value=b"value"))
    put(engine, Row("promises", PROMISE.row_key, row.replace(b"\xc4\x05value", b"\xa5value")))
    promises = memory_stores(engine).promises
    assert promises.is_settled(PROMISE), "a value of another type is passed over"
    assert promises.is_settled(PENDING), "it is gone"
    put(engine, creation(PENDING, 1))
    assert not promises.is_settled(PENDING)


@trio_test
async def test_a_complete_promise_is_read_once_by_all_who_ask_and_others_each_time():
    engine = Looked()
    completed = encode_row(PromiseRow(created_at=1, completed_at=2, value=b"x" * 1_000_000))
    put(engine, Row("promises", PROMISE.row_key, completed), creation(PENDING, 1))
    promises = memory_stores(engine).promises
    for _ in range(10):
        assert promises.is_settled(PROMISE)
        assert not promises.is_settled(PENDING)
    assert engine.promises_read.count(PROMISE.row_key) == 1
    gone = PromiseId(b"m" * 16, 5)
    assert promises.is_settled(gone), "nobody has made it, or it is gone"
    put(engine, creation(gone, 1))
    assert not promises.is_settled(gone), "a name that was guessed before it was made"
    put(engine, Row("promises", PROMISE.row_key, None))
    assert promises.is_settled(PROMISE), "gone"


@pytest.mark.parametrize("name", [b"", b"zz/1", b"6d/x", b"\xff/1"])
@trio_test
async def test_a_row_with_a_damaged_name_wakes_its_worker_and_holds_up_no_other(name):
    engine = MemoryEngine()
    completed = encode_row(PromiseRow(created_at=1, completed_at=2))
    put(engine, Row("promises", PROMISE.row_key, completed), waiter(2, PROMISE))
    put(engine, Row("wakeups", b"p" + name + b"\0" + (1).to_bytes(16, "big"), b""))
    waking = Wakeups(engine, FakeSources(), memory_stores(engine).promises)
    woken = []
    waking.wake = woken.append
    assert waking.is_settled([name.decode(errors="replace")])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(waking.run)
        waking.start_over()
        with trio.fail_after(20):
            while len(woken) < 2:
                await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    assert sorted(woken) == [number.to_bytes(16, "big") for number in (1, 2)]
