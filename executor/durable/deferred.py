"""Deferred calls: the effect runs beside the guest, which observes the answer when it reads it.

    begin ─▶ OPEN ──effect over: end──▶ READY ──read: completion-delivered──▶ DELIVERED
              │                           └─────drop: completion-discarded──▶ DROPPED
              └──────────drop: cancelled────────────────────────────────────▶ DROPPED

That an answer is there is the appended `end`, nothing else: `ready`, `block` and `poll` look for
it, and record what they saw; with idempotence mode off that of a remote write is committed first. A
read that finds nothing is not recorded; the marker of the delivery says how many of them came
before it.

A replaying guest gets an answer only at its marker. An `end` without one is withheld until the
instance is live, and so is the start of what never ended (`replay/resolution.py`).

Threads: the guest's lane, but for the end of an effect, which comes on the trio thread. The state
of a call is guarded by the worker's lock once the instance is live.
"""

from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import Protocol

from executor.durable.effects import Effect, EffectDone, Failure, Steps
from executor.durable.function_type import WRITE_REMOTE, may_repeat
from executor.durable.modes import Modes
from executor.durable.open_effects import AskedEffect, CommitError, OpenEffects, Then
from executor.durable.retrying import Retrying
from executor.durable.signal import Signal
from executor.errors import InternalError
from executor.replay.claims import Claim, claim_delivery, claim_drop
from executor.replay.cursor import Cursor
from executor.replay.resolution import Resolution, resolve
from executor.wasm.host_function import LeaveGuest
from oplog.entry import ABSENT, Cancelled, CompletionDelivered, CompletionDiscarded, End, Raw
from oplog.writer import Writer


class Session(Protocol):
    """What deferred calls need of the session that they belong to."""

    worker: str
    writer: Writer
    cursor: Cursor
    effects: OpenEffects
    modes: Modes
    retrying: Retrying
    live: bool
    failing_start: int
    open_start: int

    def claim_index(self, function: str, function_type: str, request: Raw) -> int: ...
    def append_start(self, function: str, function_type: str, request: Raw) -> int: ...
    def append_background_end(self, index: int, response: Raw) -> None: ...
    def append_marker(self, index: int, missed_reads: int) -> None: ...
    def append_dropped(
        self, index: int, kind: type[Cancelled] | type[CompletionDiscarded]
    ) -> None: ...
    def key_of(self, index: int, function_type: str) -> str: ...
    def observed(self, at: int) -> None: ...
    def go_live(self) -> None: ...
    def require_decision(self, index: int) -> None: ...
    def begin_decided(self, index: int) -> None: ...


class CallState(Enum):
    REPLAYED = "replayed"
    """Claimed in replay, and not observed yet."""
    OPEN = "open"
    READY = "ready"
    DELIVERED = "delivered"
    DROPPED = "dropped"


class DeferredCall:
    """One deferred call of one instance."""

    __slots__ = (
        "_encode",
        "asked",
        "error",
        "function",
        "function_type",
        "idempotent",
        "index",
        "key",
        "keyed",
        "missed_reads",
        "response",
        "run",
        "signal",
        "state",
        "withheld",
    )

    def __init__(
        self,
        function: str,
        function_type: str,
        run: Callable[["DeferredCall"], Steps],
        encode: Callable[[object], Raw],
        *,
        idempotent: bool = False,
        keyed: bool = False,
    ) -> None:
        """`run(call)` performs the effect in trio; `encode(answer)` is its recorded response, made
        on the trio thread.
        """
        self.function = function
        self.function_type = function_type
        self.run = run
        self._encode = encode
        self.index = 0
        """Of its `start`; 0 in a zone that persists nothing."""
        self.key = ""
        """The derived key: the same in every attempt."""
        self.keyed = keyed
        """Whether a peer hears the key."""
        self.idempotent = idempotent
        """Whether it may be performed again though it writes: by itself, or since idempotence mode
        was on when it began."""
        self.state = CallState.REPLAYED
        self.missed_reads = 0
        self.response = ABSENT
        self.withheld = False
        """It has an answer that the guest must not see yet, since its `end` is not committed and
        the call would be uncertain without it."""
        self.error: BaseException | None = None
        """Why its effect failed; raised where the guest observes it."""
        self.asked: AskedEffect | None = None
        self.signal = Signal()
        """Fired when there is an answer."""

    @property
    def answered(self) -> bool:
        """Whether the guest would find an answer."""
        return self.state in {CallState.READY, CallState.DELIVERED} and not self.withheld

    def encoded(self, answer: object) -> Raw:
        return self._encode(answer)


class DeferredCalls:
    """Those of one session."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._incomplete: list[DeferredCall] = []
        self._calls: dict[DeferredCall, None] = {}
        """Those whose answer the guest may still observe, oldest first."""

    # -- on the lane ---------------------------------------------------------------------------

    def begin(self, call: DeferredCall, request: Raw) -> None:
        """Begins the call, or claims the recorded one. Raises: Divergence, LeaveGuest."""
        session = self._session
        call.idempotent = call.idempotent or session.modes.idempotent
        if not session.live:
            call.index = session.claim_index(call.function, call.function_type, request)
        if call.index:
            call.key = session.key_of(call.index, call.function_type)
            self._calls[call] = None
            return
        call.index = session.append_start(call.function, call.function_type, request)
        call.key = session.key_of(call.index, call.function_type)
        self._calls[call] = None
        self._perform(call)

    def is_ready(self, call: DeferredCall) -> bool:
        """Whether a read would find an answer; live only, also on the trio thread.

        Raises: what the effect failed with.
        """
        self._raise_failure(call)
        return call.answered

    def read(self, call: DeferredCall) -> Raw | None:
        """The recorded response, once; None if the guest finds nothing there yet.

        Raises: Divergence, LeaveGuest, and what the effect failed with.
        """
        session = self._session
        if call.state in {CallState.DELIVERED, CallState.DROPPED}:
            raise InternalError(f"{session.worker}: {call.function} is read after its end")
        if not session.live:
            found = claim_delivery(session.cursor, session.worker, call.index, call.missed_reads)
            if isinstance(found, CompletionDelivered):
                return self._replayed_answer(call, found)
            if found is Claim.MISSED:
                call.missed_reads += 1
                return None
            session.go_live()
        with session.writer.lock:
            self._raise_failure(call)
            if not call.answered:
                call.missed_reads += 1
                return None
            session.append_marker(call.index, call.missed_reads)
            self._settle(call, CallState.DELIVERED)
        return call.response

    def drop(self, call: DeferredCall) -> None:
        """The guest gives the call up; nothing if it has observed its answer.

        Raises: Divergence, LeaveGuest.
        """
        session = self._session
        if call.state in {CallState.DELIVERED, CallState.DROPPED}:
            return
        if not session.live:
            found = claim_drop(session.cursor, session.worker, call.index)
            if not isinstance(found, Claim):
                session.observed(found.at)
                session.cursor.take_terminal(call.index)
                self._settle(call, CallState.DROPPED)
                return
            del self._calls[call]  # going live must not start what is dropped
            terminal = session.cursor.take_terminal(call.index)
            session.go_live()
            call.state = CallState.OPEN if terminal is None else CallState.READY
        with session.writer.lock:
            ready = call.state is CallState.READY
            self._settle(call, CallState.DROPPED)
            if call.asked is not None:
                session.effects.drop(call.asked)
            kind = CompletionDiscarded if ready else Cancelled
            session.append_dropped(call.index, kind)

    def resume(self) -> None:
        """What becomes of the calls that were begun in replay, once the cursor is drained: called
        when Live is about to be published. Raises: LeaveGuest if only the owner may say.
        """
        session = self._session
        incomplete: list[DeferredCall] = []
        for call in self._calls:
            terminal = session.cursor.take_terminal(call.index)
            match resolve(terminal, None):
                case Resolution.AT_TAIL:
                    assert isinstance(terminal, End)
                    call.response = terminal.response
                    call.state = CallState.READY
                case Resolution.INCOMPLETE:
                    incomplete.append(call)
                case other:
                    raise InternalError(f"{session.worker}: {call.function} is {other.value}")
        for call in incomplete:
            if not may_repeat(call.function_type, idempotent=call.idempotent):
                session.require_decision(call.index)
        self._incomplete = incomplete

    def start_incomplete(self) -> None:
        """Performs again what never ended, under its own start; Live has just been published."""
        incomplete, self._incomplete = self._incomplete, []
        for call in incomplete:
            if not may_repeat(call.function_type, idempotent=call.idempotent):
                self._session.begin_decided(call.index)
            self._perform(call)

    # -- on the trio thread --------------------------------------------------------------------

    def perform_on(
        self, call: DeferredCall, run: Callable[[], Steps], done: EffectDone
    ) -> AskedEffect:
        """Performs `run` as an effect of a call that has ended: what its answer led to was lost.
        `done` is called on the trio thread, not once the effect was stopped or the session left.
        """

        def ended(answer: object, error: Failure) -> Then:
            return partial(done, answer, error)

        def refused(leave: LeaveGuest) -> None:
            """The writer has failed: the worker hears of it by itself and is held."""

        effect = Effect(
            function=call.function, function_type=call.function_type, key=call.key, run=run
        )
        return self._session.effects.begin(effect, ended, refused=refused)

    def stop(self, asked: AskedEffect) -> None:
        """Nobody wants what `perform_on` has begun."""
        self._session.effects.stop(asked)

    @property
    def oldest_open(self) -> int:
        """The start of the first call of the session that has not ended, and so may fail, 0 if
        there is none. Under the worker's lock.
        """
        waited = self._session.open_start
        calls = list(self._calls)  # in one step: the guest may begin another meanwhile
        oldest = next((call.index for call in calls if call.state is CallState.OPEN), 0)
        return min(waited or oldest, oldest or waited)

    @property
    def in_flight(self) -> bool:
        """Whether an effect is under way: the worker executes."""
        return any(call.state is CallState.OPEN and call.error is None for call in self._calls)

    async def writes_ended(self) -> None:
        """Returns once no remote write is under way. Raises: what one failed with, then as well."""
        writes = [call for call in self._calls if call.function_type == WRITE_REMOTE]
        for call in writes:
            while call.state is CallState.OPEN and call.error is None:
                await call.signal.wait()
        for call in writes:
            self._raise_failure(call)

    # ------------------------------------------------------------------------------------------

    def _replayed_answer(self, call: DeferredCall, marker: CompletionDelivered) -> Raw:
        session = self._session
        terminal = session.cursor.take_terminal(call.index)
        assert resolve(terminal, marker) is Resolution.AT_MARKER
        assert isinstance(terminal, End)
        session.observed(marker.at)
        call.response = terminal.response
        self._settle(call, CallState.DELIVERED)
        return call.response

    def _settle(self, call: DeferredCall, state: CallState) -> None:
        call.state = state
        self._calls.pop(call, None)

    def _raise_failure(self, call: DeferredCall) -> None:
        if call.error is not None:
            self._session.failing_start = call.index
            raise call.error

    def _perform(self, call: DeferredCall) -> None:
        session = self._session

        def done(answer: object, error: Failure) -> Then:
            call.error = error
            if error is None:
                try:
                    call.response = call.encoded(answer)
                    session.append_background_end(call.index, call.response)
                    call.withheld = call.function_type == WRITE_REMOTE and not call.idempotent
                    call.state = CallState.READY
                except Exception as failure:
                    call.error = failure
            return ended

        def ended() -> None:
            if call.withheld:
                session.effects.commit(committed)
                return
            call.signal.fire()
            if call.function_type == WRITE_REMOTE:
                session.effects.commit_soon()

        def committed(error: CommitError) -> None:
            """A failure holds the worker, which hears of it by itself."""
            if error is None:
                session.effects.post(show)

        def show() -> None:
            with session.writer.lock:
                call.withheld = False
            call.signal.fire()

        def refused(leave: LeaveGuest) -> None:
            """The writer has failed: the worker hears of it by itself and is held."""

        call.state = CallState.OPEN
        effect = Effect(
            function=call.function,
            function_type=call.function_type,
            key=call.key,
            run=lambda: call.run(call),
            keyed=call.keyed,
        )
        once = 0 if may_repeat(call.function_type, idempotent=call.idempotent) else call.index
        effect = session.retrying.wrap(
            effect,
            call.index,
            idempotent=call.idempotent,
            is_open=lambda: call.state is CallState.OPEN,
        )
        call.asked = session.effects.begin(effect, done, refused=refused, once=once)
