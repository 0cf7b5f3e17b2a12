"""What becomes of workers and callers when the store refuses, for a while or for good."""

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from executor import Ok
from executor.errors import StoreError, UnknownKey, WorkerNotFound
from executor.worker import room
from executor.worker.rows import read_worker_id
from oplog.entry import InvocationFinished
from oplog.errors import OplogCorruptError, OplogError, OplogFullError
from tests.support import guests
from tests.support.engines import Hold
from tests.support.executors import (
    FullEngine,
    LastingEngine,
    SlowClosing,
    check_rows,
    deployed,
    kinds,
    opened,
    run_apart,
    until,
)
from tests.support.programs import Gate, echo

SOON_S = 5
"""Long enough for anything that does not wait for what a test holds back."""
NO_ROOM = "the disk is full"


@pytest.fixture(autouse=True)
def quick_probes(monkeypatch):
    monkeypatch.setattr(room, "PROBE_DELAY_MIN_S", 0.01)
    monkeypatch.setattr(room, "PROBE_DELAY_MAX_S", 0.02)


async def refusal_of(ask, *arguments, **options):
    """The error of the store that a call ends with."""
    with trio.fail_after(SOON_S):
        try:
            answer = await ask(*arguments, **options)
        except StoreError as error:
            return error
    pytest.fail(f"answered {answer!r}")


# -- a full disk -------------------------------------------------------------------------------


def test_a_loss_is_told_while_the_guest_waits_and_the_worker_goes_on_when_there_is_room():
    async def case():
        engine = FullEngine()
        gate = Gate("read-remote")
        reports = []
        async with deployed(engine=engine, host=[gate.call], report=reports.append) as shem:
            await shem.submit("relay/w", "relay", ["a"], key="k1")
            await gate.entered.wait()
            gate.entered = trio.Event()
            heard = []

            async def wait():
                heard.append(await refusal_of(shem.wait, "relay/w", "k1"))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(wait)
                await wait_all_tasks_blocked()
                engine.full = True
                refused = await refusal_of(shem.submit, "relay/w", "relay", ["b"], key="k2")
            assert refused.message == f"{NO_ROOM}: not accepted"
            assert heard[0].message == f"{NO_ROOM}: accepted as k1, continues when there is space"
            assert gate.cancelled == 1
            engine.full = False
            with trio.fail_after(SOON_S):
                await gate.entered.wait()
                assert not (await shem.submit("relay/w", "relay", ["c"], key="k3")).deduplicated
                gate.go.set()
                assert (await shem.wait("relay/w", "k1")).value == Ok("a!")
                assert (await shem.wait("relay/w", "k3")).value == Ok("c!")
            with pytest.raises(UnknownKey):
                await shem.invocation("relay/w", "k2")
        assert reports == [f"relay/w: {NO_ROOM}"]
        check_rows(engine, read_worker_id(engine, "relay/w"))

    run_apart(case)


@pytest.mark.parametrize("committed", [True, False], ids=["accepted", "not accepted"])
def test_who_meets_a_full_disk_hears_whether_the_key_was_accepted(committed):
    async def case():
        engine = FullEngine()
        asked = "relay/w", "count"
        words, hint = "not accepted", "make space and try again"
        reports = []
        async with deployed(engine=engine, host=[echo()], report=reports.append) as shem:
            await shem.invoke("relay/w", "relay", ["a"])
            if committed:
                await shem.submit(*asked, key="k", run=False)
                words, hint = "accepted as k, continues when there is space", "make space"
            engine.full = True
            first = await refusal_of(shem.invoke, *asked, key="k")
            again = await refusal_of(shem.submit, *asked, key="k")
            for error in (first, again):
                assert error.message == f"{NO_ROOM}: {words}"
                assert (error.kind, error.hint) == ("disk-full", hint)
            if committed:
                assert (await shem.invocation("relay/w", "k")).status == "pending"
            else:
                with pytest.raises(UnknownKey):
                    await shem.invocation("relay/w", "k")
            engine.full = False
            await until(lambda: not shem._workers._loops["relay/w"].worker.trouble)
            assert await shem.invoke(*asked, key="k") == 1
        assert reports == [f"relay/w: {NO_ROOM}"]
        check_rows(engine, read_worker_id(engine, "relay/w"))

    run_apart(case)


@pytest.mark.parametrize("runs", [True, False], ids=["run", "accept"])
def test_a_new_worker_that_meets_a_full_disk_was_not_accepted_and_can_be_made_later(runs):
    async def case():
        engine = FullEngine()
        async with deployed(engine=engine, host=[echo()]) as shem:
            engine.full = True
            refused = await refusal_of(shem.submit, "relay/w", "relay", ["a"], key="k", run=runs)
            assert refused.message == f"{NO_ROOM}: not accepted"
            with pytest.raises(WorkerNotFound):
                await shem.worker("relay/w")
            engine.full = False
            with trio.fail_after(SOON_S):
                while True:
                    try:
                        assert await shem.invoke("relay/w", "relay", ["a"], key="k") == Ok("a")
                        break
                    except StoreError:
                        await trio.sleep(0.01)
        check_rows(engine, read_worker_id(engine, "relay/w"))

    run_apart(case)


def test_a_worker_that_was_only_accepted_for_goes_on_when_there_is_room():
    async def case():
        engine = FullEngine()
        async with deployed(engine=engine, host=[echo()]) as shem:
            await shem.submit("relay/w", "relay", ["a"], key="k", run=False)
            engine.full = True
            await refusal_of(shem.submit, "relay/w", "relay", ["b"], key="k2", run=False)
            engine.full = False
            with trio.fail_after(SOON_S):
                await until(lambda: InvocationFinished in kinds(engine, "relay/w"))
                assert (await shem.wait("relay/w", "k")).value == Ok("a")

    run_apart(case)


def test_no_worker_is_taken_up_for_room_while_the_executor_closes():
    async def case():
        engine = FullEngine()
        gate = Gate()

        async def make_room():
            probes = engine.probes
            engine.full = False
            await until(lambda: engine.probes > probes)
            await wait_all_tasks_blocked(0.02)
            gate.go.set()

        async with (
            trio.open_nursery() as nursery,
            deployed(engine=engine, host=[gate.call]) as shem,
        ):
            await shem.submit("relay/held", "relay", ["b"], key="k", run=False)
            await shem.submit("relay/w", "relay", ["a"], key="k")
            await gate.entered.wait()
            engine.full = True
            await refusal_of(shem.submit, "relay/held", "relay", ["b"])
            nursery.start_soon(make_room)
        assert len(gate.keys) == 1
        assert InvocationFinished not in kinds(engine, "relay/held")

    run_apart(case)


def test_many_workers_without_room_look_for_it_by_one_probe_at_a_time():
    async def case():
        engine = FullEngine()
        names = [f"adder/w{number}" for number in range(20)]
        async with deployed(guests.ADDER, "adder", engine) as shem:
            for name in names:
                await shem.submit(name, "add", [1], key="k", run=False)
            engine.full = True
            for name in names:
                await refusal_of(shem.invoke, name, "add", [1], key="k")
            before = engine.probes
            engine.full = False
            with trio.fail_after(SOON_S):
                for name in names:
                    await until(lambda name=name: InvocationFinished in kinds(engine, name))
            assert engine.probes - before <= 2

    run_apart(case)


@pytest.mark.parametrize("kind", ["read-remote", "write-remote"])
def test_a_deletion_that_fails_leaves_a_worker_that_goes_on(kind):
    async def case():
        engine = FullEngine()
        gate = Gate(kind)
        async with deployed(engine=engine, host=[gate.call]) as shem:
            await shem.submit("relay/w", "relay", ["a"], key="k")
            await gate.entered.wait()
            gate.entered = trio.Event()
            engine.full = True
            refused = await refusal_of(shem.delete, "relay/w")
            assert refused.kind == "disk-full"
            engine.full = False
            with trio.fail_after(SOON_S):
                await gate.entered.wait()
                gate.go.set()
                await until(lambda: InvocationFinished in kinds(engine, "relay/w"))
                assert (await shem.wait("relay/w", "k")).value == Ok("a!")
                assert (await shem.delete("relay/w")).done
            with pytest.raises(WorkerNotFound):
                await shem.worker("relay/w")

    run_apart(case)


def test_who_waits_for_a_worker_whose_deletion_fails_gets_the_answer():
    async def case():
        engine = LastingEngine()
        gate = Gate()
        answers = []
        async with deployed(engine=engine, host=[gate.call]) as shem:

            async def ask():
                answers.append(await shem.invoke("relay/w", "relay", ["a"], key="k"))

            def refuse_deletion(batches):
                if any(batch.deletes for batch in batches):
                    return [OplogFullError("the disk is full")] * len(batches)
                return None

            with trio.fail_after(SOON_S):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(ask)
                    await gate.entered.wait()
                    gate.entered = trio.Event()
                    engine.on_write = refuse_deletion
                    assert (await refusal_of(shem.delete, "relay/w")).kind == "disk-full"
                    await gate.entered.wait()
                    gate.go.set()
            assert answers == [Ok("a!")]

    run_apart(case)


def test_what_is_lost_while_a_deletion_is_under_way_is_noticed_when_the_deletion_fails():
    async def case():
        engine = FullEngine()
        gate = Gate("read-local")  # which is asked for before anything is committed
        hold = Hold()
        closing = SlowClosing()
        refuse = engine.on_write
        asked = "relay/w", "relay", ["a"]
        async with deployed(engine=engine, host=[gate.call]) as shem:
            await shem.submit(*asked, key="k", run=False)

            async def submit():
                assert (await refusal_of(shem.submit, *asked, key="k")).kind == "disk-full"
                closing.go.set()  # the loss is known by now

            async def delete():
                assert (await refusal_of(shem.delete, "relay/w")).kind == "disk-full"

            with trio.fail_after(SOON_S), closing.installed():
                async with trio.open_nursery() as nursery:
                    shem._workers._loops["relay/w"].start()
                    await gate.entered.wait()
                    engine.on_write = lambda batches: hold(batches) or refuse(batches)
                    nursery.start_soon(submit)
                    await trio.to_thread.run_sync(hold.entered.wait, 10)
                    nursery.start_soon(delete)
                    await closing.begun.wait()
                    engine.full = True
                    hold.go.set()
            engine.full = False
            gate.go.set()
            with trio.fail_after(SOON_S):
                await until(lambda: InvocationFinished in kinds(engine, "relay/w"))
                assert (await shem.wait("relay/w", "k")).value == Ok("a!")
        check_rows(engine, read_worker_id(engine, "relay/w"))

    run_apart(case)


def test_a_deletion_that_is_cancelled_while_it_is_committed_has_deleted_the_worker():
    async def case():
        engine = LastingEngine()
        gate = Gate()
        hold = Hold()
        async with deployed(engine=engine, host=[gate.call]) as shem:
            await shem.submit("relay/w", "relay", ["a"], key="k")
            await gate.entered.wait()
            engine.on_write = lambda batches: hold(batches) if batches[0].deletes else None
            async with trio.open_nursery() as nursery:
                nursery.start_soon(shem.delete, "relay/w")
                await trio.to_thread.run_sync(hold.entered.wait, 10)
                nursery.cancel_scope.cancel()
                hold.go.set()
            with pytest.raises(WorkerNotFound):
                await shem.worker("relay/w")
            gate.go.set()
            with trio.fail_after(SOON_S):
                assert await shem.invoke("relay/w", "relay", ["b"], key="k") == Ok("b!")
        check_rows(engine, read_worker_id(engine, "relay/w"))

    run_apart(case)


# -- a store that is lost ----------------------------------------------------------------------


def test_running_ends_when_the_store_refuses_for_good():
    async def case():
        engine = LastingEngine()
        reports = []
        async with deployed(engine=engine, host=[echo()], report=reports.append) as shem:
            await shem.submit("relay/w", "relay", ["a"], key="k", run=False)
            engine.on_write = broken
            refused = await refusal_of(shem.run)
            assert (refused.message, refused.kind) == ("the disk is gone", "store-error")
        assert reports == ["relay/w: the disk is gone"]
        engine.on_write = lambda _: None
        async with opened(engine, host=[echo()]) as shem:
            assert (await shem.wait("relay/w", "k")).value == Ok("a")

    run_apart(case)


def test_running_until_idle_ends_with_the_error_when_the_store_refuses_for_good():
    async def case():
        engine = LastingEngine()
        async with deployed(engine=engine, host=[echo()]) as shem:
            await shem.submit("relay/w", "relay", ["a"], key="k", run=False)
            engine.on_write = broken
            assert (await refusal_of(shem.run, until_idle=True)).message == "the disk is gone"

    run_apart(case)


def test_running_ends_when_the_store_refuses_a_deployment_for_good():
    async def case():
        engine = LastingEngine()
        async with deployed(engine=engine, host=[echo()]) as shem:
            heard = []

            async def serve():
                heard.append((await refusal_of(shem.run)).message)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(serve)
                await wait_all_tasks_blocked()
                engine.on_write = broken
                await refusal_of(shem.deploy, guests.ADDER, name="adder")
            assert heard == ["the disk is gone"]

    run_apart(case)


def test_running_goes_on_beside_a_worker_whose_oplog_is_damaged():
    async def case():
        engine = LastingEngine()
        reports = []
        async with deployed(guests.ADDER, "adder", engine) as shem:
            await shem.invoke("adder/bad", "add", [1])
            await shem.submit("adder/bad", "add", [1], key="k", run=False)
        damaged = read_worker_id(engine, "adder/bad")
        read = engine.read_entries

        def read_entries(worker_id, first, limit):
            if worker_id == damaged and first == 2:
                raise OplogCorruptError("entry 2 is damaged")
            return read(worker_id, first, limit)

        async with opened(engine, report=reports.append) as shem:
            async with trio.open_nursery() as nursery:
                engine.read_entries = read_entries
                nursery.start_soon(shem.run)
                with trio.fail_after(SOON_S):
                    await until(lambda: reports)
                    refused = await refusal_of(shem.wait, "adder/bad", "k")
                    assert refused.kind == "store-corrupt"
                    assert await shem.invoke("adder/good", "add", [1]) == 1
                await wait_all_tasks_blocked()
                running = len(nursery.child_tasks)
                nursery.cancel_scope.cancel()
            assert running == 1
        assert set(reports) == {"adder/bad: entry 2 is damaged"}

    run_apart(case)


def test_a_worker_that_cannot_be_read_when_there_is_room_again_harms_no_other():
    async def case():
        engine = FullEngine()
        async with deployed(guests.ADDER, "adder", engine) as shem:
            await shem.invoke("adder/bad", "add", [1])
            engine.full = True
            await refusal_of(shem.invoke, "adder/bad", "add", [1])
            read = engine.read_row

            def read_row(table, key):
                if table == "workers":
                    raise OplogCorruptError("row is damaged")
                return read(table, key)

            engine.read_row = read_row
            engine.full = False
            await until(lambda: "row" in str(shem._workers._loops["adder/bad"].worker.trouble))
            del engine.read_row
            with trio.fail_after(SOON_S):
                assert await shem.invoke("adder/good", "add", [1]) == 1

    run_apart(case)


def test_who_waits_for_a_guest_that_waits_hears_that_the_store_is_lost():
    async def case():
        engine = LastingEngine()
        gate = Gate("read-remote")
        async with deployed(engine=engine, host=[gate.call]) as shem:
            await shem.submit("relay/w", "relay", ["a"], key="k")
            await gate.entered.wait()
            heard = []

            async def wait():
                heard.append((await refusal_of(shem.wait, "relay/w", "k")).message)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(wait)
                nursery.start_soon(refusal_of, shem.run)
                await wait_all_tasks_blocked()
                engine.on_write = broken
                await refusal_of(shem.submit, "relay/other", "relay", ["b"])
            assert heard == ["the disk is gone"]
            assert gate.cancelled == 1

    run_apart(case)


def broken(_batches):
    raise OplogError("the disk is gone")
