"""Crashes, cancellations and refusals that come while the worker is about to change its state."""

import time
from functools import partial
from unittest.mock import patch

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from executor import Ok, Transient, host_function
from executor import opened as opened_module
from executor.durable import retrying
from executor.errors import GuestTrap, PreviousFailed, ShemError, StoreError
from executor.wasm.lane import Lanes
from executor.worker.rows import read_worker_id
from oplog.entry import End, Error, InvocationFinished, InvocationStarted, Start
from oplog.errors import OplogError
from tests.support import guests
from tests.support.engines import Hold
from tests.support.executors import (
    LastingEngine,
    SlowClosing,
    check_rows,
    deployed,
    kinds,
    opened,
    run,
    run_apart,
    until,
    worker_entries,
)
from tests.support.programs import MEMORY, Bank, Gate, echo, order

CHARGE = "charge: func(who: string, cents: u64) -> result<string, string>"
SOON_S = 5
"""Long enough for anything that does not wait for what a test holds back."""

# -- closing -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["read-remote", "write-remote"])
def test_an_executor_closes_though_its_block_was_cancelled_while_a_guest_waits(kind):
    async def case():
        engine = LastingEngine()
        gate = Gate(kind)
        with trio.CancelScope() as scope:
            async with deployed(engine=engine, host=[gate.call]) as shem:
                await shem.submit("relay/w", "relay", ["a"], key="k")
                await gate.entered.wait()
                scope.cancel()
                await shem.wait("relay/w", "k")
        assert scope.cancelled_caught
        assert engine.closed
        assert gate.cancelled == 1
        async with opened(engine, host=[echo(kind)]) as shem:
            assert (await shem.wait("relay/w", "k")).value == Ok("a")

    run_apart(case)


def test_an_executor_closes_though_its_block_was_cancelled_while_a_guest_computes():
    async def case():
        engine = LastingEngine()
        with trio.CancelScope() as scope:
            async with deployed(guests.ADDER, "adder", engine) as shem:
                await shem.submit("adder/w", "spin", key="endless")
                await until(lambda: any(lane.is_computing() for lane in lanes_of(shem)))
                scope.cancel()
                await trio.lowlevel.checkpoint()
        assert scope.cancelled_caught
        assert engine.closed

    run_apart(case)


def lanes_of(shem):
    return shem._services.lanes.lanes


class Broken:
    """Nobody takes the output any more."""

    def __init__(self):
        self.told = trio.Event()
        self.reports = []

    def on_output(self, worker, level, text):
        raise BrokenPipeError("gone")

    def report(self, text):
        self.reports.append(text)
        self.told.set()


def test_a_listener_that_raises_at_the_end_of_an_invocation_harms_nobody():
    async def case():
        broken = Broken()
        options = {"on_output": broken.on_output, "report": broken.report}
        host = [*Bank().functions(), echo()]
        async with deployed(guests.printer_component(), "printer", host=host, **options) as shem:
            assert await shem.invoke("printer/w", "print", ["one"], key="1") == 1
            assert (await shem.wait("printer/w", "1")).stdout == "one\n"
            assert await shem.invoke("printer/w", "print", ["two"]) == 2
        assert set(broken.reports) == {"printer/w: nobody takes its output: gone"}

    run_apart(case)


def test_a_listener_that_raises_amid_an_invocation_harms_nobody():
    async def case():
        broken = Broken()
        bank = Bank()

        async def perform(effect):
            await broken.told.wait()
            return await effect.run()

        options = {"on_output": broken.on_output, "report": broken.report, "perform": perform}
        async with deployed(
            guests.order_component(), "order", host=bank.functions(), **options
        ) as shem:
            await shem.invoke("order/w", "place", [order("o", "ann", 1, 2)], key="k")
            assert len((await shem.wait("order/w", "k")).stdout.splitlines()) == 3
        assert set(broken.reports) == {"order/w: nobody takes its output: gone"}
        assert len(bank.asked) == 2

    run_apart(case)


# -- crash -------------------------------------------------------------------------------------


def test_a_crash_while_the_outcome_is_being_committed_keeps_the_outcome_and_its_waiter():
    async def case():
        engine = LastingEngine()
        async with deployed(guests.ADDER, "adder", engine) as shem:
            assert await shem.invoke("adder/w", "add", [1]) == 1
            hold = Hold()
            engine.on_write = hold
            answers = []

            async def ask():
                answers.append(await shem.invoke("adder/w", "add", [2], key="k"))

            with trio.fail_after(SOON_S):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(ask)
                    await trio.to_thread.run_sync(hold.entered.wait, 10)
                    nursery.start_soon(shem.crash, "adder/w")
                    await wait_all_tasks_blocked()
                    engine.on_write = lambda _: None
                    hold.go.set()
            assert answers == [3]
            assert (await shem.worker("adder/w")).status == "idle"
            assert await shem.invoke("adder/w", "get") == 3
        assert kinds(engine, "adder/w").count(InvocationFinished) == 3

    run_apart(case)


@pytest.mark.parametrize("accepted", ["committed", "in memory"])
def test_a_crash_while_a_retry_leaves_its_instance_waits_until_it_has_left(accepted, monkeypatch):
    monkeypatch.setattr(retrying, "DELAY_MAX_S", 0)  # too long for a retry in the call itself

    async def case():
        engine = LastingEngine()
        asked = []
        answers = []
        hold = Hold()

        @host_function("demo:bank/api", CHARGE, type="read-remote")
        async def charge(call, who, cents):
            asked.append(cents)
            if len(asked) == 2:
                engine.on_write = hold
                raise Transient("busy")
            return Ok("x")

        async with deployed(guests.CHARGER, "charger", engine, host=[charge]) as shem:

            async def ask():
                answers.append(await shem.invoke("charger/w", "charge-many", [3], key="k"))

            await shem.invoke("charger/w", "charge-many", [0])
            if accepted == "committed":
                await shem.submit("charger/w", "charge-many", [3], key="k", run=False)
            closing = SlowClosing()
            rebuilds = []

            async def crash():
                rebuilds.append(await shem.crash("charger/w"))

            with trio.fail_after(SOON_S), closing.installed():
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(ask)
                    await closing.begun.wait()
                    nursery.start_soon(crash)
                    await wait_all_tasks_blocked()
                    closing.go.set()
                    await trio.to_thread.run_sync(hold.entered.wait, 10)
                    await wait_all_tasks_blocked(0.01)
                    engine.on_write = lambda _: None
                    hold.go.set()
            failed = kinds(engine, "charger/w").index(Error) + 1
            [rebuild] = rebuilds
            assert rebuild.divergence is None
            assert rebuild.entries >= failed - 1  # the error, a hint, may be on its way
            assert (await shem.replay("charger/w")).divergence is None
        assert answers == [3]
        assert asked == [1, 2, 2, 3]
        entries = worker_entries(engine, "charger/w")
        starts = [index for index, entry in entries if isinstance(entry, Start)]
        assert [entry.start_index for _, entry in entries if isinstance(entry, End)] == starts
        assert kinds(engine, "charger/w").count(InvocationStarted) == 2
        check_rows(engine, read_worker_id(engine, "charger/w"))

    run_apart(case)


def test_a_crash_that_is_cancelled_leaves_the_worker_running():
    async def case():
        engine = LastingEngine()
        gate = Gate("read-remote")
        async with deployed(engine=engine, host=[gate.call]) as shem:
            await shem.submit("relay/w", "relay", ["a"], key="k")
            await gate.entered.wait()
            gate.entered = trio.Event()
            with trio.CancelScope() as scope:
                scope.cancel()
                await shem.crash("relay/w")
            assert scope.cancelled_caught
            assert gate.cancelled == 1
            with trio.fail_after(SOON_S):
                await gate.entered.wait()
                gate.go.set()
                assert (await shem.wait("relay/w", "k")).value == Ok("a!")
        assert kinds(engine, "relay/w").count(InvocationFinished) == 1

    run_apart(case)


def test_a_crash_that_is_cancelled_amid_its_rebuild_leaves_no_instance_behind():
    async def case():
        engine = LastingEngine()
        gate = Gate("read-remote")
        hold = Hold()
        read = engine.read_entries

        def read_once_held(worker_id, first, limit):
            hold((worker_id, first))
            return read(worker_id, first, limit)

        async with deployed(engine=engine, host=[gate.call]) as shem:
            await shem.submit("relay/w", "relay", ["a"], key="k")
            await gate.entered.wait()
            gate.entered = trio.Event()
            engine.read_entries = read_once_held
            async with trio.open_nursery() as nursery:
                nursery.start_soon(shem.crash, "relay/w")
                await trio.to_thread.run_sync(hold.entered.wait, 10)
                nursery.cancel_scope.cancel()
                with trio.CancelScope(shield=True):
                    await wait_all_tasks_blocked()
                hold.go.set()
            with trio.fail_after(SOON_S):
                await gate.entered.wait()
                gate.go.set()
                assert (await shem.wait("relay/w", "k")).value == Ok("a!")
            assert sum(lane.assigned_count for lane in lanes_of(shem)) == 1

    run_apart(case)


def test_a_crash_whose_rebuild_fails_leaves_the_worker_running():
    async def case():
        engine = LastingEngine()
        gate = Gate("read-remote")

        def fail_once(worker_id, first, limit):
            del engine.read_entries
            raise OplogError("the disk coughs")

        async with deployed(engine=engine, host=[gate.call]) as shem:
            await shem.submit("relay/w", "relay", ["a"], key="k")
            await gate.entered.wait()
            gate.entered = trio.Event()
            engine.read_entries = fail_once
            with pytest.raises(StoreError, match="the disk coughs"):
                await shem.crash("relay/w")
            with trio.fail_after(SOON_S):
                await gate.entered.wait()
                gate.go.set()
                assert (await shem.wait("relay/w", "k")).value == Ok("a!")

    run_apart(case)


def test_a_crash_without_going_on_leaves_the_worker_to_whoever_names_it_next():
    async def case():
        gate = Gate("read-remote")
        async with deployed(host=[gate.call]) as shem:
            await shem.submit("relay/w", "relay", ["a"], key="k")
            await gate.entered.wait()
            gate.entered = trio.Event()
            assert (await shem.crash("relay/w", go_on=False)).divergence is None
            await wait_all_tasks_blocked()
            assert not gate.entered.is_set()
            gate.go.set()
            assert (await shem.wait("relay/w", "k")).value == Ok("a!")

    run_apart(case)


# -- what must not happen ----------------------------------------------------------------------


def test_a_broken_invariant_is_told_once_and_names_the_worker_once():
    async def case():
        engine, reports = LastingEngine(), []
        async with deployed(guests.ADDER, "adder", engine, report=reports.append) as shem:
            await shem.submit("adder/w", "add", [1], key="k", run=False)
            worker = (await shem._workers.loop("adder/w")).worker
            worker._arguments.clear()
            worker.rows.queue["k"] = 1  # which is no pending invocation
            with pytest.raises(ShemError) as told:
                await shem.wait("adder/w", "k")
        sentence = "InternalError: the pending entry of key 'k' is missing"
        assert (told.value.kind, told.value.message) == ("internal", sentence)
        assert told.value.where == "adder/w"
        assert reports == [f"adder/w: {sentence}"]

    run(case)


# -- a failure before it is committed ----------------------------------------------------------


@pytest.mark.parametrize("earlier", [True, False], ids=["accepted earlier", "new"])
def test_a_failure_is_told_to_nobody_before_it_is_committed(earlier):
    async def case():
        engine = LastingEngine()
        async with deployed(guests.ADDER, "adder", engine) as shem:
            await shem.submit("adder/w", "fail", key="bad", run=False)
            if earlier:
                await shem.submit("adder/w", "add", [3], key="next", run=False)
            hold = Hold()
            engine.on_write = hold
            heard = []

            async def ask(key, call, *arguments):
                try:
                    await call("adder/w", *arguments, key=key)
                except (GuestTrap, PreviousFailed) as error:
                    heard.append((key, type(error)))

            following = (shem.wait,) if earlier else (shem.invoke, "add", [3])
            with trio.fail_after(SOON_S):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(ask, "bad", shem.invoke, "fail")
                    await trio.to_thread.run_sync(hold.entered.wait, 10)
                    nursery.start_soon(ask, "next", *following)
                    await wait_all_tasks_blocked()
                    early = list(heard)
                    engine.on_write = lambda _: None
                    hold.go.set()
            assert early == []
            assert sorted(heard, key=str) == [("bad", GuestTrap), ("next", PreviousFailed)]

    run_apart(case)


def test_a_replay_beside_a_failure_that_is_being_committed_ends_before_it():
    async def case():
        engine = LastingEngine()
        async with deployed(guests.ADDER, "adder", engine) as shem:
            assert await shem.invoke("adder/w", "add", [1]) == 1
            hold = Hold()
            engine.on_write = hold
            with trio.fail_after(SOON_S):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(partial(shem.submit, "adder/w", "fail", key="bad"))
                    await trio.to_thread.run_sync(hold.entered.wait, 10)
                    await until(lambda: failed_in_memory(shem, "adder/w"))
                    rebuild = await shem.replay("adder/w")
                    engine.on_write = lambda _: None
                    hold.go.set()
            assert (rebuild.entries, rebuild.divergence, rebuild.stopped_at) == (4, None, None)
            with pytest.raises(PreviousFailed):
                await shem.invoke("adder/w", "get")
            assert "unreachable" in (await shem.replay("adder/w")).stopped_at

    run_apart(case)


def failed_in_memory(shem, name):
    return shem._workers._loops[name].worker.status.state == "failed"


# -- beside a guest that computes --------------------------------------------------------------


def test_remote_writes_are_answered_beside_a_guest_that_computes_on_the_same_lane():
    async def case():
        engine = LastingEngine()
        asked = []
        go = trio.Event()
        entered = trio.Event()

        @host_function("demo:bank/api", CHARGE, type="write-remote")
        async def charge(call, who, cents):
            asked.append(cents)
            entered.set()
            await go.wait()
            return Ok("x")

        async with opened(engine, host=[charge]) as shem:
            await shem.deploy(guests.CHARGER, name="charger")
            await shem.deploy(guests.ADDER, name="adder")
            await shem.submit("charger/w", "charge-many", [3], key="k")
            await entered.wait()
            await shem.submit("adder/w", "spin", key="endless")
            (lane,) = lanes_of(shem)
            await until(lane.is_computing)
            go.set()
            began = time.monotonic()
            with trio.move_on_after(SOON_S):
                assert (await shem.wait("charger/w", "k")).value == 3
            took_s = time.monotonic() - began
            await shem.delete("adder/w")
        assert asked == [1, 2, 3]
        assert took_s < SOON_S

    with patch.object(opened_module, "Lanes", lambda increment: Lanes(increment, 1)):
        run_apart(case)


# -- a host function that traps ----------------------------------------------------------------

POLLER = (
    b"""
(component
  (import "wasi:io/poll@0.2.0" (instance $poll (export "pollable" (type $p (sub resource)))
    (export "poll" (func (param "in" (list (borrow $p))) (result (list u32))))))
"""
    + MEMORY
    + b"""
  (core func $poll (canon lower (func $poll "poll") (memory $mem) (realloc $realloc)))
  (core module $Main
    (import "host" "poll" (func $poll (param i32 i32 i32)))
    (func (export "poll") (call $poll (i32.const 0) (i32.const 0) (i32.const 64))))
  (core instance $main (instantiate $Main
    (with "host" (instance (export "poll" (func $poll))))))
  (func $go (canon lift (core func $main "poll")))
  (instance $api (export "poll" (func $go)))
  (export "demo:poller/api" (instance $api)))
"""
)
"""`poll: func()` polls no pollable at all, for which the host traps the guest."""


def test_a_trap_of_a_host_function_is_a_failure_that_stays():
    async def case():
        engine = LastingEngine()
        told = []
        for _ in range(2):
            async with deployed(POLLER, "poller", engine) as shem:
                with pytest.raises(GuestTrap) as raised, trio.fail_after(SOON_S):
                    await shem.invoke("poller/w", "poll", key="k")
                told.append(raised.value.message)
                outcome = await shem.wait("poller/w", "k")
                assert (outcome.status, outcome.error.kind) == ("failed", "guest-trap")
                assert (await shem.worker("poller/w")).status == "failed"
                assert told[-1] in (await shem.replay("poller/w")).stopped_at
        assert told[0] == told[1]
        assert kinds(engine, "poller/w").count(InvocationFinished) == 1
        check_rows(engine, read_worker_id(engine, "poller/w"))

    run(case)
