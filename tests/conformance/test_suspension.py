"""A worker that waits long gives up its instance, and goes on by itself when its time has come."""

import pytest
import trio
import trio.testing

from executor.worker.rows import read_status, read_worker_id
from oplog.entry import Suspend
from tests.support import guests
from tests.support.executors import LastingEngine, deployed, opened, worker_entries
from tests.support.sources import FakeSources

HOUR_NS = 3_600 * 10**9
SECOND_NS = 10**9


class Still(FakeSources):
    """A world in which time passes only when a test says so."""

    def __init__(self, **options):
        super().__init__(**options)
        self._moved = trio.Event()

    async def sleep_until(self, monotonic_ns):
        await trio.lowlevel.checkpoint()
        while self.monotonic < monotonic_ns:
            await self._moved.wait()

    def advance(self, duration_ns):
        super().advance(duration_ns)
        moved, self._moved = self._moved, trio.Event()
        moved.set()


def status(engine, worker="sleeper/w"):
    return read_status(engine, read_worker_id(engine, worker))


def state_of(engine, worker):
    return "" if read_worker_id(engine, worker) is None else status(engine, worker).state


async def until(engine, state, worker="sleeper/w"):
    with trio.fail_after(10):
        while state_of(engine, worker) != state:  # noqa: ASYNC110  # looked at from outside
            await trio.sleep(0.005)


def wake_rows(engine):
    return engine.read_rows("wakeups", prefix=b"", after=None, limit=100)


def asleep(engine=None, **options):
    return deployed(guests.SLEEPER, "sleeper", engine, **options)


@trio.testing.trio_test
async def test_a_long_wait_unloads_the_worker_and_it_wakes_by_itself():
    engine, sources = LastingEngine(), Still()
    async with asleep(engine, sources=sources) as shem:
        await shem.submit("sleeper/w", "sleep", [HOUR_NS], key="k")
        await until(engine, "suspended")
        assert not (await shem.worker("sleeper/w")).loaded
        [suspend] = [e for _, e in worker_entries(engine, "sleeper/w") if type(e) is Suspend]
        assert suspend.wake_at == sources.wall + HOUR_NS
        assert len(wake_rows(engine)) == 1
        with trio.fail_after(10):
            await shem.run(until_idle=True)  # what will be due is no work now
        sources.advance(HOUR_NS)
        with trio.fail_after(10):
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
        await until(engine, "suspended")
    later = Still(wall_ns=sources.wall + down_ns)
    async with opened(engine, sources=later, recover="all") as shem:
        if down_ns < HOUR_NS:
            await trio.testing.wait_all_tasks_blocked(0.05)
            assert status(engine).state == "suspended"
            later.advance(HOUR_NS - down_ns)
        with trio.fail_after(10):
            outcome = await shem.wait("sleeper/w", "k")
    assert HOUR_NS <= outcome.value <= max(HOUR_NS, down_ns) + SECOND_NS


@trio.testing.trio_test
async def test_who_is_only_named_wakes_and_nobody_else():
    engine, sources = LastingEngine(), Still()
    async with asleep(engine, sources=sources) as shem:
        for name in ("a", "b"):
            await shem.submit(f"sleeper/{name}", "sleep", [HOUR_NS], key="k")
            await until(engine, "suspended", f"sleeper/{name}")
    later = Still(wall_ns=sources.wall + 2 * HOUR_NS)
    async with opened(engine, sources=later) as shem:
        with trio.fail_after(10):
            await shem.wait("sleeper/a", "k")
        assert status(engine, "sleeper/b").state == "suspended"


@trio.testing.trio_test
async def test_a_new_invocation_queues_and_does_not_wake():
    engine, sources = LastingEngine(), Still()
    async with asleep(engine, sources=sources) as shem:
        await shem.submit("sleeper/w", "sleep", [HOUR_NS], key="long")
        await until(engine, "suspended")
        await shem.submit("sleeper/w", "sleep", [0], key="short")
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert (status(engine).state, status(engine).pending) == ("suspended", 1)
        sources.advance(HOUR_NS)
        with trio.fail_after(10):
            await shem.wait("sleeper/w", "short")
        assert (await shem.wait("sleeper/w", "long")).value >= HOUR_NS


@trio.testing.trio_test
async def test_a_wait_of_up_to_the_limit_keeps_its_instance():
    engine, sources = LastingEngine(), Still()
    async with asleep(engine, sources=sources) as shem:
        await shem.submit("sleeper/w", "sleep", [10 * SECOND_NS], key="k")
        await until(engine, "running")
        await trio.testing.wait_all_tasks_blocked(0.05)
        sources.advance(10 * SECOND_NS)
        with trio.fail_after(10):
            await shem.wait("sleeper/w", "k")
    assert Suspend not in {type(entry) for _, entry in worker_entries(engine, "sleeper/w")}


@trio.testing.trio_test
async def test_an_interrupted_sleeper_does_not_wake_until_it_is_resumed():
    engine, sources = LastingEngine(), Still()
    async with asleep(engine, sources=sources) as shem:
        await shem.submit("sleeper/w", "sleep", [HOUR_NS], key="k")
        await until(engine, "suspended")
        assert (await shem.interrupt("sleeper/w")).done
        assert wake_rows(engine) == []
        sources.advance(2 * HOUR_NS)
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert status(engine).state == "interrupted"
        await shem.resume("sleeper/w")
        with trio.fail_after(10):
            assert (await shem.wait("sleeper/w", "k")).value >= HOUR_NS


@trio.testing.trio_test
async def test_a_deleted_sleeper_leaves_no_wakeup():
    engine, sources = LastingEngine(), Still()
    async with asleep(engine, sources=sources) as shem:
        await shem.submit("sleeper/w", "sleep", [HOUR_NS], key="k")
        await until(engine, "suspended")
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
            await until(engine, "suspended", f"sleeper/{number}")
    later = Still(wall_ns=sources.wall + 50 * 60 * SECOND_NS)
    async with opened(engine, sources=later, recover="all") as shem:
        for number in range(50):
            await until(engine, "idle", f"sleeper/{number}")
        assert [status(engine, f"sleeper/{n}").state for n in range(50, 100)] == ["suspended"] * 50
        later.advance(50 * 60 * SECOND_NS)
        for number in range(50, 100):
            await until(engine, "idle", f"sleeper/{number}")
    assert wake_rows(engine) == []
