"""Crashes, deletion, closing and reopening, in the middle of whatever the worker does."""

import json
from functools import partial

import pytest
import trio

from executor import Executor, Ok, Transient
from executor.durable.keys import call_key
from executor.errors import Busy, StoreError, WorkerDeleted, WorkerNotFound
from executor.worker.reader import StoreReader
from executor.worker.rows import read_worker_id
from oplog.engine import TABLES
from oplog.entry import End, InvocationFinished, InvocationStarted, Log, Start
from oplog.errors import OplogError
from tests.support import guests
from tests.support.children import run_python
from tests.support.engines import Hold
from tests.support.executors import (
    COMPONENT_TABLES,
    LastingEngine,
    check_rows,
    deployed,
    kinds,
    opened,
    run,
    until,
    worker_entries,
)
from tests.support.programs import Bank, Gate, echo, order, peer

# -- crash -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["write-remote", "read-remote", "read-local"])
def test_a_crash_in_a_waiting_effect_repeats_it_and_the_caller_still_gets_its_answer(kind):
    async def case():
        engine = LastingEngine()
        gate = Gate(kind)
        answers = []
        async with deployed(engine=engine, host=[gate.call]) as shem:

            async def ask():
                answers.append(await shem.invoke("relay/w", "relay", ["a"], key="k"))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask)
                await gate.entered.wait()
                for crashes in (1, 2):
                    gate.entered = trio.Event()
                    rebuild = await shem.crash("relay/w")
                    assert rebuild.divergence is None
                    assert gate.cancelled == crashes
                    await gate.entered.wait()
                assert answers == []
                gate.go.set()
            assert (await shem.worker("relay/w")).entries == len(worker_entries(engine, "relay/w"))
        assert answers == [Ok("a!")]
        (start,) = [i for i, e in worker_entries(engine, "relay/w") if isinstance(e, Start)]
        assert gate.keys == [call_key(read_worker_id(engine, "relay/w"), "k", start)] * 3
        assert kinds(engine, "relay/w").count(InvocationFinished) == 1

    run(case)


def test_a_crash_appends_nothing_and_the_state_is_what_it_was():
    async def case():
        engine = LastingEngine()
        bank = Bank()
        async with deployed(engine=engine, host=bank.functions()) as shem:
            for number in range(3):
                await shem.invoke("relay/w", "relay", [str(number)])
            before = worker_entries(engine, "relay/w")
            for _ in range(3):
                rebuild = await shem.crash("relay/w")
                assert (rebuild.entries, rebuild.divergence) == (len(before), None)
                assert rebuild.replayed == 3 * 4
                assert rebuild.stopped_at is None
            assert worker_entries(engine, "relay/w") == before
            assert await shem.invoke("relay/w", "count") == 3
        assert len(bank.asked) == 3

    run(case)


def test_a_guest_that_computes_is_left_in_a_crash_and_computes_again():
    async def case():
        engine = LastingEngine()
        async with deployed(guests.ADDER, "adder", engine) as shem:
            assert await shem.invoke("adder/w", "add", [4]) == 4
            await shem.submit("adder/w", "spin", key="endless")
            await trio.sleep(0.02)
            assert (await shem.crash("adder/w")).divergence is None
            before = worker_entries(engine, "adder/w")  # the crash commits what there was
            assert kinds(engine, "adder/w").count(InvocationStarted) == 2
            await trio.sleep(0.02)
            assert (await shem.crash("adder/w")).divergence is None
            assert worker_entries(engine, "adder/w") == before
            outcome = await shem.wait("adder/w", "endless", timeout_s=0.02)
            assert await shem.wait("adder/w", "endless", timeout_s=-1) == outcome
            assert outcome.status == "pending"
            assert await shem.invoke("adder/other", "add", [1]) == 1

    run(case)


def test_a_replay_beside_the_living_worker_can_stop_anywhere():
    async def case():
        engine = LastingEngine()
        gate = Gate()
        async with deployed(engine=engine, host=[gate.call]) as shem:
            await shem.submit("relay/w", "relay", ["a"], key="k")
            await gate.entered.wait()
            before = worker_entries(engine, "relay/w")
            replayed = []
            for to in range(1, len(before) + 1):
                rebuild = await shem.replay("relay/w", to=to)
                assert rebuild.divergence is None
                replayed.append(rebuild.replayed)
            assert replayed == sorted(replayed)
            gate.go.set()
            assert (await shem.wait("relay/w", "k")).value == Ok("a!")
        assert len(gate.keys) == 1

    run(case)


def test_output_is_recorded_and_delivered_once_over_crashes():
    async def case():
        engine = LastingEngine()
        heard = []
        options = {
            "host": [*Bank().functions(), peer(lambda call, text: Ok(text))],
            "on_output": lambda *line: heard.append(line),
        }
        async with deployed(guests.printer_component(), "printer", engine, **options) as shem:
            assert await shem.invoke("printer/w", "print", ["one"], key="1") == 1
            assert await shem.invoke("printer/w", "warn", ["two"], key="2") == 2
            await shem.crash("printer/w")
            assert await shem.invoke("printer/w", "write", [b"\xff"], key="3") is None
            one = await shem.wait("printer/w", "1")
            two = await shem.wait("printer/w", "2")
            three = await shem.wait("printer/w", "3")
        assert [(one.stdout, one.stderr), (two.stdout, two.stderr)] == [
            ("one\n", ""),
            ("", "two\n"),
        ]
        assert three.stdout == "\ufffd"
        async with opened(engine, **options) as shem:
            assert (await shem.replay("printer/w")).divergence is None
            assert await shem.invoke("printer/w", "print", ["four"]) == 3
        logs = [entry for _, entry in worker_entries(engine, "printer/w") if isinstance(entry, Log)]
        texts = [(log.level, log.octets or log.text.encode()) for log in logs]
        assert [(level, text) for _, level, text in heard] == texts
        wanted = [("stdout", b"one\n"), ("stderr", b"two\n"), ("stdout", b"\xfffour\n")]
        for level in ("stdout", "stderr"):
            written = b"".join(text for logged, text in texts if logged == level)
            assert written == b"".join(text for logged, text in wanted if logged == level)

    run(case)


def test_output_is_not_repeated_when_the_python_guest_crashes_between_its_lines():
    async def case():
        engine = LastingEngine()
        reached = trio.Event()
        go = trio.Event()
        bank = Bank()

        async def perform(effect):
            if len(bank.asked) == 1 and not go.is_set():
                reached.set()
                await go.wait()
            return await effect.run()

        async with deployed(
            guests.order_component(), "order", engine, host=bank.functions(), perform=perform
        ) as shem:
            await shem.submit("order/w", "place", [order("o", "ann", 1, 2)], key="k")
            await reached.wait()
            assert (await shem.crash("order/w")).divergence is None
            go.set()
            outcome = await shem.wait("order/w", "k")
        assert outcome.status == "completed"
        lines = outcome.stdout.splitlines()
        assert [line.partition(",")[0] for line in lines] == [
            "order o: item 1 of 2",
            "order o: item 2 of 2",
            "order o: placed",
        ]
        assert len(bank.asked) == len(set(bank.asked)) == 2

    run(case)


READ_BESIDE = """
import json, sys
from executor.worker.reader import StoreReader
with StoreReader(sys.argv[1]) as reader:
    entries = sum(1 for _ in reader.oplog("adder/w"))
    names = [found.component for found in reader.components()]
    value = reader.invocation("adder/w", "k").value
    print(json.dumps([reader.worker("adder/w").status, value, entries, names]))
"""


# -- closing and opening -----------------------------------------------------------------------


def test_what_was_accepted_goes_on_at_the_next_opening():
    async def case():
        engine = LastingEngine()
        gate = Gate("read-remote")
        async with deployed(engine=engine, host=[gate.call]) as shem:
            await shem.submit("relay/w", "relay", ["a"], key="k1")
            await shem.submit("relay/w", "relay", ["b"], key="k2")
            await gate.entered.wait()
        assert gate.cancelled == 1
        check_rows(engine, read_worker_id(engine, "relay/w"))
        asked = []

        def answer(call, text):
            asked.append(call.key)
            return Ok(text.upper())

        async with opened(engine, host=[peer(answer, "read-remote")]) as shem:
            await trio.sleep(0.02)
            assert asked == []  # only workers that are named run
            assert (await shem.wait("relay/w", "k2")).value == Ok("B")
            assert (await shem.wait("relay/w", "k1")).value == Ok("A")
        assert asked[0] == gate.keys[0]
        assert kinds(engine, "relay/w").count(End) == 2
        check_rows(engine, read_worker_id(engine, "relay/w"))

    run(case)


def test_all_pending_work_is_taken_up_and_run_ends_when_there_is_none():
    async def case():
        engine = LastingEngine()
        gate = Gate("read-remote")
        async with deployed(engine=engine, host=[gate.call]) as shem:
            for number in range(5):
                await shem.submit(f"relay/w{number}", "relay", ["a"], key="k")
        async with opened(engine, host=[echo("read-remote")], recover="named") as shem:
            await shem.run(until_idle=True)
            page = await shem.workers(status="idle")
            assert [summary.pending for summary in page.workers] == [0] * 5
            assert (await shem.workers(status="running")).workers == ()
        for number in range(5):
            assert kinds(engine, f"relay/w{number}").count(InvocationFinished) == 1

    run(case)


def test_closing_awaits_a_remote_write_so_that_it_is_not_repeated():
    async def case():
        engine = LastingEngine()
        gate = Gate()

        async def let_go():
            await gate.entered.wait()
            await trio.sleep(0.05)
            gate.go.set()

        async with (
            trio.open_nursery() as nursery,
            deployed(engine=engine, host=[gate.call]) as shem,
        ):
            nursery.start_soon(let_go)
            await shem.submit("relay/w", "relay", ["a"], key="k")
            await gate.entered.wait()
        assert gate.cancelled == 0
        assert kinds(engine, "relay/w").count(End) == 1
        async with opened(engine, host=[echo()]) as shem:
            assert (await shem.wait("relay/w", "k")).value == Ok("a!")

    run(case)


def test_a_second_executor_of_a_store_is_refused_and_readers_are_not(tmp_path):
    async def case():
        async with Executor.open(tmp_path) as shem:
            await shem.deploy(guests.ADDER, name="adder")
            assert await shem.invoke("adder/w", "add", [3], key="k") == 3
            with pytest.raises(Busy) as refused:
                async with Executor.open(tmp_path):
                    pytest.fail("two executors on one store")
            assert refused.value.kind == "busy"
            count = (await shem.worker("adder/w")).entries
            read = await trio.to_thread.run_sync(run_python, READ_BESIDE, tmp_path)
            assert json.loads(read) == ["idle", 3, count, ["adder"]]
            assert await shem.invoke("adder/w", "add", [1], key="k2") == 4
        async with Executor.open(tmp_path) as shem:
            assert await shem.invoke("adder/w", "add", [1]) == 5
        with StoreReader(tmp_path) as reader:
            assert reader.worker("adder/w").entries == 10

    run(case)


# -- deletion ----------------------------------------------------------------------------------


def test_who_waits_for_a_worker_that_is_deleted_hears_it():
    async def case():
        engine = LastingEngine()
        gate = Gate()
        heard = []
        async with deployed(engine=engine, host=[gate.call]) as shem:

            async def ask(key):
                try:
                    await shem.invoke("relay/w", "relay", ["a"], key=key)
                except WorkerDeleted as error:
                    heard.append((key, error.kind))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask, "running")
                nursery.start_soon(ask, "waiting")
                await gate.entered.wait()
                done = await shem.delete("relay/w")
            assert (done.done, done.status) == (True, "deleted")
            assert sorted(heard) == [("running", "deleted"), ("waiting", "deleted")]
            assert gate.cancelled == 1
            with pytest.raises(WorkerNotFound):
                await shem.worker("relay/w")
        left = {table for table in TABLES if engine.read_rows(table)}
        assert left - {"meta"} == {*COMPONENT_TABLES, "component_bytes"}

    run(case)


def test_a_worker_that_is_made_again_is_another_one():
    async def case():
        engine = LastingEngine()
        bank = Bank()
        ids = []
        async with deployed(engine=engine, host=bank.functions()) as shem:
            for _ in range(2):
                assert await shem.invoke("relay/w", "relay", ["a"], key="k") == Ok("A")
                assert await shem.invoke("relay/w", "count") == 1
                ids.append((await shem.worker("relay/w")).id)
                await shem.delete("relay/w")
        assert len(set(ids)) == 2
        assert len(set(bank.asked)) == 2

    run(case)


def test_equal_keys_on_two_workers_never_meet_at_a_peer():
    async def case():
        bank = Bank()
        async with deployed(host=bank.functions()) as shem:
            for worker in ("relay/a", "relay/b"):
                await shem.invoke(worker, "relay", ["x"], key="same")
        assert len(set(bank.asked)) == 2

    run(case)


def test_a_worker_that_is_deleted_before_its_first_commit_leaves_nothing():
    async def case():
        hold = Hold()
        engine = LastingEngine()
        async with deployed(engine=engine, host=[echo()]) as shem:
            engine.on_write = hold
            refused = []

            async def submit():
                try:
                    await shem.submit("relay/w", "relay", ["a"], key="k")
                except WorkerDeleted as error:
                    refused.append(error)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(submit)
                await trio.to_thread.run_sync(hold.entered.wait, 10)
                nursery.start_soon(shem.delete, "relay/w")
                await trio.sleep(0.02)
                engine.on_write = lambda _: None
                hold.go.set()
            with pytest.raises(WorkerNotFound):
                await shem.worker("relay/w")
            assert await shem.invoke("relay/w", "relay", ["a"], key="k") == Ok("a")
        check_rows(engine, read_worker_id(engine, "relay/w"))

    run(case)


def test_whoever_comes_while_a_worker_is_deleted_is_refused_and_the_next_gets_a_new_one():
    async def case():
        engine = LastingEngine()
        async with deployed(engine=engine, host=[echo()]) as shem:
            await shem.invoke("relay/w", "relay", ["a"], key="k")
            first = (await shem.worker("relay/w")).id
            hold = Hold()
            engine.on_write = hold
            async with trio.open_nursery() as nursery:
                nursery.start_soon(shem.delete, "relay/w")
                await trio.to_thread.run_sync(hold.entered.wait, 10)
                with pytest.raises(WorkerDeleted):
                    await shem.submit("relay/w", "relay", ["a"], key="new")
                engine.on_write = lambda _: None
                hold.go.set()
            assert await shem.invoke("relay/w", "relay", ["a"], key="k") == Ok("a")
            assert (await shem.worker("relay/w")).id != first

    run(case)


# -- a store that fails ------------------------------------------------------------------------


@pytest.mark.parametrize("failing", range(1, 9))
def test_a_store_that_breaks_is_told_to_every_caller_and_harms_nothing_recorded(failing):
    async def case():
        engine = LastingEngine()
        bank = Bank()
        async with deployed(engine=engine, host=bank.functions()) as shem:
            await shem.invoke("relay/w", "relay", ["a"], key="k0")
        writes = [0]
        told = []

        def break_at(_batches):
            writes[0] += 1
            if writes[0] == failing:
                raise OplogError("the disk is gone")

        engine.on_write = break_at
        async with opened(engine, host=bank.functions()) as shem:
            for number in range(1, 5):
                try:
                    await shem.invoke("relay/w", "relay", [str(number)], key=f"k{number}")
                except StoreError as error:
                    told.append(str(error))
        assert writes[0] == failing
        assert told
        assert all("the disk is gone" in text or "closed" in text for text in told)
        engine.on_write = lambda _: None
        async with opened(engine, host=bank.functions(), recover="all") as shem:
            await shem.run(until_idle=True)
            for number in range(1, 5):
                wanted = Ok(str(number))
                assert (
                    await shem.invoke("relay/w", "relay", [str(number)], key=f"k{number}") == wanted
                )
            assert await shem.invoke("relay/w", "count") == 5
        check_rows(engine, read_worker_id(engine, "relay/w"))

    run(case)


def test_a_failure_that_passes_in_the_last_of_its_attempts_is_no_failure_after_crashes():
    async def case():
        asked = []

        def answer(call, text):
            asked.append(call.key)
            if len(asked) <= 2:
                raise Transient("busy")
            return Ok(text)

        engine = LastingEngine()
        async with deployed(engine=engine, host=[peer(answer)]) as shem:
            await shem.submit("relay/w", "relay", ["a"], key="k")
            for count in (1, 2):
                await until(partial(had_errors, engine, count))
                assert (await shem.crash("relay/w")).divergence is None
            assert (await shem.wait("relay/w", "k")).attempts == 3
        assert len(asked) == 3

    run(case)


def had_errors(engine, count):
    return sum(kind.__name__ == "Error" for kind in kinds(engine, "relay/w")) >= count


def test_a_known_key_is_acknowledged_only_when_its_acceptance_is_durable():
    async def case():
        engine = LastingEngine()
        async with deployed(guests.ADDER, "adder", engine) as shem:
            assert await shem.invoke("adder/w", "add", [1]) == 1
            hold = Hold()
            engine.on_write = hold
            async with trio.open_nursery() as nursery:
                nursery.start_soon(partial(shem.submit, "adder/w", "add", [2], key="k"))
                await trio.to_thread.run_sync(hold.entered.wait, 10)
                await trio.sleep(0.02)  # the guest is done by now, and nothing of it is committed
                with trio.move_on_after(0.02) as soon:
                    await shem.submit("adder/w", "add", [2], key="k")
                acknowledged = not soon.cancelled_caught
                engine.on_write = lambda _: None
                hold.go.set()
            assert not acknowledged
            assert (await shem.submit("adder/w", "add", [2], key="k")).deduplicated

    run(case)
