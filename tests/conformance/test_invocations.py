"""What a caller can rely on: keys, refusals, failures, exits, retries, crashes and deletion."""

import pytest
import trio

from executor import Err, Ok, WaveArguments, host_function
from executor.errors import (
    AlreadyExists,
    BadArguments,
    ComponentNotFound,
    GuestError,
    GuestExit,
    GuestTrap,
    KeyConflict,
    PreviousFailed,
    UnknownFunction,
    UnknownKey,
    UsageError,
    WorkerNotFound,
)
from executor.worker.reader import StoreReader
from oplog.entry import Create, InvocationFinished, InvocationStarted
from tests.support import guests
from tests.support.executors import (
    LastingEngine,
    deployed,
    kinds,
    opened,
    run,
    status_of,
    until,
    until_state,
    worker_entries,
)
from tests.support.programs import BROKEN, CALL, EXITER, PEER, Bank, Gate, echo, peer

# -- keys --------------------------------------------------------------------------------------


def test_a_known_key_answers_what_is_recorded_and_runs_nothing():
    async def case():
        bank = Bank()
        engine = LastingEngine()
        async with deployed(engine=engine, host=bank.functions()) as shem:
            first = await shem.invoke("relay/w", "relay", ["a"], key="k")
            count = len(worker_entries(engine, "relay/w"))
            assert await shem.invoke("relay/w", "relay", ["a"], key="k") == first == Ok("A")
            accepted = await shem.submit("relay/w", "demo:relay/api.{relay}", ["a"], key="k")
            assert accepted.deduplicated
            assert accepted.function == "demo:relay/api.{relay}"
            assert (await shem.wait("relay/w", "k")).value == first
            assert len(worker_entries(engine, "relay/w")) == count
        async with opened(engine, host=bank.functions()) as shem:
            assert await shem.invoke("relay/w", "relay", ["a"], key="k") == first
        assert len(bank.asked) == 1

    run(case)


def test_without_a_key_every_call_is_another_one():
    async def case():
        async with deployed(guests.ADDER, "adder") as shem:
            assert [await shem.invoke("adder/w", "add", [2]) for _ in range(3)] == [2, 4, 6]
            one = await shem.submit("adder/w", "add", [2])
            two = await shem.submit("adder/w", "add", [2])
            assert one.key != two.key
            assert len(one.key) == 36

    run(case)


def test_a_key_that_is_used_otherwise_is_refused_in_every_state():
    async def conflicts(shem, engine, worker, key):
        before = worker_entries(engine, worker)
        for function, arguments in (("relay", ["other"]), ("count", []), ("relay", ["a "])):
            with pytest.raises(KeyConflict, match=f"key '{key}' was used for"):
                await shem.invoke(worker, function, arguments, key=key)
        assert worker_entries(engine, worker) == before

    async def case():
        engine = LastingEngine()
        gate = Gate()
        async with deployed(engine=engine, host=[gate.call]) as shem:
            await shem.submit("relay/w", "relay", ["a"], key="running")
            await shem.submit("relay/w", "relay", ["a"], key="pending")
            await gate.entered.wait()
            await conflicts(shem, engine, "relay/w", "running")
            await conflicts(shem, engine, "relay/w", "pending")
            assert (await shem.submit("relay/w", "relay", ["a"], key="running")).deduplicated
            assert (await shem.submit("relay/w", "relay", ["a"], key="pending")).deduplicated
            gate.go.set()
            await shem.wait("relay/w", "pending")
            await conflicts(shem, engine, "relay/w", "running")
            assert kinds(engine, "relay/w").count(InvocationStarted) == 2
        async with opened(engine, host=[echo()]) as shem:
            await conflicts(shem, engine, "relay/w", "pending")

    run(case)


@pytest.mark.parametrize("state", ["failed", "exited"])
def test_keys_of_a_worker_that_runs_no_more_are_still_known(state):
    async def case():
        engine = LastingEngine()
        async with deployed(EXITER if state == "exited" else guests.ADDER, "c", engine) as shem:
            good = ("stay", []) if state == "exited" else ("add", [7])
            end = ("exit", [0]) if state == "exited" else ("fail", [])
            assert await shem.invoke("c/w", *good, key="good") == 7
            if state == "failed":
                with pytest.raises(GuestTrap, match="unreachable"):
                    await shem.invoke("c/w", *end, key="end")
            else:
                assert await shem.invoke("c/w", *end, key="end") is None
            before = worker_entries(engine, "c/w")
            assert await shem.invoke("c/w", *good, key="good") == 7
            assert (await shem.wait("c/w", "end")).status == (
                "completed" if state == "exited" else "failed"
            )
            with pytest.raises(KeyConflict):
                await shem.invoke("c/w", *end, key="good")
            with pytest.raises(KeyConflict):
                await shem.invoke("c/w", *good, key="end")
            with pytest.raises(PreviousFailed) as refused:
                await shem.invoke("c/w", *good, key="new")
            assert refused.value.kind == "previous-failed"
            with pytest.raises(UnknownKey):
                StoreReader(engine).invocation("c/w", "new")
            assert worker_entries(engine, "c/w") == before
            assert (await shem.worker("c/w")).status == state

    run(case)


def test_two_callers_with_one_key_run_it_once_and_hear_the_same():
    async def case():
        bank = Bank()
        answers = []
        engine = LastingEngine()
        async with deployed(engine=engine, host=bank.functions()) as shem:

            async def ask():
                answers.append(await shem.invoke("relay/w", "relay", ["a"], key="k"))

            async with trio.open_nursery() as nursery:
                for _ in range(8):
                    nursery.start_soon(ask)
        assert answers == [Ok("A")] * 8
        assert len(bank.asked) == 1
        assert kinds(engine, "relay/w").count(InvocationFinished) == 1

    run(case)


def test_many_keys_at_once_run_one_after_another_each_once():
    async def case():
        engine = LastingEngine()
        answers = {}
        async with deployed(guests.ADDER, "adder", engine) as shem:

            async def ask(number):
                answers[number] = await shem.invoke("adder/w", "add", [1], key=f"k{number}")

            async with trio.open_nursery() as nursery:
                for number in range(50):
                    nursery.start_soon(ask, number)
                    nursery.start_soon(ask, number)
        assert sorted(answers.values()) == list(range(1, 51))
        started = [
            e.key for _, e in worker_entries(engine, "adder/w") if isinstance(e, InvocationStarted)
        ]
        assert len(started) == len(set(started)) == 50

    run(case)


@pytest.mark.parametrize("key", ["", "x" * 1_025, "é" * 513, "\ud800"], ids=len)
def test_a_key_is_1_to_1024_bytes_of_utf8(key):
    async def case():
        engine = LastingEngine()
        async with deployed(guests.ADDER, "adder", engine) as shem:
            with pytest.raises(UsageError, match=r"1 to 1024 bytes|is not Unicode text"):
                await shem.invoke("adder/w", "add", [1], key=key)
            with pytest.raises(WorkerNotFound):
                await shem.worker("adder/w")

    run(case)


@pytest.mark.parametrize("key", ["a", "🜃 \n\0/é", "x" * 1_024, "é" * 512, "🜃" * 256], ids=len)
def test_any_such_key_is_kept_as_it_is(key):
    async def case():
        engine = LastingEngine()
        gate = Gate("read-remote")
        async with deployed(engine=engine, host=[gate.call]) as shem:
            await shem.submit("relay/w", "relay", ["first"], key="first")
            await shem.submit("relay/w", "relay", ["x"], key=key)
            await gate.entered.wait()
            assert (await shem.worker("relay/w")).pending[-1] == key
        async with opened(engine, host=[echo("read-remote")], recover="all") as shem:
            assert (await shem.wait("relay/w", key)).value == Ok("x")
            assert await shem.invoke("relay/w", "relay", ["x"], key=key) == Ok("x")

    run(case)


def test_a_process_takes_up_all_that_waits_or_only_what_is_named():
    async def case():
        engine = LastingEngine()
        async with deployed(guests.ADDER, "adder", engine) as shem:
            for worker in ("adder/a", "adder/b"):
                await shem.submit(worker, "add", [1], key="k", run=False)
        async with opened(engine, recover="named") as shem:
            assert (await shem.wait("adder/a", "k")).value == 1
            for _ in range(20):  # time enough for the other one, were it taken up
                await shem.invoke("adder/a", "add", [1])
        assert status_of(engine, "adder/b").pending == 1
        async with opened(engine, recover="all") as shem:
            with trio.fail_after(20):
                await until(lambda: status_of(engine, "adder/b").pending == 0)
                await until_state(engine, "adder/b", "idle")
            assert (await shem.invocation("adder/b", "k")).value == 1

    run(case)


# -- refusals ----------------------------------------------------------------------------------


def test_a_wrong_function_or_argument_is_refused_and_poisons_nothing():
    async def case():
        engine = LastingEngine()
        async with deployed(guests.ADDER, "adder", engine) as shem:
            assert await shem.invoke("adder/w", "add", [1]) == 1
            before = worker_entries(engine, "adder/w")
            with pytest.raises(UnknownFunction, match="ad"):
                await shem.invoke("adder/w", "ad", [1])
            for arguments in ([], [1, 2], ["1"], [-1], [2**32], [1.0], [None]):
                with pytest.raises(BadArguments):
                    await shem.invoke("adder/w", "add", arguments)
            with pytest.raises(BadArguments) as refused:
                await shem.invoke("adder/w", "add", WaveArguments(("x",)))
            assert refused.value.column == 1
            assert worker_entries(engine, "adder/w") == before
            assert await shem.invoke("adder/w", "add", WaveArguments(("4",))) == 5
            with pytest.raises(UnknownFunction):
                await shem.invoke("adder/new", "nothing")
            with pytest.raises(WorkerNotFound):
                await shem.worker("adder/new")

    run(case)


@pytest.mark.parametrize("name", ["w", "adder", "adder/", "/w", "adder/a/b", "adder/a\0b", ""])
def test_a_worker_is_named_by_component_and_name(name):
    async def case():
        async with deployed(guests.ADDER, "adder") as shem:
            with pytest.raises((UsageError, ComponentNotFound)):
                await shem.invoke(name, "add", [1])

    run(case)


def test_a_worker_name_has_1_to_256_characters_of_any_kind():
    async def case():
        engine = LastingEngine()
        async with deployed(guests.ADDER, "adder", engine) as shem:
            for name in ("x", "x" * 256, "🜃" * 256, "a b\n", ".."):
                assert await shem.invoke(f"adder/{name}", "add", [1]) == 1
                assert (await shem.worker(f"adder/{name}")).worker == f"adder/{name}"
            for name in ("x" * 257, "\udcff"):
                with pytest.raises(UsageError):
                    await shem.invoke(f"adder/{name}", "add", [1])
            with pytest.raises(WorkerNotFound):
                await shem.worker("adder/\udcff")
            listed = [summary.worker for summary in (await shem.workers()).workers]
            assert len(listed) == 5

    run(case)


def test_an_unknown_component_worker_or_key_is_said_to_be_unknown():
    async def case():
        async with deployed(guests.ADDER, "adder") as shem:
            with pytest.raises(ComponentNotFound):
                await shem.invoke("other/w", "add", [1])
            for ask in (shem.worker, shem.crash, shem.replay, shem.delete):
                with pytest.raises(WorkerNotFound):
                    await ask("adder/w")
            with pytest.raises(WorkerNotFound):
                await shem.wait("adder/w", "k")
            await shem.invoke("adder/w", "add", [1], key="k")
            with pytest.raises(UnknownKey):
                await shem.wait("adder/w", "other")

    run(case)


def test_another_environment_of_an_existing_worker_is_refused():
    async def case():
        engine = LastingEngine()
        async with deployed(guests.ADDER, "adder", engine) as shem:
            assert await shem.invoke("adder/w", "add", [1], env={"A": "1"}) == 1
            assert await shem.invoke("adder/w", "add", [1], env={"A": "1"}) == 2
            assert await shem.invoke("adder/w", "add", [1]) == 3
            before = worker_entries(engine, "adder/w")
            for env in ({}, {"A": "2"}, {"A": "1", "B": "1"}):
                with pytest.raises(AlreadyExists):
                    await shem.invoke("adder/w", "add", [1], env=env)
            assert worker_entries(engine, "adder/w") == before
            create = before[0][1]
            assert isinstance(create, Create)
            assert create.env == (await shem.worker("adder/w")).env == {"A": "1"}

    run(case)


# -- outcomes ----------------------------------------------------------------------------------


def test_a_failure_ends_the_worker_and_what_waits_stays_waiting():
    async def case():
        engine = LastingEngine()
        gate = Gate()
        fails = []

        @host_function(PEER, CALL)
        async def call(call, text):
            fails.append(text)
            gate.entered.set()
            await gate.go.wait()
            raise ValueError(f"no {text}")

        async with deployed(engine=engine, host=[call]) as shem:
            await shem.submit("relay/w", "relay", ["a"], key="fails")
            await shem.submit("relay/w", "relay", ["b"], key="waits")
            refused = []

            async def wait_for(key):
                try:
                    await shem.wait("relay/w", key)
                except PreviousFailed as error:
                    refused.append(str(error))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(wait_for, "waits")
                await gate.entered.wait()
                gate.go.set()
                with pytest.raises(GuestError, match="ValueError: no a"):
                    await shem.invoke("relay/w", "relay", ["a"], key="fails")
            assert refused == ["an earlier invocation failed: ValueError: no a"]
            record = await shem.worker("relay/w")
            assert (record.status, record.pending, record.current_key) == (
                "failed",
                ("waits",),
                None,
            )
            assert (record.last_error, record.loaded) == ("ValueError: no a", False)
            outcome = await shem.wait("relay/w", "fails")
            assert (outcome.status, outcome.error.kind) == ("failed", "guest-error")
            stopped = await shem.crash("relay/w")
            assert stopped.divergence is None
            assert stopped.stopped_at == "failed: ValueError: no a"
        before = worker_entries(engine, "relay/w")
        async with opened(engine, host=[echo()], recover="all") as shem:
            await shem.run(until_idle=True)
            with pytest.raises(PreviousFailed, match="ValueError: no a"):
                await shem.wait("relay/w", "waits")
            with pytest.raises(PreviousFailed):
                await shem.invoke("relay/w", "relay", ["c"], key="new")
            assert (await shem.worker("relay/w")).pending == ("waits",)
        assert worker_entries(engine, "relay/w") == before
        assert fails == ["a"]

    run(case)


def test_a_trap_is_a_failure_of_its_own_kind_and_its_backtrace_is_recorded():
    async def case():
        engine = LastingEngine()
        async with deployed(guests.ADDER, "adder", engine) as shem:
            with pytest.raises(GuestTrap, match="unreachable"):
                await shem.invoke("adder/w", "fail", key="k")
            outcome = await shem.wait("adder/w", "k")
            assert (outcome.error.kind, outcome.value, outcome.wave) == ("guest-trap", None, "")
            with pytest.raises(GuestTrap):
                await shem.invoke("adder/w", "fail", key="k")
            assert (await shem.worker("adder/w")).last_error == "trapped (unreachable)"
        [finished] = [
            entry
            for _, entry in worker_entries(engine, "adder/w")
            if isinstance(entry, InvocationFinished)
        ]
        assert "wasm function" in finished.outcome.failure.backtrace

    run(case)


def test_an_instance_that_cannot_be_made_fails_the_invocation_it_was_made_for():
    async def case():
        engine = LastingEngine()
        async with deployed(BROKEN, "broken", engine) as shem:
            await shem.submit("broken/w", "get", key="one", run=False)
            await shem.submit("broken/w", "get", key="two")
            outcome = await shem.wait("broken/w", "one")
            assert outcome.error.kind == "guest-trap"
            with pytest.raises(PreviousFailed):
                await shem.wait("broken/w", "two")
            rebuild = await shem.crash("broken/w")
            assert (rebuild.divergence, rebuild.stopped_at[:7]) == (None, "failed:")
        assert kinds(engine, "broken/w").count(InvocationFinished) == 1

    run(case)


@pytest.mark.parametrize(
    ("function", "argument", "code"),
    [("exit", 0, 0), ("exit", 3, 3), ("leave", Ok(), 0), ("leave", Err(), 1)],
)
def test_an_exit_is_an_outcome_and_ends_the_worker(function, argument, code):
    async def case():
        engine = LastingEngine()
        async with deployed(EXITER, "exiter", engine) as shem:
            assert await shem.invoke("exiter/w", "stay") == 7
            await shem.submit("exiter/w", function, [argument], key="k")
            outcome = await shem.wait("exiter/w", "k")
            assert (outcome.exit_code, outcome.result) == (code, {"exit": code})
            if code == 0:
                assert (outcome.status, outcome.error) == ("completed", None)
                assert await shem.invoke("exiter/w", function, [argument], key="k") is None
            else:
                assert (outcome.status, outcome.error.kind) == ("failed", "guest-exit")
                with pytest.raises(GuestExit, match=f"code {code}"):
                    await shem.invoke("exiter/w", function, [argument], key="k")
            with pytest.raises(PreviousFailed, match="exited"):
                await shem.invoke("exiter/w", "stay")
            rebuild = await shem.replay("exiter/w")
            assert (rebuild.divergence, rebuild.stopped_at) == (None, f"exited with code {code}")
            assert (await shem.worker("exiter/w")).status == "exited"
        async with opened(engine) as shem:
            assert (await shem.wait("exiter/w", "k")).exit_code == code

    run(case)


def test_a_returned_err_is_a_completed_result():
    async def case():
        async with deployed(host=[peer(lambda call, text: Err("no"))]) as shem:
            assert await shem.invoke("relay/w", "relay", ["a"], key="k") == Err("no")
            outcome = await shem.wait("relay/w", "k")
            assert (outcome.status, outcome.error) == ("completed", None)
            assert (outcome.result, outcome.wave) == ({"err": "no"}, 'err("no")')
            assert await shem.invoke("relay/w", "count") == 1

    run(case)
