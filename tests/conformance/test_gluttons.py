"""Guests that take all they can get: each stops with a sentence, and the others keep running."""

from pathlib import Path

import pytest
import trio

from executor import Executor, Ok, host_function
from executor.errors import (
    Busy,
    GuestTrap,
    InvocationInterrupted,
    LimitError,
    PreviousFailed,
    WorkerDeleted,
)
from executor.worker.rows import read_status, read_worker_id
from oplog.entry import Log
from oplog.writer import FULL_BYTES
from tests.support.engines import Hold
from tests.support.executors import LastingEngine, deployed, run, until, worker_entries
from tests.support.glutton_guest import GLUTTON, LATE_RISER

WORKER = "glutton/w"
MIB = 1 << 20
PIECE_BYTES = 4096 + 100
"""What one write of the chatter takes in its entry, at most."""
PIECES = 3 * FULL_BYTES // 4096
STAYS_S = 0.2
PATIENCE_S = 60
"""Long enough for a machine with other work; what is tested is that nobody waits for ever."""


def with_gluttons(test, **options):
    async def deploying():
        engine = LastingEngine()
        async with deployed(GLUTTON.encode(), "glutton", engine) as shem:
            if options:
                await shem.deploy(GLUTTON.encode(), name="glutton", **options)
            shem.engine = engine
            await test(shem)

    run(deploying)


async def neighbour_answers(shem, name="neighbour"):
    """A worker beside the glutton is invoked and answers, several times."""
    before = 0
    for number in range(1, 6):
        with trio.fail_after(PATIENCE_S):
            answer = await shem.invoke(f"glutton/{name}", "add", [number])
        assert answer > before
        before = answer


async def running(shem, worker):
    """Returns when it is committed that the worker runs."""
    await until(lambda: status_in(shem.engine, worker) == "running")


def status_in(engine, worker):
    worker_id = read_worker_id(engine, worker)
    return None if worker_id is None else read_status(engine, worker_id).state


def pending(engine, worker):
    worker_id = read_worker_id(engine, worker)
    return 0 if worker_id is None else read_status(engine, worker_id).pending


class Asked:
    """An invocation that somebody waits for; `ended` is its value or its error."""

    def __init__(self):
        self.ended = None
        self.done = trio.Event()

    async def ask(self, shem, worker, function, arguments=()):
        try:
            accepted = await shem.submit(worker, function, list(arguments))
            self.ended = (await shem.wait(worker, accepted.key)).value
        except Exception as error:
            self.ended = error
        self.done.set()


@pytest.mark.parametrize(("function", "arguments"), [("spin", ()), ("chatter", (0,))])
def test_a_guest_without_end_is_interrupted_resumed_and_deleted_and_others_answer(
    function, arguments
):
    async def test(shem):
        asked = Asked()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(asked.ask, shem, WORKER, function, arguments)
            await running(shem, WORKER)
            await neighbour_answers(shem)
            with trio.fail_after(PATIENCE_S):
                assert (await shem.interrupt(WORKER)).done
                await asked.done.wait()
                assert isinstance(asked.ended, InvocationInterrupted)
                assert (await shem.worker(WORKER)).status == "interrupted"
                await neighbour_answers(shem, "other")
                assert (await shem.resume(WORKER)).done
            await running(shem, WORKER)
            await neighbour_answers(shem)
            again = Asked()
            nursery.start_soon(again.ask, shem, WORKER, "add", [1])
            with trio.fail_after(PATIENCE_S):
                await until(lambda: pending(shem.engine, WORKER) == 1)
                assert (await shem.delete(WORKER)).done
                await again.done.wait()
            assert isinstance(again.ended, WorkerDeleted)
            await neighbour_answers(shem)

    with_gluttons(test)


def test_several_of_them_at_once_leave_the_others_their_turn():
    """More endless guests than there are lanes, beside some that end badly."""

    async def test(shem):
        asked = {}
        async with trio.open_nursery() as nursery:
            for number in range(6):
                function, arguments = (("spin", ()), ("chatter", (0,)))[number % 2]
                asked[number] = Asked()
                worker = f"glutton/endless{number}"
                nursery.start_soon(asked[number].ask, shem, worker, function, arguments)
            for number in range(6):
                await running(shem, f"glutton/endless{number}")
            for function in ("recurse", "allocate"):
                with trio.fail_after(PATIENCE_S), pytest.raises(GuestTrap):
                    await shem.invoke(f"glutton/{function}", function)
            await neighbour_answers(shem)
            with trio.fail_after(PATIENCE_S):
                for number in range(6):
                    await shem.interrupt(f"glutton/endless{number}")
                for one in asked.values():
                    await one.done.wait()
        await neighbour_answers(shem)

    with_gluttons(test)


def test_with_16_mib_that_are_not_durable_a_guest_gives_way_and_acceptances_are_refused_as_busy():
    async def test(shem):
        hold = Hold()
        await shem.submit(WORKER, "chatter", [PIECES], key="long")
        shem.engine.on_write = hold
        writer = (await shem._workers.loop(WORKER)).worker.writer
        with trio.fail_after(PATIENCE_S):
            await until(lambda: writer.full)
        with pytest.raises(Busy, match="16 MiB"):
            await shem.submit(WORKER, "add", [1], key="behind")
        await trio.sleep(STAYS_S)
        assert FULL_BYTES <= writer.buffered_bytes < FULL_BYTES + 64 * PIECE_BYTES
        shem.engine.on_write = lambda _: None
        hold.go.set()
        with trio.fail_after(PATIENCE_S):
            await shem.wait(WORKER, "long")
            assert await shem.invoke(WORKER, "add", [1], key="behind")
        assert (await shem.replay(WORKER)).divergence is None
        logs = [entry for _, entry in worker_entries(shem.engine, WORKER) if isinstance(entry, Log)]
        assert len(logs) == PIECES

    with_gluttons(test)


@pytest.mark.parametrize("function", ["allocate", "touch"])
def test_memory_beyond_the_limit_is_named_and_the_worker_can_be_reverted(function):
    async def test(shem):
        await shem.invoke(WORKER, "add", [5])
        with trio.fail_after(PATIENCE_S), pytest.raises(GuestTrap) as caught:
            await shem.invoke(WORKER, function)
        assert caught.value.message.startswith("trapped (unreachable); its limit is 8 MiB")
        await neighbour_answers(shem)
        await failed_then_reverted(shem)

    with_gluttons(test, limits={"memory": 8 * MIB})


def test_recursion_without_end_overflows_the_stack_and_the_worker_can_be_reverted():
    async def test(shem):
        await shem.invoke(WORKER, "add", [5])
        with trio.fail_after(PATIENCE_S), pytest.raises(GuestTrap) as caught:
            await shem.invoke(WORKER, "recurse")
        assert caught.value.message.startswith("trapped (call stack exhausted)")
        await neighbour_answers(shem)
        await failed_then_reverted(shem)

    with_gluttons(test)


async def failed_then_reverted(shem):
    """The worker takes nothing more until its last invocation is undone."""
    assert (await shem.worker(WORKER)).status == "failed"
    with pytest.raises(PreviousFailed):
        await shem.invoke(WORKER, "add", [1])
    assert (await shem.revert(WORKER, last=1)).done
    assert await shem.invoke(WORKER, "add", [1]) == 6


def test_a_guest_that_never_comes_to_be_is_interrupted_and_deleted():
    async def test():
        engine = LastingEngine()
        async with deployed(LATE_RISER.encode(), "late", engine) as shem:
            asked = Asked()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(asked.ask, shem, "late/w", "get")
                await until(lambda: pending(engine, "late/w") == 1)
                await trio.sleep(0.05)
                with trio.fail_after(PATIENCE_S):
                    assert (await shem.interrupt("late/w")).done
                    await asked.done.wait()
                    assert isinstance(asked.ended, InvocationInterrupted)
                    assert (await shem.delete("late/w")).done

    run(test)


@pytest.mark.parametrize(
    ("kind", "taken", "made"), [("string", 100 * MIB, 100 * MIB), ("bytes", 4_194_000, 2_796_000)]
)
def test_a_large_value_passes_and_is_there_in_a_replay(kind, taken, made):
    async def test(shem):
        value = "x" * taken if kind == "string" else bytes(taken)
        assert await shem.invoke(WORKER, f"take-{kind}", [value]) == taken
        assert len(await shem.invoke(WORKER, f"make-{kind}", [made])) == made
        assert (await shem.replay(WORKER)).divergence is None

    with_gluttons(test)


@pytest.mark.parametrize(
    ("kind", "taken", "made"), [("string", 129 * MIB, 129 * MIB), ("bytes", 4_195_000, 2_797_000)]
)
def test_a_value_beyond_the_bound_has_a_sentence(kind, taken, made):
    async def test(shem):
        await shem.invoke(WORKER, "add", [5])
        entries = len(worker_entries(shem.engine, WORKER))
        value = "x" * taken if kind == "string" else bytes(taken)
        with pytest.raises(LimitError, match="one call passes at most 128 MiB"):
            await shem.invoke(WORKER, f"take-{kind}", [value])
        assert len(worker_entries(shem.engine, WORKER)) == entries, "nothing was recorded"
        with pytest.raises(LimitError, match="the guest passed more than 128 MiB in one call"):
            await shem.invoke(WORKER, f"make-{kind}", [made])
        assert (await shem.replay(WORKER)).divergence is None
        await failed_then_reverted(shem)

    with_gluttons(test)


def test_an_answer_of_the_embedder_that_is_too_large_is_refused_with_a_sentence():
    @host_function("demo:relay/peer", "call: func(text: string) -> result<string, string>")
    def call(_call, text):
        return Ok(text * (130 * MIB))

    async def test():
        async with deployed(host=[call]) as shem:
            with pytest.raises(LimitError, match="the answer takes 130 MiB as component values"):
                await shem.invoke("relay/w", "relay", ["x"])

    run(test)


def test_much_output_waits_for_the_disk_and_takes_no_memory(tmp_path):
    """128 MiB of it, through a store on the disk: what is not durable yet is bounded."""

    async def test():
        async with Executor.open(tmp_path) as shem:
            await shem.deploy(GLUTTON.encode(), name="glutton")
            await shem.invoke(WORKER, "chatter", [1_000])
            before = resident_mib()
            asked = Asked()
            most = 0
            async with trio.open_nursery() as nursery:
                nursery.start_soon(asked.ask, shem, WORKER, "chatter", [32_768])
                while not asked.done.is_set():
                    await neighbour_answers(shem)
                    most = max(most, resident_mib())
                    await trio.sleep(0.02)
            assert asked.ended == 1
            # Pages of the map that were written are resident too, while the machine has room.
            written = (tmp_path / "data.mdb").stat().st_size // MIB
            assert most - before < written + 64

    run(test)


def resident_mib():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4_096 // MIB
