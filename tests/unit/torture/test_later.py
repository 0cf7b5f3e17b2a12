from datetime import UTC, datetime

import trio

from executor.torture.later import LaterSources


def test_no_part_of_a_date_is_as_on_the_real_clock():
    for month in range(1, 13):
        real = datetime(2026, month, 28, 22, 57, 58, tzinfo=UTC)
        sources = LaterSources(0.0)
        late_ns = sources.wall_ns() - LaterSources.__mro__[1].wall_ns()
        late = datetime.fromtimestamp(real.timestamp() + round(late_ns / 1e9), UTC)
        for part in ("year", "month", "day", "hour", "minute", "second"):
            assert getattr(late, part) != getattr(real, part), (real, late, part)
        assert late.weekday() != real.weekday()


def test_each_reading_is_later_than_the_one_before_and_a_sleep_ends_by_them():
    sources = LaterSources(10.0)
    first, second = sources.monotonic_ns(), sources.monotonic_ns()
    assert 10e9 <= second - first < 11e9
    assert sources.wall_ns() - sources.wall_ns() < -9e9

    async def sleep():
        with trio.fail_after(5):
            await sources.sleep_until(sources.monotonic_ns() + 8_000_000_000)

    trio.run(sleep)
