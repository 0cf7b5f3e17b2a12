"""What is under way when a worker is deleted, or when those who listen to the executor fail."""

import threading
from contextlib import contextmanager, suppress
from functools import partial
from unittest.mock import patch

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from executor import Ok
from executor.errors import InvocationInterrupted, ShemError, WorkerDeleted, WorkerNotFound
from executor.worker.revision import Revisions
from executor.worker.rows import read_worker_id
from oplog.engine import TABLES
from oplog.entry import End, Interrupted, Revert, Start
from tests.support import guests
from tests.support.engines import Hold
from tests.support.executors import (
    LastingEngine,
    check_rows,
    copy_oplog,
    deployed,
    kinds,
    opened,
    run,
    until,
    until_state,
)
from tests.support.programs import Gate, echo
from tests.support.rules_guest import WORKER, RulesPeer, index_of, rules
from tests.support.sources import StillSources

KEPT = {"meta", "components", "component_names", "component_bytes"}


class HeldLoad:
    """Whoever loads a revision waits, once it is to, until `go`."""

    def __init__(self):
        self.entered = threading.Event()
        self.go = threading.Event()
        self.held = False

    @contextmanager
    def installed(self):
        load = Revisions.load

        def loaded(revisions, *which):
            if self.held:
                self.entered.set()
                assert self.go.wait(60)
            return load(revisions, *which)

        with patch.object(Revisions, "load", loaded):
            yield self

    async def until_entered(self):
        await trio.to_thread.run_sync(self.entered.wait, 60)


def rows(engine):
    """Everything that is stored of workers."""
    return {
        (table, key) for table in TABLES if table not in KEPT for key, _ in engine.read_rows(table)
    }


async def deleted_meanwhile(shem, worker, ask):
    """What is asked for begins, and its worker is gone before it goes on."""
    with HeldLoad().installed() as load:
        load.held = True

        async def delete():
            try:
                await load.until_entered()
                assert (await shem.delete(worker)).done
            finally:
                load.go.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(delete)
            with pytest.raises(WorkerDeleted) as refused:
                await ask()
        assert refused.value.where == worker
    with pytest.raises(WorkerNotFound):
        await shem.worker(worker)


@pytest.mark.parametrize(
    "ask",
    [
        lambda shem: shem.replay("relay/w"),
        lambda shem: shem.crash("relay/w"),
        lambda shem: shem.files("relay/w", "/"),
    ],
    ids=["replay", "crash", "files"],
)
def test_a_worker_that_is_deleted_while_it_is_rebuilt_is_no_damaged_store(ask):
    async def case():
        async with deployed(host=[echo()]) as shem:
            assert await shem.invoke("relay/w", "relay", ["a"]) == Ok("a")
            await deleted_meanwhile(shem, "relay/w", lambda: ask(shem))

    run(case)


@pytest.mark.parametrize("choice", ["repeat", "fail", "value"])
def test_a_word_on_a_worker_that_is_deleted_meanwhile_leaves_nothing_behind(choice):
    async def case():
        first = LastingEngine()
        async with rules(first, RulesPeer()) as shem:
            await shem.invoke(WORKER, "run", ["m0 w1 w2"], key="k")
        start = index_of(first, Start, 1)
        engine = LastingEngine()
        copy_oplog(first, engine, WORKER, start)
        async with opened(engine, host=RulesPeer().functions(), recover="all") as shem:
            with pytest.raises(ShemError, match=f"begun at entry {start}"):
                await shem.wait(WORKER, "k")
            await deleted_meanwhile(shem, WORKER, lambda: shem.resolve(WORKER, start, choice, 7))
            assert rows(engine) == set()
        assert rows(engine) == set()

    run(case)


def test_who_takes_everything_up_passes_over_a_worker_that_is_being_deleted():
    async def case():
        reports = []
        engine = LastingEngine()
        async with deployed(engine=engine, host=[echo()], report=reports.append) as shem:
            await shem.submit("relay/w", "relay", ["a"], key="k", run=False)
            hold = Hold()
            engine.on_write = hold
            async with trio.open_nursery() as nursery:
                nursery.start_soon(shem.delete, "relay/w")
                await trio.to_thread.run_sync(hold.entered.wait, 60)
                nursery.start_soon(lambda: shem.run(until_idle=True))
                await wait_all_tasks_blocked(0.01)
                engine.on_write = lambda _: None
                hold.go.set()
            assert reports == []

    run(case)


@pytest.mark.parametrize("word", ["resume", "interrupt", "cancel"])
def test_who_speaks_on_a_worker_and_does_not_wait_is_heard_by_all_who_do(word):
    async def case():
        engine = LastingEngine()
        gate = Gate("read-remote")
        asks = {
            "resume": lambda shem: shem.resume("relay/w"),
            "interrupt": lambda shem: shem.interrupt("relay/w"),
            "cancel": lambda shem: shem.cancel("relay/w", "behind"),
        }
        heard = []

        async def wait(shem):
            with suppress(InvocationInterrupted):
                heard.append((await shem.wait("relay/w", "behind")).error)

        async with deployed(engine=engine, host=[gate.call]) as shem:
            await shem.submit("relay/w", "relay", ["a"], key="k")
            await shem.submit("relay/w", "count", key="behind")
            await gate.entered.wait()
            if word == "resume":
                assert (await shem.interrupt("relay/w")).done
                gate.go.set()
            async with trio.open_nursery() as waiting:
                if word != "resume":
                    waiting.start_soon(wait, shem)
                    await wait_all_tasks_blocked()
                await said_and_gone(engine, lambda: asks[word](shem))
            if word == "resume":
                await until_state(engine, "relay/w", "idle")
            else:
                assert [error.kind for error in heard] == ["cancelled"] * (word == "cancel")

    run(case)


async def said_and_gone(engine, ask):
    """`ask` begins, and its caller waits no more before what it writes is durable."""
    hold = Hold()
    engine.on_write = hold
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await trio.to_thread.run_sync(hold.entered.wait, 60)
        nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            await wait_all_tasks_blocked()
        engine.on_write = lambda _: None
        hold.go.set()


def test_who_completes_a_promise_and_does_not_wait_wakes_its_worker():
    async def case():
        engine, sources = LastingEngine(), StillSources()
        async with opened(engine, sources=sources) as shem:
            await shem.deploy(guests.approval_component(), name="approval")
            await shem.submit("approval/w", "request", ["a bridge"], key="k")
            await sources.until_asleep()
            sources.advance(2 * 10**9)
            await until_state(engine, "approval/w", "suspended")
            [made] = (await shem.promises("approval/w")).promises
            complete = partial(shem.complete_promise, "approval/w", made.promise, b"yes")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(shem.wait, "approval/w", "k")
                await wait_all_tasks_blocked()
                await said_and_gone(engine, complete)
            assert (await shem.wait("approval/w", "k")).value == ("a bridge", "yes", 1)

    run(case)


def test_who_reverts_a_worker_that_stands_still_and_does_not_wait_has_it_go_on():
    async def case():
        engine = LastingEngine()

        async def perform(effect):
            raise ValueError("a fault of who performs effects")

        async with deployed(engine=engine, host=[echo("read-remote")], perform=perform) as shem:
            with pytest.raises(ShemError, match="a fault of who performs effects"):
                await shem.invoke("relay/w", "relay", ["a"])
            await said_and_gone(engine, lambda: shem.revert("relay/w", last=1))
            assert await shem.invoke("relay/w", "count") == 0

    run(case)


def broken(*_):
    raise BrokenPipeError("nobody reads any more")


def test_a_report_that_nobody_takes_ends_no_worker():
    async def case():
        gate = Gate("read-remote")

        async def perform(effect):
            if gate.entered.is_set():
                raise ValueError("a fault of who performs effects")
            gate.entered.set()
            return await effect.run()

        async with deployed(
            host=[echo("read-remote")], perform=perform, report=broken, on_output=broken
        ) as shem:
            assert await shem.invoke("relay/w", "relay", ["a"]) == Ok("a")
            with pytest.raises(ShemError, match="a fault of who performs effects"):
                await shem.invoke("relay/w", "relay", ["b"])
            assert await shem.invoke("relay/other", "count") == 0

    run(case)


def test_what_is_called_before_the_store_is_closed_cannot_keep_it_open():
    async def case():
        engine = LastingEngine()
        with pytest.raises(BrokenPipeError):
            async with opened(engine, before_close=broken):
                pass
        assert engine.closed

    run(case)


def test_who_waits_for_an_invocation_while_the_executor_is_closed_hears_so_and_it_goes_on():
    async def case():
        engine = LastingEngine()
        gate = Gate("read-remote")
        heard = []

        async def wait(ask):
            with pytest.raises(InvocationInterrupted, match="the executor was closed"):
                await ask()
            heard.append(ask)

        async with (
            trio.open_nursery() as nursery,
            deployed(engine=engine, host=[gate.call]) as shem,
        ):
            for ask in (
                lambda: shem.invoke("relay/w", "relay", ["a"], key="k"),
                lambda: shem.wait("relay/w", "k"),
                lambda: shem.invoke("relay/w", "count", key="behind"),
            ):
                nursery.start_soon(wait, ask)
                await gate.entered.wait()
                await wait_all_tasks_blocked()
        assert len(heard) == 3
        async with opened(engine, host=[echo("read-remote")], recover="all") as shem:
            assert (await shem.wait("relay/w", "k")).value == Ok("a")
            assert (await shem.wait("relay/w", "behind")).value == 1

    run(case)


def test_no_worker_is_begun_with_while_the_executor_is_closed():
    """A write that is under way is awaited for a while; who is woken then has to wait for the next
    opening, and so has who is named.
    """

    async def case():
        engine = LastingEngine()
        gate = Gate("write-remote")

        async def hear(shem):
            with pytest.raises(InvocationInterrupted):
                await shem.wait("relay/named", "k")

        async def meanwhile(shem, nursery):
            workers = shem._workers
            await until(lambda: workers._closing)
            workers.take_up("relay/woken")
            await shem.submit("relay/named", "count", key="k")
            nursery.start_soon(hear, shem)
            await wait_all_tasks_blocked()
            assert not workers.is_loaded("relay/woken")
            assert not workers.is_loaded("relay/named")
            gate.go.set()

        async with (
            trio.open_nursery() as nursery,
            deployed(engine=engine, host=[gate.call]) as shem,
        ):
            await shem.submit("relay/woken", "count", key="k", run=False)
            await shem.submit("relay/w", "relay", ["a"], key="k")
            await gate.entered.wait()
            nursery.start_soon(meanwhile, shem, nursery)
        async with opened(engine, host=[echo()], recover="all") as shem:
            for worker in ("relay/woken", "relay/named"):
                assert (await shem.wait(worker, "k")).value == 0
            assert (await shem.wait("relay/w", "k")).value == Ok("a!")

    run(case)


@pytest.mark.parametrize("second", ["delete", "revert", "crash", "interrupt"])
def test_an_instance_that_is_being_left_is_left_before_anything_else_is_done_to_its_worker(second):
    """It waits for its write, whose end belongs before whatever comes then."""

    async def case():
        engine = LastingEngine()
        gate = Gate("write-remote")
        done = []
        asks = {
            "delete": lambda shem: shem.delete("relay/w"),
            "revert": lambda shem: shem.revert("relay/w", last=1, go_on=False),
            "crash": lambda shem: shem.crash("relay/w", go_on=False),
            "interrupt": lambda shem: shem.interrupt("relay/w"),
        }

        async def ask(shem, what):
            done.append((what, await asks[what](shem)))

        async with deployed(engine=engine, host=[gate.call]) as shem:
            await shem.submit("relay/w", "relay", ["a"], key="k")
            await gate.entered.wait()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask, shem, "interrupt")
                await until(lambda: not shem._workers.is_loaded("relay/w"))
                nursery.start_soon(ask, shem, second)
                await wait_all_tasks_blocked(0.05)
                assert done == [], "the write is under way"
                gate.go.set()
            assert len(done) == 2
            if second == "delete":
                assert rows(engine) == set()
                return
            found = kinds(engine, "relay/w")
            assert found.count(End) == 1
            assert found.count(Interrupted) == 1
            assert found.index(End) < found.index(Interrupted)
            if second == "revert":
                assert found.index(End) < found.index(Revert)
            check_rows(engine, read_worker_id(engine, "relay/w"))

    run(case)
