"""A worker keeps objects: of any size in little memory, whole or not at all, each write once."""

from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
import trio.testing

from executor.services.environment import MIB, StoreLimits
from executor.wasm.values import Err, Ok
from oplog.engine import Batch, Row
from oplog.entry import End, Start
from oplog.lmdb_engine import LmdbEngine
from tests.support import guests
from tests.support.executors import (
    LastingEngine,
    copy_oplog,
    opened,
    run,
    until,
    worker_entries,
)

W = "keeper/w"
PIECE = bytes(range(256)) * 256


def total(times, piece=PIECE):
    return Ok((times * len(piece), times * sum(piece) % 2**32))


@asynccontextmanager
async def keeper(engine, **options):
    async with opened(engine, **options) as shem:
        await shem.deploy(guests.keeper_component(), name="keeper")
        yield shem


def rows_of(engine, kind):
    return engine.read_rows("blobs", prefix=kind, limit=10_000)


async def until_no_garbage(engine):
    with trio.fail_after(10):
        await until(lambda: rows_of(engine, b"g") == [])


@trio.testing.trio_test
async def test_objects_are_shared_by_workers_and_outlive_the_executor():
    engine = LastingEngine()
    async with keeper(engine) as shem:
        assert await shem.invoke(W, "store", ["o", PIECE, 3]) == Ok()
        assert await shem.invoke("keeper/other", "sum", ["o"]) == total(3)
        assert "no object 'p'" in (await shem.invoke(W, "sum", ["p"])).value
    async with opened(engine) as shem:
        assert await shem.invoke("keeper/new", "sum", ["o"]) == total(3)
        await shem.invoke(W, "store", ["o", b"new", 1])
        for worker in (W, "keeper/other", "keeper/new"):
            assert (await shem.replay(worker)).divergence is None
            assert (await shem.crash(worker)).divergence is None
        assert await shem.invoke("keeper/new", "sum", ["o"]) == total(1, b"new")


@pytest.mark.parametrize(("piece", "times"), [(b"12345", 3), (PIECE, 17)], ids=["small", "large"])
def test_a_crash_at_any_entry_writes_once_and_reads_the_same(piece, times):
    """What was read of the object before a crash is read from the record, the rest from the store:
    nobody has written it since.
    """

    async def test():
        engine = LastingEngine()
        states = []
        async with keeper(engine) as shem:
            engine.on_write = lambda _: states.append(stored(engine))
            assert await shem.invoke(W, "store", ["o", piece, times], key="store") == Ok()
            assert await shem.invoke(W, "sum", ["o"], key="sum") == total(times, piece)
        after = stored(engine)
        before = max((state for state in states if not has_object(state)), key=len)
        entries = worker_entries(engine, W)
        write = next(
            index
            for index, entry in entries
            if isinstance(entry, Start) and entry.function.endswith("write-data")
        )
        ended = next(i for i, e in entries if isinstance(e, End) and e.start_index == write)
        last = len(entries)
        near = range(2, last + 1) if times < 5 else (write, ended, ended + 6, last - 20, last)
        for count in near:
            if count < ended:
                await taken_up(engine, count, before)
            if count >= write:
                await taken_up(engine, count, after)

    async def taken_up(engine, count, state):
        target = LastingEngine()
        copy_oplog(engine, target, W, count)
        target.write([Batch(rows=[Row(*row) for row in state])])
        async with opened(target, recover="all") as shem:
            with trio.fail_after(10):
                await shem.invoke(W, "store", ["o", piece, times], key="store")
                assert await shem.invoke(W, "sum", ["o"], key="sum") == total(times, piece)
            assert await shem.invoke(W, "sum", ["o"]) == total(times, piece)
            assert (await shem.replay(W)).divergence is None
            await until_no_garbage(target)
            assert len(rows_of(target, b"p")) == len(rows_of(engine, b"p"))

    run(test)


def has_object(state):
    return any(key[:1] == b"o" for table, key, _ in state if table == "blobs")


def stored(engine):
    return [
        (table, key, value)
        for table in ("blobs", "keyvalue")
        for key, value in engine.read_rows(table, limit=10_000)
    ]


def test_an_object_of_many_mebibytes_passes_in_little_memory(tmp_path):
    """Of its own: what is mapped of the store's file is the system's to take back."""
    times = 64 * 16

    async def test():
        async with keeper(LmdbEngine.open(tmp_path / "store")) as shem:
            assert await shem.invoke(W, "store", ["small", PIECE, 32]) == Ok()
            assert await shem.invoke(W, "sum", ["small"]) == total(32)
            before = own_kib()
            async with trio.open_nursery() as nursery:
                grown = [0]
                nursery.start_soon(watch, grown, before)
                assert await shem.invoke(W, "store", ["large", PIECE, times]) == Ok()
                assert await shem.invoke(W, "sum", ["large"]) == total(times)
                nursery.cancel_scope.cancel()
            print(f"{times // 16} MiB in and out: {max(grown)} KiB more at most")
            assert max(grown) < 32 * 1_024

    async def watch(grown, before):
        while True:
            grown.append(own_kib() - before)
            await trio.sleep(0.02)

    run(test)


def own_kib():
    """Memory that is no file's."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))


@trio.testing.trio_test
async def test_a_full_environment_is_an_error_and_leaves_nothing_behind():
    engine = LastingEngine()
    async with keeper(engine, store_limits=StoreLimits(environment_bytes_max=3 * MIB)) as shem:
        assert await shem.invoke(W, "store", ["a", PIECE, 32]) == Ok()
        failed = await shem.invoke(W, "store", ["b", PIECE, 32])
        assert isinstance(failed, Err)
        assert "is full: it may hold 3145728 bytes" in failed.value
        assert await shem.invoke(W, "clear", []) == Ok()
        await until_no_garbage(engine)
        assert rows_of(engine, b"p") == []
        assert await shem.invoke(W, "store", ["b", PIECE, 32]) == Ok()
        await until_no_garbage(engine)
        pieces = len(rows_of(engine, b"p"))
        assert pieces == -(-2 * MIB // 65_520)


@trio.testing.trio_test
async def test_garbage_that_a_process_left_is_taken_away_by_the_next(tmp_path):
    engine = LastingEngine()
    async with keeper(engine) as shem:
        await shem.invoke(W, "store", ["a", PIECE, 32])
        marks = [Row("blobs", b"gc" + bytes(16), (200_000).to_bytes(8, "big"))]
        pieces = [Row("blobs", b"p" + bytes(16) + n.to_bytes(4, "big"), b"x") for n in range(4)]
        held = rows_of(engine, b"")
    engine.write([Batch(rows=[*marks, *pieces])])
    async with opened(engine):
        await until_no_garbage(engine)
        assert rows_of(engine, b"") == held


@pytest.mark.parametrize("name", ["", "\0", "o" * 1_024])
def test_an_object_may_have_any_name(name):
    async def test():
        async with keeper(LastingEngine()) as shem:
            assert await shem.invoke(W, "store", [name, b"1", 2]) == Ok()
            assert await shem.invoke(W, "sum", [name]) == total(2, b"1")
            too_long = await shem.invoke(W, "store", ["x" * 1_025, b"1", 1])
            assert "at most 1024 bytes" in too_long.value

    run(test)
