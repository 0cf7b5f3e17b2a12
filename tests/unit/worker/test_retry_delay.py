"""The delay of a retry is short, whatever the wall clock does meanwhile."""

import pytest
import trio
import trio.testing

from executor import Ok, Transient
from executor.worker.loop import RETRY_DELAY_MAX_NS
from tests.support.executors import LastingEngine, deployed, opened
from tests.support.programs import echo, peer
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
    ("moved_ns", "slept_ns"),
    [(-HOUR_NS, RETRY_DELAY_MAX_NS), (HOUR_NS, 0)],
    ids=["set back", "set forward"],
)
@trio.testing.trio_test
async def test_a_retry_is_not_held_up_by_a_wall_clock_that_was_set(moved_ns, slept_ns):
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
    assert set_anew.slept_until == [begun_ns + slept_ns]
    assert 0 < asleep.slept_until[0] - asleep.monotonic < RETRY_DELAY_MAX_NS
