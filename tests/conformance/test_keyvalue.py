"""A worker keeps values in buckets: durable, shared, each write once however often it is lost."""

from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from executor.services.environment import StoreLimits, last_write_key
from executor.wasm.values import Err, Ok
from executor.worker.rows import read_worker_id
from oplog.engine import Batch, Row
from oplog.entry import InvocationFinished, Start
from oplog.errors import OplogFullError
from tests.support import guests
from tests.support.executors import (
    LastingEngine,
    Traces,
    copy_oplog,
    opened,
    run,
    until,
    worker_entries,
)

W = "keeper/w"
TIMES = 3


@asynccontextmanager
async def keeper(engine, **options):
    async with opened(engine, **options) as shem:
        await shem.deploy(guests.keeper_component(), name="keeper")
        yield shem


@trio.testing.trio_test
async def test_values_are_shared_by_workers_and_outlive_the_executor():
    engine = LastingEngine()
    async with keeper(engine) as shem:
        assert await shem.invoke(W, "put", ["b", "k", "v"]) == Ok()
        assert await shem.invoke("keeper/other", "look", ["b", "k"]) == Ok("v")
        assert await shem.invoke("keeper/other", "look", ["c", "k"]) == Ok(None)
    async with opened(engine) as shem:
        assert await shem.invoke("keeper/new", "look", ["b", "k"]) == Ok("v")
        for worker in (W, "keeper/other", "keeper/new"):
            assert (await shem.replay(worker)).divergence is None
            assert (await shem.crash(worker)).divergence is None


def test_a_crash_at_every_entry_counts_each_step_once():
    """Whatever was applied of the write that was lost: nothing, or all of it."""

    async def test():
        engine = LastingEngine()
        states = []
        async with keeper(engine) as shem:
            engine.on_write = lambda _: states.append(engine.read_rows("keyvalue"))
            assert await shem.invoke(W, "count-up", ["n", TIMES], key="k") == Ok(TIMES)
        states.append(engine.read_rows("keyvalue"))
        entries = worker_entries(engine, W)
        writes = [
            index
            for index, entry in entries
            if isinstance(entry, Start) and entry.function_type == "write-remote"
        ]
        assert len(writes) == 2 * TIMES
        distinct = [state for n, state in enumerate(states) if n == 0 or state != states[n - 1]]
        assert len(distinct) == 2 * TIMES + 1
        for count in range(2, len(entries) + 1):
            begun = len([index for index in writes if index <= count])
            ended = len(
                [e for i, e in entries if i <= count and getattr(e, "start_index", 0) in writes]
            )
            for done in {ended, begun}:
                await taken_up(engine, count, distinct[done])

    async def taken_up(engine, count, rows):
        target = LastingEngine()
        copy_oplog(engine, target, W, count)
        target.write([Batch(rows=[Row("keyvalue", key, value) for key, value in rows])])
        async with opened(target, recover="all") as shem:
            with trio.fail_after(10):
                outcome = await shem.wait(W, "k")
            assert outcome.value == Ok(TIMES)
            assert await shem.invoke("keeper/x", "look", ["counts", "n"]) == Ok(str(TIMES))
            assert await shem.invoke("keeper/x", "look", ["counts", "last"]) == Ok(str(TIMES))

    run(test)


@trio.testing.trio_test
async def test_many_workers_count_together():
    engine = LastingEngine()
    async with keeper(engine) as shem:
        async with trio.open_nursery() as nursery:
            for number in range(10):
                nursery.start_soon(shem.invoke, f"keeper/{number}", "count-up", ["n", 10])
        assert await shem.invoke(W, "look", ["counts", "n"]) == Ok("100")
        for number in range(10):
            assert (await shem.replay(f"keeper/{number}")).divergence is None


@trio.testing.trio_test
async def test_a_replay_gets_the_same_answers_without_the_store():
    engine, traces = LastingEngine(), Traces()
    with traces.installed():
        async with keeper(engine) as shem:
            await shem.invoke(W, "put", ["b", "k", "v"])
            await shem.invoke(W, "look", ["b", "k"])
            await shem.invoke("keeper/other", "put", ["b", "k", "other"])
            assert (await shem.replay(W)).divergence is None
    live, _, replayed = traces.calls
    assert live == replayed
    assert live


@trio.testing.trio_test
async def test_a_deleted_worker_leaves_its_values_and_not_what_it_wrote_last():
    engine = LastingEngine()
    async with keeper(engine) as shem:
        await shem.invoke(W, "put", ["b", "k", "v"])
        row = last_write_key(read_worker_id(engine, W))
        assert engine.read_row("keyvalue", row) is not None
        await shem.delete(W)
        assert engine.read_row("keyvalue", row) is None
        assert await shem.invoke("keeper/other", "look", ["b", "k"]) == Ok("v")


@trio.testing.trio_test
async def test_a_full_environment_is_an_error_that_is_recorded():
    engine = LastingEngine()
    async with keeper(engine, store_limits=StoreLimits(environment_bytes_max=10)) as shem:
        assert await shem.invoke(W, "put", ["b", "k", "123456789"]) == Ok()
        failed = await shem.invoke(W, "put", ["b", "l", "x"])
        assert isinstance(failed, Err)
        assert "is full: it may hold 10 bytes" in failed.value
    async with opened(engine) as shem:  # with more room
        assert (await shem.replay(W)).divergence is None
        assert await shem.invoke(W, "put", ["b", "l", "x"]) == Ok()


@trio.testing.trio_test
async def test_a_write_that_finds_no_room_on_the_disk_is_made_when_there_is_some():
    engine = LastingEngine()
    probes = []

    def refuse(batches):
        full = any(row.table == "keyvalue" for batch in batches for row in batch.rows)
        return [OplogFullError("the disk is full")] * len(batches) if full else None

    def probe():
        probes.append(1)
        engine.on_write = lambda _: None

    engine.on_write, engine.probe = refuse, probe
    async with keeper(engine) as shem:
        accepted = await shem.submit(W, "put", ["b", "k", "v"], key="k")
        with trio.fail_after(10):
            await until(lambda: probes)
            await until(
                lambda: InvocationFinished in {type(e) for _, e in worker_entries(engine, W)}
            )
        assert (await shem.wait(W, accepted.key)).value == Ok()
        assert await shem.invoke(W, "look", ["b", "k"]) == Ok("v")
        assert (await shem.replay(W)).divergence is None


@pytest.mark.parametrize("key", ["\0", "n" * 1_024, "\U0001f71a" * 256])
def test_a_key_may_have_any_characters(key):
    async def test():
        async with keeper(LastingEngine()) as shem:
            assert await shem.invoke(W, "put", [key, key, "v"]) == Ok()
            assert await shem.invoke(W, "look", [key, key]) == Ok("v")
            too_long = await shem.invoke(W, "put", [key, key + "x" * 1_024, "v"])
            assert "at most 1024 bytes" in too_long.value

    run(test)
