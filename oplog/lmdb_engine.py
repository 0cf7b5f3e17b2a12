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
again; those that a reader kept who was killed in between, once the file has grown for it. An
opening for reading works beside a writer of another process, and creates no store.

LMDB maps both of its files, and what is wrong with a mapped file kills the process. So every
opening refuses a file that was cut short or has a damaged header (`oplog.whole`), and allocates the
table of readers before LMDB sees it (`oplog.directory`). A new store is written under another name
first: what is called `data.mdb` is whole.
"""

import os
import threading
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from itertools import islice
from pathlib import Path
from typing import Final, Self

import lmdb

from oplog.applying import COUNTS, OPLOG, PAYLOADS, Applying, last_index
from oplog.directory import (
    DATA_NAME,
    READERS_NAME,
    holds_store,
    make_directory,
    make_readers_table,
    sync_directory,
)
from oplog.engine import PROBE_BYTES, TABLES, Batch, BatchRefusedError, Engine, stored_bytes
from oplog.errors import (
    FencedError,
    OplogBusyError,
    OplogCorruptError,
    OplogError,
    OplogFormatError,
    OplogFullError,
    OplogMissingError,
)
from oplog.gate import Gate
from oplog.keys import check_worker_id, entry_key
from oplog.lock import StoreLock
from oplog.payload import digest_of
from oplog.room import MORE_FILES, NO_ROOM, has_room, is_cut_short, is_full, is_out_of_files
from oplog.whole import DAMAGED, RESTORE, make_whole, require_header, require_whole

FORMAT: Final = 1
MAP_BYTES: Final = 1 << 40
DATABASES_MAX: Final = 64
READERS_MAX: Final = 1024
FILE_MODE: Final = 0o644
NEW_NAME: Final = "data.mdb.new"
"""What `data.mdb` is called while it is made."""
TAILS_MAX: Final = 10_000
"""Workers whose last index is remembered, so that it need not be looked up at their next commit."""

DAMAGE: Final = (
    lmdb.BadDbiError,
    lmdb.BadTxnError,
    lmdb.CorruptedError,
    lmdb.IncompatibleError,
    lmdb.InvalidError,
    lmdb.PageNotFoundError,
    lmdb.VersionMismatchError,
)
"""What LMDB says of pages that cannot be as it wrote them, and of a transaction that met one."""
_DATABASES: Final = (OPLOG, PAYLOADS, COUNTS, *TABLES)


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
        self._file = path / DATA_NAME
        self._file_bytes = 0
        """How long the file is at least."""
        self._tails: dict[bytes, int] = {}
        """Last committed index of workers that this opening wrote: nobody else can write them."""

    @classmethod
    def open(cls, path: Path, *, readonly: bool = False, map_bytes: int = MAP_BYTES) -> Self:
        """Open the store in the directory `path`. Blocks.

        For writing, `path` is made if only its last part is missing, the process's lock is taken
        and the epoch moves on, durably. For reading nothing is made, taken or changed, but the
        table of readers.

        Raises: OplogBusyError if another process writes it, OplogCorruptError if it has lost what
        it stored, OplogFormatError if it is no store of this format, OplogFullError if there is no
        room to open it, OplogMissingError if there is none to be read, OplogError if the system
        refuses.
        """
        if readonly:
            if not holds_store(path):
                raise OplogMissingError("there is no store", where=str(path))
            return cls._open_locked(path, None, map_bytes)
        make_directory(path)
        is_new = not holds_store(path)
        with ExitStack() as undo:
            lock = StoreLock.take(path)
            undo.callback(lock.release)
            if is_new and not (path / DATA_NAME).exists():
                make_new(path)
            engine = cls._open_locked(path, lock, map_bytes)
            undo.pop_all()
        return engine

    @classmethod
    def _open_locked(cls, path: Path, lock: StoreLock | None, map_bytes: int) -> Self:
        header = require_header(path)
        make_readers_table(path)
        require_whole(path, header)
        try:
            environment = lmdb.open(
                os.fsencode(path),
                map_size=map_bytes,
                max_dbs=DATABASES_MAX,
                max_readers=READERS_MAX,
                readonly=lock is None,
                create=False,
                mode=FILE_MODE,
            )
        except lmdb.Error as error:
            raise _opening_error(path, error) from error
        with ExitStack() as undo:
            undo.callback(environment.close)
            engine = cls(path, environment, lock)
            try:
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
            meta = self._checked_meta(transaction)
            self.epoch = int(transaction.get(b"epoch", db=meta) or b"0")
        for name in _DATABASES:
            self._databases[name] = self._environment.open_db(name.encode(), create=False)

    def _open_for_writing(self) -> None:
        self._environment.reader_check()
        with self._environment.begin(write=True) as transaction:
            meta = self._checked_meta(transaction)
            for name in _DATABASES:
                self._databases[name] = self._environment.open_db(name.encode(), txn=transaction)
            self.epoch = int(transaction.get(b"epoch", db=meta) or b"0") + 1
            self._epoch_value = b"%d" % self.epoch
            transaction.put(b"epoch", self._epoch_value, db=meta)
            transaction.delete(b"probe", db=meta)
        self._make_whole()
        sync_directory(self.path)

    def _checked_meta(self, transaction: lmdb.Transaction) -> lmdb._Database:
        """The meta database. Raises: OplogFormatError if it is of another format, or there is
        none; OplogCorruptError if there is none beside databases of a store, or it holds no format.
        """
        version = b""
        with suppress(lmdb.NotFoundError):
            meta = self._environment.open_db(b"meta", txn=transaction, create=False)
            version = bytes(transaction.get(b"format", b"", db=meta))
        if not version.isdigit() and (
            any(transaction.get(name.encode()) for name in _DATABASES)
            or transaction.cursor().first() != (self._environment.stat()["entries"] > 0)
        ):
            raise OplogCorruptError(
                "the store is damaged: it does not say of which format it is",
                where=str(self.path),
                hint=RESTORE,
            )
        if not version:
            raise OplogFormatError(
                "here is an LMDB file that is not a store of Shem",
                where=str(self.path),
                hint="name another directory",
            )
        if version != b"%d" % FORMAT:
            raise OplogFormatError(
                f"the store was written by format {version.decode()}, this Shem reads {FORMAT}",
                where=str(self.path),
                hint="use the version of Shem that wrote it",
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
                Applying(transaction, self._databases, tails).apply(batches)
        except lmdb.Error as error:
            raise self._translated(error, batches) from error
        self._tails = tails if len(tails) <= TAILS_MAX else {}
        self._make_whole()

    def _make_whole(self) -> None:
        """After a commit, and before the first one: a page of LMDB's list of free pages that is
        missing is then damaged. Without room for it the next opening reads the store through.
        """
        needed = _needed_bytes(self._environment)
        if needed > self._file_bytes:
            with suppress(lmdb.Error):  # it grew: who was killed while reading keeps pages in use
                self._environment.reader_check()
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
                with self._environment.begin(self._databases[OPLOG]) as transaction:
                    cursor = transaction.cursor()
                    count = min(limit, last_index(cursor, worker_id) - first + 1)
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
                with self._environment.begin(self._databases[OPLOG]) as transaction:
                    return last_index(transaction.cursor(), worker_id)
            except lmdb.Error as error:
                raise self._translated(error) from error

    def read_row(self, table: str, key: bytes) -> bytes | None:
        return self._read(table, key)

    def read_payload(self, digest: bytes) -> bytes:
        content = self._read(PAYLOADS, digest)
        if content is None:
            raise OplogCorruptError(f"payload {digest.hex()} is not in the store")
        if digest_of(content) != digest:
            raise OplogCorruptError(f"payload {digest.hex()} is damaged")
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
        where = str(self.path)
        if isinstance(error, lmdb.MapFullError):
            return OplogFullError("no room in the map of the store", where=where)
        if isinstance(error, (lmdb.TxnFullError, lmdb.BadValsizeError)):
            return BatchRefusedError(
                f"the store cannot take this in one transaction: {error}", where=where
            )
        if isinstance(error, lmdb.ReadersFullError):
            return OplogBusyError("the store has too many readers", where=where, hint="close some")
        if isinstance(error, DAMAGE):
            return OplogCorruptError(f"the store is damaged: {error}", where=where, hint=RESTORE)
        needed = sum(map(stored_bytes, batches))
        if is_full(error.code) or (is_cut_short(error.code) and not has_room(self._file, needed)):
            return OplogFullError(NO_ROOM, where=where)
        return OplogError(f"the store failed: {error}", where=where, hint="open it again")


def make_new(path: Path) -> None:
    """An empty store in the directory, durable; or nothing at all. Its lock is held. Blocks.

    Raises: OplogError.
    """
    unnamed = path / NEW_NAME
    with ExitStack() as undo:
        undo.callback(unnamed.unlink, missing_ok=True)
        unnamed.unlink(missing_ok=True)
        try:
            with lmdb.open(
                os.fsencode(unnamed),
                map_size=MAP_BYTES,
                max_dbs=DATABASES_MAX,
                subdir=False,
                lock=False,
                mode=FILE_MODE,
            ) as environment:
                with environment.begin(write=True) as transaction:
                    databases = {
                        name: environment.open_db(name.encode(), txn=transaction)
                        for name in _DATABASES
                    }
                    transaction.put(b"format", b"%d" % FORMAT, db=databases["meta"])
                make_whole(unnamed, _needed_bytes(environment))
            unnamed.rename(path / DATA_NAME)
        except (lmdb.Error, OSError) as error:
            raise _opening_error(path, error) from error
    sync_directory(path)
    sync_directory(path.absolute().parent)


def read_through(path: str) -> int:
    """Reads everything that is in a store, its list of free pages too. Blocks. Answers `DAMAGED` if
    that does not fit together. Kills the process if the file ends before.
    """
    try:
        with (
            lmdb.open(
                os.fsencode(path), map_size=MAP_BYTES, max_dbs=DATABASES_MAX, readonly=True
            ) as environment,
            Path(os.devnull).open("wb") as nowhere,
        ):
            environment.copyfd(nowhere.fileno(), compact=True)
    except DAMAGE:
        return DAMAGED
    return 0


def _needed_bytes(environment: lmdb.Environment) -> int:
    """Up to where the last transaction numbered pages."""
    return (int(environment.info()["last_pgno"]) + 1) * int(environment.stat()["psize"])


def _opening_error(path: Path, error: lmdb.Error | OSError) -> OplogError:
    """The refusal that a failed opening of a file with a good header means."""
    if isinstance(error, DAMAGE):
        return OplogCorruptError(
            f"{READERS_NAME} is damaged; nothing is stored in it",
            where=str(path),
            hint="end every process that uses the store: the next one makes it anew",
        )
    if "already open in this process" in str(error):
        return OplogBusyError(
            "the store is open in this process", where=str(path), hint="use that one"
        )
    code = error.errno if isinstance(error, OSError) else error.code
    if is_full(code) or (is_cut_short(code) and not has_room(path, 0)):
        return OplogFullError(NO_ROOM, where=str(path))
    return OplogError(
        f"the store cannot be opened: {error}",
        where=str(path),
        hint=MORE_FILES
        if is_out_of_files(code)
        else "its directory must be readable and writable, and 1 TiB of address space free",
    )
