"""Promises: what a worker waits for until somebody gives it, once.

| table    | key                                      | value       |
|----------|------------------------------------------|-------------|
| promises | worker id, index of the call (8 bytes)   | PromiseRow  |

A promise is of the worker that made it, and is named by the index of the call that did. Its row is
written with the `end` of that call; it goes with its worker, and with a jump or revert that hides
the call. A completion replaces the pending row that was read, in a transaction that is refused if
it is another one by then: so exactly one completion wins, and none comes behind a deletion. The
winner's derived key stays in the row, so that the same call may be repeated and hears the same.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeVar
from weakref import WeakValueDictionary

import msgspec
import trio

from executor.durable.signal import Signal
from executor.errors import LimitError, UnknownPromise
from executor.services.writing import WriteBatch, Written
from oplog.engine import Batch, Engine, Row
from oplog.errors import OplogCorruptError

T = TypeVar("T")

VALUE_BYTES_MAX: Final = 1 << 20
"""Of what a promise is completed with. A guest gets it in one piece, 32 bytes of memory a byte."""
INDEX_MAX: Final = (1 << 64) - 1
PAGE_ROWS: Final = 32
"""Each may hold a value: a page is at most that many mebibytes."""


class PromiseId(msgspec.Struct, frozen=True):
    worker_id: bytes
    index: int
    """Of the call that made it."""

    @property
    def row_key(self) -> bytes:
        """Numbers that no entry has sort before or behind all."""
        return self.worker_id + min(max(self.index, 0), INDEX_MAX).to_bytes(8, "big")

    def __str__(self) -> str:
        """Its name in the oplog and in the rows of those who wait."""
        return f"{self.worker_id.hex()}/{self.index}"

    @classmethod
    def of_name(cls, name: str) -> "PromiseId":
        """Raises: OplogCorruptError for what is no name of a promise."""
        worker_id, _, index = name.partition("/")
        try:
            return cls(bytes.fromhex(worker_id), int(index))
        except ValueError as error:
            raise OplogCorruptError(f"no promise has the name {name!r:.100}") from error

    @classmethod
    def of_row_key(cls, key: bytes) -> "PromiseId":
        return cls(key[:16], int.from_bytes(key[16:], "big"))


class PromiseRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    created_at: int
    completed_at: int = 0
    """0 while nobody has completed it."""
    key: str = ""
    """Of the completion that won: the derived key of a guest's call, or one of the caller's."""
    value: bytes = b""


class Settled(msgspec.Struct, frozen=True, kw_only=True):
    """What of a row says whether anybody has to wait; its value is passed over."""

    completed_at: int = 0


encode_row: Final = msgspec.msgpack.Encoder().encode
_decode_row: Final = msgspec.msgpack.Decoder(PromiseRow).decode
_decode_settled: Final = msgspec.msgpack.Decoder(Settled).decode


def decode_row(promise: PromiseId, raw: bytes) -> PromiseRow:
    """Raises: OplogCorruptError."""
    return decoded(_decode_row, promise, raw)


def decoded(decode: Callable[[bytes], T], promise: PromiseId, raw: bytes) -> T:
    """Raises: OplogCorruptError."""
    try:
        return decode(raw)
    except msgspec.MsgspecError as error:
        raise OplogCorruptError(f"the row of promise {promise} is damaged: {error}") from error


def read_promise(engine: Engine, promise: PromiseId) -> PromiseRow | None:
    """What is committed of a promise; None if it was never made, or is gone."""
    raw = engine.read_row("promises", promise.row_key)
    return None if raw is None else decode_row(promise, raw)


def read_promises(
    engine: Engine, worker_id: bytes, after: int = 0
) -> Iterable[tuple[int, PromiseRow]]:
    """Those of a worker with a greater index than `after`, oldest first, a page at a time."""
    last = PromiseId(worker_id, after).row_key
    while page := engine.read_rows("promises", prefix=worker_id, after=last, limit=PAGE_ROWS):
        for key, raw in page:
            promise = PromiseId.of_row_key(key)
            yield promise.index, decode_row(promise, raw)
        last = page[-1][0]


def creation(promise: PromiseId, at: int) -> Row:
    return Row("promises", promise.row_key, encode_row(PromiseRow(created_at=at)))


def deletions(engine: Engine, worker_id: bytes, first: int) -> list[Row]:
    """The rows that take away a worker's promises from index `first` on."""
    keys = [PromiseId(worker_id, index) for index, _ in read_promises(engine, worker_id, first - 1)]
    return [Row("promises", promise.row_key, None) for promise in keys]


def unknown(promise: PromiseId, worker: str) -> UnknownPromise:
    return UnknownPromise(
        f"there is no promise {promise.index} of {worker}: it was never made, or it was deleted,"
        " reverted, or its worker was deleted",
        where=worker,
        hint="see `shem promise list`",
    )


class Promises:
    """Those of one store. For the trio thread, but `read` and `is_settled`, for any."""

    def __init__(self, engine: Engine, write: WriteBatch, wall_ns: Callable[[], int]) -> None:
        self.engine = engine
        self._write = write
        self._wall_ns = wall_ns
        self._signals: WeakValueDictionary[PromiseId, Signal] = WeakValueDictionary()
        self._complete: PromiseId | None = None
        """One that was found complete, which it stays: many may wait for it, and each asks."""
        self.on_settled: Callable[[PromiseId], None] = ignore
        """Told of each promise that is complete now, or gone: durably."""

    def read(self, promise: PromiseId) -> PromiseRow | None:
        return read_promise(self.engine, promise)

    def is_settled(self, promise: PromiseId) -> bool:
        """Whether nobody has to wait for it: it is complete, or gone."""
        if promise == self._complete:
            return True
        raw = self.engine.read_row("promises", promise.row_key)
        if raw is None:
            return True
        if not decoded(_decode_settled, promise, raw).completed_at:
            return False
        self._complete = promise
        return True

    def signal(self, promise: PromiseId) -> Signal:
        """Fired when the promise is settled; for as long as somebody holds it."""
        return self._signals.setdefault(promise, Signal())

    async def complete(self, promise: PromiseId, value: bytes, key: str, worker: str) -> bool:
        """Whether this completion is the one that counts; durable on return. The same `key` again
        hears the same. `worker` names the promise's worker in errors.

        Raises: UnknownPromise, LimitError, StoreError.
        """
        if len(value) > VALUE_BYTES_MAX:
            raise LimitError(
                f"a promise's value has at most {VALUE_BYTES_MAX} bytes, not {len(value)}",
                where=worker,
                hint="put it into a store and complete the promise with its name",
            )
        while (raw := self.engine.read_row("promises", promise.row_key)) is not None:
            row = decode_row(promise, raw)
            if row.completed_at:
                return row.key == key
            completed = msgspec.structs.replace(
                row, completed_at=self._wall_ns(), key=key, value=value
            )
            if await self._replace(promise, raw, encode_row(completed), worker):
                return True
        raise unknown(promise, worker)

    async def delete(self, promise: PromiseId, worker: str) -> None:
        """Whoever waits for it hears that it is gone; nothing if it is. Durable on return."""
        while (raw := self.engine.read_row("promises", promise.row_key)) is not None:
            if await self._replace(promise, raw, None, worker):
                return

    async def _replace(
        self, promise: PromiseId, raw: bytes, value: bytes | None, worker: str
    ) -> bool:
        before = Row("promises", promise.row_key, raw)
        after = Row("promises", promise.row_key, value)
        batch = Batch(rows=(after,), expects=(before,))
        with trio.CancelScope(shield=True):  # who waits hears of it, whoever has asked for it
            written = await self._write(batch, worker) is Written.DONE
        if written:
            self.announce([after])
        return written

    def announce(self, rows: Sequence[Row]) -> None:
        """Rows of promises that have just become durable, and settle them; others are passed
        over.
        """
        for row in rows:
            if row.table == "promises":
                promise = PromiseId.of_row_key(row.key)
                signal = self._signals.get(promise)
                if signal is not None:
                    signal.fire()
                self.on_settled(promise)


def ignore(_promise: PromiseId) -> None:
    """Nobody is told."""
