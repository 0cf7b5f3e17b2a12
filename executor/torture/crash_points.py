"""`--crash-at POINT`: this process kills itself with SIGKILL at a chosen point.

| point           | the process dies                                                      |
|-----------------|-----------------------------------------------------------------------|
| append:N        | after the N-th entry, of any kind, is ordered                         |
| commit:N        | after the N-th transaction returned, before anyone hears of it        |
| before-effect:N | before the N-th read-remote or write-remote effect starts             |
| after-effect:N  | after the N-th of them returned, before its `end` is appended         |
| before-result:N | after the N-th outcome is appended, before it is committed            |
| after-result:N  | after the N-th outcome is committed, before anyone hears of it        |

N counts from 1 in this process, over all workers; of results it may be left out, and is then 1.
The points are wrappers of the store's engine,
of its writers and of the executor's `perform`: the code that runs in production holds no flag for
them and is the code that dies here.
"""

import os
import re
import signal
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Literal, NoReturn, TypeAlias, cast, get_args

from executor.durable.effects import Effect, Perform
from executor.durable.function_type import REMOTE
from executor.errors import UsageError
from executor.worker.commits import refused_store
from oplog.codec import decode_entry
from oplog.engine import Batch, Engine
from oplog.entry import Entry, InvocationFinished
from oplog.errors import OplogError
from oplog.lmdb_engine import LmdbEngine
from oplog.store import Store, Writer

PointKind = Literal[
    "append", "commit", "before-effect", "after-effect", "before-result", "after-result"
]
Point: TypeAlias = tuple[PointKind, int]
"""A kind of point and its number, counted from 1."""

KINDS: Final[tuple[PointKind, ...]] = get_args(PointKind)
COUNTED: Final = frozenset({"append", "commit", "before-effect", "after-effect"})
"""Kinds whose number has to be said."""
POINT: Final = re.compile(r"([a-z-]+)(?::([1-9]\d*))?")
FORMS: Final = ", ".join(f"{kind}:N" if kind in COUNTED else f"{kind}[:N]" for kind in KINDS)


def kill_process() -> NoReturn:
    """SIGKILL to this process: no handler, no flush, no farewell."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("SIGKILL cannot be survived")


class CrashPoint:
    """One point and how often it was reached. Thread-safe: entries come from every lane."""

    def __init__(
        self, kind: PointKind, number: int, kill: Callable[[], object] = kill_process
    ) -> None:
        self.kind = kind
        self._left = number
        self._kill = kill
        self._lock = threading.Lock()

    def reach(self, kind: PointKind) -> None:
        """Counts one event of `kind`; does not return from the one that was chosen."""
        if kind != self.kind:
            return
        with self._lock:
            self._left -= 1
            if self._left == 0:
                self._kill()


class CountingPoint(CrashPoint):
    """Kills nobody, counts everything."""

    def __init__(self) -> None:
        super().__init__("after-result", 0)
        self.counts: Counter[PointKind] = Counter()

    def reach(self, kind: PointKind) -> None:
        with self._lock:
            self.counts[kind] += 1


def parse_point(text: str, where: str) -> Point:
    """`commit:3` or `after-result`. Raises UsageError naming the forms there are."""
    found = POINT.fullmatch(text)
    kind, number = (found[1], found[2]) if found else ("", None)
    if kind not in KINDS or (kind in COUNTED and number is None):
        raise UsageError(
            f"{text!r} is not a crash point", where=where, hint=f"use one of {FORMS}, N ≥ 1"
        )
    return cast("PointKind", kind), int(number or 1)


def parse_crash_point(text: str) -> CrashPoint:
    """As `--crash-at` has it. Raises: UsageError."""
    return CrashPoint(*parse_point(text, "--crash-at"))


def crashing_store(path: Path, point: CrashPoint) -> Store:
    """The store at `path`, whose engine and writers die at the point. Opens it: blocks.

    Raises: Busy if another process runs the store, StoreError if it cannot be opened.
    """
    try:
        engine = LmdbEngine.open(path)
    except OplogError as error:
        raise refused_store(error, path) from error
    store = Store(CrashingEngine(engine, point))
    store.writer_class = crashing_writer(point)
    return store


def crashing_writer(point: CrashPoint) -> type[Writer]:
    """A class of writers that die once the chosen entry is ordered.

    The writer's lock is held until the end, so that the committer cannot take the entry.
    """

    class CrashingWriter(Writer):
        def append(self, entry: Entry) -> int:
            with self.lock:
                index = super().append(entry)
                point.reach("append")
                if isinstance(entry, InvocationFinished):
                    point.reach("before-result")
            return index

    return CrashingWriter


def crashing_perform(point: CrashPoint) -> Perform:
    """Performs effects as the executor does, and dies beside the chosen remote one."""

    async def perform(effect: Effect) -> object:
        remote = effect.function_type in REMOTE
        if remote:
            point.reach("before-effect")
        answer = await effect.run()
        if remote:
            point.reach("after-effect")
        return answer

    return perform


class CrashingEngine(Engine):
    """Another engine, that dies when the chosen transaction has returned."""

    def __init__(self, engine: Engine, point: CrashPoint) -> None:
        self._engine = engine
        self._point = point
        self.epoch = engine.epoch

    def write(self, batches: Sequence[Batch]) -> list[OplogError | None]:
        answers = self._engine.write(batches)
        self._point.reach("commit")
        if self._point.kind == "after-result":
            for batch, refused in zip(batches, answers, strict=True):
                if refused is None:
                    self._reach_results(batch)
        return answers

    def _reach_results(self, batch: Batch) -> None:
        for _worker_id, _index, encoded in batch.entries:
            if isinstance(decode_entry(encoded), InvocationFinished):
                self._point.reach("after-result")

    def read_entries(self, worker_id: bytes, first: int, limit: int) -> list[tuple[int, bytes]]:
        return self._engine.read_entries(worker_id, first, limit)

    def last_index(self, worker_id: bytes) -> int:
        return self._engine.last_index(worker_id)

    def read_row(self, table: str, key: bytes) -> bytes | None:
        return self._engine.read_row(table, key)

    def read_rows(
        self, table: str, prefix: bytes = b"", after: bytes | None = None, limit: int = 1000
    ) -> list[tuple[bytes, bytes]]:
        return self._engine.read_rows(table, prefix, after, limit)

    def read_payload(self, digest: bytes) -> bytes:
        return self._engine.read_payload(digest)

    def probe(self) -> None:
        self._engine.probe()

    def close(self) -> None:
        self._engine.close()
