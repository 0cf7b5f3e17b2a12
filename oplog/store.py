"""The committer: one thread that makes everything durable, many waiters a transaction.

Whoever wants something durable asks (`Writer.commit`, `Store.submit`) and goes on; the thread takes
everything that was asked for until then, writes it in one transaction, and calls back. While it
waits for the disk the next group gathers, so throughput grows with the number of waiters and a lone
waiter pays one sync.

Invariants:
- What is committed of a worker is a prefix of what was appended, and its rows are those of exactly
  that prefix.
- What was asked for is written in the order of asking; one transaction may hold many requests, and
  a request is never split.
- Each callback runs once, on the committer thread, after its transaction; whatever one raises is
  logged and harms nobody else.
- A worker that the disk has no room for fails alone. Any other failure of the engine closes the
  store: what is durable is then unknown until it is opened again.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from queue import SimpleQueue
from types import TracebackType
from typing import Final, Self, TypeAlias
from weakref import WeakSet

from oplog.engine import Batch, Engine, Row, check_batch
from oplog.entry import Raw
from oplog.errors import OplogError
from oplog.reader import resolve
from oplog.writer import Done, Writer, refusal

__all__ = ["Done", "Store", "Writer"]

_Submission: TypeAlias = tuple[Batch, Done]

_log = logging.getLogger(__name__)

CROWD: Final = 4
GATHER_S: Final = 50e-6
"""After a group of at least `CROWD`, those it woke have this long to ask again.

Without it the first of them gets a transaction to itself, and the rest wait for two: groups then
hold half the waiters on average.
"""


class _Caught:
    """Ends whatever a block raises, and keeps it: nothing may end the committer thread."""

    def __init__(self) -> None:
        self.error: BaseException | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        self.error = error
        return True


class Store:
    """Owns its engine and the committer thread. Any thread may call it; only `close` blocks."""

    writer_class: type[Writer] = Writer
    """What `writer` makes."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.closed_by: OplogError | None = None
        """The failure that closed the store; None while it is open and after `close`."""
        self._lock = threading.RLock()
        self._idle = False
        """Whether the committer waits for news, of which it then gets exactly one."""
        self._news: SimpleQueue[None] = SimpleQueue()
        self._asked: list[Writer | _Submission] = []
        self._closing = False
        self._writers: WeakSet[Writer] = WeakSet()
        self._thread = threading.Thread(target=self._run, name="oplog-committer", daemon=True)
        self._thread.start()

    @property
    def epoch(self) -> int:
        return self.engine.epoch

    def writer(
        self,
        worker_id: bytes,
        last_index: int,
        rows: Callable[[], Sequence[Row]] | None = None,
    ) -> Writer:
        """A writer that goes on behind the worker's last committed entry, `last_index`.

        `rows` is called at each commit that has entries, on the committer thread under the writer's
        lock, and gives the rows as of the last appended entry; it must be quick, must not append
        and must not take another writer's lock. If it raises, the writer fails. A worker has one
        writer at a time: of two, one is refused when it commits.

        Raises: OplogError if the store is closed.
        """
        writer = self.writer_class(worker_id, last_index, rows, self._ask)
        with self._lock:
            self._check_open()
            self._writers.add(writer)
        return writer

    def submit(self, batch: Batch, done: Done) -> None:
        """Have a batch written whole, behind all that was asked for before.

        `done` is called on the committer thread and must be quick: `done(None)` when the batch is
        durable, else with the error and nothing of it was written.

        Raises: ValueError if the batch can never be written; OplogError if the store is closed.
        """
        check_batch(batch)
        self._ask((batch, done))

    def resolve(self, raw: Raw) -> Raw:
        """What a raw field of a committed entry holds: the content if it is a reference to a
        payload, else `raw` itself. Reads the disk.

        Raises: OplogCorruptError if the content is gone or damaged.
        """
        return resolve(self.engine, raw)

    def close(self) -> None:
        """Commit what was asked for, stop the thread and close the engine. Idempotent.

        Waits for that, but for a call on the committer thread itself (in a callback), which returns
        at once. What was appended and not asked for is lost, as in a crash.
        """
        with self._lock:
            self._closing = True
            self._wake()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _check_open(self) -> None:
        if self._closing:
            raise refusal(self._end_error())

    def _end_error(self) -> OplogError:
        return self.closed_by or OplogError("the store is closed")

    def _ask(self, item: Writer | _Submission) -> None:
        with self._lock:
            self._check_open()
            self._asked.append(item)
            self._wake()

    def _wake(self) -> None:
        if self._idle:
            self._idle = False
            self._news.put(None)

    # The committer thread.

    def _run(self) -> None:
        with _Caught() as caught:
            self._serve()
        if caught.error is not None:
            self._fail(caught.error)
        self._end()

    def _serve(self) -> None:
        """Write groups until the store is closed and nothing is left, or has failed."""
        while self.closed_by is None:
            with self._lock:
                group, self._asked = self._asked, []
                closing = self._closing
                self._idle = not group and not closing
            if group:
                self._commit(group)
                if len(group) >= CROWD:
                    time.sleep(GATHER_S)
            elif closing:
                break
            else:
                self._news.get()

    def _commit(self, group: Sequence[Writer | _Submission]) -> None:
        """Write one group and call its waiters back."""
        batches: list[Batch] = []
        written: list[tuple[Writer | None, list[Done]]] = []
        """Who each batch belongs to, in the same order."""
        idle: list[tuple[Writer, list[Done], OplogError | None]] = []
        """Writers with nothing to write."""
        left = iter(group)
        while True:
            with _Caught() as caught:
                for item in left:
                    if not isinstance(item, Writer):
                        batches.append(item[0])
                        written.append((None, [item[1]]))
                        continue
                    batch, waiting = item.take()
                    if batch is not None:
                        batches.append(batch)
                        written.append((item, waiting))
                    else:
                        idle.append((item, waiting, None))
            if caught.error is None:
                break
            assert isinstance(item, Writer), "only a writer's rows can fail"
            idle.append((item, [], self._rows_error(item, caught.error)))
        errors = self._write(batches)
        calls: list[Callable[[], None]] = []
        for (writer, waiting), error in zip(written, errors, strict=True):
            _settle(calls, writer, waiting, error)
        for writer, waiting, error in idle:
            _settle(calls, writer, waiting, error)
        _call_all(calls)

    def _rows_error(self, writer: Writer, error: BaseException) -> OplogError:
        _log.error("rows of worker %s", writer.worker_id.hex(), exc_info=error)
        failure = OplogError(f"worker {writer.worker_id.hex()}: its rows cannot be made: {error!r}")
        failure.__cause__ = error
        return failure

    def _write(self, batches: Sequence[Batch]) -> list[OplogError | None]:
        """One result a batch; a failure of the engine is everybody's, and closes the store."""
        if not batches:
            return []
        errors: list[OplogError | None] = []
        with _Caught() as caught:
            errors = self.engine.write(batches)
            assert len(errors) == len(batches), "one result a batch"
        if caught.error is None:
            return errors
        return [self._fail(caught.error)] * len(batches)

    def _fail(self, error: BaseException) -> OplogError:
        """Close the store for a failure, and give it as everybody hears it."""
        failure = error
        if not isinstance(failure, OplogError):
            failure = OplogError(f"the store failed: {error!r}: open it again")
            failure.__cause__ = error
        _log.error("the store is closed: %s", failure, exc_info=error)
        with self._lock:
            self.closed_by = failure
            self._closing = True
        return failure

    def _end(self) -> None:
        """Refuse whatever is left, then close the engine."""
        with self._lock:
            self._closing = True
            left, self._asked = self._asked, []
            writers = list(self._writers)
        error = self._end_error()
        calls: list[Callable[[], None]] = [
            partial(item[1], error) for item in left if not isinstance(item, Writer)
        ]
        for writer in writers:
            waiting, drained = writer.end(error)
            calls.extend(partial(done, error) for done in waiting)
            calls.extend(drained)
        _call_all([*calls, self.engine.close])


def _settle(
    calls: list[Callable[[], None]],
    writer: Writer | None,
    waiting: Sequence[Done],
    error: OplogError | None,
) -> None:
    """Settle with the writer, and note who is to be called."""
    if writer is None:
        calls.extend([partial(done, error) for done in waiting])
        return
    late, drained = writer.settle(error)
    error = error or writer.failed
    calls.extend([partial(done, error) for done in waiting])
    calls.extend([partial(done, error) for done in late])
    calls.extend(drained)


def _call_all(calls: Sequence[Callable[[], object]]) -> None:
    """Make every call; whatever one raises is logged and harms none of the others."""
    left = iter(calls)
    while True:
        with _Caught() as caught:
            for call in left:
                call()
        if caught.error is None:
            return
        _log.error("a callback of the committer raised", exc_info=caught.error)
