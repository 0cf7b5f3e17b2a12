"""The baseline of everything durable: LMDB alone, writing the very bytes that the executor wrote.

`RecordingEngine` keeps what each transaction of the executor held; `RawStore` writes it again, as
plain puts in one transaction each, into a store that was opened with the same options.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import lmdb

from oplog.engine import TABLES, Batch
from oplog.errors import OplogError
from oplog.lmdb_engine import DATABASES_MAX, MAP_BYTES, LmdbEngine

Put = tuple[str, bytes, bytes | None]
"""Table, key, and value; None deletes."""


class RecordingEngine(LmdbEngine):
    """Keeps every transaction's batches; `take` gives them, and forgets."""

    def write(self, batches: Sequence[Batch]) -> list[OplogError | None]:
        self.__dict__.setdefault("written", []).append(batches)
        return super().write(batches)

    def take(self) -> list[Sequence[Batch]]:
        written: list[Sequence[Batch]] = self.__dict__.setdefault("written", [])
        taken = list(written)
        del written[: len(taken)]
        return taken


def puts_of(batches: Sequence[Batch]) -> list[Put]:
    """What one transaction wrote."""
    puts: list[Put] = []
    for batch in batches:
        puts.extend(
            ("oplog", worker_id + index.to_bytes(8, "big"), encoded)
            for worker_id, index, encoded in batch.entries
        )
        puts.extend((row.table, row.key, row.value) for row in batch.rows)
    return puts


class RawStore:
    """An LMDB environment, and nothing around it."""

    def __init__(self, path: Path) -> None:
        path.mkdir()
        self._environment = lmdb.open(str(path), map_size=MAP_BYTES, max_dbs=DATABASES_MAX)
        self._tables = {
            name: self._environment.open_db(name.encode()) for name in ("oplog", *TABLES)
        }

    def commit_s(self, transactions: Sequence[Sequence[Put]]) -> float:
        """Seconds to commit each list of puts in a transaction of its own."""
        began = time.perf_counter()
        for puts in transactions:
            with self._environment.begin(write=True) as transaction:
                for table, key, value in puts:
                    if value is None:
                        transaction.delete(key, db=self._tables[table])
                    else:
                        transaction.put(key, value, db=self._tables[table])
        return time.perf_counter() - began

    def read(self, table: str, key: bytes) -> bytes | None:
        """One read in a transaction of its own."""
        with self._environment.begin(self._tables[table]) as transaction:
            found: bytes | None = transaction.get(key)
            return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._environment.close()
