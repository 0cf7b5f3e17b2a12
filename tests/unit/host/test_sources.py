import time

import trio
import trio.testing

from executor.sources import SystemSources


@trio.testing.trio_test
async def test_a_sleep_ends_when_the_clock_has_reached_its_deadline():
    sources = SystemSources()
    deadline_ns = sources.monotonic_ns() + 20_000_000
    await sources.sleep_until(deadline_ns)
    assert sources.monotonic_ns() >= deadline_ns


@trio.testing.trio_test
async def test_a_sleep_until_the_past_ends_at_once_and_is_still_a_checkpoint():
    sources = SystemSources()
    with trio.testing.assert_checkpoints():
        await sources.sleep_until(sources.monotonic_ns() - 1)


@trio.testing.trio_test
async def test_the_longest_instant_can_be_slept_for_and_cancelled():
    with trio.move_on_after(0.01) as scope:
        await SystemSources().sleep_until((1 << 64) - 1)
    assert scope.cancelled_caught


def test_the_machines_clocks_and_randomness_are_read():
    sources = SystemSources()
    assert abs(sources.wall_ns() - time.time_ns()) < 60_000_000_000
    assert sources.monotonic_ns() <= sources.monotonic_ns()
    assert len(sources.random_bytes(16)) == 16
    assert sources.random_bytes(16) != sources.random_bytes(16)
