"""The durable engine: one LMDB environment. The only module that knows LMDB.

Files of a store's directory: `data.mdb` (everything), `lock.mdb` (LMDB's table of readers, no
content), `executor.lock` (who runs the store). Format version 1, databases of `data.mdb`:

    oplog            worker id (16 bytes) · index (8, big-endian)  → encoded entry (`oplog.codec`)
    payloads         BLAKE2b digest (32 bytes)                     → content
    payload_counts   digest                                        → references (8, big-endian)
    one for each of `oplog.engine.TABLES`: key (1 to 511 bytes)    → value
    meta             `format`, `epoch`: decimal numbers in ASCII; `probe`: only while probing

Invariants, true in every committed transaction: a worker's indices are dense from 1; an entry is
never replaced; a payload's count is the number of references that entries hold, and it is there
exactly if that is not 0; `epoch` is the number of openings for writing.

Durability. A transaction writes fresh pages, syncs them, then switches one of two meta pages,
written through. Whatever instant the process or the machine dies at, the next opening sees the last
transaction whose commit returned, or a later one whole; there is nothing to recover or to replay.
The options that give this up (`sync=False`, `metasync=False`) are never used.

One writer. `executor.lock` keeps a second process out. Should that fail (a file system whose locks
do not work, a file removed by hand), each opening takes a new epoch and each transaction compares
it with its own first: the older opening is fenced and writes nothing.

No room. A full map, a full disk, a quota and a file-size limit undo the transaction and leave the
environment usable. LMDB reports a write that was cut short as an I/O error: whether there was room
is then asked of the file system. The map is 1 TiB of address space from the start, since it cannot
grow under live readers.

Readers take a snapshot for each page and close it, so that pages of deleted entries can be used
again. An opening for reading works beside a writer of another process, and creates no store.
Every opening refuses a file that was cut short (`oplog.whole`): reading it would kill the process.
"""

import threading
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from itertools import islice
from pathlib import Path
from typing import Final, Self

import lmdb
import msgspec

from oplog.directory import make_directory, sync_directory
from oplog.engine import (
    PROBE_BYTES,
    TABLES,
    Batch,
    BatchRefusedError,
    Engine,
    decided_rows,
    first_entries,
    stored_bytes,
)
from oplog.errors import (
    FencedError,
    OplogBusyError,
    OplogCorruptError,
    OplogError,
    OplogFormatError,
    OplogFullError,
)
from oplog.gate import Gate
from oplog.keys import check_worker_id, entry_key, last_key, split_entry_key
from oplog.lock import StoreLock
from oplog.payload import all_references, digest_of, stored_references
from oplog.room import has_room, is_cut_short, is_full
from oplog.whole import make_whole, require_whole

FORMAT: Final = 1
MAP_BYTES: Final = 1 << 40
DATABASES_MAX: Final = 64
READERS_MAX: Final = 1024
COUNT_BYTES: Final = 8
TAILS_MAX: Final = 10_000
"""Workers whose last index is remembered, so that it need not be looked up at their next commit."""

_OPLOG: Final = "oplog"
_PAYLOADS: Final = "payloads"
_COUNTS: Final = "payload_counts"
_DATABASES: Final = (_OPLOG, _PAYLOADS, _COUNTS, *TABLES)


class LmdbEngine(Engine):
    """Made by `open`. Reads on any thread; `write` and `probe` wait for each other."""

    def __init__(self, path: Path, environment: lmdb.Environment, lock: StoreLock | None) -> None:
        self.path = path
        self.epoch = 0
        self._environment = environment
        self._lock = lock
        self._write_lock = threading.Lock()
        self._gate = Gate(f"the store at {path} is closed")
        self._databases: dict[str, lmdb._Database] = {}
        self._epoch_value = b""
        self._file = path / "data.mdb"
        self._file_bytes = 0
        """How long the file is at least."""
        self._tails: dict[bytes, int] = {}
        """Last committed index of workers that this opening wrote: nobody else can write them."""

    @classmethod
    def open(cls, path: Path, *, readonly: bool = False, map_bytes: int = MAP_BYTES) -> Self:
        """Open the store in the directory `path`. Blocks.

        For writing, `path` is made if only its last part is missing, the process's lock is taken
        and the epoch moves on, durably. For reading nothing is made, taken or changed.

        Raises: OplogBusyError if another process writes it, OplogFormatError if it is no store of
        this format, OplogError if there is none or the system refuses.
        """
        if readonly:
            file = path / "data.mdb"
            if not file.is_file() or not file.stat().st_size:
                raise OplogError(f"no store at {path}")
            return cls._open_locked(path, None, map_bytes)
        make_directory(path)
        with ExitStack() as undo:
            lock = StoreLock.take(path)
            undo.callback(lock.release)
            engine = cls._open_locked(path, lock, map_bytes)
            undo.pop_all()
        return engine

    @classmethod
    def _open_locked(cls, path: Path, lock: StoreLock | None, map_bytes: int) -> Self:
        try:
            environment = lmdb.open(
                str(path),
                map_size=map_bytes,
                max_dbs=DATABASES_MAX,
                max_readers=READERS_MAX,
                readonly=lock is None,
                create=lock is not None,
                mode=0o644,
            )
        except lmdb.Error as error:
            raise _opening_error(path, error) from error
        with ExitStack() as undo:
            undo.callback(environment.close)
            engine = cls(path, environment, lock)
            try:
                require_whole(path, engine._file, engine._needed_bytes())
                if lock is None:
                    engine._open_for_reading()
                else:
                    engine._make_whole()
                    engine._open_for_writing()
            except lmdb.Error as error:
                raise engine._translated(error) from error
            undo.pop_all()
        return engine

    def _open_for_reading(self) -> None:
        with self._environment.begin() as transaction:
            meta = self._check_format(transaction)
            if meta is None:
                raise OplogError(f"no store at {self.path}")
            self.epoch = int(transaction.get(b"epoch", db=meta) or b"0")
        for name in _DATABASES:
            self._databases[name] = self._environment.open_db(name.encode(), create=False)

    def _open_for_writing(self) -> None:
        self._environment.reader_check()
        with self._environment.begin(write=True) as transaction:
            meta = self._check_format(transaction)
            for name in _DATABASES:
                self._databases[name] = self._environment.open_db(name.encode(), txn=transaction)
            if meta is None:
                transaction.put(b"format", b"%d" % FORMAT, db=self._databases["meta"])
            meta = self._databases["meta"]
            self.epoch = int(transaction.get(b"epoch", db=meta) or b"0") + 1
            self._epoch_value = b"%d" % self.epoch
            transaction.put(b"epoch", self._epoch_value, db=meta)
            transaction.delete(b"probe", db=meta)
        self._make_whole()
        sync_directory(self.path)
        sync_directory(self.path.absolute().parent)

    def _check_format(self, transaction: lmdb.Transaction) -> lmdb._Database | None:
        """The meta database; None if nothing was ever written here."""
        if not transaction.stat(self._environment.open_db(None, txn=transaction))["entries"]:
            return None
        try:
            meta = self._environment.open_db(b"meta", txn=transaction, create=False)
            version = transaction.get(b"format", db=meta)
        except lmdb.NotFoundError:
            version = None
        if version is None:
            raise OplogFormatError(f"{self.path} holds an LMDB file that is not a store of Shem")
        if version != b"%d" % FORMAT:
            raise OplogFormatError(
                f"the store at {self.path} was written by format"
                f" {bytes(version).decode(errors='replace')}, this Shem reads {FORMAT}: upgrade"
            )
        return meta

    def write(self, batches: Sequence[Batch]) -> list[OplogError | None]:
        with self._gate, self._write_lock:
            try:
                self._write_together(batches)
            except (OplogFullError, BatchRefusedError) as error:
                if len(batches) == 1:
                    return [error]
            else:
                return [None] * len(batches)
            return [self._write_alone(batch) for batch in batches]

    def _write_alone(self, batch: Batch) -> OplogError | None:
        try:
            self._write_together([batch])
        except (OplogFullError, BatchRefusedError) as error:
            return error
        return None

    def _write_together(self, batches: Sequence[Batch]) -> None:
        tails = self._tails
        self._tails = {}  # unknown, unless the transaction is committed
        try:
            with self._begin_write() as transaction:
                self._apply(transaction, batches, tails)
        except lmdb.Error as error:
            raise self._translated(error, batches) from error
        self._tails = tails if len(tails) <= TAILS_MAX else {}
        self._make_whole()

    def _needed_bytes(self) -> int:
        """Up to where the last transaction numbered pages."""
        environment = self._environment
        return (int(environment.info()["last_pgno"]) + 1) * int(environment.stat()["psize"])

    def _make_whole(self) -> None:
        """After a commit, and before the first one: a page of LMDB's list of free pages that is
        missing is then damaged. Without room for it the next opening reads the store through.
        """
        needed = self._needed_bytes()
        if needed > self._file_bytes:
            with suppress(OSError):
                self._file_bytes = make_whole(self._file, needed)

    def _begin_write(self) -> lmdb.Transaction:
        """A write transaction that knows it is not fenced."""
        if self._lock is None:
            raise OplogError(f"the store at {self.path} is open for reading only")
        transaction = self._environment.begin(write=True)
        epoch = transaction.get(b"epoch", db=self._databases["meta"])
        if epoch != self._epoch_value:
            transaction.abort()
            raise FencedError(
                f"the store at {self.path} was opened again (epoch"
                f" {bytes(epoch or b'none').decode()}, this is {self.epoch}): nothing was written"
            )
        return transaction

    def _apply(
        self, transaction: lmdb.Transaction, batches: Sequence[Batch], tails: dict[bytes, int]
    ) -> None:
        """All entries together, but those that come behind the deletion of a worker."""
        together: list[Batch] = []
        for batch in batches:
            if batch.deletes:
                self._put_entries(transaction, together, tails)
                together = []
            for worker_id in batch.deletes:
                self._delete_worker(transaction, worker_id)
                tails.pop(worker_id, None)
            together.append(batch)
        self._put_entries(transaction, together, tails)
        databases = self._databases
        for batch in batches:
            for row in decided_rows(batch, lambda of, key: transaction.get(key, db=databases[of])):
                table = databases[row.table]
                if row.value is None:
                    transaction.delete(row.key, db=table)
                else:
                    transaction.put(row.key, row.value, db=table)

    def _put_entries(
        self, transaction: lmdb.Transaction, batches: Sequence[Batch], tails: dict[bytes, int]
    ) -> None:
        entries = [entry for batch in batches for entry in batch.entries]
        if not entries:
            return
        cursor = transaction.cursor(self._databases[_OPLOG])
        for batch in batches:
            for worker_id, first in first_entries(batch):
                if (
                    first > 1
                    and tails.get(worker_id) != first - 1
                    and not cursor.set_key(entry_key(worker_id, first - 1))
                ):
                    raise BatchRefusedError(
                        f"worker {worker_id.hex()}: entry {first} cannot follow entry"
                        f" {_last_index(cursor, worker_id)}: the worker was deleted, or entries"
                        " are missing"
                    )
            if batch.entries:
                worker_id, last, _ = batch.entries[-1]
                tails[worker_id] = last
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
            self._add_references(transaction, digests, dict(payloads))

    def _add_references(
        self, transaction: lmdb.Transaction, digests: list[bytes], contents: dict[bytes, bytes]
    ) -> None:
        for digest in digests:
            count = self._read_count(transaction, digest)
            if count == 0:
                content = contents.get(digest)
                if content is None:
                    raise BatchRefusedError(
                        f"an entry refers to payload {digest.hex()}: not stored"
                    )
                transaction.put(digest, content, db=self._databases[_PAYLOADS])
            self._write_count(transaction, digest, count + 1)

    def _delete_worker(self, transaction: lmdb.Transaction, worker_id: bytes) -> None:
        cursor = transaction.cursor(self._databases[_OPLOG])
        found = cursor.set_range(worker_id)
        while found and bytes(cursor.key()).startswith(worker_id):
            for digest in stored_references(bytes(cursor.value())):
                count = self._read_count(transaction, digest) - 1
                if count <= 0:
                    transaction.delete(digest, db=self._databases[_PAYLOADS])
                self._write_count(transaction, digest, count)
            found = cursor.delete()

    def _read_count(self, transaction: lmdb.Transaction, digest: bytes) -> int:
        return int.from_bytes(transaction.get(digest, b"", db=self._databases[_COUNTS]), "big")

    def _write_count(self, transaction: lmdb.Transaction, digest: bytes, count: int) -> None:
        if count <= 0:
            transaction.delete(digest, db=self._databases[_COUNTS])
        else:
            value = count.to_bytes(COUNT_BYTES, "big")
            transaction.put(digest, value, db=self._databases[_COUNTS])

    def probe(self) -> None:
        meta = self._databases["meta"]
        with self._gate, self._write_lock:
            try:
                with self._begin_write() as transaction:
                    transaction.put(b"probe", bytes(PROBE_BYTES), db=meta)
                with self._begin_write() as transaction:
                    transaction.delete(b"probe", db=meta)
            except lmdb.Error as error:
                raise self._translated(error) from error

    def read_entries(self, worker_id: bytes, first: int, limit: int) -> list[tuple[int, bytes]]:
        check_worker_id(worker_id)
        first = max(first, 1)
        with self._gate:
            try:
                with self._environment.begin(self._databases[_OPLOG]) as transaction:
                    cursor = transaction.cursor()
                    count = min(limit, _last_index(cursor, worker_id) - first + 1)
                    if count <= 0 or not cursor.set_range(entry_key(worker_id, first)):
                        return []
                    page = list(islice(cursor.iternext(keys=True, values=True), count))
            except lmdb.Error as error:
                raise self._translated(error) from error
        # Keys are distinct and sorted: if the last is where it must be, none is missing between.
        if page[0][0] != entry_key(worker_id, first) or page[-1][0] != entry_key(
            worker_id, first + count - 1
        ):
            raise OplogCorruptError(
                f"worker {worker_id.hex()}: an entry is missing between {first} and"
                f" {first + count - 1}"
            )
        return [(index, value) for index, (_, value) in enumerate(page, first)]

    def last_index(self, worker_id: bytes) -> int:
        check_worker_id(worker_id)
        with self._gate:
            try:
                with self._environment.begin(self._databases[_OPLOG]) as transaction:
                    return _last_index(transaction.cursor(), worker_id)
            except lmdb.Error as error:
                raise self._translated(error) from error

    def read_row(self, table: str, key: bytes) -> bytes | None:
        return self._read(table, key)

    def read_payload(self, digest: bytes) -> bytes:
        content = self._read(_PAYLOADS, digest)
        if content is None:
            raise OplogCorruptError(f"payload {digest.hex()} is not in the store at {self.path}")
        if digest_of(content) != digest:
            raise OplogCorruptError(f"payload {digest.hex()} of {self.path} is damaged")
        return content

    def _read(self, table: str, key: bytes) -> bytes | None:
        with self._gate:
            try:
                with self._environment.begin(self._databases[table]) as transaction:
                    content: bytes | None = transaction.get(key)
                    return content
            except lmdb.Error as error:
                raise self._translated(error) from error

    def read_rows(
        self, table: str, prefix: bytes = b"", after: bytes | None = None, limit: int = 1000
    ) -> list[tuple[bytes, bytes]]:
        start = prefix if after is None or after < prefix else after
        rows: list[tuple[bytes, bytes]] = []
        with self._gate:
            try:
                with self._environment.begin(self._databases[table]) as transaction:
                    cursor = transaction.cursor()
                    found = cursor.set_range(start) if start else cursor.first()
                    if found and cursor.key() == after:
                        found = cursor.next()
                    if not found or limit <= 0:
                        return rows
                    for key, value in islice(cursor.iternext(keys=True, values=True), limit):
                        if not key.startswith(prefix):
                            break
                        rows.append((key, value))
            except lmdb.Error as error:
                raise self._translated(error) from error
        return rows

    def close(self) -> None:
        if self._gate.close():
            self._environment.close()
            if self._lock is not None:
                self._lock.release()

    def _translated(self, error: lmdb.Error, batches: Sequence[Batch] = ()) -> OplogError:
        """The refusal that an error of LMDB means."""
        where = f"the store at {self.path}"
        if isinstance(error, lmdb.MapFullError):
            return OplogFullError(f"{where} has no room in its map: {error}")
        if isinstance(error, (lmdb.TxnFullError, lmdb.BadValsizeError)):
            return BatchRefusedError(f"{where} cannot take this in one transaction: {error}")
        if isinstance(error, lmdb.ReadersFullError):
            return OplogBusyError(f"{where} has too many readers: close some")
        corrupt = (lmdb.CorruptedError, lmdb.PageNotFoundError, lmdb.InvalidError)
        if isinstance(error, corrupt):
            return OplogCorruptError(f"{where} is damaged: {error}")
        code: int | None = getattr(error, "code", None)
        needed = sum(map(stored_bytes, batches))
        if is_full(code) or (is_cut_short(code) and not has_room(self.path / "data.mdb", needed)):
            return OplogFullError(f"no room on the disk of {where}: {error}")
        return OplogError(f"{where} failed: {error}: open it again")


def read_through(path: str) -> None:
    """Reads everything that is in a store. Blocks. Kills the process if the file ends before."""
    with lmdb.open(
        path, map_size=MAP_BYTES, max_dbs=DATABASES_MAX, readonly=True, create=False
    ) as environment:
        with environment.begin() as transaction:
            names = [name for name, _ in transaction.cursor()]
        databases = [environment.open_db(name, create=False) for name in names]
        with environment.begin(buffers=True) as transaction:
            for database in databases:
                for _, value in transaction.cursor(database):
                    bytes(value)


def _last_index(cursor: lmdb.Cursor, worker_id: bytes) -> int:
    """Index of the worker's last entry; moves the cursor."""
    found = cursor.set_range(last_key(worker_id))
    if not (cursor.prev() if found else cursor.last()):
        return 0
    owner, index = split_entry_key(bytes(cursor.key()))
    return index if owner == worker_id else 0


def _opening_error(path: Path, error: lmdb.Error) -> OplogError:
    """The refusal that a failed opening means."""
    if isinstance(error, (lmdb.InvalidError, lmdb.VersionMismatchError, lmdb.CorruptedError)):
        return OplogCorruptError(f"{path / 'data.mdb'} is damaged or is not an LMDB file: {error}")
    if "already open in this process" in str(error):
        return OplogBusyError(f"the store at {path} is open in this process: use that one")
    return OplogError(
        f"cannot open the store at {path}: {error}: its directory must be readable and writable,"
        " and 1 TiB of address space free"
    )
