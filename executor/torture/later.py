"""A clock that runs late: what depends on time, or on chance, comes out otherwise by it."""

from itertools import count
from typing import Final

from executor.sources import SystemSources

DAY_S: Final = 86_400
LATE_NS: Final = (397 * DAY_S + 3_661) * 1_000_000_000
"""A year, a month, a day, an hour, a minute and a second: no part of a date stays as it was."""


class LaterSources(SystemSources):
    """Years late, and with each reading of a clock by `step_s` later than the last one."""

    def __init__(self, step_s: float) -> None:
        self._steps_ns = count(0, round(step_s * 1e9))

    def wall_ns(self) -> int:
        return SystemSources.wall_ns() + LATE_NS + next(self._steps_ns)

    def monotonic_ns(self) -> int:
        return SystemSources.monotonic_ns() + next(self._steps_ns)
