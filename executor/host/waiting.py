"""Waiting for pollables, in trio: for the first that is ready, with or without an instance.

A wait that only needs what lasts (timers, promises) and takes long is no reason to keep an
instance: the worker is suspended, and goes on when it is over. Nothing else may be under way then:
no remote write, no other effect, no atomic region. See ARCHITECTURE.md, "A worker's life".
"""

import math
from collections.abc import Sequence
from typing import Final

import trio

from executor.durable.reasons import Leave, Suspended
from executor.durable.signal import Signal
from executor.host.pollables import Pollable
from executor.host.state import HostState

WAIT_MAX_NS: Final = 3_600_000_000_000
"""A wait for something without a deadline looks again after this time."""
UNTIMED_WAIT_NS: Final = 1_000_000_000
"""A wait that time does not end keeps its instance for this long: most are over by then."""
NS_PER_S: Final = 1_000_000_000
WAKE_MAX_NS: Final = (1 << 63) - 1
"""The last wall time that is recorded, in the year 2262: who waits longer looks again then."""


def ready_indices(state: HostState, pollables: Sequence[Pollable]) -> list[int]:
    """Which of them are ready now; live only."""
    now_ns = state.clock.read(state.sources.monotonic_ns())
    return [index for index, pollable in enumerate(pollables) if pollable.is_ready(now_ns)]


async def wait_ready(state: HostState, pollables: Sequence[Pollable]) -> list[int] | Leave:
    """The indices of those that are ready, at least one, or why the guest is to be left."""
    began_ns = state.sources.monotonic_ns()
    while True:
        ready = ready_indices(state, pollables)
        if ready:
            return ready
        deadline_ns = first_deadline(state, pollables)
        look_ns = min(deadline_ns, state.sources.monotonic_ns() + WAIT_MAX_NS)
        if state.may_suspend and all(pollable.lasting for pollable in pollables):
            leave, look_again_ns = suspension(state, pollables, deadline_ns, began_ns)
            if leave is not None:
                return leave
            look_ns = min(look_ns, look_again_ns)
        signals = [pollable.signal for pollable in pollables if pollable.signal is not None]
        await wait_any(state, signals, math.ceil(look_ns))


def first_deadline(state: HostState, pollables: Sequence[Pollable]) -> float:
    """On the process's own monotonic clock; infinite if time ends the wait for none of them."""
    deadlines = [pollable.deadline_ns for pollable in pollables]
    due = [state.clock.monotonic_at(deadline) for deadline in deadlines if deadline is not None]
    return min(due, default=math.inf)


def suspension(
    state: HostState, pollables: Sequence[Pollable], deadline_ns: float, began_ns: int
) -> tuple[Leave | None, float]:
    """Why the guest is to be left now, or when to ask again; on the process's monotonic clock."""
    now_ns = state.sources.monotonic_ns()
    longest_ns = state.suspend_after_s * NS_PER_S
    if deadline_ns == math.inf:
        keep_until_ns = began_ns + min(UNTIMED_WAIT_NS, longest_ns)
        if now_ns < keep_until_ns:
            return None, keep_until_ns
    elif deadline_ns - now_ns <= longest_ns:
        return None, math.inf
    promises = tuple(sorted({pollable.promise for pollable in pollables if pollable.promise}))
    wake_at = None
    if deadline_ns != math.inf:
        wake_at = min(WAKE_MAX_NS, state.sources.wall_ns() + math.ceil(deadline_ns - now_ns))
    return Leave(Suspended(wake_at, promises)), math.inf


async def wait_any(state: HostState, signals: Sequence[Signal], until_ns: int) -> None:
    """Until a signal is fired, or the process's monotonic clock shows `until_ns`."""
    if not signals:
        await state.sources.sleep_until(until_ns)
        return
    event = trio.Event()
    for signal in signals:
        signal.add(event)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(sleep_then_set, state, until_ns, event)
            await event.wait()
            nursery.cancel_scope.cancel()
    finally:
        for signal in signals:
            signal.discard(event)


async def sleep_then_set(state: HostState, until_ns: int, event: trio.Event) -> None:
    await state.sources.sleep_until(until_ns)
    event.set()
