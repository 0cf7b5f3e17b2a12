"""One worker's entries between being ordered and being durable.

    append ──▶ buffer ──take──▶ in flight ──settle──▶ committed
               (ordered)         (one transaction)     (durable)

`append` gives an entry its index and keeps it in the buffer; the committer takes the whole buffer,
writes it with the rows that follow from it, and settles. Entries become durable in order, and those
of one buffer together. After a failure the buffer is gone and the writer refuses, until its worker
was rebuilt from what is committed.

Lock order: a writer's lock, then the store's. The committer holds one writer's lock at a time and
never while it waits for the disk; callbacks run without any lock.
"""

import threading
from collections.abc import Callable, Sequence
from functools import partial
from itertools import repeat
from typing import Final, TypeAlias

from oplog.codec import encode_entry
from oplog.engine import Batch, Row, check_rows
from oplog.entry import Entry
from oplog.errors import OplogError
from oplog.keys import check_worker_id
from oplog.payload import INLINE_BYTES_MAX, Payload, split_payloads

Done: TypeAlias = Callable[[OplogError | None], None]
"""Hears whether a commit succeeded: None, or why not."""

ASK_ENTRIES: Final = 1024
ASK_BYTES: Final = 1 << 20
"""A buffer this long asks for a commit by itself."""
FULL_BYTES: Final = 16 << 20
"""What one worker may have that is not durable, before its guest must wait."""
_NEVER: Final = 1 << 62


class Writer:
    """Made by `Store.writer`. Any thread may call it; nothing blocks but for the worker's lock."""

    __slots__ = (
        "__weakref__",
        "_ask",
        "_ask_at_bytes",
        "_ask_at_index",
        "_asked",
        "_attached",
        "_buffer",
        "_drained",
        "_in_flight_bytes",
        "_in_flight_index",
        "_payloads",
        "_rows",
        "_waiting",
        "buffered_bytes",
        "committed_index",
        "failed",
        "last_index",
        "lock",
        "on_failed",
        "worker_id",
    )

    def __init__(
        self,
        worker_id: bytes,
        last_index: int,
        rows: Callable[[], Sequence[Row]] | None,
        ask: "Callable[[Writer], None]",
    ) -> None:
        check_worker_id(worker_id)
        self.worker_id = worker_id
        self.lock = threading.RLock()
        """The worker's lock, also for decisions that must be one with an append."""
        self.last_index = last_index
        """Of the last ordered entry."""
        self.committed_index = last_index
        """Of the last durable entry."""
        self.buffered_bytes = 0
        """Ordered and not yet durable, payloads included."""
        self.failed: OplogError | None = None
        """Why this writer refuses."""
        self.on_failed: Callable[[OplogError], None] | None = None
        """Told once, on the committer thread, when entries of this writer are lost, whoever asked
        for their commit, or the store is closed."""
        self._rows = rows
        self._ask = ask
        self._asked = False
        """Whether it stands in the committer's queue: once at most, or one group would take it
        twice before the first of its batches is durable."""
        self._buffer: list[bytes] = []
        self._payloads: list[Payload] = []
        self._attached: list[Row] = []
        """Of what is buffered, in the order of its entries."""
        self._in_flight_bytes = 0
        self._in_flight_index = last_index
        self._ask_at_index = last_index + ASK_ENTRIES
        self._ask_at_bytes = ASK_BYTES
        self._waiting: list[tuple[int, Done]] = []
        self._drained: list[Callable[[], None]] = []

    def append(self, entry: Entry) -> int:
        """Order an entry and give its index. Nothing is durable on return.

        Raises: what `failed` says; nothing is appended then.
        """
        encoded = encode_entry(entry)
        size = len(encoded)
        if size > INLINE_BYTES_MAX:
            return self._append_large(entry)
        with self.lock:
            if self.failed is not None:
                raise refusal(self.failed)
            self._buffer.append(encoded)
            self.last_index = index = self.last_index + 1
            self.buffered_bytes = buffered_bytes = self.buffered_bytes + size
            if index >= self._ask_at_index or buffered_bytes >= self._ask_at_bytes:
                self._ask_now()
        return index

    def _append_large(self, entry: Entry) -> int:
        short, payloads = split_payloads(entry)
        encoded = encode_entry(short)
        with self.lock:
            if self.failed is not None:
                raise refusal(self.failed)
            self._buffer.append(encoded)
            self._payloads.extend(payloads)
            self.last_index = index = self.last_index + 1
            self.buffered_bytes += len(encoded) + sum(len(content) for _, content in payloads)
            if index >= self._ask_at_index or self.buffered_bytes >= self._ask_at_bytes:
                self._ask_now()
        return index

    def attach(self, rows: Sequence[Row]) -> None:
        """Have rows written in the transaction of what is appended last; they are lost with it.

        For who holds the lock since before that append.
        """
        self._attached.extend(rows)

    @property
    def full(self) -> bool:
        """Whether 16 MiB wait to become durable: the guest must wait, acceptances are refused."""
        return self.buffered_bytes >= FULL_BYTES

    @property
    def buffered_entry_bytes(self) -> int:
        """Of the encoded entries that are ordered and not taken, without payloads."""
        return sum(map(len, self._buffer))

    def on_drained(self, wake: Callable[[], None]) -> None:
        """Have `wake` called once, on the committer thread, when the writer is not full after a
        commit, or has failed. Asks for that commit, so that a wake-up is never missed.

        Raises: OplogError if the store is closed.
        """
        with self.lock:
            self._drained.append(wake)
            if not self._asked:
                self._ask_now()

    def commit(self, done: Done) -> None:
        """Make everything appended so far durable: it is when `done(None)` is called.

        `done` is called exactly once, on the committer thread, and must be quick; it gets the error
        if the entries are lost.

        Raises: OplogError if the store is closed; `done` is not called then.
        """
        with self.lock:
            if not self._asked:
                self._ask_now()
            self._waiting.append((self.last_index, done))

    def discard(self) -> None:
        """Drop what is buffered and not in flight; those who wait for it hear that it was.

        The indices are given again to what is appended next.
        """
        with self.lock:
            self._buffer = []
            self._payloads = []
            self._attached = []
            self.last_index = kept = self._in_flight_index
            self.buffered_bytes = self._in_flight_bytes
            error = OplogError(f"worker {self.worker_id.hex()}: what was buffered was discarded")
            self._waiting = [
                (index, done if index <= kept else partial(_tell_lost, done, error))
                for index, done in self._waiting
            ]

    def clear_failure(self) -> None:
        """Accept entries again, behind the last durable one: the worker was rebuilt from there."""
        with self.lock:
            self.failed = None

    def _ask_now(self) -> None:
        self._ask(self)
        self._asked = True
        self._ask_at_index = self._ask_at_bytes = _NEVER

    def take(self) -> tuple[Batch | None, list[Done]]:
        """For the committer: what is to be written now, and who waits for it.

        Raises: whatever `rows` does, or ValueError if its rows cannot be written; nothing is taken.
        """
        with self.lock:
            self._asked = False
            batch = None
            if self._buffer:
                rows = self._rows() if self._rows is not None else ()
                if self._attached:
                    rows = [*self._attached, *rows]
                if rows:
                    check_rows(rows)
                first = self.committed_index + 1
                indices = range(first, self.last_index + 1)
                batch = Batch(
                    entries=list(zip(repeat(self.worker_id), indices, self._buffer, strict=False)),
                    rows=rows,
                    payloads=self._payloads,
                )
                self._buffer = []
                self._payloads = []
                self._attached = []
            self._in_flight_index = self.last_index
            self._in_flight_bytes = self.buffered_bytes
            self._ask_at_index = self.last_index + ASK_ENTRIES
            self._ask_at_bytes = self.buffered_bytes + ASK_BYTES
            waiting, self._waiting = self._waiting, []
            return batch, [done for _, done in waiting]

    def settle(self, error: OplogError | None) -> tuple[list[Done], list[Callable[[], None]]]:
        """For the committer: what was taken is durable, or lost for `error`.

        Gives those who also wait and hear that error now, and those to be woken.
        """
        with self.lock:
            if error is not None:
                return self._fail(error)
            self.committed_index = self._in_flight_index
            self.buffered_bytes -= self._in_flight_bytes
            self._in_flight_bytes = 0
            if not self._asked:
                self._ask_at_bytes = ASK_BYTES
            if self.failed is None and self.buffered_bytes >= FULL_BYTES:
                return [], []
            drained, self._drained = self._drained, []
            return [], drained

    def end(self, error: OplogError) -> tuple[list[Done], list[Callable[[], None]]]:
        """For the committer: it takes nothing any more. Gives the same as `settle`."""
        with self.lock:
            self._asked = False
            return self._fail(error)

    def _fail(self, error: OplogError) -> tuple[list[Done], list[Callable[[], None]]]:
        on_failed = self.on_failed if self.failed is None else None
        self.failed = error
        self._buffer = []
        self._payloads = []
        self._attached = []
        self.buffered_bytes = self._in_flight_bytes = 0
        self.last_index = self._in_flight_index = self.committed_index
        if not self._asked:
            self._ask_at_index = self.last_index + ASK_ENTRIES
            self._ask_at_bytes = ASK_BYTES
        waiting, self._waiting = self._waiting, []
        drained, self._drained = self._drained, []
        if on_failed is not None:
            drained.append(partial(on_failed, error))
        return [done for _, done in waiting], drained


def _tell_lost(done: Done, error: OplogError, _: OplogError | None) -> None:
    done(error)


def refusal(error: OplogError) -> OplogError:
    """A fresh error of the same kind and sentence.

    One that is raised on two threads would gather the tracebacks of both.
    """
    fresh = type(error)(*error.args)
    fresh.__cause__ = error
    return fresh
