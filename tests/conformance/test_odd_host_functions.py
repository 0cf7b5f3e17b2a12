"""Host functions of the embedder that leave in ways that no function should: each is the failure of
its own invocation, and nobody else hears of it.
"""

import asyncio
import threading

import pytest
import trio

from executor import Err, Ok, Transient, host_function
from executor.errors import GuestError
from executor.world import HOST_THREADS_MAX
from tests.support.executors import deployed, run, until
from tests.support.guests import ADDER
from tests.support.programs import CALL, PEER, peer


def forged():
    """A cancellation of nobody; trio has no public way to make one but a scope."""
    return trio.Cancelled._create(source="explicit")


async def kept():
    """A cancellation that was meant for a scope of the function's own."""
    with trio.CancelScope() as scope:
        scope.cancel()
        try:
            await trio.sleep_forever()
        except trio.Cancelled as cancelled:
            return cancelled


def bound(answer, plain=False, type="write-remote"):  # noqa: A002
    return host_function(PEER, CALL, type=type)(answer) if plain else peer(answer, type)


async def failed(shem, message, text="a"):
    """The invocation has failed with the message, and another worker goes on as if nothing were."""
    with pytest.raises(GuestError) as raised:
        await shem.invoke("relay/w", "relay", [text], key="k")
    assert message in raised.value.message
    assert (await shem.worker("relay/w")).status == "failed"
    assert await shem.invoke("relay/other", "relay", ["fine"]) == Ok("fine")


def raises(make):
    def answer(call, text):
        if text == "fine":
            return Ok(text)
        raise make()

    return answer


@pytest.mark.parametrize("type", ["read-local", "read-remote", "write-remote"])
@pytest.mark.parametrize("plain", [False, True], ids=["async", "plain"])
@pytest.mark.parametrize(
    "make",
    [
        forged,
        lambda: BaseExceptionGroup("two", [forged(), ValueError("no")]),
        lambda: BaseExceptionGroup("deep", [BaseExceptionGroup("one", [forged()])]),
        lambda: asyncio.CancelledError("of another loop"),
    ],
    ids=["bare", "group", "deep group", "asyncio"],
)
def test_a_cancellation_that_nobody_asked_for_fails_its_invocation_alone(make, plain, type):  # noqa: A002
    async def case():
        async with deployed(host=[bound(raises(make), plain, type)]) as shem:
            await failed(shem, "Cancelled")

    run(case)


@pytest.mark.parametrize("waits", [False, True], ids=["at once", "after a wait"])
def test_a_cancellation_that_was_kept_from_a_scope_fails_its_invocation_alone(waits):
    @host_function(PEER, CALL)
    async def call(call, text):
        if text == "fine":
            return Ok(text)
        cancelled = await kept() if waits else forged()
        raise cancelled

    async def case():
        async with deployed(host=[call]) as shem:
            await failed(shem, "Cancelled: cancelled due to explicit")

    run(case)


def test_a_cancelled_function_that_raises_an_older_cancellation_is_cancelled():
    async def case():
        entered = trio.Event()

        @host_function(PEER, CALL, type="read-remote")
        async def call(call, text):
            older = await kept()
            if text == "fine":
                return Ok(text)
            try:
                entered.set()
                await trio.sleep_forever()
            finally:
                raise older

        async with deployed(host=[call]) as shem:
            await shem.submit("relay/w", "relay", ["a"], key="k")
            await entered.wait()
            assert (await shem.interrupt("relay/w")).status == "interrupted"
            assert await shem.invoke("relay/other", "relay", ["fine"]) == Ok("fine")

    run(case)


class Mute(Transient):
    def __str__(self):
        raise SystemExit


class Unmade(Transient):
    retry_after_s = "soon"

    def __init__(self):
        Exception.__init__(self, "not made as its class is")


class Underivable(BaseExceptionGroup):
    def derive(self, excs):
        raise KeyboardInterrupt


class Unreadable(BaseExceptionGroup):
    @property
    def exceptions(self):
        raise SystemExit("no")


@pytest.mark.parametrize("plain", [False, True], ids=["async", "plain"])
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (Mute, "Mute (after 3 attempts)"),
        (Unmade, "Unmade, which cannot be read: TypeError"),
        (lambda: Transient("busy", status=[503]), "cannot be read: TypeError"),
        (lambda: Underivable("g", [ValueError("no"), forged()]), "ValueError: no; Cancelled"),
        (lambda: Unreadable("g", [ValueError("no")]), "Unreadable, which cannot be read: Sys"),
    ],
    ids=["mute", "unmade", "odd status", "underivable", "unreadable"],
)
def test_an_exception_that_cannot_even_be_read_is_a_failure(make, message, plain):
    async def case():
        async with deployed(host=[bound(raises(make), plain)]) as shem:
            await failed(shem, message)

    run(case)


@pytest.mark.parametrize("plain", [False, True], ids=["async", "plain"])
def test_a_function_that_ends_an_iteration_is_a_failure(plain):
    async def case():
        async with deployed(host=[bound(raises(StopIteration), plain)]) as shem:
            await failed(shem, "StopIteration")

    run(case)


def test_a_plain_function_that_gives_a_coroutine_hears_what_to_write():
    async def later():
        return Ok("never")

    async def case():
        async with deployed(
            host=[bound(lambda call, text: Ok(text) if text == "fine" else later(), plain=True)]
        ) as shem:
            await failed(shem, "a plain function answered a coroutine: bind an `async def`")

    run(case)


class Lazy:
    """An answer that is read only when it is needed, and then it is gone."""

    def __getattr__(self, name):
        raise LookupError(f"{name} is gone")

    @property
    def __class__(self):
        raise LookupError("gone")


@pytest.mark.parametrize("wrap", [lambda lazy: lazy, Ok, Err], ids=["all", "ok", "err"])
def test_an_answer_that_raises_when_it_is_read_is_a_failure(wrap):
    async def case():
        async with deployed(
            host=[peer(lambda call, text: Ok(text) if text == "fine" else wrap(Lazy()))]
        ) as shem:
            await failed(shem, "demo:relay/peer.call answered a ")

    run(case)


def test_plain_functions_that_never_end_leave_the_executor_its_threads():
    """As many as may run at the same time are stuck: others of them wait, and only they."""

    async def case():
        go = threading.Event()
        entered = []

        @host_function(PEER, CALL, type="read-remote")
        def call(call, text):
            entered.append(text)
            go.wait()
            return Ok(text)

        count = HOST_THREADS_MAX + 2
        async with deployed(host=[call]) as shem:
            try:
                await shem.deploy(ADDER, name="adder")
                for number in range(count):
                    await shem.submit(f"relay/{number}", "relay", [str(number)], key="k")
                await until(lambda: len(entered) >= HOST_THREADS_MAX)
                assert await shem.invoke("adder/w", "add", [1]) == 1
                assert len(entered) == HOST_THREADS_MAX
            finally:
                go.set()
            for number in range(count):
                assert (await shem.wait(f"relay/{number}", "k")).value == Ok(str(number))

    run(case)
