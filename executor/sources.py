"""The world as a worker's live host functions see it: clocks, randomness, sleep.

A `Sources` is given to the executor when it opens; nothing below it reads a clock or draws a random
byte by another way, so a test runs in a world of its own. Replay asks none of it.
"""

import os
import time
from abc import ABC, abstractmethod
from typing import Final
from uuid import UUID

import trio

SLEEP_MAX_S: Final = 86_400.0
"""One sleep at a time is this long at most; the deadline is then looked at again."""


class Sources(ABC):
    """All of it but `sleep_until` may be called from any thread and does not block."""

    @abstractmethod
    def wall_ns(self) -> int:
        """Nanoseconds since the Unix epoch; may step in either direction."""

    @abstractmethod
    def monotonic_ns(self) -> int:
        """Nanoseconds since a point that holds for this process only; never steps back."""

    @abstractmethod
    def random_bytes(self, count: int) -> bytes:
        """`count` bytes that nobody can predict."""

    def random_id(self) -> bytes:
        """16 bytes for something new; what a guest is answered is drawn by `random_bytes` alone."""
        return self.random_bytes(16)

    def random_uuid(self) -> str:
        """A random (version 4) UUID, hyphenated."""
        return str(UUID(bytes=self.random_id(), version=4))

    def random_unit(self) -> float:
        """A number in [0, 1)."""
        return int.from_bytes(self.random_bytes(6)) / (1 << 48)

    @abstractmethod
    async def sleep_until(self, monotonic_ns: int) -> None:
        """Returns once `monotonic_ns()` has reached the given reading; on the trio thread."""


class SystemSources(Sources):
    """The machine's own."""

    wall_ns = staticmethod(time.time_ns)
    monotonic_ns = staticmethod(time.monotonic_ns)

    def random_bytes(self, count: int) -> bytes:
        return os.urandom(count)

    async def sleep_until(self, monotonic_ns: int) -> None:
        await trio.lowlevel.checkpoint()
        # The condition is a clock of the machine: there is no event to wait for.
        while (left_ns := monotonic_ns - self.monotonic_ns()) > 0:  # noqa: ASYNC110
            await trio.sleep(min(left_ns / 1e9, SLEEP_MAX_S))
