from executor.host.clock import INSTANT_MAX

WALL = "wasi:clocks/wall-clock"
MONOTONIC = "wasi:clocks/monotonic-clock"
READY = "wasi:io/poll.[method]pollable.ready"
BLOCK = "wasi:io/poll.[method]pollable.block"


def test_the_wall_clock_splits_its_reading(guest):
    guest.sources.wall = 1_700_000_000_123_456_789
    reading = guest.call(f"{WALL}.now")
    assert reading == {"seconds": 1_700_000_000, "nanoseconds": 123_456_789}
    assert guest.call(f"{WALL}.resolution") == {"seconds": 0, "nanoseconds": 1}


def test_a_wall_clock_before_the_epoch_reads_as_the_epoch(guest):
    guest.sources.wall = -5
    assert guest.call(f"{WALL}.now") == {"seconds": 0, "nanoseconds": 0}


def test_the_monotonic_clock_counts_from_the_workers_creation(guest):
    assert guest.call(f"{MONOTONIC}.now") == 0
    guest.sources.advance(250)
    assert guest.call(f"{MONOTONIC}.now") == 250
    assert guest.state.clock.last_ns == 250
    assert guest.call(f"{MONOTONIC}.resolution") == 1


def test_a_timer_is_ready_from_its_instant_on(guest):
    timer = guest.call(f"{MONOTONIC}.subscribe-instant", 100)
    assert guest.call(READY, timer) is False
    guest.sources.advance(99)
    assert guest.call(READY, timer) is False
    guest.sources.advance(1)
    assert guest.call(READY, timer) is True
    guest.drop("wasi:io/poll", "pollable", timer)


def test_a_duration_is_recorded_as_its_deadline(guest):
    guest.sources.advance(1_000)
    timer = guest.call(f"{MONOTONIC}.subscribe-duration", 500)
    assert guest.answers == [1_500]
    guest.call(BLOCK, timer)
    assert guest.call(f"{MONOTONIC}.now") == 1_500
    assert guest.sources.slept_until == [5_000 + 1_500]


def test_what_a_guest_learns_from_a_timer_keeps_its_clock_from_turning_back(guest):
    guest.sources.advance(100)
    timer = guest.call(f"{MONOTONIC}.subscribe-duration", 700)
    assert guest.state.clock.last_ns == 100, "it knows that its deadline is 700 away"
    guest.call(BLOCK, timer)
    assert guest.state.clock.last_ns == 800


def test_a_duration_beyond_the_clocks_end_is_its_end(guest):
    guest.sources.advance(10)
    guest.call(f"{MONOTONIC}.subscribe-duration", INSTANT_MAX)
    assert guest.answers == [INSTANT_MAX]
    assert guest.state.clock.last_ns == 0


def test_the_timezone_is_utc(guest):
    when = {"seconds": 1_700_000_000, "nanoseconds": 0}
    display = guest.call("wasi:clocks/timezone.display", when)
    assert display == {"utc-offset": 0, "name": "UTC", "in-daylight-saving-time": False}
    assert guest.call("wasi:clocks/timezone.utc-offset", when) == 0
