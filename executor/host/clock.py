"""A worker's monotonic clock: it goes on over crashes, and no replay can turn it back.

    mono(t) = max(last recorded reading, wall - creation, at Live) + the process's own clock since

A reading is a duration since the worker was created, in nanoseconds. Every recorded answer that
tells the guest how late it is passes `observe`, live and in replay; `anchor` ties the clock to the
process that goes live. Timers hold deadlines on this clock, so that one means the same after a
crash. See ARCHITECTURE.md, "Recorded, rebuilt, suppressed".
"""

from typing import Final

from executor.errors import InternalError

INSTANT_MAX: Final = (1 << 64) - 1
"""The last instant that `wasi:clocks/monotonic-clock` can name."""


class WorkerClock:
    """Used on the worker's lane only; never blocks."""

    def __init__(self) -> None:
        self._last_ns = 0
        self._base_ns = 0
        self._anchor_ns: int | None = None

    @property
    def last_ns(self) -> int:
        """The latest reading that the guest knows of."""
        return self._last_ns

    def observe(self, reading_ns: int) -> None:
        """The guest learns that it is at least this late; live and replay."""
        self._last_ns = max(self._last_ns, reading_ns)

    def anchor(self, wall_ns: int, created_at_ns: int, monotonic_ns: int) -> None:
        """Live begins, or begins again, at these readings of the machine's clocks."""
        if self._anchor_ns is not None:
            self.observe(self.read(monotonic_ns))
        self._base_ns = min(max(self._last_ns, wall_ns - created_at_ns), INSTANT_MAX)
        self._anchor_ns = monotonic_ns

    def read(self, monotonic_ns: int) -> int:
        """The worker's clock when the process's own shows `monotonic_ns`; live only."""
        return min(self._base_ns + monotonic_ns - self._anchored(), INSTANT_MAX)

    def monotonic_at(self, reading_ns: int) -> int:
        """What the process's own clock shows when this one shows `reading_ns`; live only."""
        return self._anchored() + reading_ns - self._base_ns

    def _anchored(self) -> int:
        if self._anchor_ns is None:
            raise InternalError("the worker's clock was read before the worker was live")
        return self._anchor_ns
