"""Effects that are tried again inside their call."""

import pytest
import trio
import trio.testing

from executor.durable.effects import Effect
from executor.durable.modes import Modes
from executor.durable.retry import NEVER, Chosen, RetryPolicy, TransientAnswer, TransientError
from executor.durable.retry_rules import RetryRule, RetryRules, recorded_retry_rules
from executor.durable.retrying import Retrying
from oplog.entry import Error
from oplog.writer import Writer
from tests.support.sources import FakeSources

SECOND_NS = 10**9


class Closing:
    closing = False


class OneCall:
    oldest_open = 7


class FakeSession:
    def __init__(self):
        self.deferred = OneCall()
        self.modes = Modes()
        self.failing_start = 0
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
        self.retrying = Retrying(self.session, self.sources, self.session.attempts)

    async def attempt(self):
        await trio.lowlevel.checkpoint()
        self.tried += 1
        if self.failures:
            raise self.failures.pop(0)
        return "answer"

    async def run(self, start_index=7, *, idempotent=True):
        return await self.retrying.wrap(self.effect, start_index, idempotent=idempotent).run()

    def rule(self, attempts_max, **when):
        policy = RetryPolicy(attempts_max=attempts_max, max_jitter_factor=None, max_delay_s=60.0)
        rules = [RetryRule(name="rule", policy=policy, **when)]
        self.retrying.rules = RetryRules(recorded_retry_rules(rules))


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


@trio.testing.trio_test
async def test_a_call_that_the_guest_has_dropped_is_not_tried_again_and_no_attempt_is_counted():
    world = World(TransientError("busy"))
    wrapped = world.retrying.wrap(world.effect, 7, idempotent=True, is_open=lambda: False)
    with pytest.raises(TransientError, match="busy"):
        await wrapped.run()
    assert (world.tried, world.session.appended) == (1, [])


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
async def test_an_answer_that_may_be_better_later_is_not_given_while_the_instance_is_left():
    world = World(TransientAnswer("refused", "worse"))
    world.session.effects.closing = True
    with pytest.raises(TransientAnswer):
        await world.run()
    assert world.session.appended == [], "the next instance makes another attempt"


@trio.testing.trio_test
async def test_the_failure_of_a_deferred_call_is_not_one_of_the_call_that_meets_it():
    deferred = 4
    failure = TransientAnswer("refused", "no answer of a poll", retry_after_s=60)
    world = World(failure, function_type="read-local")
    own = RetryPolicy(attempts_max=9, max_delay_s=60.0)
    failure.chosen = Chosen(own, "rule")
    world.session.failing_start = deferred
    with pytest.raises(TransientAnswer):
        await world.run()
    assert failure.chosen == Chosen(own, "rule")
    assert world.tried == 1
    assert world.session.appended == []


@trio.testing.trio_test
async def test_a_read_is_tried_again_whatever_the_mode():
    world = World(TransientError("busy"), function_type="read-remote")
    assert await world.run(idempotent=False) == "answer"


@trio.testing.trio_test
async def test_an_answer_that_may_be_better_later_is_given_once_attempts_are_used_up():
    world = World(*(TransientAnswer("refused", number) for number in range(5)))
    assert await world.run() == 2
    assert world.tried == 3


@trio.testing.trio_test
async def test_a_peer_that_asks_for_a_pause_gets_it():
    world = World(TransientAnswer("refused", 503, retry_after_s=7))
    assert await world.run() == "answer"
    (error,) = world.session.appended
    assert error.retry_at - error.at == 7 * SECOND_NS
    assert world.sources.slept_until == [5_000 + 7 * SECOND_NS]


@trio.testing.trio_test
async def test_a_pause_that_is_too_long_for_the_policy_gives_the_answer():
    world = World(TransientAnswer("refused", 503, retry_after_s=21))
    assert await world.run() == 503
    assert world.session.appended == []


@trio.testing.trio_test
async def test_a_pause_that_the_policy_would_make_is_left_to_the_loop():
    failure = TransientAnswer("refused", 503, retry_after_s=21)
    world = World(failure)
    world.session.modes.policy = RetryPolicy(max_delay_s=21.0)
    with pytest.raises(TransientAnswer):
        await world.run()
    assert world.session.appended == [], "the loop counts it"
    assert world.retrying.next_attempt(failure, 7) == (1, 21.0)


@trio.testing.trio_test
async def test_a_pause_that_a_host_function_asks_for_is_waited_for_by_the_loop():
    failure = TransientError("busy", retry_after_s=3_600)
    world = World(failure)
    with pytest.raises(TransientError):
        await world.run()
    assert world.retrying.next_attempt(failure, 7) == (1, 3_600.0)


@trio.testing.trio_test
async def test_an_answer_with_a_status_is_given_at_once_if_no_rule_names_it():
    world = World(TransientAnswer("status 503", 503, status=503, retry_after_s=7))
    world.rule(9, functions=("f",))
    assert await world.run() == 503
    assert world.session.appended == []


@trio.testing.trio_test
async def test_an_answer_with_a_status_that_a_rule_names_is_tried_again_by_it():
    failures = (TransientAnswer("status 503", n, status=503, retry_after_s=2) for n in range(9))
    world = World(*failures)
    world.rule(5, statuses=("5xx",))
    assert await world.run() == 4
    delays = [entry.retry_at - entry.at for entry in world.session.appended]
    assert delays == [2 * SECOND_NS] * 3 + [2_700_000_000]
    assert [entry.policy for entry in world.session.appended] == ["rule"] * 4


@trio.testing.trio_test
async def test_a_rules_policy_stays_with_the_failure_that_leaves_the_call():
    failures = [TransientError("busy") for _ in range(3)]
    world = World(*failures)
    world.rule(2, errors=("busy",))
    with pytest.raises(TransientError):
        await world.run()
    world.session.modes.policy = RetryPolicy(attempts_max=9)
    assert world.tried == 2
    assert world.retrying.chosen(failures[1]).rule == "rule"
    assert world.retrying.next_attempt(failures[1], 7) == (2, None)


@trio.testing.trio_test
async def test_one_attempt_is_one_attempt_wherever_it_fails():
    for begin in (0, 4):
        failure = TransientError("busy")
        world = World(failure)
        world.session.modes.policy = NEVER
        if begin:
            world.session.modes.begin_region(begin)
        with pytest.raises(TransientError):
            await world.run()
        world.session.modes.policy = RetryPolicy(attempts_max=9)
        assert world.retrying.next_attempt(failure, begin or 7, 7) == (1, None)


@trio.testing.trio_test
async def test_attempts_that_were_counted_by_the_call_count_for_its_region():
    failures = [TransientError("busy") for _ in range(3)]
    world = World(*failures)
    with pytest.raises(TransientError):
        await world.run()
    region, call = 11, 7
    assert world.retrying.next_attempt(failures[2], region, call) == (3, None)


@trio.testing.trio_test
async def test_the_policy_of_the_last_failure_decides_over_all_attempts_of_the_call():
    world = World(*(TransientError("busy") for _ in range(4)), TransientError("away"))
    world.rule(9, errors=("busy",))
    with pytest.raises(TransientError, match="away"):
        await world.run()
    assert world.tried == 5
    assert [entry.policy for entry in world.session.appended] == ["rule"] * 4


def test_a_trap_is_of_no_function_and_has_a_kind():
    world = World()
    trap = TransientError("unreachable", kind="guest-trap")
    world.rule(9, functions=("f",))
    assert world.retrying.chosen(trap).rule == ""
    world.rule(9, errors=("guest-trap",))
    assert world.retrying.chosen(trap).rule == "rule"


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
    effect = world.retrying.wrap(world.effect, 7, idempotent=True)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(effect.run)
        await trio.testing.wait_all_tasks_blocked()
        assert effect.rest.active
        gate.set()
    assert not effect.rest.active


@pytest.mark.parametrize(("left_s", "waited_s"), [(2, 2), (9, 5), (0, 0), (-1, 0)])
@trio.testing.trio_test
async def test_what_failed_in_an_earlier_instance_waits_for_what_is_left_of_its_delay(
    left_s, waited_s
):
    world = World()
    began = world.sources.monotonic_ns()
    due = {7: (world.sources.wall_ns() + left_s * SECOND_NS, 5 * SECOND_NS)}
    world.retrying = Retrying(
        world.session, world.sources, world.session.attempts, lambda index: due.get(index, (0, 0))
    )
    assert await world.run() == "answer"
    assert world.sources.monotonic_ns() - began == waited_s * SECOND_NS
    assert await world.run(start_index=8) == "answer"
    assert world.sources.monotonic_ns() - began == waited_s * SECOND_NS
