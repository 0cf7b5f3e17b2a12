"""Engines that stand in front of another one and change what a write does."""

import threading
from collections.abc import Callable, Sequence

import lmdb

from oplog.codec import decode_entry
from oplog.engine import Batch, Engine
from oplog.entry import Log, Start
from oplog.errors import OplogError


class DelegatingEngine(Engine):
    """Everything goes to `inner`; `on_write` sees the batches first and may give the result."""

    def __init__(
        self,
        inner: Engine,
        on_write: Callable[[Sequence[Batch]], list[OplogError | None] | None] = lambda _: None,
    ) -> None:
        self.inner = inner
        self.epoch = inner.epoch
        self.on_write = on_write
        self.groups: list[list[Batch]] = []
        self.closed = False

    def write(self, batches):
        self.groups.append(list(batches))
        result = self.on_write(batches)
        return self.inner.write(batches) if result is None else result

    def read_entries(self, worker_id, first, limit):
        return self.inner.read_entries(worker_id, first, limit)

    def last_index(self, worker_id):
        return self.inner.last_index(worker_id)

    def read_row(self, table, key):
        return self.inner.read_row(table, key)

    def read_rows(self, table, prefix=b"", after=None, limit=1000):
        return self.inner.read_rows(table, prefix, after, limit)

    def read_payload(self, digest):
        return self.inner.read_payload(digest)

    def probe(self):
        self.inner.probe()

    def close(self):
        self.closed = True
        self.inner.close()


class Heard:
    """A callback that keeps what it heard and lets a test wait for it."""

    def __init__(self) -> None:
        self.calls: list[OplogError | None] = []
        self.threads: list[str] = []
        self._event = threading.Event()

    def __call__(self, error: OplogError | None = None) -> None:
        self.calls.append(error)
        self.threads.append(threading.current_thread().name)
        self._event.set()

    def wait(self, timeout_s: float = 30) -> OplogError | None:
        assert self._event.wait(timeout_s), "the callback was not called"
        assert len(self.calls) == 1, f"called {len(self.calls)} times"
        return self.calls[0]


class Hold:
    """Keeps the committer inside a write until it is let go."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.go = threading.Event()

    def __call__(self, _batches):
        self.entered.set()
        assert self.go.wait(30)


class HeldStart(Hold):
    """Keeps the committer inside the first write of a `start`, of this function if one is named."""

    def __init__(self, of: str = "") -> None:
        super().__init__()
        self._of = of
        self._armed = True

    def __call__(self, batches):
        entries = [decode_entry(raw) for batch in batches for _, _, raw in batch.entries]
        if self._armed and any(
            isinstance(entry, Start) and self._of in {"", entry.function} for entry in entries
        ):
            self._armed = False
            super().__call__(batches)


def committed(writer):
    """What was heard of a commit of everything that the writer has."""
    heard = Heard()
    writer.commit(heard)
    return heard.wait()


def log_of(size):
    return Log(at=1, level="stdout", text="x" * size)


def refuse_for(worker_id, error):
    """A disk that has no room for one worker."""

    def on_write(batches):
        return [error if batch.entries[0][0] == worker_id else None for batch in batches]

    return on_write


def raw_environment(path):
    """The file as LMDB sees it, past the engine."""
    return lmdb.open(str(path), max_dbs=64, map_size=1 << 30)
