"""Calls from other threads into the trio thread, in order.

trio's own queue for this wakes one task that wakes another, through two rounds of its loop. An
invocation crosses into trio three times, so the crossing is made here with a pipe that one task
listens to, in about half the time.
"""

import os
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import trio


def setting(event: trio.Event) -> Callable[[], None]:
    """What sets `event` from any thread. Once trio has ended nobody waits, and nothing happens."""
    token = trio.lowlevel.current_trio_token()

    def set_soon() -> None:
        with suppress(trio.RunFinishedError):
            token.run_sync_soon(event.set)

    return set_soon


class Bell:
    """Wakes one trio task from any thread, through a pipe."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        self._rung = False

    def ring(self) -> None:
        """Any thread, never blocks; rings that nobody has heard yet are one."""
        if not self._rung:
            self._rung = True
            os.write(self._writer, b"!")

    async def wait(self) -> None:
        """Until it was rung since the last time."""
        await trio.lowlevel.wait_readable(self._reader)
        os.read(self._reader, 64)
        self._rung = False

    def close(self) -> None:
        os.close(self._reader)
        os.close(self._writer)


class Inbox:
    """`post` is for any thread, `run` is the trio task that makes the calls."""

    def __init__(self) -> None:
        self._bell = Bell()
        self._calls: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._closed = False
        self._scope = trio.CancelScope(shield=True)

    def post(self, call: Callable[..., object], *arguments: Any) -> None:
        """Has `call` made on the trio thread; it must be quick and must not raise. Calls that are
        posted after the inbox was closed are dropped: nobody waits for them any more.
        """
        self._calls.append((call, arguments))
        if not self._closed:
            self._bell.ring()

    @asynccontextmanager
    async def served(self) -> AsyncIterator[trio.Nursery]:
        """A nursery in which the calls are made until the block ends, in whatever way: also while
        its other tasks are cancelled, and whatever interrupts the block.
        """
        async with trio.open_nursery() as nursery:
            try:
                nursery.start_soon(self.run)
                yield nursery
            finally:
                self.stop()

    @trio.lowlevel.enable_ki_protection
    async def run(self) -> None:
        calls = self._calls
        with self._scope:
            while True:
                await self._bell.wait()
                while calls:
                    call, arguments = calls.popleft()
                    call(*arguments)

    def stop(self) -> None:
        self._closed = True
        self._scope.cancel()

    def close(self) -> None:
        """Once no other thread posts any more."""
        self._closed = True
        self._bell.close()
