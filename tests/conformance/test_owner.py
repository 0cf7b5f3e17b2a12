"""Interrupting, resuming and cancelling: what stands still, what goes on, and in which order."""

import pytest
import trio

from executor import RetryPolicy, Transient
from executor.errors import (
    AlreadyExists,
    Busy,
    InvocationCancelled,
    InvocationInterrupted,
    KeyConflict,
    StoreError,
    UnknownKey,
    WorkerNotFound,
)
from executor.wasm.values import Ok
from executor.worker.rows import read_worker_id
from oplog.entry import CancelPendingInvocation, Error, Interrupted, InvocationFinished, Resumed
from tests.support import guests
from tests.support.executors import (
    FullEngine,
    LastingEngine,
    check_rows,
    deployed,
    kinds,
    opened,
    run,
    until,
    worker_entries,
)
from tests.support.programs import RELAY, Gate, echo, peer


def started_keys(engine, worker):
    """Keys in the order in which they were started."""
    return [
        entry.key
        for _, entry in worker_entries(engine, worker)
        if type(entry).__name__ == "InvocationStarted"
    ]


def test_an_interrupted_worker_stands_still_over_openings_until_it_is_resumed():
    async def case():
        engine = LastingEngine()
        gate = Gate("read-remote")
        heard = []
        async with deployed(engine=engine, host=[gate.call]) as shem:

            async def ask():
                with pytest.raises(InvocationInterrupted) as told:
                    await shem.invoke("relay/w", "relay", ["a"], key="k1")
                heard.append(told.value.kind)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask)
                await gate.entered.wait()
                done = await shem.interrupt("relay/w")
            assert (done.done, done.status) == (True, "interrupted")
            assert heard == ["interrupted"]
            again = await shem.interrupt("relay/w")
            assert (again.done, again.status) == (False, "interrupted")
        assert (gate.cancelled, kinds(engine, "relay/w").count(Interrupted)) == (1, 1)
        async with opened(engine, host=[echo("read-remote")], recover="all") as shem:
            await shem.run(until_idle=True)
            assert (await shem.worker("relay/w")).status == "interrupted"
            with pytest.raises(InvocationInterrupted):
                await shem.wait("relay/w", "k1")
            assert (await shem.crash("relay/w")).divergence is None
            assert (await shem.worker("relay/w")).status == "interrupted"
            done = await shem.resume("relay/w", until_ended=True)
            assert (done.done, done.status) == (True, "idle")
            assert (await shem.wait("relay/w", "k1")).value == Ok("a")
            assert not (await shem.resume("relay/w")).done
        assert kinds(engine, "relay/w").count(Resumed) == 1
        assert kinds(engine, "relay/w").count(InvocationFinished) == 1

    run(case)


def test_a_new_invocation_resumes_the_worker_and_runs_after_the_old_one():
    async def case():
        engine = LastingEngine()
        async with deployed(guests.ADDER, "adder", engine) as shem:
            await shem.invoke("adder/w", "add", [2])
            await shem.submit("adder/w", "spin", key="old")
            await trio.sleep(0.05)
            assert (await shem.interrupt("adder/w")).done
            await shem.submit("adder/w", "add", [3], key="new")
            await trio.sleep(0.05)
            found = await shem.worker("adder/w")
            assert (found.current_key, found.pending) == ("old", ("new",))
            assert (await shem.interrupt("adder/w")).status == "interrupted"
        assert started_keys(engine, "adder/w")[1:] == ["old"]
        assert kinds(engine, "adder/w").count(Interrupted) == 2
        assert kinds(engine, "adder/w").count(Resumed) == 1

    run(case)


@pytest.mark.parametrize("delay_s", [15, 3600], ids=["in its call", "without an instance"])
def test_a_worker_that_waits_for_its_next_attempt_is_interrupted_and_deleted_at_once(delay_s):
    async def case():
        engine, keys = LastingEngine(), []

        def busy(call, _text):
            keys.append(call.key)
            raise Transient("busy")

        async def told():
            with pytest.raises(InvocationInterrupted):
                await shem.wait("relay/w", "k")

        patient = RetryPolicy(attempts_max=3, min_delay_s=delay_s, max_delay_s=delay_s)
        async with opened(engine, host=[peer(busy)]) as shem:
            await shem.deploy(RELAY, name="relay", retry=patient)
            await shem.submit("relay/w", "relay", ["a"], key="k")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(told)
                await until(lambda: Error in kinds(engine, "relay/w"))
                with trio.fail_after(10):
                    assert (await shem.interrupt("relay/w")).done
            assert (await shem.worker("relay/w")).status == "interrupted"
            await shem.resume("relay/w")
            assert (await shem.crash("relay/w")).divergence is None
            with trio.fail_after(10):
                await shem.delete("relay/w")
                with pytest.raises(WorkerNotFound):
                    await shem.worker("relay/w")
        assert len(set(keys)) == 1

    run(case)


def test_an_idle_worker_is_not_interrupted():
    async def case():
        async with deployed(guests.ADDER, "adder") as shem:
            await shem.invoke("adder/w", "add", [2])
            done = await shem.interrupt("adder/w")
            assert (done.done, done.status) == (False, "idle")
            assert await shem.invoke("adder/w", "add", [2]) == 4

    run(case)


def test_a_key_that_waits_can_be_cancelled_and_one_that_runs_or_has_run_cannot():
    async def case():
        engine = LastingEngine()
        async with deployed(guests.ADDER, "adder", engine) as shem:
            await shem.invoke("adder/w", "add", [2], key="done")
            await shem.submit("adder/w", "spin", key="running")
            await shem.submit("adder/w", "add", [3], key="waiting")
            await trio.sleep(0.05)
            heard = []

            async def ask():
                with pytest.raises(InvocationCancelled):
                    await shem.invoke("adder/w", "add", [3], key="waiting")
                heard.append("cancelled")

            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask)
                await trio.sleep(0.02)
                assert (await shem.cancel("adder/w", "waiting")).done
            assert heard == ["cancelled"]
            assert not (await shem.cancel("adder/w", "waiting")).done
            outcome = await shem.wait("adder/w", "waiting")
            assert (outcome.status, outcome.error.kind) == ("failed", "cancelled")
            with pytest.raises(KeyConflict):
                await shem.submit("adder/w", "add", [4], key="waiting")
            for key, refusal in (
                ("running", Busy), ("done", AlreadyExists), ("nobody's", UnknownKey),
            ):  # fmt: skip
                with pytest.raises(refusal):
                    await shem.cancel("adder/w", key)
            assert (await shem.worker("adder/w")).pending == ()
        assert kinds(engine, "adder/w").count(CancelPendingInvocation) == 1
        async with opened(engine) as shem:
            assert (await shem.invocation("adder/w", "waiting")).error.kind == "cancelled"
            assert (await shem.replay("adder/w")).divergence is None

    run(case)


def test_cancelling_all_that_an_interrupted_worker_had_leaves_it_idle():
    async def case():
        async with deployed(guests.ADDER, "adder") as shem:
            await shem.submit("adder/w", "add", [1], key="k", run=False)
            assert (await shem.interrupt("adder/w")).status == "interrupted"
            done = await shem.cancel("adder/w", "k")
            assert (done.done, done.status) == (True, "idle")
            assert await shem.invoke("adder/w", "add", [1]) == 1

    run(case)


@pytest.mark.parametrize("asked", ["interrupt", "cancel", "revert", "submit"])
def test_what_is_asked_for_on_a_full_disk_is_refused_in_the_words_of_the_executor(asked):
    async def case():
        engine = FullEngine()
        gate = Gate("read-remote")
        async with deployed(engine=engine, host=[gate.call]) as shem:
            for key in ("k1", "k2"):
                await shem.submit("relay/w", "relay", [key], key=key)
            await gate.entered.wait()
            engine.full = True
            with pytest.raises(StoreError):
                await shem.submit("relay/w", "relay", ["c"], key="k3")
            owner = {
                "interrupt": lambda: shem.interrupt("relay/w"),
                "cancel": lambda: shem.cancel("relay/w", "k2"),
                "revert": lambda: shem.revert("relay/w", to=2),
                "submit": lambda: shem.submit("relay/w", "relay", ["d"], key="k4"),
            }
            with pytest.raises(StoreError) as refused:
                await owner[asked]()
            assert (refused.value.kind, refused.value.where) == ("disk-full", "relay/w")
            engine.full = False
            gate.go.set()
            await until(lambda: kinds(engine, "relay/w").count(InvocationFinished) == 2)
        check_rows(engine, read_worker_id(engine, "relay/w"))

    run(case)
