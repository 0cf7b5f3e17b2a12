"""A worker that waits long gives up its instance, and goes on by itself when its time has come."""

import time

import pytest
import trio
import trio.testing

from oplog.entry import Suspend
from tests.support import guests
from tests.support.executors import (
    APART_TIMEOUT_S,
    LastingEngine,
    deployed,
    opened,
    status_of,
    until_state,
    worker_entries,
)
from tests.support.sources import StillSources as Still
from tests.support.sources import WatchedSources

HOUR_NS = 3_600 * 10**9
SECOND_NS = 10**9


def wake_rows(engine):
    return engine.read_rows("wakeups", prefix=b"", after=None, limit=100)


def asleep(engine=None, **options):
    return deployed(guests.SLEEPER, "sleeper", engine, **options)


@trio.testing.trio_test
async def test_a_long_wait_unloads_the_worker_and_it_wakes_by_itself():
    engine, sources = LastingEngine(), Still()
    async with asleep(engine, sources=sources) as shem:
        await shem.submit("sleeper/w", "sleep", [HOUR_NS], key="k")
        await until_state(engine, "sleeper/w", "suspended")
        assert not (await shem.worker("sleeper/w")).loaded
        [suspend] = [e for _, e in worker_entries(engine, "sleeper/w") if type(e) is Suspend]
        assert suspend.wake_at == sources.wall + HOUR_NS
        assert len(wake_rows(engine)) == 1
        with trio.fail_after(APART_TIMEOUT_S):
            await shem.run(until_idle=True)  # what will be due is no work now
        sources.advance(HOUR_NS)
        with trio.fail_after(APART_TIMEOUT_S):
            outcome = await shem.wait("sleeper/w", "k")
        assert outcome.value >= HOUR_NS
        assert wake_rows(engine) == []
        rebuilt = await shem.replay("sleeper/w")
        assert rebuilt.divergence is None


@pytest.mark.parametrize("down_ns", [HOUR_NS // 2, 3 * HOUR_NS], ids=["early", "overdue"])
@trio.testing.trio_test
async def test_a_wait_outlives_the_process_and_an_overdue_one_ends_at_once(down_ns):
    engine, sources = LastingEngine(), Still()
    async with asleep(engine, sources=sources) as shem:
        await shem.submit("sleeper/w", "sleep", [HOUR_NS], key="k")
        await until_state(engine, "sleeper/w", "suspended")
    later = Still(wall_ns=sources.wall + down_ns)
    async with opened(engine, sources=later, recover="all") as shem:
        if down_ns < HOUR_NS:
            await trio.testing.wait_all_tasks_blocked(0.05)
            assert status_of(engine, "sleeper/w").state == "suspended"
            later.advance(HOUR_NS - down_ns)
        with trio.fail_after(APART_TIMEOUT_S):
            outcome = await shem.wait("sleeper/w", "k")
    assert HOUR_NS <= outcome.value <= max(HOUR_NS, down_ns) + SECOND_NS


@trio.testing.trio_test
async def test_who_is_only_named_wakes_and_nobody_else():
    engine, sources = LastingEngine(), Still()
    async with asleep(engine, sources=sources) as shem:
        for name in ("a", "b"):
            await shem.submit(f"sleeper/{name}", "sleep", [HOUR_NS], key="k")
            await until_state(engine, f"sleeper/{name}", "suspended")
    later = Still(wall_ns=sources.wall + 2 * HOUR_NS)
    async with opened(engine, sources=later) as shem:
        with trio.fail_after(APART_TIMEOUT_S):
            await shem.wait("sleeper/a", "k")
        assert status_of(engine, "sleeper/b").state == "suspended"


@trio.testing.trio_test
async def test_a_new_invocation_queues_and_does_not_wake():
    engine, sources = LastingEngine(), Still()
    async with asleep(engine, sources=sources) as shem:
        await shem.submit("sleeper/w", "sleep", [HOUR_NS], key="long")
        await until_state(engine, "sleeper/w", "suspended")
        await shem.submit("sleeper/w", "sleep", [0], key="short")
        await trio.testing.wait_all_tasks_blocked(0.05)
        status = status_of(engine, "sleeper/w")
        assert (status.state, status.pending) == ("suspended", 1)
        sources.advance(HOUR_NS)
        with trio.fail_after(APART_TIMEOUT_S):
            await shem.wait("sleeper/w", "short")
        assert (await shem.wait("sleeper/w", "long")).value >= HOUR_NS


@trio.testing.trio_test
async def test_a_wait_of_up_to_the_limit_keeps_its_instance():
    engine, sources = LastingEngine(), Still()
    async with asleep(engine, sources=sources) as shem:
        await shem.submit("sleeper/w", "sleep", [10 * SECOND_NS], key="k")
        await sources.until_asleep()
        sources.advance(10 * SECOND_NS)
        with trio.fail_after(APART_TIMEOUT_S):
            await shem.wait("sleeper/w", "k")
    assert Suspend not in {type(entry) for _, entry in worker_entries(engine, "sleeper/w")}


@trio.testing.trio_test
async def test_an_interrupted_sleeper_does_not_wake_until_it_is_resumed():
    engine, sources = LastingEngine(), Still()
    async with asleep(engine, sources=sources) as shem:
        await shem.submit("sleeper/w", "sleep", [HOUR_NS], key="k")
        await until_state(engine, "sleeper/w", "suspended")
        assert (await shem.interrupt("sleeper/w")).done
        assert wake_rows(engine) == []
        sources.advance(2 * HOUR_NS)
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert status_of(engine, "sleeper/w").state == "interrupted"
        await shem.resume("sleeper/w")
        with trio.fail_after(APART_TIMEOUT_S):
            assert (await shem.wait("sleeper/w", "k")).value >= HOUR_NS


@trio.testing.trio_test
async def test_who_resumes_a_sleeper_and_runs_it_is_not_kept_waiting():
    engine, sources = LastingEngine(), Still()
    async with asleep(engine, sources=sources) as shem:
        await shem.submit("sleeper/w", "sleep", [HOUR_NS], key="k")
        await until_state(engine, "sleeper/w", "suspended")
        await shem.interrupt("sleeper/w")
    async with opened(engine, sources=sources) as shem:
        with trio.fail_after(APART_TIMEOUT_S):
            resumed = await shem.resume("sleeper/w", until_ended=True)
        assert (resumed.done, resumed.status) == (True, "suspended")


@trio.testing.trio_test
async def test_a_deleted_sleeper_leaves_no_wakeup():
    engine, sources = LastingEngine(), Still()
    async with asleep(engine, sources=sources) as shem:
        await shem.submit("sleeper/w", "sleep", [HOUR_NS], key="k")
        await until_state(engine, "sleeper/w", "suspended")
        await shem.delete("sleeper/w")
        assert wake_rows(engine) == []


@trio.testing.trio_test
async def test_many_sleepers_wake_each_in_its_time():
    engine, sources = LastingEngine(), Still()
    async with asleep(engine, sources=sources) as shem:
        for number in range(100):
            await shem.submit(
                f"sleeper/{number}", "sleep", [(1 + number) * 60 * SECOND_NS], key="k"
            )
        for number in range(100):
            await until_state(engine, f"sleeper/{number}", "suspended")
    later = Still(wall_ns=sources.wall + 50 * 60 * SECOND_NS)
    async with opened(engine, sources=later, recover="all") as shem:
        for number in range(50):
            await until_state(engine, f"sleeper/{number}", "idle")
        states = {status_of(engine, f"sleeper/{number}").state for number in range(50, 100)}
        assert states == {"suspended"}
        later.advance(50 * 60 * SECOND_NS)
        for number in range(50, 100):
            await until_state(engine, f"sleeper/{number}", "idle")
    assert wake_rows(engine) == []


class Turns(trio.abc.Instrument):
    """Counts those of all tasks."""

    def __init__(self):
        self.count = 0

    def before_task_step(self, task):
        self.count += 1


@trio.testing.trio_test
async def test_guests_that_wait_take_no_turn_and_no_time():
    """Not on the trio thread, and not on a lane."""
    turns = Turns()

    async def spent(duration_s):
        """Turns of tasks and seconds of all threads meanwhile."""
        count, time_s = turns.count, time.process_time()
        await trio.sleep(duration_s)
        return turns.count - count, time.process_time() - time_s

    sources = WatchedSources()
    async with asleep(suspend_after_s=1e6, sources=sources) as shem:
        for number in range(50):
            await shem.submit(f"sleeper/{number}", "sleep", [HOUR_NS])
        await sources.until_asleep(50)
        trio.lowlevel.add_instrument(turns)
        with trio.fail_after(APART_TIMEOUT_S):
            while (await spent(0.2))[0] > 10:
                """What they wrote before is being committed."""
        count, time_s = await spent(1)
        trio.lowlevel.remove_instrument(turns)
        assert count < 25
        assert time_s < 0.3
        assert (await shem.worker("sleeper/0")).status == "running"


@trio.testing.trio_test
async def test_a_wait_without_end_is_a_suspension_like_any_other():
    engine = LastingEngine()
    async with asleep(engine, sources=Still()) as shem:
        await shem.submit("sleeper/w", "sleep", [2**64 - 1], key="k")
        await until_state(engine, "sleeper/w", "suspended")
        [suspend] = [e for _, e in worker_entries(engine, "sleeper/w") if type(e) is Suspend]
        assert suspend.wake_at == 2**63 - 1
