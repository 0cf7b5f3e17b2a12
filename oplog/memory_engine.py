"""An engine in memory: the same behaviour as the durable one, but for durability.

For tests, and for workers that need not outlive the process. Any thread; one lock.
"""

import threading
from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence
from itertools import islice

import msgspec

from oplog.engine import (
    TABLES,
    Batch,
    BatchRefusedError,
    Engine,
    Row,
    decided_rows,
    first_entries,
)
from oplog.errors import OplogCorruptError, OplogError
from oplog.payload import all_references, stored_references


class _Table:
    """Rows by key, and the keys in order."""

    def __init__(self) -> None:
        self.values: dict[bytes, bytes] = {}
        self.keys: list[bytes] = []

    def put(self, key: bytes, value: bytes) -> None:
        if key not in self.values:
            insort(self.keys, key)
        self.values[key] = value

    def delete(self, key: bytes) -> None:
        if self.values.pop(key, None) is not None:
            del self.keys[bisect_left(self.keys, key)]


class MemoryEngine(Engine):
    def __init__(self) -> None:
        self.epoch = 1
        self._lock = threading.Lock()
        self._closed = False
        self._oplogs: dict[bytes, list[bytes]] = {}
        self._tables = {name: _Table() for name in TABLES}
        self._contents: dict[bytes, bytes] = {}
        self._counts: dict[bytes, int] = {}

    def write(self, batches: Sequence[Batch]) -> list[OplogError | None]:
        with self._lock:
            self._check_open()
            return [self._write_one(batch) for batch in batches]

    def _write_one(self, batch: Batch) -> OplogError | None:
        try:
            digests = self._check(batch)
            rows = decided_rows(batch, lambda table, key: self._tables[table].values.get(key))
        except BatchRefusedError as error:
            return error
        for worker_id in batch.deletes:
            for encoded in self._oplogs.pop(worker_id, ()):
                self._forget(encoded)
        contents = dict(batch.payloads)
        for digest in digests:
            count = self._counts.get(digest, 0)
            if not count:
                self._contents[digest] = contents[digest]
            self._counts[digest] = count + 1
        for worker_id, _, encoded in batch.entries:
            self._oplogs.setdefault(worker_id, []).append(encoded)
        for row in rows:
            self._apply(row)
        return None

    def _check(self, batch: Batch) -> list[bytes]:
        """The digests that the batch refers to, once for each reference."""
        for worker_id, first in first_entries(batch):
            last = len(self._oplogs.get(worker_id, ()))
            if first != last + 1:
                raise BatchRefusedError(
                    f"worker {worker_id.hex()}: entry {first} cannot follow entry {last}:"
                    " another writer was here, or the worker was deleted"
                )
        try:
            digests = all_references(batch.entries)
        except msgspec.MsgspecError as error:
            raise BatchRefusedError(f"an entry is no MessagePack map: {error}") from error
        known = dict(batch.payloads)
        kept = self._counts if not batch.deletes else self._counts_without(batch.deletes)
        for digest in digests:
            if digest not in known and not kept.get(digest):
                raise BatchRefusedError(f"an entry refers to payload {digest.hex()}: not stored")
        return digests

    def _counts_without(self, deletes: Sequence[bytes]) -> dict[bytes, int]:
        counts = dict(self._counts)
        for worker_id in deletes:
            for encoded in self._oplogs.get(worker_id, ()):
                for digest in stored_references(encoded):
                    counts[digest] -= 1
        return counts

    def _forget(self, encoded: bytes) -> None:
        for digest in stored_references(encoded):
            self._counts[digest] -= 1
            if not self._counts[digest]:
                del self._counts[digest], self._contents[digest]

    def _apply(self, row: Row) -> None:
        table = self._tables[row.table]
        if row.value is None:
            table.delete(row.key)
        else:
            table.put(row.key, row.value)

    def read_entries(self, worker_id: bytes, first: int, limit: int) -> list[tuple[int, bytes]]:
        with self._lock:
            self._check_open()
            start = max(first, 1)
            page = self._oplogs.get(worker_id, [])[start - 1 : start - 1 + max(limit, 0)]
            return list(enumerate(page, start))

    def last_index(self, worker_id: bytes) -> int:
        with self._lock:
            self._check_open()
            return len(self._oplogs.get(worker_id, ()))

    def read_row(self, table: str, key: bytes) -> bytes | None:
        with self._lock:
            self._check_open()
            return self._tables[table].values.get(key)

    def read_rows(
        self, table: str, prefix: bytes = b"", after: bytes | None = None, limit: int = 1000
    ) -> list[tuple[bytes, bytes]]:
        with self._lock:
            self._check_open()
            rows = self._tables[table]
            start = bisect_left(rows.keys, prefix)
            if after is not None:
                start = max(start, bisect_right(rows.keys, after))
            keys = islice(rows.keys, start, start + max(limit, 0))
            return [(key, rows.values[key]) for key in keys if key.startswith(prefix)]

    def read_payload(self, digest: bytes) -> bytes:
        with self._lock:
            self._check_open()
            content = self._contents.get(digest)
        if content is None:
            raise OplogCorruptError(f"payload {digest.hex()} is not in the store")
        return content

    def probe(self) -> None:
        with self._lock:
            self._check_open()

    def close(self) -> None:
        with self._lock:
            self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise OplogError("the store in memory is closed")
