"""What `wasi:io/poll` waits for.

A pollable has no value; only `ready`, `block` and `poll` say something of it, and what they say is
recorded. `reading_ns` is what their answer tells the guest about the time.
"""

from abc import ABC, abstractmethod

from executor.host.clock import WorkerClock


class Pollable(ABC):
    """Held in the handle table; asked only while the worker is live."""

    @abstractmethod
    def is_ready(self, now_ns: int) -> bool:
        """Whether it is ready when the worker's clock shows `now_ns`."""

    @property
    @abstractmethod
    def deadline_ns(self) -> int | None:
        """When it becomes ready by itself, on the worker's clock; None if time alone does not."""


class AlwaysReady(Pollable):
    """Of a stream that never makes its reader or writer wait."""

    def is_ready(self, now_ns: int) -> bool:
        return now_ns >= 0

    @property
    def deadline_ns(self) -> int | None:
        return None


class Timer(Pollable):
    """Ready from a recorded instant on."""

    def __init__(self, deadline_ns: int) -> None:
        self._deadline_ns = deadline_ns

    def is_ready(self, now_ns: int) -> bool:
        return now_ns >= self._deadline_ns

    @property
    def deadline_ns(self) -> int | None:
        return self._deadline_ns


def observe_ready(clock: WorkerClock, pollable: Pollable) -> None:
    """The guest was told that the pollable is ready, so it knows that its deadline has passed."""
    if pollable.deadline_ns is not None:
        clock.observe(pollable.deadline_ns)
