"""Effects that are tried again inside their call."""

import pytest
import trio
import trio.testing

from executor.durable.effects import Effect
from executor.durable.modes import Modes
from executor.durable.retry import RetryPolicy, TransientError
from executor.durable.retrying import Retrying, TransientAnswer
from oplog.entry import Error
from oplog.writer import Writer
from tests.support.sources import FakeSources

SECOND_NS = 10**9


class Closing:
    closing = False


class FakeSession:
    def __init__(self):
        self.modes = Modes()
        self.effects = Closing()
        self.writer = Writer(bytes(16), 10, None, lambda writer: None)
        self.appended = []
        self.commits = 0

    def append(self, entry):
        self.appended.append(entry)
        return 10 + len(self.appended)

    def attempts(self, index):
        return sum(entry.retry_from == index for entry in self.appended)

    async def commit(self):
        await trio.lowlevel.checkpoint()
        self.commits += 1


class World:
    def __init__(self, *failures, function_type="write-remote"):
        self.session = FakeSession()
        self.sources = FakeSources()
        self.failures = list(failures)
        self.tried = 0
        self.effect = Effect(function="f", function_type=function_type, key="k", run=self.attempt)

    async def attempt(self):
        await trio.lowlevel.checkpoint()
        self.tried += 1
        if self.failures:
            raise self.failures.pop(0)
        return "answer"

    async def run(self, start_index=7, *, idempotent=True):
        retrying = Retrying(self.session, self.sources, self.session.attempts)
        return await retrying.wrap(self.effect, start_index, idempotent=idempotent).run()


@trio.testing.trio_test
async def test_a_transient_failure_is_tried_again_after_the_policys_delays():
    world = World(TransientError("busy"), TransientError("still busy"))
    assert await world.run() == "answer"
    errors = world.session.appended
    assert [(e.retry_from, e.details) for e in errors] == [(7, "busy"), (7, "still busy")]
    assert world.session.commits == 2, "an attempt is counted before the next one begins"
    delays = [e.retry_at - e.at for e in errors]
    assert 0.1 <= delays[0] / SECOND_NS <= 0.115
    assert 0.3 <= delays[1] / SECOND_NS <= 0.345


@trio.testing.trio_test
async def test_attempts_that_are_used_up_raise_the_last_failure():
    world = World(*(TransientError(str(number)) for number in range(5)))
    with pytest.raises(TransientError, match="2"):
        await world.run()
    assert world.tried == 3
    assert len(world.session.appended) == 2, "the last one is counted by whoever ends the call"


@trio.testing.trio_test
async def test_attempts_before_a_crash_count():
    world = World(*(TransientError(str(number)) for number in range(5)))
    world.session.appended.append(Error(at=1, retry_from=7, kind="guest-error"))
    with pytest.raises(TransientError, match="1"):
        await world.run()
    assert world.tried == 2


@pytest.mark.parametrize("case", ["mode off", "region", "zone", "other failure", "closing"])
@trio.testing.trio_test
async def test_what_may_not_be_repeated_here_is_not(case):
    world = World(ValueError("never") if case == "other failure" else TransientError("busy"))
    start_index = 7
    if case == "region":
        world.session.modes.begin_region(4)
    elif case == "zone":
        start_index = 0
    elif case == "closing":
        world.session.effects.closing = True
    with pytest.raises((TransientError, ValueError)):
        await world.run(start_index, idempotent=case != "mode off")
    assert world.tried == 1
    assert world.session.appended == []


@trio.testing.trio_test
async def test_a_read_is_tried_again_whatever_the_mode():
    world = World(TransientError("busy"), function_type="read-remote")
    assert await world.run(idempotent=False) == "answer"


@trio.testing.trio_test
async def test_an_answer_that_may_be_better_later_is_given_once_attempts_are_used_up():
    world = World(*(TransientAnswer("503", number) for number in range(5)))
    assert await world.run() == 2
    assert world.tried == 3


@trio.testing.trio_test
async def test_a_peer_that_asks_for_a_pause_gets_it():
    world = World(TransientAnswer("503", 503, retry_after_s=7))
    assert await world.run() == "answer"
    (error,) = world.session.appended
    assert error.retry_at - error.at == 7 * SECOND_NS
    assert world.sources.slept_until == [5_000 + 7 * SECOND_NS]


@trio.testing.trio_test
async def test_a_pause_that_is_too_long_for_the_call_gives_the_answer():
    world = World(TransientAnswer("503", 503, retry_after_s=21))
    assert await world.run() == 503
    assert world.session.appended == []


@trio.testing.trio_test
async def test_the_policy_is_the_guests():
    world = World(*(TransientError(str(number)) for number in range(9)))
    world.session.modes.policy = RetryPolicy(attempts_max=6, max_jitter_factor=None)
    with pytest.raises(TransientError, match="5"):
        await world.run()
    assert [e.retry_at - e.at for e in world.session.appended] == [
        100_000_000,
        300_000_000,
        900_000_000,
        SECOND_NS,
        SECOND_NS,
    ]


@trio.testing.trio_test
async def test_between_attempts_nothing_is_under_way():
    world = World(TransientError("busy"))
    gate = trio.Event()

    async def sleep_until(_):
        await gate.wait()

    world.sources.sleep_until = sleep_until
    retrying = Retrying(world.session, world.sources, world.session.attempts)
    effect = retrying.wrap(world.effect, 7, idempotent=True)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(effect.run)
        await trio.testing.wait_all_tasks_blocked()
        assert effect.rest.active
        gate.set()
    assert not effect.rest.active
