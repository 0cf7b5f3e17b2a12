"""Where a worker's status stands in the store, and how a commit brings it up to date.

| table        | key                                        | value                       |
|--------------|--------------------------------------------|-----------------------------|
| workers      | worker id                                  | Status, the checkpoint      |
| worker_names | sortable name                              | worker id                   |
| worker_index | `s` state NUL sortable name                | worker id                   |
| worker_index | `w` worker id (only with pending work)     | empty                       |
| results      | worker id, digest of the key               | KeyState                    |
| pending      | worker id, index of the pending entry      | key                         |
| wakeups      | see `worker/wakeups.py`                    | empty                       |

All rows of a commit go into the transaction of its entries and come from the same fold, so the
checkpoint is never ahead of the log. A commit of nothing but starts, ends and logs writes no rows:
the checkpoint then lags, by at most 1,000 entries, and whoever reads it folds the rest. A name
longer than a key may be is cut and made unique by a digest, which keeps the order of names for all
but their tails.
"""

from collections.abc import Iterable
from functools import partial
from hashlib import blake2b
from typing import Final

import msgspec

from executor.errors import WorkerNotFound
from executor.replay.regions import Regions
from executor.services.components import find_component, near_names, read_components
from executor.services.environment import last_write_key
from executor.services.promises import deletions
from executor.worker.entries import resolved
from executor.worker.status import PAUSED, KeyState, Status, fold, forgotten
from executor.worker.wakeups import wake_keys
from oplog.codec import damaged_value
from oplog.engine import Engine, Row
from oplog.entry import Entry
from oplog.errors import OplogCorruptError
from oplog.reader import decode_named, resolve

SORTABLE_NAME_BYTES_MAX: Final = 400
CHECKPOINT_LAG_ENTRIES_MAX: Final = 1_000
LOOKED_AT_MAX: Final = 500
"""Names among which one is sought that is like another."""
RUNNABLE_STATES: Final = frozenset({"running", "retrying"})

encode_status = msgspec.msgpack.Encoder().encode
decode_status = msgspec.msgpack.Decoder(Status).decode
decode_key_state = msgspec.msgpack.Decoder(KeyState).decode


def sortable_name(name: str) -> bytes:
    """A row key that orders like the name."""
    raw = name.encode(errors="surrogatepass")  # no worker has such a name, but one may be asked for
    if len(raw) <= SORTABLE_NAME_BYTES_MAX:
        return raw
    return raw[:SORTABLE_NAME_BYTES_MAX] + blake2b(raw, digest_size=16).digest()


def key_row(worker_id: bytes, key: str) -> bytes:
    return worker_id + blake2b(key.encode(errors="surrogatepass"), digest_size=16).digest()


def index_row(worker_id: bytes, index: int) -> bytes:
    return worker_id + index.to_bytes(8, "big")


def state_row(state: str, name: str) -> bytes:
    return b"s" + state.encode() + b"\0" + sortable_name(name)


def work_row(worker_id: bytes) -> bytes:
    return b"w" + worker_id


def has_work(status: Status) -> bool:
    """Whether somebody has to run this worker: a started or queued invocation it may work on."""
    if status.state in RUNNABLE_STATES:
        return True
    return status.pending > 0 and status.state == "idle"


class WorkerRows:
    """A worker's status with its keys, as of the last appended entry, and what is yet unsaved.

    Guarded by the worker's lock.
    """

    def __init__(self, worker_id: bytes, status: Status, queue: Iterable[tuple[int, str]]) -> None:
        self.worker_id = worker_id
        self.status = status
        self.queue: dict[str, int] = {key: index for index, key in queue}
        """Keys that wait, oldest first, with the index of their pending entry."""
        self._changed: dict[str, tuple[int, KeyState]] = {}
        """States that differ from the store's, or did until a commit that is not yet confirmed,
        with the index of the entry that changed them last."""
        self._unsaved: set[str] = set()
        self._queue_rows: dict[int, Row] = {}
        """Of the `pending` table, by index; an invocation that starts before its acceptance was
        committed leaves none."""
        self._saved_state = status.state if status.last_index else ""
        self._saved_work = has_work(status) if status.last_index else False
        self._saved_wakes = wake_keys(status, worker_id) if status.last_index else frozenset()
        self._saved_index = status.last_index
        self._dirty = False

    def apply(self, index: int, entry: Entry) -> None:
        """Folds one appended entry."""
        self._dirty = True
        change = fold(self.status, index, entry)
        if change is None:
            return
        key = change.key.key
        self._changed[key] = index, change.key
        self._unsaved.add(key)
        if change.queued:
            self.queue[key] = index
            row_key = index_row(self.worker_id, index)
            self._queue_rows[index] = Row(table="pending", key=row_key, value=key.encode())
        elif key in self.queue:
            pending_index = self.queue.pop(key)
            if self._queue_rows.pop(pending_index, None) is None:
                row_key = index_row(self.worker_id, pending_index)
                self._queue_rows[pending_index] = Row(table="pending", key=row_key, value=None)

    def revert(self, status: Status) -> None:
        """Takes up the status that a revert leaves, whose entry is the last one."""
        assert self.status.last_index < status.last_index
        status.bytes = self.status.bytes
        self.status = status
        index = status.last_index
        self._dirty = True
        current = self.status.current
        reverted = Regions(self.status.cuts).reverted
        self._changed = {
            key: change
            for key, change in self._changed.items()
            if not forgotten(change[1], reverted)
        }
        self._unsaved &= self._changed.keys()
        if current is not None:
            self._changed[current.key] = index, current
            self._unsaved.add(current.key)

    def key_state(self, engine: Engine, key: str) -> KeyState | None:
        """What is known of `key`: unsaved, current, or in the store."""
        current = self.status.current
        if current is not None and current.key == key:
            return current
        changed = self._changed.get(key)
        if changed is not None:
            return changed[1]
        return read_known_key(engine, self.worker_id, self.status, key)

    def absorb(self, last_index: int) -> None:
        """Counts the entries up to `last_index` that were appended without a fold: starts, ends
        and logs, of which the fold asks only that they are there.
        """
        status = self.status
        if last_index > status.last_index:
            status.last_index = last_index
            if status.state in PAUSED:
                status.state = "running"
                self._dirty = True  # the row that lists the worker by its state changes too

    def take(self, committed_index: int) -> list[Row]:
        """The rows of the next commit. Called once a commit, under the worker's lock.

        `committed_index` is the durable tail: what changed up to it need not be remembered here.
        """
        status = self.status
        lag = status.last_index - self._saved_index
        if not self._dirty and lag < CHECKPOINT_LAG_ENTRIES_MAX:
            return []
        self._dirty = False
        self._saved_index = status.last_index
        rows = list(self._queue_rows.values())
        self._queue_rows = {}
        if self._saved_state != status.state:
            rows.extend(self._state_rows())
        work = has_work(status)
        if work != self._saved_work:
            value = b"" if work else None
            rows.append(Row(table="worker_index", key=work_row(self.worker_id), value=value))
            self._saved_work = work
        rows.extend(self._wake_rows())
        rows.extend(
            Row(
                table="results",
                key=key_row(self.worker_id, key),
                value=encode_status(self._changed[key][1]),
            )
            for key in self._unsaved
        )
        self._unsaved = set()
        self._changed = {
            key: change for key, change in self._changed.items() if change[0] > committed_index
        }
        rows.append(Row(table="workers", key=self.worker_id, value=encode_status(status)))
        return rows

    def _wake_rows(self) -> Iterable[Row]:
        wakes = wake_keys(self.status, self.worker_id)
        for key in self._saved_wakes - wakes:
            yield Row(table="wakeups", key=key, value=None)
        for key in wakes - self._saved_wakes:
            yield Row(table="wakeups", key=key, value=b"")
        self._saved_wakes = wakes

    def _state_rows(self) -> Iterable[Row]:
        status = self.status
        if self._saved_state:
            old = state_row(self._saved_state, status.name)
            yield Row(table="worker_index", key=old, value=None)
        else:
            name = sortable_name(status.name)
            yield Row(table="worker_names", key=name, value=self.worker_id)
        new = state_row(status.state, status.name)
        yield Row(table="worker_index", key=new, value=self.worker_id)
        self._saved_state = status.state


def read_key_state(engine: Engine, worker_id: bytes, key: str) -> KeyState | None:
    raw = engine.read_row("results", key_row(worker_id, key))
    try:
        return None if raw is None else decode_key_state(raw)
    except msgspec.MsgspecError as error:
        raise OplogCorruptError(
            f"worker {worker_id.hex()}: a key's row is damaged: {error}"
        ) from error


def read_known_key(engine: Engine, worker_id: bytes, status: Status, key: str) -> KeyState | None:
    """As `read_key_state`, but that a revert may have made the key unknown again."""
    state = read_key_state(engine, worker_id, key)
    if state is None or not status.cuts:
        return state
    return None if forgotten(state, Regions(status.cuts).reverted) else state


def read_checkpoint(engine: Engine, worker_id: bytes) -> Status | None:
    """The status as of the last commit that wrote rows. Raises: OplogCorruptError."""
    raw = engine.read_row("workers", worker_id)
    try:
        return None if raw is None else decode_status(raw)
    except msgspec.MsgspecError as error:
        raise OplogCorruptError(
            f"worker {worker_id.hex()}: its status is damaged: {error}"
        ) from error


def read_status(engine: Engine, worker_id: bytes) -> Status | None:
    """The status as of the last committed entry: the checkpoint, and the fold of what follows.

    Raises: OplogCorruptError.
    """
    status = read_checkpoint(engine, worker_id)
    if status is None:
        return None
    while tail := engine.read_entries(worker_id, status.last_index + 1, CHECKPOINT_LAG_ENTRIES_MAX):
        for index, encoded in tail:
            entry = decode_named(worker_id, index, encoded)
            try:
                entry = resolved(entry, partial(resolve, engine))
            except OplogCorruptError as error:
                raise damaged_value(index, error) from error
            fold(status, index, entry)
            status.bytes += len(encoded)
    return status


def read_worker_id(engine: Engine, name: str) -> bytes | None:
    return engine.read_row("worker_names", sortable_name(name)) if name else None


def unknown_worker(engine: Engine, name: str) -> WorkerNotFound:
    """The refusal, with the names that are like it, among as many as are quickly looked at."""
    component, slash, own = name.partition("/")
    hint = "see `shem workers`"
    if slash and find_component(engine, component) is None:
        if near := near_names(component, [row.component for row in read_components(engine)]):
            hint = f"there is no component {component!r} either: {near}"
    elif slash:
        for prefix in (f"{component}/{own[:1]}", f"{component}/"):
            rows = engine.read_rows("worker_names", sortable_name(prefix), limit=LOOKED_AT_MAX)
            whole = [key.decode() for key, _ in rows if len(key) <= SORTABLE_NAME_BYTES_MAX]
            if near := near_names(name, whole):
                hint = near
                break
    return WorkerNotFound(f"no worker {name!r}", where="store", hint=hint)


def read_queue(engine: Engine, worker_id: bytes) -> list[tuple[int, str]]:
    """The keys that wait, oldest first, with the index of their pending entry."""
    queue: list[tuple[int, str]] = []
    after: bytes | None = None
    while True:
        page = engine.read_rows("pending", prefix=worker_id, after=after, limit=1_000)
        queue.extend((int.from_bytes(key[16:], "big"), value.decode()) for key, value in page)
        if len(page) < 1_000:
            return queue
        after = page[-1][0]


def delete_rows(engine: Engine, worker_id: bytes, status: Status) -> list[Row]:
    """Every row of a worker, as deletions."""
    rows = [
        Row(table="workers", key=worker_id, value=None),
        Row(table="worker_names", key=sortable_name(status.name), value=None),
        Row(table="worker_index", key=work_row(worker_id), value=None),
        Row(table="worker_index", key=state_row(status.state, status.name), value=None),
        *(Row(table="wakeups", key=key, value=None) for key in wake_keys(status, worker_id)),
        Row(table="keyvalue", key=last_write_key(worker_id), value=None),
    ]
    rows.extend(deletions(engine, worker_id, first=1))
    for table in ("results", "pending"):
        after: bytes | None = None
        while True:
            page = engine.read_rows(table, prefix=worker_id, after=after, limit=1_000)
            rows.extend(Row(table=table, key=key, value=None) for key, _ in page)
            if len(page) < 1_000:
                break
            after = page[-1][0]
    return rows
