"""The delay of a retry is short, whatever the wall clock does meanwhile."""

import pytest
import trio
import trio.testing

from executor import Ok, RetryPolicy, Transient
from executor.errors import ComponentRejected
from oplog.entry import Error
from tests.support.executors import LastingEngine, deployed, opened, worker_entries
from tests.support.programs import RELAY, echo, peer
from tests.support.sources import FakeSources

HOUR_NS = 3_600 * 10**9


class Asleep(FakeSources):
    """A world in which nobody wakes up from a sleep."""

    def __init__(self):
        super().__init__()
        self.fell_asleep = trio.Event()

    async def sleep_until(self, monotonic_ns):
        self.slept_until.append(monotonic_ns)
        self.fell_asleep.set()
        await trio.sleep_forever()


def busy(call, text):
    raise Transient("busy")


@pytest.mark.parametrize(
    ("moved_ns", "sleeps"),
    [(-HOUR_NS, True), (HOUR_NS, False)],
    ids=["set back", "set forward"],
)
@trio.testing.trio_test
async def test_a_retry_is_not_held_up_by_a_wall_clock_that_was_set(moved_ns, sleeps):
    engine = LastingEngine()
    asleep = Asleep()
    with trio.fail_after(5):
        async with deployed(engine=engine, host=[peer(busy)], sources=asleep) as shem:
            await shem.submit("relay/w", "relay", ["a"], key="k")
            await asleep.fell_asleep.wait()
        set_anew = FakeSources(wall_ns=asleep.wall + moved_ns)
        begun_ns = set_anew.monotonic
        async with opened(engine, host=[echo()], sources=set_anew) as shem:
            outcome = await shem.wait("relay/w", "k")
    assert (outcome.value, outcome.attempts) == (Ok("a"), 2)
    (failed,) = [entry for _, entry in worker_entries(engine, "relay/w") if type(entry) is Error]
    delay_ns = failed.retry_at - failed.at
    assert set_anew.slept_until == [begun_ns + (delay_ns if sleeps else 0)]
    assert 0 < asleep.slept_until[0] - asleep.monotonic <= delay_ns < 10**9


@pytest.mark.parametrize("delay_s", [0.01, 3600.0])
@trio.testing.trio_test
async def test_who_runs_all_until_it_is_idle_does_not_wait_for_an_attempt_in_an_hour(delay_s):
    engine = LastingEngine()
    policy = RetryPolicy(attempts_max=2, min_delay_s=delay_s, max_delay_s=delay_s)
    with trio.fail_after(30):
        async with opened(engine, host=[peer(busy)]) as shem:
            await shem.deploy(RELAY, name="relay", retry=policy)
            await shem.submit("relay/w", "relay", ["a"], key="k", run=False)
            await shem.run(until_idle=True)
            expected = "failed" if delay_s < 1 else "retrying"
            assert (await shem.worker("relay/w")).status == expected
        async with opened(engine, host=[echo()]) as shem:
            await shem.run(until_idle=True)
            assert (await shem.worker("relay/w")).status == expected


@trio.testing.trio_test
async def test_who_runs_all_until_it_is_idle_does_not_wait_for_a_due_attempt_that_stands_still():
    engine = LastingEngine()
    asleep = Asleep()
    with trio.fail_after(30):
        async with deployed(engine=engine, host=[peer(busy)], sources=asleep) as shem:
            await shem.submit("relay/w", "relay", ["a"], key="k")
            await asleep.fell_asleep.wait()
        later = FakeSources(wall_ns=asleep.wall + HOUR_NS)
        async with opened(engine, sources=later) as shem:
            with pytest.raises(ComponentRejected, match="demo:relay/peer"):
                await shem.run(until_idle=True)
            assert (await shem.worker("relay/w")).status == "retrying"
