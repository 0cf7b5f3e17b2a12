"""Host functions of the embedder: what they may answer, raise and carry, and how often they run."""

import signal
import threading

import pytest
import trio

from executor import Err, Ok, Transient, host_function
from executor.cli.output import leaf_error
from executor.durable.keys import call_key
from executor.errors import (
    Divergence,
    GuestError,
    GuestTrap,
    InternalError,
    KeyConflict,
    LimitError,
    StoreError,
)
from executor.worker.rows import read_worker_id
from oplog.entry import Error, Start
from oplog.errors import OplogFullError
from tests.support.executors import (
    LastingEngine,
    deployed,
    kinds,
    opened,
    run,
    status_of,
    until,
    worker_entries,
)
from tests.support.programs import CALL, PEER, Gate, echo, peer


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (lambda: 7, "result"),
        (lambda: "text", "result"),
        (lambda: None, "result"),
        (lambda: Ok(7), "string"),
        (lambda: Ok("\ud800"), "surrogate"),
        (lambda: Err(b"bytes"), "string"),
    ],
)
def test_a_host_function_that_answers_the_wrong_type_fails_the_invocation(answer, expected):
    async def case():
        async with deployed(host=[peer(lambda call, text: answer())]) as shem:
            with pytest.raises(GuestError) as raised:
                await shem.invoke("relay/w", "relay", ["a"])
            assert "demo:relay/peer.call" in str(raised.value)
            assert expected in str(raised.value)

    run(case)


def test_a_plain_function_runs_in_a_thread_and_holds_up_nobody():
    async def case():
        go = threading.Event()
        threads = []

        @host_function(PEER, CALL, type="read-remote")
        def call(call, text):
            threads.append(threading.current_thread())
            if text == "slow":
                assert go.wait(10)
            return Ok(f"{call.worker} {text}")

        async with deployed(host=[call]) as shem:
            await shem.submit("relay/slow", "relay", ["slow"], key="k")
            assert await shem.invoke("relay/w", "relay", ["a"]) == Ok("relay/w a")
            go.set()
            assert (await shem.wait("relay/slow", "k")).value == Ok("relay/slow slow")
        assert threading.main_thread() not in threads

    run(case)


@pytest.mark.parametrize("plain", [False, True], ids=["async", "plain"])
def test_a_transient_error_is_tried_again_under_the_same_key(plain):
    async def case():
        keys = []

        def answer(call, text):
            keys.append(call.key)
            if len(keys) < 3:
                raise Transient("busy")
            return Ok("done")

        bound = host_function(PEER, CALL)(answer) if plain else peer(answer)
        engine = LastingEngine()
        async with deployed(engine=engine, host=[bound]) as shem:
            assert await shem.invoke("relay/w", "relay", ["a"], key="k") == Ok("done")
            outcome = await shem.wait("relay/w", "k")
            assert (outcome.status, outcome.attempts) == ("completed", 3)
            assert (await shem.worker("relay/w")).status == "idle"
            assert (await shem.replay("relay/w")).divergence is None
        starts = [i for i, e in worker_entries(engine, "relay/w") if isinstance(e, Start)]
        worker_id = read_worker_id(engine, "relay/w")
        assert keys == [call_key(worker_id, "k", starts[0])] * 3
        assert len(starts) == 1
        errors = [e for _, e in worker_entries(engine, "relay/w") if isinstance(e, Error)]
        assert [error.retry_from for error in errors] == [starts[0]] * 2
        assert all(error.retry_at > error.at for error in errors)

    run(case)


class Own(BaseException):
    pass


class Mute(Exception):
    def __str__(self):
        raise KeyboardInterrupt


FOREIGN = [
    TypeError("no"),
    Own("no"),
    SystemExit("no"),
    GeneratorExit("no"),
    KeyboardInterrupt("no"),
    StopAsyncIteration("no"),
    BaseExceptionGroup("several", [Own("no"), ValueError("no"), KeyboardInterrupt("no")]),
    StoreError("no", kind="disk-full"),
    OplogFullError("no"),
    Divergence(worker="other/w", index=3, recorded="a", requested="b"),
    GuestTrap("no"),
    InternalError("no"),
    LimitError("no"),
    ExceptionGroup("several", [Transient("busy"), ValueError("no")]),
]


@pytest.mark.parametrize("plain", [False, True], ids=["async", "plain"])
@pytest.mark.parametrize("error", FOREIGN, ids=lambda error: type(error).__name__)
def test_any_exception_of_a_host_function_is_a_failure_of_the_invocation(error, plain):
    async def case():
        def answer(call, text):
            raise error

        bound = host_function(PEER, CALL)(answer) if plain else peer(answer)
        async with deployed(host=[bound]) as shem:
            with pytest.raises(GuestError) as raised:
                await shem.invoke("relay/w", "relay", ["a"], key="k")
            leaves = error.exceptions if isinstance(error, BaseExceptionGroup) else [error]
            wanted = "; ".join(f"{type(leaf).__name__}: {leaf}" for leaf in leaves)
            assert raised.value.message == wanted
            outcome = await shem.wait("relay/w", "k")
            assert (outcome.status, outcome.error.kind) == ("failed", "guest-error")
            assert (await shem.worker("relay/w")).status == "failed"

    run(case)


@pytest.mark.parametrize("plain", [False, True], ids=["async", "plain"])
def test_an_exception_that_says_nothing_is_told_by_its_class(plain):
    async def case():
        def answer(call, text):
            raise Mute if text == "mute" else KeyboardInterrupt

        bound = host_function(PEER, CALL)(answer) if plain else peer(answer)
        async with deployed(host=[bound]) as shem:
            for text, name in (("mute", "Mute"), ("x", "KeyboardInterrupt")):
                with pytest.raises(GuestError) as raised:
                    await shem.invoke(f"relay/{text}", "relay", [text])
                assert raised.value.message == name

    run(case)


def test_a_cancelled_host_function_that_fails_meanwhile_ends_nothing_but_its_call():
    async def case():
        entered = trio.Event()

        async def fail_at_the_end():
            try:
                await trio.sleep_forever()
            finally:
                raise Own("no")

        @host_function(PEER, CALL, type="read-remote")
        async def call(call, text):
            if text == "other":
                return Ok(text)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(fail_at_the_end)
                nursery.start_soon(trio.sleep_forever)
                entered.set()
            return Ok("never")

        async with deployed(host=[call]) as shem:
            await shem.submit("relay/w", "relay", ["a"], key="k")
            await entered.wait()
            assert (await shem.interrupt("relay/w")).status == "interrupted"
            assert await shem.invoke("relay/other", "relay", ["other"]) == Ok("other")

    run(case)


@pytest.mark.parametrize("in_a_group", [False, True], ids=["bare", "group"])
def test_a_ctrl_c_in_a_host_function_ends_the_executor_and_fails_no_invocation(in_a_group):
    engine = LastingEngine()

    @host_function(PEER, CALL, type="read-remote")
    async def call(call, text):
        if not in_a_group:
            signal.raise_signal(signal.SIGINT)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            signal.raise_signal(signal.SIGINT)

    async def case():
        async with deployed(engine=engine, host=[call]) as shem:
            await shem.submit("relay/w", "relay", ["a"], key="k")
            await trio.sleep_forever()

    with pytest.raises(BaseException) as raised:
        trio.run(case)
    assert isinstance(leaf_error(raised.value), KeyboardInterrupt)
    assert status_of(engine, "relay/w").state == "running"

    async def after():
        async with opened(engine, host=[echo("read-remote")], recover="all") as shem:
            assert (await shem.wait("relay/w", "k")).value == Ok("a")

    run(after)


def test_a_group_of_nothing_but_transient_errors_is_transient():
    async def case():
        asked = []

        async def busy():
            raise Transient("busy")

        @host_function(PEER, CALL)
        async def call(call, text):
            asked.append(call.key)
            if len(asked) < 3:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(busy)
            return Ok("done")

        async with deployed(host=[call]) as shem:
            assert await shem.invoke("relay/w", "relay", ["a"], key="k") == Ok("done")
            assert (await shem.wait("relay/w", "k")).attempts == 3
        assert len(set(asked)) == 1

    run(case)


def test_a_transient_error_that_stays_is_a_failure_after_three_attempts():
    async def case():
        asked = []

        def answer(call, text):
            asked.append(call.key)
            raise Transient("busy")

        async with deployed(host=[peer(answer, "read-remote")]) as shem:
            with pytest.raises(GuestError, match=r"busy \(after 3 attempts\)"):
                await shem.invoke("relay/w", "relay", ["a"], key="k")
            assert (await shem.wait("relay/w", "k")).attempts == 3
            assert (await shem.worker("relay/w")).status == "failed"
        assert len(asked) == 3
        assert len(set(asked)) == 1

    run(case)


def test_attempts_and_delay_of_a_retry_survive_a_restart():
    async def case():
        engine = LastingEngine()
        asked = []
        failed = trio.Event()

        def answer(call, text):
            asked.append(trio.current_time())
            failed.set()
            raise Transient("busy")

        async with deployed(engine=engine, host=[peer(answer)]) as shem:
            await shem.submit("relay/w", "relay", ["a"], key="k")
            await failed.wait()
            await until(lambda: Error in kinds(engine, "relay/w"))
            record = await shem.worker("relay/w")
            assert (record.status, record.retries) == ("retrying", 1)
        async with opened(engine, host=[peer(answer)], recover="all") as shem:
            outcome = await shem.wait("relay/w", "k")
            assert outcome.error.message == "busy (after 3 attempts)"
            assert outcome.attempts == 3
        assert len(asked) == 3
        assert asked[1] - asked[0] >= 0.1

    run(case)


@pytest.mark.parametrize("large", [65_536, 65_537, 200_000])
def test_large_arguments_answers_and_results_are_kept_whole(large):
    async def case():
        engine = LastingEngine()
        text = "é" * (large // 2)
        async with deployed(engine=engine, host=[peer(lambda call, t: Ok(t[::-1]))]) as shem:
            wanted = Ok(text[::-1])
            assert await shem.invoke("relay/w", "relay", [text], key="k") == wanted
            assert (await shem.replay("relay/w")).divergence is None
            assert await shem.invoke("relay/w", "count") == 1
        async with opened(engine, host=[echo()]) as shem:
            assert await shem.invoke("relay/w", "relay", [text], key="k") == wanted
            with pytest.raises(KeyConflict):
                await shem.invoke("relay/w", "relay", [text + "x"], key="k")
            assert await shem.invoke("relay/w", "count") == 1

    run(case)


def test_a_large_invocation_that_waits_runs_after_a_restart():
    async def case():
        engine = LastingEngine()
        gate = Gate("read-remote")
        text = "x" * 100_000
        async with deployed(engine=engine, host=[gate.call]) as shem:
            await shem.submit("relay/w", "relay", ["a"], key="first")
            await shem.submit("relay/w", "relay", [text], key="large")
            await gate.entered.wait()
        async with opened(engine, host=[echo("read-remote")], recover="all") as shem:
            assert (await shem.wait("relay/w", "large")).value == Ok(text)

    run(case)


def test_an_error_whose_text_is_no_unicode_is_recorded_in_what_can_be_written():
    async def case():
        def answer(call, text):
            raise OSError("no file: \udcff")

        async with deployed(host=[peer(answer)]) as shem:
            with pytest.raises(GuestError, match=r"no file: \\udcff"):
                await shem.invoke("relay/w", "relay", ["a"])
            assert (await shem.worker("relay/w")).status == "failed"

    run(case)
