"""What `wasi:io/poll` waits for.

A pollable has no value; only `ready`, `block` and `poll` say something of it, and what they say is
recorded. What waits for one looks again when its deadline has come or its signal is fired.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable

from executor.durable.signal import Signal
from executor.host.clock import WorkerClock


class Pollable(ABC):
    """Held in the handle table; asked only while the worker is live."""

    signal: Signal | None = None
    """Fired when it may have become ready for another reason than time."""
    lasting: bool = False
    """Whether it still stands when the instance is gone, so that a worker may wait for it without
    one: a timer, a promise."""
    promise: str = ""
    """The name of the promise that it waits for, "" for anything else."""

    @abstractmethod
    def is_ready(self, now_ns: int) -> bool:
        """Whether it is ready when the worker's clock shows `now_ns`.

        Raises: what the effect that it waits for failed with.
        """

    @property
    def deadline_ns(self) -> int | None:
        """When it becomes ready by itself, on the worker's clock; None if time alone does not."""
        return None

    def observe(self, clock: WorkerClock) -> None:
        """The guest was told that it is ready; live and in replay."""
        if self.deadline_ns is not None:
            clock.observe(self.deadline_ns)


class AlwaysReady(Pollable):
    """Of a stream that never makes its reader or writer wait."""

    def is_ready(self, now_ns: int) -> bool:
        return now_ns >= 0


class Timer(Pollable):
    """Ready from a recorded instant on."""

    lasting = True

    def __init__(self, deadline_ns: int) -> None:
        self._deadline_ns = deadline_ns

    def is_ready(self, now_ns: int) -> bool:
        return now_ns >= self._deadline_ns

    @property
    def deadline_ns(self) -> int | None:
        return self._deadline_ns


class Watched(Pollable):
    """Ready when a condition holds, which is looked at again whenever the signal is fired."""

    def __init__(
        self,
        signal: Signal,
        condition: Callable[[], bool],
        observed: Callable[[], None] | None = None,
    ) -> None:
        """`observed` is called, live and in replay, when the guest was told that it is ready."""
        self.signal = signal
        self._condition = condition
        self._observed = observed

    def is_ready(self, now_ns: int) -> bool:
        return now_ns >= 0 and self._condition()

    def observe(self, _clock: WorkerClock) -> None:
        if self._observed is not None:
            self._observed()
