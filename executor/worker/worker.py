"""One worker: its durable queue, its keys, and whoever waits for an outcome.

The worker is what outlives its instances. What it knows is the status folded from its oplog, the
keys that wait, and the arguments of invocations that were accepted a moment ago. Running it is the
invocation loop's part (`executor.worker.loop`).

Threads: everything here is for the trio thread, but `append` and what the session's listener
hears, which the writer's lock guards.
"""

from collections.abc import Callable, Sequence
from copy import copy
from typing import Final

import msgspec
import trio

from executor.durable.effects import EffectRunner
from executor.durable.inbox import Inbox
from executor.errors import (
    Busy,
    InternalError,
    InvocationInterrupted,
    KeyConflict,
    PreviousFailed,
    ShemError,
    StoreError,
    Uncertain,
)
from executor.services.files import FileTree
from executor.services.http_client import HttpClient
from executor.services.sockets import Sockets
from executor.services.stores import Stores
from executor.sources import Sources
from executor.wasm.lane import Lanes
from executor.worker.commits import store_error, store_errors
from executor.worker.entries import WorkerEntries
from executor.worker.outcomes import deleted_worker, unknown_key
from executor.worker.output import output_text, read_output
from executor.worker.revision import Revision, Revisions
from executor.worker.room import RoomProbe
from executor.worker.rows import WorkerRows, read_key_state, read_queue, read_status
from executor.worker.status import CANCELLED, REFUSING, KeyState, Status, request_digest
from executor.worker.wakeups import Wakeups
from oplog.engine import Row
from oplog.entry import (
    CancelPendingInvocation,
    Create,
    Entry,
    Failure,
    InvocationFinished,
    Log,
    Outcome,
    PendingInvocation,
    Raw,
    Resumed,
    Revert,
    Start,
)
from oplog.errors import OplogError
from oplog.reader import Reader
from oplog.store import Store, Writer

OUTPUT_COMMIT_S: Final = 0.05
"""A line of output asks for a commit within this time."""

GOES_ON_WHEN: Final = {
    "disk-full": "there is space",
    "host-binding": "its host functions can be imported and it is named again",
}
"""What a worker that stands still waits for, by the kind of its trouble: then it goes on, and runs
what was accepted."""

OnOutput = Callable[[str, str, bytes], None]
"""`on_output(worker, level, text)`: committed output, on the trio thread. A message of wasi:logging
is a whole line, as it is shown among what was written to stderr."""


class WorkerServices(msgspec.Struct, frozen=True, kw_only=True):
    """What every worker of one executor shares."""

    store: Store
    reader: Reader
    revisions: Revisions
    lanes: Lanes
    effects: EffectRunner
    inbox: Inbox
    room: RoomProbe
    store_lost: trio.Event
    """Set when the store refused for good: it has to be opened again."""
    rebuilds: trio.CapacityLimiter
    """How many workers replay at the same time."""
    host_threads: trio.CapacityLimiter
    """For the embedder's plain functions, which may never end: the executor needs its own."""
    nursery: trio.Nursery
    sources: Sources
    files: Callable[[Revision, Status], FileTree]
    """A new tree with the revision's initial files, in the worker's limits."""
    http: HttpClient
    sockets: Sockets
    wakeups: Wakeups
    stores: Stores
    suspend_after_s: float
    """A wait that is known to take longer gives up its instance."""
    on_output: OnOutput
    report: Callable[[str], None]
    """Tells the operator something that belongs to no caller."""


class Worker:
    def __init__(self, services: WorkerServices, worker_id: bytes, status: Status) -> None:
        self.services = services
        self.id = worker_id
        self.entries = WorkerEntries(services.reader, worker_id)
        self.loop: object | None = None
        """Who runs it: as long as somebody holds the worker, nobody makes another of the name."""
        self.deleted = False
        """It is being deleted, or was: it takes and runs nothing."""
        self.gone = False
        """Its deletion is durable."""
        self.on_lost: Callable[[OplogError], None] = ignore_loss
        """Told on the trio thread when entries could not be committed, whoever asked for it."""
        self.trouble: ShemError | None = None
        """Why the worker does not run although it has work: a divergence, or no room."""
        self._news = trio.Event()
        self._arguments: dict[str, tuple[str, Raw]] = {}
        self._output: list[tuple[int, Log]] = []
        self._output_due = False
        self._last_finished: tuple[int, InvocationFinished | None] = (0, None)
        self.rows: WorkerRows
        self.writer: Writer
        self._attach(status)

    def _attach(self, status: Status) -> None:
        """Takes up the committed state."""
        engine = self.services.store.engine
        queue = read_queue(engine, self.id) if status.last_index else []
        self.rows = WorkerRows(self.id, status, queue)
        self.writer = self.services.store.writer(self.id, status.last_index, self._take_rows)
        self.writer.on_failed = self._tell_lost

    @property
    def name(self) -> str:
        return self.status.name

    @property
    def status(self) -> Status:
        return self.rows.status

    @property
    def due(self) -> bool:
        """Whether what a suspended worker waits for has come."""
        wake_at = self.status.wake_at
        if wake_at is not None and wake_at <= self.services.sources.wall_ns():
            return True
        return self.services.wakeups.is_settled(self.status.promises)

    @property
    def unsaved(self) -> bool:
        """Whether something that was appended is not committed and still can be."""
        writer = self.writer
        return writer.failed is None and writer.committed_index < writer.last_index

    def _tell_lost(self, error: OplogError) -> None:
        """On the committer thread."""
        self.services.inbox.post(self._lost, error)

    def _lost(self, error: OplogError) -> None:
        self.on_lost(error)

    def _take_rows(self) -> Sequence[Row]:
        """At each commit, under the worker's lock: nothing else is in flight."""
        writer = self.writer
        self.rows.absorb(writer.last_index)
        self.status.bytes += writer.buffered_entry_bytes
        return self.rows.take(writer.committed_index)

    # -- appending ---------------------------------------------------------------------------

    @trio.lowlevel.enable_ki_protection
    def append(self, entry: Entry) -> int:
        """Orders an entry that the status folds. Not durable. A Ctrl-C cannot come between the
        entry and its fold.
        """
        writer = self.writer
        with writer.lock:
            index = writer.append(entry)
            self.rows.absorb(index - 1)
            self.rows.apply(index, entry)
            if isinstance(entry, InvocationFinished):
                self._last_finished = index, entry
            return index

    @trio.lowlevel.enable_ki_protection
    def append_revert(self, entry: Revert, status: Status) -> None:
        """Orders a revert, which leaves `status`. Not durable."""
        writer = self.writer
        with writer.lock:
            self.rows.absorb(writer.append(entry) - 1)
            self.rows.revert(status)
            self._last_finished = (0, None)

    async def commit(self) -> None:
        """Everything appended so far is durable on return. Raises: StoreError."""
        done = trio.Event()
        inbox = self.services.inbox
        errors: list[OplogError] = []

        def committed(error: OplogError | None) -> None:
            if error is not None:
                errors.append(error)
            inbox.post(done.set)

        try:
            self.writer.commit(committed)
        except OplogError as error:
            raise store_error(error, self.name) from error
        await done.wait()
        if errors:
            raise store_error(errors[0], self.name) from errors[0]

    async def commit_to_end(self) -> None:
        """As `commit`, for an owner's word: others wait for it, even if its owner does no more."""
        with trio.CancelScope(shield=True):
            await self.commit()

    def create(self, entry: Create) -> None:
        """The first entry of a new worker."""
        self.append(entry)

    # -- accepting ---------------------------------------------------------------------------

    def accept(self, key: str, function: str, arguments: Raw) -> bool:
        """Takes an invocation into the queue; False if the key was known already.

        One step under the worker's lock. `function` and `arguments` are canonical. Not durable on
        return: `commit`, or wait for the outcome. Raises: KeyConflict, PreviousFailed, Busy,
        WorkerDeleted, StoreError; then nothing is recorded.
        """
        engine = self.services.store.engine
        with self.writer.lock:
            if self.deleted:
                raise deleted_worker(self.name)
            known = self.rows.key_state(engine, key)
            if known is not None:
                if known.digest != request_digest(function, arguments):
                    raise KeyConflict(
                        f"key {key!r} was used for {known.function} with other arguments"
                        if known.function == function
                        else f"key {key!r} was used for {known.function}, not for {function}",
                        where=self.name,
                        hint="use a new key for a new request",
                    )
                return False
            if self.status.state in REFUSING:
                raise self.previous_failed()
            if self.trouble is not None:
                raise self.trouble_of(key)
            if self.writer.full:
                raise Busy(
                    "the worker has 16 MiB of entries that are not committed yet",
                    where=self.name,
                    hint="try again in a moment",
                )
            at = self.services.sources.wall_ns()
            entry = PendingInvocation(at=at, key=key, function=function, arguments=arguments)
            with store_errors(self.name):
                if self.status.state == "interrupted":
                    self.append(Resumed(at=at))
                self.append(entry)
        self._arguments[key] = function, arguments
        return True

    def next_key(self) -> str | None:
        """The key that waits longest."""
        return next(iter(self.rows.queue), None)

    def pending(self, key: str) -> tuple[str, Raw]:
        """Function and arguments of a key that waits."""
        held = self._arguments.pop(key, None)
        if held is not None:
            return held
        entry = self.entries.one(self.rows.queue[key])
        if not isinstance(entry, PendingInvocation):
            raise InternalError(f"{self.name}: the pending entry of key {key!r} is missing")
        return entry.function, entry.arguments

    def key_state(self, key: str) -> KeyState | None:
        with self.writer.lock:
            return self.rows.key_state(self.services.store.engine, key)

    # -- waiting -----------------------------------------------------------------------------

    async def wait(self, key: str) -> KeyState:
        """Waits until the outcome of `key` is committed. The key must be known.

        Raises: PreviousFailed, WorkerDeleted, Uncertain, UnknownKey if it was reverted, or whatever
        keeps the worker from running.
        """
        while True:
            state = self.key_state(key)
            if state is None:
                raise unknown_key(self.name, key, ": it was reverted")
            if state.finished_index and state.finished_index <= self.writer.committed_index:
                return state
            if self.gone:
                raise deleted_worker(self.name, " while its caller waited")
            if self.trouble is not None:
                if self.trouble.kind == "host-binding" and self.unsaved:
                    await self.commit()  # whether the key was accepted is to be told
                raise self.trouble_of(key)
            if self.failure_committed and not state.finished_index:
                refusal = self.previous_failed()
                await self.read_stderr(refusal)
                raise refusal
            if self.question_committed:
                raise self.uncertain()
            if self.status.state == "interrupted" and not self.unsaved:
                raise InvocationInterrupted(
                    "the worker was interrupted",
                    where=self.name,
                    hint="it goes on with `shem resume`, or with its next invocation",
                )
            await self._news.wait()

    @property
    def question_committed(self) -> bool:
        """Whether the worker waits for its owner's word, and nobody can hear otherwise any more."""
        status = self.status
        asked = status.state == "uncertain"
        return asked and status.decided_index <= self.writer.committed_index

    @property
    def failure_committed(self) -> bool:
        """Whether the worker has failed or exited and nobody can hear otherwise any more."""
        status = self.status
        return status.state in REFUSING and status.last_index <= self.writer.committed_index

    def trouble_of(self, key: str) -> ShemError:
        """What a caller hears who waits for `key`, or asks for it, while the worker stands still:
        where it will go on by itself also whether the key was accepted, or he would ask again under
        another one.
        """
        assert self.trouble is not None
        return self.told(self.trouble, key)

    def told(self, trouble: ShemError, key: str) -> ShemError:
        """`trouble` in the words for whoever asked for `key`."""
        if trouble.kind not in GOES_ON_WHEN:
            return trouble
        accepted = read_key_state(self.services.store.engine, self.id, key) is not None
        then = f"accepted as {key}, continues when {GOES_ON_WHEN[trouble.kind]}"
        told = copy(trouble)
        told.message = f"{trouble.message}: {then if accepted else 'not accepted'}"
        told.args = (told.message,)
        if trouble.kind == "disk-full":
            told.where = self.name
            told.hint = "make space" if accepted else "make space and try again"
        return told

    def outcome(self, state: KeyState) -> Outcome:
        """The recorded outcome of a finished key."""
        index, finished = self._last_finished
        entry: Entry | None = finished
        if index != state.finished_index:
            with store_errors(self.name):
                entry = self.entries.one(state.finished_index)
        if isinstance(entry, CancelPendingInvocation):
            return Outcome(failure=Failure(kind="cancelled", message=CANCELLED))
        if not isinstance(entry, InvocationFinished):
            raise InternalError(f"{self.name}: the outcome of key {state.key!r} is missing")
        return entry.outcome

    async def wait_news(self) -> None:
        """Waits for the next `notify`."""
        await self._news.wait()

    def notify(self) -> None:
        """Something changed that a waiter may wait for."""
        news, self._news = self._news, trio.Event()
        news.set()

    def previous_failed(self) -> PreviousFailed:
        """Why this worker takes and runs nothing more; without what it wrote then."""
        error = self.status.last_error
        text = f"an earlier invocation failed: {error.message if error else 'no text'}"
        if self.status.state == "exited":
            text = "the worker exited in an earlier invocation"
        hint = f"shem revert {self.name} --last 1, delete the worker, or use another"
        return PreviousFailed(text, where=self.name, hint=hint)

    async def read_stderr(self, refusal: PreviousFailed) -> None:
        """Adds to the refusal what the failed invocation wrote to its stderr."""
        failed = self.key_state(self.status.failed_key)
        if failed is not None and failed.logs:
            output = await trio.to_thread.run_sync(read_output, self.entries, failed)
            refusal.stderr = output[1]

    def uncertain(self) -> Uncertain:
        """What the worker waits for."""
        start_index = self.status.decision[0]
        entry = self.entries.one(start_index)
        function = entry.function if isinstance(entry, Start) else "the call"
        return Uncertain(
            f"{function}, begun at entry {start_index}, may have happened or not, and the guest"
            " said that it must not be repeated",
            where=self.name,
            hint=f"shem resolve {self.name} {start_index} --repeat, --fail or --value WAVE",
        )

    # -- what the session tells ----------------------------------------------------------------

    def on_output(self, line: Log) -> None:
        """On the lane, under the worker's lock: a line of output was appended."""
        current = self.status.current
        if current is not None:
            current.logs = True
        self._output.append((self.writer.last_index, line))
        if not self._output_due:
            self._output_due = True
            self.services.inbox.post(self.services.nursery.start_soon, self._commit_output)

    async def _commit_output(self) -> None:
        await trio.sleep(OUTPUT_COMMIT_S)
        self._output_due = False
        try:
            await self.commit()
        except StoreError:
            return  # the loop's own commit meets the same error and holds the worker
        self.deliver_output()

    def deliver_output(self) -> None:
        """Hands committed output to whoever listens, in order."""
        with self.writer.lock:
            committed = self.writer.committed_index
            ready = [line for line in self._output if line[0] <= committed]
            del self._output[: len(ready)]
        for _, line in ready:
            try:
                self.services.on_output(self.name, line.level, output_text(line))
            except Exception as error:
                self.services.report(f"{self.name}: nobody takes its output: {error}")

    # -- losing and regaining the store ---------------------------------------------------------

    def reload(self) -> None:
        """Forgets everything that is not committed and takes up what is."""
        self.writer.discard()
        status = read_status(self.services.store.engine, self.id)
        self._output = []
        self._arguments = {}
        self._last_finished = (0, None)
        if status is None:
            self.deleted = self.gone = True
        else:
            self._attach(status)
        self.trouble = None


def ignore_loss(error: OplogError) -> None:
    """Nobody runs the worker yet."""
