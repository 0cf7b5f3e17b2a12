import pytest

from executor.errors import InternalError
from executor.host.clock import INSTANT_MAX, WorkerClock

SECOND = 1_000_000_000


def test_a_new_worker_starts_near_zero_and_follows_the_process():
    clock = WorkerClock()
    clock.anchor(wall_ns=1_000 * SECOND, created_at_ns=1_000 * SECOND, monotonic_ns=77)
    assert clock.read(77) == 0
    assert clock.read(77 + SECOND) == SECOND


def test_after_a_crash_the_clock_has_gone_on_with_the_wall():
    clock = WorkerClock()
    clock.observe(3 * SECOND)
    clock.anchor(wall_ns=1_060 * SECOND, created_at_ns=1_000 * SECOND, monotonic_ns=5)
    assert clock.read(5 + SECOND) == 61 * SECOND


def test_a_wall_clock_that_was_set_back_never_turns_the_worker_back():
    clock = WorkerClock()
    clock.observe(3 * SECOND)
    clock.observe(2 * SECOND)
    clock.anchor(wall_ns=900 * SECOND, created_at_ns=1_000 * SECOND, monotonic_ns=5)
    assert clock.read(5) == 3 * SECOND


def test_a_second_anchor_does_not_lose_what_passed_since_the_first():
    clock = WorkerClock()
    clock.anchor(wall_ns=1_000 * SECOND, created_at_ns=1_000 * SECOND, monotonic_ns=0)
    clock.anchor(wall_ns=1_000 * SECOND, created_at_ns=1_000 * SECOND, monotonic_ns=4 * SECOND)
    assert clock.read(5 * SECOND) == 5 * SECOND


def test_a_deadline_is_the_same_distance_away_on_both_clocks():
    clock = WorkerClock()
    clock.anchor(wall_ns=1_060 * SECOND, created_at_ns=1_000 * SECOND, monotonic_ns=9 * SECOND)
    assert clock.monotonic_at(62 * SECOND) == 11 * SECOND
    assert clock.read(clock.monotonic_at(62 * SECOND)) == 62 * SECOND


def test_readings_stay_within_what_wasi_can_say():
    clock = WorkerClock()
    clock.observe(INSTANT_MAX)
    clock.anchor(wall_ns=0, created_at_ns=0, monotonic_ns=0)
    assert clock.read(SECOND) == INSTANT_MAX


def test_a_worker_that_is_not_live_has_no_time():
    with pytest.raises(InternalError, match="before the worker was live"):
        WorkerClock().read(0)
