"""What batches change, inside one write transaction of a store of sorted tables.

Knows tables by name and a transaction by four methods: nothing of files, locks or LMDB.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec

from oplog.engine import Batch, BatchRefusedError, decided_rows, first_entries
from oplog.errors import OplogCorruptError
from oplog.keys import entry_key, last_key, split_entry_key
from oplog.payload import all_references, stored_references

OPLOG: Final = "oplog"
PAYLOADS: Final = "payloads"
COUNTS: Final = "payload_counts"
COUNT_BYTES: Final = 8


class Transaction(Protocol):
    """The part of a transaction of LMDB that is used here."""

    def get(self, key: bytes, default: Any = None, *, db: Any) -> Any: ...
    def put(self, key: bytes, value: bytes, *, db: Any) -> bool: ...
    def delete(self, key: bytes, *, db: Any) -> bool: ...
    def cursor(self, db: Any) -> Any: ...


class Applying:
    """Applies batches within one transaction; what it raises must undo the transaction."""

    def __init__(
        self, transaction: Transaction, tables: Mapping[str, Any], tails: dict[bytes, int]
    ) -> None:
        """`tails` has last indices that are known, and is kept."""
        self._transaction = transaction
        self._tables = tables
        self._tails = tails

    def apply(self, batches: Sequence[Batch]) -> None:
        """All entries together, but those that come behind the deletion of a worker."""
        together: list[Batch] = []
        for batch in batches:
            if batch.deletes:
                self._put_entries(together)
                together = []
            for worker_id in batch.deletes:
                self._delete_worker(worker_id)
                self._tails.pop(worker_id, None)
            together.append(batch)
        self._put_entries(together)
        for batch in batches:
            for row in decided_rows(batch, self._read_row):
                table = self._tables[row.table]
                if row.value is None:
                    self._transaction.delete(row.key, db=table)
                else:
                    self._transaction.put(row.key, row.value, db=table)

    def _read_row(self, table: str, key: bytes) -> Any:
        return self._transaction.get(key, db=self._tables[table])

    def _put_entries(self, batches: Sequence[Batch]) -> None:
        entries = [entry for batch in batches for entry in batch.entries]
        if not entries:
            return
        cursor = self._transaction.cursor(self._tables[OPLOG])
        for batch in batches:
            for worker_id, first in first_entries(batch):
                if (
                    first > 1
                    and self._tails.get(worker_id) != first - 1
                    and not cursor.set_key(entry_key(worker_id, first - 1))
                ):
                    raise BatchRefusedError(
                        f"worker {worker_id.hex()}: entry {first} cannot follow entry"
                        f" {last_index(cursor, worker_id)}: the worker was deleted, or entries"
                        " are missing"
                    )
            if batch.entries:
                worker_id, last, _ = batch.entries[-1]
                self._tails[worker_id] = last
        items = [
            (worker_id + index.to_bytes(8, "big"), encoded) for worker_id, index, encoded in entries
        ]
        consumed, added = cursor.putmulti(items, overwrite=False)
        if consumed != added:
            raise BatchRefusedError(
                f"worker {entries[0][0].hex()}: entries from {entries[0][1]} on are"
                " there already: another writer was here"
            )
        try:
            digests = all_references(entries)
        except msgspec.MsgspecError as error:
            raise BatchRefusedError(f"an entry is no MessagePack map: {error}") from error
        if digests:
            payloads = [payload for batch in batches for payload in batch.payloads]
            self._add_references(digests, dict(payloads))

    def _add_references(self, digests: list[bytes], contents: dict[bytes, bytes]) -> None:
        for digest in digests:
            count = self._read_count(digest)
            if count == 0:
                content = contents.get(digest)
                if content is None:
                    raise BatchRefusedError(
                        f"an entry refers to payload {digest.hex()}: not stored"
                    )
                self._transaction.put(digest, content, db=self._tables[PAYLOADS])
            self._write_count(digest, count + 1)

    def _delete_worker(self, worker_id: bytes) -> None:
        cursor = self._transaction.cursor(self._tables[OPLOG])
        found = cursor.set_range(worker_id)
        while found and bytes(cursor.key()).startswith(worker_id):
            for digest in stored_references(bytes(cursor.value())):
                count = self._read_count(digest) - 1
                if count <= 0:
                    self._transaction.delete(digest, db=self._tables[PAYLOADS])
                self._write_count(digest, count)
            found = cursor.delete()

    def _read_count(self, digest: bytes) -> int:
        return int.from_bytes(self._transaction.get(digest, b"", db=self._tables[COUNTS]), "big")

    def _write_count(self, digest: bytes, count: int) -> None:
        if count <= 0:
            self._transaction.delete(digest, db=self._tables[COUNTS])
        else:
            value = count.to_bytes(COUNT_BYTES, "big")
            self._transaction.put(digest, value, db=self._tables[COUNTS])


def last_index(cursor: Any, worker_id: bytes) -> int:
    """Index of the worker's last entry, by a cursor of the oplog, which it moves.

    Raises: OplogCorruptError.
    """
    found = cursor.set_range(last_key(worker_id))
    if not (cursor.prev() if found else cursor.last()):
        return 0
    try:
        owner, index = split_entry_key(bytes(cursor.key()))
    except ValueError as error:
        raise OplogCorruptError(
            f"the oplog of worker {worker_id.hex()} is damaged: {error}"
        ) from error
    return index if owner == worker_id else 0
