"""What keeps entries and rows: the small abstract thing that a store needs.

An engine writes batches in one transaction and reads. Order, buffers, waiting and the thread that
writes are the store's (`oplog.store`); an engine has no thread. Its invariants, whatever it is:

- A batch is written whole or not at all; after `write` returns None for it, it survives the death
  of the process and of the machine.
- A worker's indices are dense from 1: an entry is refused if the one before it is missing, and
  never replaces another.
- A payload is there exactly as long as an entry refers to it.
- Rows and entries of one batch become visible together.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from oplog.errors import OplogError
from oplog.keys import INDEX_MAX, check_worker_id

TABLES: Final = (
    "components",
    "component_names",
    "component_bytes",
    "workers",
    "worker_names",
    "worker_index",
    "results",
    "pending",
    "wakeups",
    "promises",
    "keyvalue",
    "blobs",
    "meta",
)
"""Every table of rows. `meta` also holds the store's own keys, `OWN_KEYS`."""

OWN_KEYS: Final = frozenset({b"format", b"epoch", b"probe"})
"""Keys of `meta` that only the engine writes."""

ROW_KEY_BYTES_MAX: Final = 511
PROBE_BYTES: Final = 1 << 20
COUNT_BYTES: Final = 8
ROW_BYTES: Final = 128
"""What a row takes besides its value."""


class Row(msgspec.Struct, frozen=True):
    """One row of a table; without a value it is deleted (also if it is not there)."""

    table: str
    key: bytes
    """1 to 511 bytes."""
    value: bytes | None


class Count(msgspec.Struct, frozen=True):
    """What is added to the number in a row: 8 bytes, big-endian, signed; 0 is no row at all."""

    table: str
    key: bytes
    added: int
    most: int | None = None
    """What the number may grow to: else the batch is refused."""


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """What is written whole or not at all, in this order: deletes, entries, rows."""

    expects: Sequence[Row] = ()
    """Rows that have to be just so beforehand, one without a value not there: else it is refused.
    So who wants to replace what it has read needs no lock of its own."""
    counts: Sequence[Count] = ()
    """Numbers to which many batches add, each without reading what the others made of them."""
    entries: Sequence[tuple[bytes, int, bytes]] = ()
    """Worker's id, index, encoded entry; the indices of one worker consecutive and ascending."""
    rows: Sequence[Row] = ()
    payloads: Sequence[tuple[bytes, bytes]] = ()
    """Digest and content of what the entries refer to; what is stored already may be left out."""
    deletes: Sequence[bytes] = ()
    """Ids of workers whose entries and references go. Their rows are the caller's to delete."""


class BatchRefusedError(OplogError):
    """The batch contradicts what is stored, or can never be written. Other batches go on."""


class RowChangedError(BatchRefusedError):
    """A row is not as the batch expects it: who sent it reads again."""


class CountExceededError(BatchRefusedError):
    """A number would grow to more than it may."""


class Engine(ABC):
    """Reads may come from any thread, together; `write` and `probe` exclude each other."""

    epoch: int
    """Number of this opening; a newer opening of the same store has a greater one."""

    @abstractmethod
    def write(self, batches: Sequence[Batch]) -> list[OplogError | None]:
        """Write all batches in one transaction, or each in its own if that does not fit. Blocks.

        Gives one result a batch: None if it is durable now, OplogFullError if it had no room,
        BatchRefusedError if it contradicts what is stored; nothing of a failed one is written.

        Raises: FencedError if a newer opening exists, OplogError for any other failure. What was
        written is then unknown until the store is opened again.
        """

    @abstractmethod
    def read_entries(self, worker_id: bytes, first: int, limit: int) -> list[tuple[int, bytes]]:
        """Up to `limit` consecutive committed entries from index `first` on, copied."""

    @abstractmethod
    def last_index(self, worker_id: bytes) -> int:
        """Index of the last committed entry; 0 if there is none."""

    @abstractmethod
    def read_row(self, table: str, key: bytes) -> bytes | None:
        pass

    @abstractmethod
    def read_rows(
        self, table: str, prefix: bytes = b"", after: bytes | None = None, limit: int = 1000
    ) -> list[tuple[bytes, bytes]]:
        """Rows whose key starts with `prefix` and is greater than `after`, ascending by key."""

    @abstractmethod
    def read_payload(self, digest: bytes) -> bytes:
        """Raises: OplogCorruptError if it is not there or is not what the digest says."""

    @abstractmethod
    def probe(self) -> None:
        """Commit 1 MiB and undo it. Blocks. Raises: OplogFullError if there is no room."""

    @abstractmethod
    def close(self) -> None:
        """Idempotent; any thread. Later calls raise OplogError."""


def check_batch(batch: Batch) -> None:
    """Raises: ValueError if no engine could write the batch, naming what is wrong."""
    last: dict[bytes, int] = {}
    for worker_id, index, _ in batch.entries:
        before = last.get(worker_id)
        if before is None:
            check_worker_id(worker_id)
            if not 1 <= index <= INDEX_MAX:
                raise ValueError(f"worker {worker_id.hex()}: {index} is no index")
        elif index != before + 1:
            raise ValueError(f"worker {worker_id.hex()}: entry {index} follows {before}")
        last[worker_id] = index
    check_rows(batch.rows)
    check_rows(batch.expects)
    check_rows([Row(count.table, count.key, b"") for count in batch.counts])
    for worker_id in batch.deletes:
        check_worker_id(worker_id)
        if worker_id in last:
            raise ValueError(f"worker {worker_id.hex()} is deleted and written in one batch")


def check_rows(rows: Sequence[Row]) -> Sequence[Row]:
    """The rows. Raises: ValueError if no engine could write them."""
    for row in rows:
        if row.table not in TABLES:
            raise ValueError(f"there is no table {row.table!r}")
        if not 1 <= len(row.key) <= ROW_KEY_BYTES_MAX:
            raise ValueError(
                f"table {row.table}: a key of {len(row.key)} bytes; 1 to {ROW_KEY_BYTES_MAX} fit"
            )
        if row.table == "meta" and row.key in OWN_KEYS:
            raise ValueError(f"table meta: the key {row.key!r} is the engine's own")
    return rows


def decided_rows(batch: Batch, read: Callable[[str, bytes], Any]) -> Sequence[Row]:
    """The rows that the batch writes, its counts among them, once it was seen to be as it expects;
    `read(table, key)` gives the bytes of a row, or None.

    Raises: RowChangedError, CountExceededError.
    """
    for row in batch.expects:
        if read(row.table, row.key) != row.value:
            raise RowChangedError(f"a row of {row.table} is not as it was expected")
    if not batch.counts:
        return batch.rows
    numbers = [_counted(count, read(count.table, count.key) or b"") for count in batch.counts]
    return (*numbers, *batch.rows)


def _counted(count: Count, stored: bytes) -> Row:
    number = count.added + int.from_bytes(stored, "big", signed=True)
    if count.most is not None and count.added > 0 and number > count.most:
        raise CountExceededError(f"a number in {count.table} would be {number}: {count.most}")
    value = number.to_bytes(COUNT_BYTES, "big", signed=True) if number else None
    return Row(count.table, count.key, value)


def stored_bytes(batch: Batch) -> int:
    """About what a batch takes on the disk."""
    contents = [len(content) for _, content in batch.payloads]
    entries = [len(encoded) + ROW_BYTES for _, _, encoded in batch.entries]
    return sum((*contents, *entries, *(len(row.value or b"") + ROW_BYTES for row in batch.rows)))


def first_entries(batch: Batch) -> list[tuple[bytes, int]]:
    """Each worker of the batch with its first index there; the batch is checked already."""
    entries = batch.entries
    if not entries:
        return []
    worker_id, index, _ = entries[0]
    if entries[-1][0] == worker_id and entries[-1][1] - index == len(entries) - 1:
        return [(worker_id, index)]
    seen: dict[bytes, int] = {}
    for other_id, other_index, _ in entries:
        seen.setdefault(other_id, other_index)
    return list(seen.items())
