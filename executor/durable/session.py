"""One instance's durable calls, from its creation to its loss.

A session answers a guest from the oplog while it replays, and appends while it is live. It knows
the oplog's writer, the cursor and the phase; it knows nothing of Wasmtime, of WIT or of the
interface that a call belongs to.

Invariants
- Live is published under the worker's lock, once; before that nothing is appended and no effect
  starts. A session that must not go live leaves the guest instead.
- A write-remote effect starts only after its `start`, and so all before it, is committed.
- Once its effects are closed no effect starts and no terminal is appended: late answers are
  dropped.
- A guest waits in at most one serialized call; deferred ones are beside it: `durable/deferred.py`.

Threads: a guest's calls come from its lane; effects end on the trio thread; commits are reported on
the committer's. What they share is guarded by the writer's lock.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

import trio

from executor.durable.call_keys import CallKeys
from executor.durable.deferred import DeferredCalls
from executor.durable.effects import Effect, Failure
from executor.durable.function_type import READ_LOCAL, WRITE_REMOTE, may_repeat
from executor.durable.inbox import setting
from executor.durable.modes import Modes
from executor.durable.open_effects import CommitError, OpenEffects, Then
from executor.durable.reasons import (
    Closed,
    CommitFailed,
    Jumped,
    Leave,
    LeaveReason,
    ReachedTarget,
    Unsure,
)
from executor.durable.retrying import Retrying
from executor.durable.session_world import SessionWorld
from executor.durable.trace import Trace
from executor.errors import Divergence, GuestError, InternalError
from executor.replay.claims import (
    Mark,
    claim_invocation,
    claim_mark,
    claim_outcome,
    claim_start,
    describe,
)
from executor.replay.cursor import Cursor
from executor.replay.phases import Phase, PhaseEvent, next_phase
from executor.wasm.host_function import LeaveGuest
from oplog.entry import (
    Cancelled,
    CompletionDelivered,
    CompletionDiscarded,
    Decision,
    End,
    InvocationStarted,
    Log,
    Outcome,
    Raw,
    Start,
)
from oplog.errors import OplogError
from oplog.writer import FULL_BYTES, Writer

Terminal = tuple[int, Raw | None]
"""(index of the recorded start or 0, recorded response or None)."""


class DurableSession:
    def __init__(self, *, worker: str, writer: Writer, cursor: Cursor, world: SessionWorld) -> None:
        self.worker = worker
        self.worker_id = writer.worker_id
        self.writer = writer
        self.cursor = cursor
        self.effects = OpenEffects(writer, world.effects, world.post)
        self.deferred = DeferredCalls(self)
        self.listener = world.listener
        self.wall_ns = world.sources.wall_ns
        self.append = world.append
        self.retrying = Retrying(self, world.sources, world.attempts, world.due)
        self.defer = world.defer
        self.phase = Phase.REPLAYING
        self.live = False
        """Published: effects may start. Reading it needs no lock, since it only ever turns on."""
        self.may_go_live = True
        self.stop: tuple[int, Outcome] | None = None
        """The invocation at which a rebuild stops, by its index, with its recorded outcome."""
        self.modes = Modes()
        self.trace = Trace(worker, writer.worker_id)
        self.scopes: dict[int, int] = {}
        """Open scopes: where each began, and where its recorded end lies, 0 if there is none."""
        self.made: dict[int, tuple[int, int]] = {}
        """How many handles and spans there were where each scope began."""
        self.decisions: dict[int, str] = {}
        """The last choice for each call that an owner decided upon, by its start."""
        self.keys = CallKeys(writer.worker_id, self.modes)
        self.invocation_index = 0
        self.open_start = 0
        """The index of the call that is being performed, 0 if none: where a retry counts from."""
        self.failing_start = 0
        """The index of the deferred call whose failure the guest has met."""
        self.call_key = ""
        """The derived key of the call that is being performed."""
        self.guest_time_ns = 0
        """`at` of the last entry that the guest caused or observed."""
        self._live_at_ns = 0
        """`guest_time_ns` when the session had gone live: the very same int until the guest appends
        something, however its clock may go."""

    # -- replay ------------------------------------------------------------------------------

    def claim(self, function: str, function_type: str, request: Raw) -> Terminal:
        """Finds the recorded call while replaying, or goes live.

        Answers (start, response) for a completed call, (start, None) for one that never ended and
        is now to be performed again under its own start, (0, None) if nothing is recorded: in the
        last two cases the session is live on return. Raises: Divergence, LeaveGuest.
        """
        index = self.claim_index(function, function_type, request)
        if not index:
            return 0, None
        cursor = self.cursor
        terminal = cursor.take_terminal(index)
        if type(terminal) is End:
            self.guest_time_ns = terminal.at
            self._stop_at_target()
            return index, terminal.response
        self.go_live_for(f"the end of {function}, whose start at {index} never completed")
        if not may_repeat(function_type, idempotent=self.modes.idempotent):
            self.require_decision(index)
            self.begin_decided(index)
        return index, None

    def claim_index(self, function: str, function_type: str, request: Raw) -> int:
        """Consumes the recorded start of this very call; 0 if nothing is recorded, and the session
        is live. Raises: Divergence, LeaveGuest.
        """
        modes = self.modes
        if modes.begin:
            self._enter_call(function, function_type)
        claimed = claim_start(
            self.cursor,
            self.worker,
            function=function,
            function_type=function_type,
            request=request,
        )
        if claimed is None:
            self.go_live()
            return 0
        index, self.guest_time_ns = claimed
        self.keys.claim(index, function_type)
        return index

    def require_decision(self, index: int) -> None:
        """A call may be performed again only if its owner has said so, or if it never was.

        Raises: LeaveGuest.
        """
        if self.decisions.get(index) not in {"repeat", "unbegun"}:
            raise LeaveGuest(Unsure(index))

    def begin_decided(self, index: int) -> None:
        """The one attempt that was allowed is under way."""
        self.append(Decision(at=self.wall_ns(), start_index=index, choice="begun"))

    def observed(self, at: int) -> None:
        """The guest has observed a recorded delivery, or caused a recorded drop."""
        self.guest_time_ns = at
        self._stop_at_target()

    def _enter_call(self, function: str, function_type: str) -> None:
        """A call inside of a region or a zone. Raises: Divergence for one that replay meets in a
        zone, since nothing is recorded there that could answer it.
        """
        modes = self.modes
        if function_type != READ_LOCAL:
            modes.wrote = True
        following = None if self.live or not modes.zone else self.cursor.peek()
        if following is not None:
            raise Divergence(
                worker=self.worker,
                index=following[0],
                recorded=describe(following[1]),
                requested=f"{function}, in a zone that persists nothing",
            )

    def mark(self, make: Callable[[int], Mark]) -> int:
        """One positional entry that stands for a call by itself; its index.

        `make(at)` gives the entry. Claimed while replaying, appended and folded when live. On the
        lane. Raises: Divergence, LeaveGuest.
        """
        if not self.live:
            claimed = claim_mark(self.cursor, self.worker, make(0))
            if claimed is not None:
                index, self.guest_time_ns = claimed
                self._stop_at_target()
                return index
            self.go_live()
        self.guest_time_ns = at = self.wall_ns()
        index = self.append(make(at))
        self.stop_if_full()
        return index

    def jump(self, target: int) -> NoReturn:
        """Leaves the guest, which is to go on from entry `target`. A jump hides itself, so that a
        replaying guest comes here only where its history ends. Raises: Divergence, LeaveGuest,
        GuestError while an effect is under way: what it came to would be lost.
        """
        self.go_live_for(f"a jump to entry {target}")
        if self.deferred.in_flight:
            raise GuestError(
                "set-oplog-index: durable host calls are still in flight", where=self.worker
            )
        raise LeaveGuest(Jumped(target))

    def go_live_for(self, requested: str) -> None:
        """As `go_live`, for something that can only come where the history ends. Raises: Divergence
        if it has not, LeaveGuest.
        """
        following = None if self.live else self.cursor.peek()
        if following is not None:
            raise Divergence(
                worker=self.worker,
                index=following[0],
                recorded=describe(following[1]),
                requested=requested,
            )
        self.go_live()

    def _stop_at_target(self) -> None:
        """A rebuild that may not go live ends with its history, also if the guest computes on."""
        if not self.may_go_live and self.cursor.peek() is None:
            self.listener.on_target()

    def go_live(self) -> None:
        """Settles and publishes Live. On return the session is live, or the guest has left.

        Called when the cursor is drained; at once if it is live already.
        """
        if self.live:
            return
        if not self.may_go_live:
            raise LeaveGuest(ReachedTarget())
        self.phase = next_phase(self.phase, PhaseEvent.DRAINED)
        with self.writer.lock:
            self._leave_if_closing()
            self.cursor.extend(self.writer.committed_index)
            if self.cursor.peek() is not None:
                self.phase = next_phase(self.phase, PhaseEvent.NEW_HISTORY)
                raise InternalError(
                    f"{self.worker}: guest-driven history appeared while its instance was settling"
                )
            self.deferred.resume()
            self.phase = next_phase(self.phase, PhaseEvent.VALIDATED)
            self.live = True
            self.listener.on_live()
        self._live_at_ns = self.guest_time_ns
        self.deferred.start_incomplete()

    def next_invocation(self) -> InvocationStarted | None:
        """Consumes the next recorded invocation; None if the cursor is drained."""
        claimed = claim_invocation(self.cursor, self.worker)
        if claimed is None:
            return None
        index, started = claimed
        self.enter_invocation(index, started)
        return started

    def match_outcome(self, outcome: Outcome) -> bool:
        """Compares a replayed outcome with the recorded one.

        False if the invocation had not finished: the session is then live, and the caller appends
        the outcome. Raises: Divergence, LeaveGuest.
        """
        if self.live:
            return False
        at = claim_outcome(self.cursor, self.worker, outcome)
        if at is None:
            self.go_live()
            return False
        self.guest_time_ns = at
        self.modes.leave_invocation()
        return True

    # -- live --------------------------------------------------------------------------------

    def enter_invocation(self, index: int, started: InvocationStarted) -> None:
        self.keys.enter_invocation(started.key)
        self.scopes.clear()
        self.made.clear()
        self.trace.enter_invocation(started)
        self.invocation_index = index
        self.guest_time_ns = started.at
        self.open_start = 0
        self.modes.leave_invocation()

    def append_start(self, function: str, function_type: str, request: Raw) -> int:
        """Orders the `start` of a call; its index is the call's identity. Not durable.

        In a zone that persists nothing it is 0, and there is no entry.
        """
        modes = self.modes
        if modes.begin:
            self._enter_call(function, function_type)
            if modes.zone:
                return 0
        self.guest_time_ns = at = self.wall_ns()
        return self.writer.append(
            Start(at=at, function=function, function_type=function_type, request=request)
        )

    def append_end(self, index: int, response: Raw) -> None:
        """Orders the `end` of a call. Not durable."""
        if not index:
            return  # a call in a zone that persists nothing
        self.guest_time_ns = at = self.wall_ns()
        self.writer.append(End(at=at, start_index=index, response=response))
        self.stop_if_full()

    def stop_if_full(self) -> None:
        """The guest is to give way if too much waits to become durable."""
        if self.writer.buffered_bytes >= FULL_BYTES:
            self.listener.on_full()

    def append_background_end(self, index: int, response: Raw) -> None:
        """As `append_end`, of a deferred call: the guest does not observe it here."""
        if index:
            self.writer.append(End(at=self.wall_ns(), start_index=index, response=response))
            self.stop_if_full()

    def append_marker(self, index: int, missed_reads: int) -> None:
        """Orders where the guest observed a deferred call's answer. Not durable."""
        self.guest_time_ns = at = self.wall_ns()
        if index:
            self.writer.append(
                CompletionDelivered(at=at, start_index=index, missed_reads=missed_reads)
            )

    def append_dropped(self, index: int, kind: type[Cancelled] | type[CompletionDiscarded]) -> None:
        """Orders that the guest gave a deferred call up. Not durable."""
        self.guest_time_ns = at = self.wall_ns()
        if index:
            self.writer.append(kind(at=at, start_index=index))

    def key_of(self, index: int, function_type: str) -> str:
        """The derived key of the call whose start is at `index`. Once a call, when it begins."""
        return self.keys.of(index, function_type)

    def set_level(self, level: str, index: int) -> None:
        """The persistence level that the mark at `index` sets."""
        self.modes.set_level(level, index, self.keys.namespace)

    @property
    def is_behind_history(self) -> bool:
        """Whether the guest has caused no entry since the session is live: what is left of what was
        recorded of its writes is its, whatever others have appended meanwhile (an accepted
        invocation, an answer that it has not seen). Once the session is live.
        """
        return self.guest_time_ns is self._live_at_ns

    @property
    def failing_call(self) -> int:
        """The index of the call that failed, 0 if none did."""
        return self.failing_start or self.open_start

    @property
    def retry_from(self) -> int:
        """What failed attempts are counted by: the outermost open begin, else the call that failed,
        else the invocation.
        """
        return self.modes.begin or self.failing_call or self.invocation_index

    @property
    def may_suspend(self) -> bool:
        """Whether nothing would be lost with the instance but the call that the guest waits in."""
        return not self.modes.begin and not self.deferred.in_flight

    def log(self, level: str, text: bytes, subject: str = "") -> None:
        """One output write or log message of the guest: a hint when live, the recorded one in
        replay.

        In replay the next unconsumed hint of the level is taken; only if none is left does the
        write try to drain the cursor, and while history remains it is dropped. A guest that is
        behind its history takes what it wrote there before, as long as that says the same.
        """
        if not self.live:
            if self.cursor.take_log(level) is not None or self.cursor.peek() is not None:
                return
            self.go_live()
        at = self.wall_ns()
        try:
            entry = Log(at=at, level=level, text=text.decode(), context=subject)
        except UnicodeDecodeError:
            entry = Log(at=at, level=level, text=text.decode(errors="replace"), octets=text)
        if self.is_behind_history and self.cursor.take_same_log(entry):
            return
        with self.writer.lock:
            self.writer.append(entry)
            self.listener.on_output(entry)
        self.stop_if_full()

    def leave(self, reason: LeaveReason) -> NoReturn:
        """Makes the guest leave, from inside one of its host calls."""
        raise LeaveGuest(reason)

    async def commit(self) -> None:
        """Everything appended so far is durable on return; in trio. Raises: OplogError."""
        done = trio.Event()
        wake = setting(done)
        errors: list[OplogError] = []

        def committed(error: OplogError | None) -> None:
            if error is not None:
                errors.append(error)
            wake()

        self.writer.commit(committed)
        await done.wait()
        if errors:
            raise errors[0]

    # -- effects -----------------------------------------------------------------------------

    def perform(
        self,
        index: int,
        effect: Effect,
        answered: Callable[[object], object],
        pending: Any,
    ) -> None:
        """Performs the effect of the call at `index` and hands its answer to the waiting guest.

        `answered(answer)` orders the `end` and gives the guest's value; it runs on the trio thread.
        What the guest is seen to do with the answer, a frame say, is ordered behind the `end`: it
        depends on it. A write-remote effect waits for the commit of its start. Any failure goes to
        `pending.fail`.
        """

        def done(answer: object, error: Failure) -> Then:
            if error is not None:
                return partial(pending.fail, error)
            if type(answer) is Leave:  # the class of a foreign object may raise
                return partial(pending.fail, LeaveGuest(answer.reason))
            try:
                value = answered(answer)
            except Exception as failure:
                return partial(pending.fail, failure)
            self.open_start = 0
            return partial(answer_now, value)

        def answer_now(value: object) -> None:
            if effect.function_type != WRITE_REMOTE:
                pending.set(value)
            elif self.modes.idempotent:
                pending.set(value)
                self.effects.commit_soon()
            else:  # the guest must not see an answer whose loss would make the call uncertain
                self.effects.commit(lambda error: answer_committed(error, value))

        def answer_committed(error: CommitError, value: object) -> None:
            if error is None:
                pending.set(value)
            else:
                pending.fail(LeaveGuest(CommitFailed(error)))

        self.open_start = index
        idempotent = self.modes.idempotent
        once = 0 if may_repeat(effect.function_type, idempotent=idempotent) else index
        effect = self.retrying.wrap(effect, index, idempotent=idempotent)
        self.effects.begin(effect, done, refused=pending.fail, ask=self.defer, once=once)

    def _leave_if_closing(self) -> None:
        if self.effects.closing:
            raise LeaveGuest(Closed())
