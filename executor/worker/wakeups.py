"""Wakes suspended workers: when their time has come, or a promise is complete or gone; also where
that was while nobody ran the store.

| table   | key                                   | value | wakes                                  |
|---------|---------------------------------------|-------|----------------------------------------|
| wakeups | `t` wall time (8 bytes), worker id    | empty | the worker, from that time on          |
| wakeups | `p` name of a promise NUL, worker id  | empty | the worker, once the promise is        |
|         |                                       |       | complete, or gone                      |

A row is written in the transaction that suspends the worker, and goes in the one in which it runs
again. One task waits for the earliest time, however many workers sleep; a promise that is settled
wakes those of its rows.
"""

from collections.abc import Callable, Iterable
from typing import Final

import trio

from executor.services.promises import PromiseId, Promises
from executor.sources import Sources
from executor.worker.status import Status
from oplog.engine import Engine
from oplog.errors import OplogCorruptError

LOOK_AGAIN_NS: Final = 60_000_000_000
"""The machine's wall clock may be set meanwhile."""
PAGE_ROWS: Final = 1_000
ID_BYTES: Final = 16

Wake = Callable[[bytes], None]
"""Has the worker of that id run, which is due; it may be called more than once."""


def wake_keys(status: Status, worker_id: bytes) -> frozenset[bytes]:
    """The keys of the rows that wake a worker in this status."""
    if status.state != "suspended":
        return frozenset()
    keys = {promise_prefix(promise) + worker_id for promise in status.promises}
    if status.wake_at is not None:
        keys.add(time_key(status.wake_at) + worker_id)
    return frozenset(keys)


def time_key(wall_ns: int) -> bytes:
    return b"t" + max(0, wall_ns).to_bytes(8, "big")


def promise_prefix(promise: str) -> bytes:
    return b"p" + promise.encode() + b"\0"


def ignore(_worker_id: bytes) -> None:
    """Nobody runs workers yet."""


class Wakeups:
    """For the trio thread."""

    def __init__(self, engine: Engine, sources: Sources, promises: Promises) -> None:
        self._engine = engine
        self._sources = sources
        self._promises = promises
        promises.on_settled = self._settled
        self.wake: Wake = ignore
        self._after: bytes | None = None
        """The key of the last row whose worker was woken."""
        self._looked_at = 0
        self._from_start = False
        """Whether all rows are to be looked through again."""
        self._settled_promises: list[PromiseId] = []
        """Whose rows are yet to be looked for."""
        self._changed = trio.Event()

    def look(self) -> None:
        """A worker was suspended: it may be the first that is due."""
        self._changed.set()

    def start_over(self) -> None:
        """Wakes again whoever is due: more workers are run from here on."""
        self._from_start = True
        self._changed.set()

    def is_settled(self, promises: Iterable[str]) -> bool:
        """Whether a worker that waits for these promises waits for nothing more. Who waits for one
        whose row or name is damaged is to run: it meets that, and nobody else does.
        """
        try:
            return any(self._promises.is_settled(PromiseId.of_name(name)) for name in promises)
        except OplogCorruptError:
            return True

    def _settled(self, promise: PromiseId) -> None:
        self._settled_promises.append(promise)
        self._changed.set()

    async def run(self) -> None:
        while True:
            self._changed = trio.Event()
            if self._from_start:
                self._from_start = False
                self._after = None
                await self._wake_waiting(b"p")
            while self._settled_promises:
                await self._wake_waiting(promise_prefix(str(self._settled_promises.pop())))
            now = self._sources.wall_ns()
            due = await self._wake_due(now)
            if due is None:
                await self._changed.wait()
            else:
                wait_ns = min(LOOK_AGAIN_NS, due - now)
                await self._wait(self._sources.monotonic_ns() + wait_ns)

    async def _wake_due(self, now: int) -> int | None:
        """Wakes whoever is due; answers when the next one is. Others get their turn in between."""
        if now < self._looked_at:  # the clock was set back
            self._after = None
        self._looked_at = now
        while True:
            page = self._engine.read_rows(
                "wakeups", prefix=b"t", after=self._after, limit=PAGE_ROWS
            )
            for key, _ in page:
                due = int.from_bytes(key[1:9], "big")
                if due > now:
                    return due
                self._after = key
                self.wake(key[9:])
                await trio.lowlevel.checkpoint()
                if self._from_start:
                    return now
            if not page:
                return None

    async def _wake_waiting(self, prefix: bytes) -> None:
        """Wakes whoever waits for a promise that is settled, by the rows of that prefix. Others
        get their turn in between. One promise is looked at once: who waits for it comes together,
        and if it is settled meanwhile its rows are looked through again.
        """
        after: bytes | None = None
        promise: bytes | None = None
        settled = False
        while page := self._engine.read_rows(
            "wakeups", prefix=prefix, after=after, limit=PAGE_ROWS
        ):
            for after, _ in page:
                name = after[1 : -ID_BYTES - 1]
                if name != promise:
                    promise, settled = name, self.is_settled([name.decode(errors="replace")])
                if settled:
                    self.wake(after[-ID_BYTES:])
                await trio.lowlevel.checkpoint()

    async def _wait(self, until_ns: int) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._sleep, until_ns)
            await self._changed.wait()
            nursery.cancel_scope.cancel()

    async def _sleep(self, until_ns: int) -> None:
        await self._sources.sleep_until(until_ns)
        self._changed.set()
