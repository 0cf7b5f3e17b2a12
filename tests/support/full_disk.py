"""A disk that is full from one commit on, until room is made."""

from collections.abc import Sequence
from threading import Lock

from executor.torture.crash_points import CrashingEngine, CrashPoint
from oplog.engine import Batch, Engine
from oplog.errors import OplogError, OplogFullError


class FullEngine(CrashingEngine):
    """Another engine, without room from its commit number `full_at` on; counted from 1."""

    def __init__(self, engine: Engine, full_at: int) -> None:
        super().__init__(engine, CrashPoint("commit", 0))
        self._lock = Lock()
        self._left = full_at
        self._room = False
        self.commits = 0
        self.probes = 0

    @property
    def struck(self) -> bool:
        return self._left <= 0 and not self._room

    def make_room(self) -> None:
        with self._lock:
            self._room = True

    def write(self, batches: Sequence[Batch]) -> list[OplogError | None]:
        with self._lock:
            self.commits += 1
            self._left -= 1
            full = self.struck
        if full:
            return [OplogFullError("the disk is full") for _ in batches]
        return super().write(batches)

    def probe(self) -> None:
        with self._lock:
            self.probes += 1
            full = self.struck
        if full:
            raise OplogFullError("the disk is full")
        super().probe()
