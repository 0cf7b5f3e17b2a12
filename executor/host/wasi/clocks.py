"""wasi:clocks: every reading is recorded; a timer is its absolute deadline.

`subscribe-duration` and `subscribe-instant` record the deadline on the worker's clock, so that a
timer that a crash interrupted ends when it would have ended.
"""

from typing import Final

from executor.durable.definition import Local, Recorded
from executor.durable.function_type import READ_LOCAL
from executor.host.clock import INSTANT_MAX
from executor.host.interface import host_interface
from executor.host.pollables import Timer
from executor.host.state import HostState

NANOSECONDS: Final = 1_000_000_000
RESOLUTION_NS: Final = 1

Datetime = dict[str, int]


def datetime_of(time_ns: int) -> Datetime:
    """A `datetime` of nanoseconds since the Unix epoch; what lies before it is the epoch."""
    seconds, nanoseconds = divmod(max(0, time_ns), NANOSECONDS)
    return {"seconds": seconds, "nanoseconds": nanoseconds}


def read_wall(state: HostState) -> Datetime:
    return datetime_of(state.sources.wall_ns())


def wall_resolution(_state: HostState) -> Datetime:
    return datetime_of(RESOLUTION_NS)


def read_monotonic(state: HostState) -> int:
    return state.clock.read(state.sources.monotonic_ns())


def monotonic_resolution(_state: HostState) -> int:
    return RESOLUTION_NS


def observe_monotonic(state: HostState, reading_ns: int) -> int:
    state.clock.observe(reading_ns)
    return reading_ns


def deadline_at(_state: HostState, when: int) -> int:
    return when


def deadline_after(state: HostState, duration: int) -> int:
    return min(read_monotonic(state) + duration, INSTANT_MAX)


def observe_instant(state: HostState, deadline_ns: int, _when: int) -> int:
    return state.handles.add(Timer(deadline_ns))


def observe_duration(state: HostState, deadline_ns: int, duration: int) -> int:
    if deadline_ns < INSTANT_MAX:
        state.clock.observe(deadline_ns - duration)
    return state.handles.add(Timer(deadline_ns))


def display_utc(_state: HostState, _when: Datetime) -> dict[str, object]:
    return {"utc-offset": 0, "name": "UTC", "in-daylight-saving-time": False}


def utc_offset(_state: HostState, _when: Datetime) -> int:
    return 0


WALL_CLOCK = host_interface(
    """
    interface wasi:clocks/wall-clock {
        record datetime { seconds: u64, nanoseconds: u32 }
        now: func() -> datetime;
        resolution: func() -> datetime;
    }
    """,
    "0.2",
    [
        Recorded(name="now", function_type=READ_LOCAL, action=read_wall),
        Recorded(name="resolution", function_type=READ_LOCAL, action=wall_resolution),
    ],
)

MONOTONIC_CLOCK = host_interface(
    """
    interface wasi:clocks/monotonic-clock {
        use wasi:io/poll.{pollable};
        type instant = u64;
        type duration = u64;
        now: func() -> instant;
        resolution: func() -> duration;
        subscribe-instant: func(when: instant) -> pollable;
        subscribe-duration: func(when: duration) -> pollable;
    }
    """,
    "0.2",
    [
        Recorded(
            name="now",
            function_type=READ_LOCAL,
            action=read_monotonic,
            observe=observe_monotonic,
        ),
        Recorded(name="resolution", function_type=READ_LOCAL, action=monotonic_resolution),
        Recorded(
            name="subscribe-instant",
            function_type=READ_LOCAL,
            action=deadline_at,
            observe=observe_instant,
            answer="u64",
        ),
        Recorded(
            name="subscribe-duration",
            function_type=READ_LOCAL,
            action=deadline_after,
            observe=observe_duration,
            answer="u64",
        ),
    ],
)

TIMEZONE = host_interface(
    """
    interface wasi:clocks/timezone {
        use wall-clock.{datetime};
        record timezone-display {
            utc-offset: s32,
            name: string,
            in-daylight-saving-time: bool,
        }
        display: func(when: datetime) -> timezone-display;
        utc-offset: func(when: datetime) -> s32;
    }
    """,
    "0.2",
    [Local("display", display_utc), Local("utc-offset", utc_offset)],
    uses=WALL_CLOCK.wit.types,
)

TABLES: Final = (WALL_CLOCK, MONOTONIC_CLOCK, TIMEZONE)
