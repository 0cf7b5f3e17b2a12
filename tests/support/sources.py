"""A world whose clocks stand still until a test, or a sleep, moves them."""

import random
from contextlib import contextmanager

import trio

from executor.sources import Sources, SystemSources

FELL_ASLEEP_S = 120


class FakeSources(Sources):
    """Readings are attributes; a sleep moves both clocks to its deadline at once."""

    def __init__(self, *, wall_ns=1_700_000_000_000_000_000, monotonic_ns=5_000, seed=0):
        self.wall = wall_ns
        self.monotonic = monotonic_ns
        self.random = random.Random(seed)
        self.identities = random.Random(seed + 1)
        self.slept_until = []

    def wall_ns(self):
        return self.wall

    def monotonic_ns(self):
        return self.monotonic

    def random_bytes(self, count):
        return self.random.randbytes(count)

    def random_id(self):
        return self.identities.randbytes(16)

    def random_unit(self):
        return self.identities.random()

    async def sleep_until(self, monotonic_ns):
        self.slept_until.append(monotonic_ns)
        self.advance(max(0, monotonic_ns - self.monotonic))

    def advance(self, duration_ns):
        self.wall += duration_ns
        self.monotonic += duration_ns


class CountedSleepers(Sources):
    """Knows how many sleep. Who asks for the time later than a test moves it sleeps for ever."""

    def __init__(self, **options):
        super().__init__(**options)
        self._asleep = 0

    @contextmanager
    def sleeping(self):
        self._asleep += 1
        try:
            yield
        finally:
            self._asleep -= 1

    async def until_asleep(self, count=1):
        with trio.fail_after(FELL_ASLEEP_S):
            while self._asleep < count:  # noqa: ASYNC110  # nobody tells
                await trio.sleep(0.001)


class StillSources(CountedSleepers, FakeSources):
    """Time passes only when a test says so; whoever sleeps waits for that."""

    def __init__(self, **options):
        super().__init__(**options)
        self._moved = trio.Event()

    async def sleep_until(self, monotonic_ns):
        await trio.lowlevel.checkpoint()
        with self.sleeping():
            while self.monotonic < monotonic_ns:
                await self._moved.wait()

    def advance(self, duration_ns):
        super().advance(duration_ns)
        moved, self._moved = self._moved, trio.Event()
        moved.set()


class WatchedSources(CountedSleepers, SystemSources):
    """The real ones."""

    async def sleep_until(self, monotonic_ns):
        with self.sleeping():
            await super().sleep_until(monotonic_ns)
