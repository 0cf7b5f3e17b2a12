"""Waiting for room on a full disk: one probe for all workers that are held."""

from collections.abc import Callable
from typing import Final

import trio

from oplog.errors import OplogError, OplogFullError

PROBE_DELAY_MIN_S: Final = 1.0
PROBE_DELAY_MAX_S: Final = 30.0


class RoomProbe:
    """`probe` is the store engine's: a commit of 1 MiB that is undone; it blocks."""

    def __init__(self, nursery: trio.Nursery, probe: Callable[[], None]) -> None:
        self._nursery = nursery
        self._probe = probe
        self._waiting: trio.Event | None = None

    async def wait(self) -> None:
        """Until a probe commit succeeds, tried after one second and then less and less often, up
        to every 30; or until the store refuses for another reason.
        """
        if self._waiting is None:
            self._waiting = trio.Event()
            self._nursery.start_soon(self._look)
        await self._waiting.wait()

    async def _look(self) -> None:
        delay = PROBE_DELAY_MIN_S
        while True:
            await trio.sleep(delay)
            try:
                await trio.to_thread.run_sync(self._probe)
            except OplogFullError:
                delay = min(delay * 2, PROBE_DELAY_MAX_S)
                continue
            except OplogError:
                break
            break
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.set()
