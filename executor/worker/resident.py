"""The resident, disposable part of a worker: one instance, its host state and its session.

A resident is made, replays the recorded invocations, and then runs new ones; when anything goes
wrong it is thrown away and another is made from the oplog. Everything in it can be rebuilt.

The replay runs on the lane, invocation after invocation, without a step in trio between them.
"""

from collections.abc import Callable, Sequence

import msgspec
import trio

from executor.durable.reasons import ReachedTarget, Unsure
from executor.durable.retry import storable
from executor.durable.session import DurableSession
from executor.errors import BadHandle, Divergence, InternalError, ReplayPanic, StoreError
from executor.host.state import HostState
from executor.wasm.host_function import LeaveGuest
from executor.wasm.instance import Instance, Left, Raised, Returned
from executor.wasm.instance import Outcome as GuestOutcome
from executor.wasm.lane import Lane
from executor.wasm.plain import decode_arguments, encode_result
from executor.wasm.traps import Trapped
from executor.worker.revision import Revision
from executor.worker.worker import WorkerServices
from oplog.codec import values_of
from oplog.entry import Failure, InvocationStarted, Outcome, Raw
from oplog.errors import OplogError

Done = Callable[[GuestOutcome], None]

STANDS_STILL = (Divergence, ReplayPanic, InternalError, OplogError, StoreError)
"""Errors that say by themselves why a replay cannot go on."""


class Replayed(msgspec.Struct, frozen=True, kw_only=True):
    """How a replay ended."""

    outcome: GuestOutcome | None
    """How the last invocation left the guest; None if every recorded one was replayed whole."""
    stopped: Outcome | None = None
    """The recorded failure or exit at which a rebuild stops."""


class Resident:
    """One instance of a worker on its lane."""

    def __init__(
        self,
        *,
        revision: Revision,
        session: DurableSession,
        state: HostState,
        instance: Instance,
        lane: Lane,
        services: WorkerServices,
    ) -> None:
        """`lane` is assigned to the instance, and given back once that is deleted."""
        self.revision = revision
        self.session = session
        self.state = state
        self.instance = instance
        self.lane = lane
        self._services = services
        self._deleted = False

    async def start(self) -> GuestOutcome:
        """Instantiates: `Returned` if the instance is ready."""
        return await self._on_lane(self.instance.start)

    async def replay(self) -> Replayed:
        """Replays every recorded invocation up to the session's target.

        If the last one has not finished it goes on, live unless the session may not go live, and
        its outcome is the answer's.
        """
        end: list[Replayed] = []

        def run(done: Done) -> None:
            replay = Replay(self, end, done)
            self.lane.post(replay.next)

        await self._on_lane(run)
        return end[0]

    async def call(self, path: str, arguments: Sequence[object]) -> GuestOutcome:
        """Runs one exported function."""
        function = self.revision.export(path)
        return await self._on_lane(lambda done: self.instance.call(function, arguments, done))

    def not_made(self, outcome: GuestOutcome) -> Replayed:
        """The end of a replay whose instance could not be made. With recorded calls before it that
        is no outcome of an invocation: an instance was there when they were recorded.
        """
        session = self.session
        try:
            following = session.cursor.peek()
            if following is not None and isinstance(following[1], InvocationStarted):
                session.next_invocation()
                if session.stop is not None and session.stop[0] == session.invocation_index:
                    return Replayed(outcome=None, stopped=session.stop[1])
                following = session.cursor.peek()
        except Exception as error:
            return Replayed(outcome=Raised(error))
        if following is None:
            return Replayed(outcome=outcome)
        return Replayed(outcome=unlike_recorded(session, outcome, following[0]))

    async def close(self, *, writes_awaited_s: float) -> None:
        """Ends the effects, closes what is open, then deletes the instance. Idempotent."""
        await self.session.effects.close(writes_awaited_s=writes_awaited_s)
        with trio.move_on_after(writes_awaited_s):
            await self.state.connections.sent()
        self.state.connections.close()
        closed = trio.Event()
        self.instance.close(lambda: self._services.inbox.post(closed.set))
        await closed.wait()
        if not self._deleted:
            self._deleted = True
            self._services.lanes.release(self.lane)

    def arguments_of(self, path: str, recorded: Raw) -> list[object]:
        """What the invocation under way was given. Raises: OplogCorruptError."""
        with values_of(self.session.invocation_index):
            return decode_arguments(self.revision.export(path).type, recorded)

    def outcome_of(self, path: str, outcome: Returned | BadHandle) -> Outcome:
        """The recordable outcome of a call that returned, or was refused for a handle."""
        if isinstance(outcome, BadHandle):
            return Outcome(failure=Failure(kind=outcome.kind, message=outcome.message))
        function = self.revision.export(path)
        return Outcome(result=encode_result(function.type, outcome.value))

    async def _on_lane(self, start: Callable[[Done], None]) -> GuestOutcome:
        """Waits in trio for something that ends on the lane."""
        event = trio.Event()
        outcomes: list[GuestOutcome] = []

        def done(outcome: GuestOutcome) -> None:
            outcomes.append(outcome)
            self._services.inbox.post(event.set)

        start(done)
        await event.wait()
        return outcomes[0]


class Replay:
    """Drives one resident through the recorded invocations, on its lane."""

    def __init__(self, resident: Resident, end: list[Replayed], done: Done) -> None:
        self._resident = resident
        self._session = resident.session
        self._end = end
        self._done = done
        self._path = ""

    def next(self) -> None:
        session = self._session
        try:
            started = session.next_invocation()
            if started is None:
                self._finish(Replayed(outcome=None))
                return
            stopped = self._recorded_stop()
            if stopped is not None:
                self._finish(Replayed(outcome=None, stopped=stopped))
                return
            if not session.may_go_live and session.cursor.peek() is None:
                self._finish(Replayed(outcome=Left(ReachedTarget())))
                return
            self._call(started)
        except Exception as error:
            self._finish(Replayed(outcome=Raised(error)))

    def _recorded_stop(self) -> Outcome | None:
        """The outcome of the invocation just begun, where it is known to be a failure or exit."""
        stop = self._session.stop
        if stop is not None and stop[0] == self._session.invocation_index:
            return stop[1]
        return None

    def _call(self, started: InvocationStarted) -> None:
        self._path = started.function
        function = self._resident.revision.export(started.function)
        arguments = self._resident.arguments_of(started.function, started.arguments)
        self._resident.instance.call(function, arguments, self._ended)

    def _ended(self, outcome: GuestOutcome) -> None:
        session = self._session
        try:
            if session.live:
                self._finish(Replayed(outcome=outcome))
            elif isinstance(outcome, Returned):
                self._match(self._resident.outcome_of(self._path, outcome), outcome)
            elif isinstance(outcome, Raised) and isinstance(outcome.error, BadHandle):
                self._match(self._resident.outcome_of(self._path, outcome.error), outcome)
            else:
                self._finish(Replayed(outcome=self._left_in_replay(outcome)))
        except Exception as error:
            self._finish(Replayed(outcome=Raised(error)))
        except LeaveGuest as leave:
            self._finish(Replayed(outcome=Left(leave.reason)))

    def _match(self, recordable: Outcome, outcome: GuestOutcome) -> None:
        """Compares with what is recorded and goes on; the instance is as good as before."""
        if self._session.match_outcome(recordable):
            self._resident.lane.post(self.next)
        else:
            self._finish(Replayed(outcome=outcome))

    def _left_in_replay(self, outcome: Trapped | Left | Raised) -> GuestOutcome:
        """A guest that did not return while history remains has not done what it did before."""
        session = self._session
        if isinstance(outcome, Left) and isinstance(outcome.reason, ReachedTarget | Unsure):
            return outcome
        if isinstance(outcome, Raised) and isinstance(outcome.error, STANDS_STILL):
            return outcome
        following = session.cursor.peek()
        if following is None:
            session.go_live()
            return outcome
        return unlike_recorded(session, outcome, following[0])

    def _finish(self, end: Replayed) -> None:
        self._end.append(end)
        self._done(Returned(None))


def failure(kind: str, message: str, backtrace: str = "") -> Outcome:
    """The recordable outcome of a call that failed."""
    cause = Failure(kind=kind, message=storable(message), backtrace=storable(backtrace))
    return Outcome(failure=cause)


def unlike_recorded(session: DurableSession, outcome: GuestOutcome, index: int) -> GuestOutcome:
    """The report of a guest that was left before it came to the recorded entry `index`."""
    match outcome:
        case Raised(error) if isinstance(error, STANDS_STILL):
            return outcome
        case Trapped() | Raised():
            what = outcome.message if isinstance(outcome, Trapped) else str(outcome.error)
            return Raised(
                ReplayPanic(
                    f"{what}, while replaying, before entry {index}",
                    where=session.worker,
                    hint="the recorded run did not fail here: was the component changed?",
                )
            )
        case _:
            return Raised(
                Divergence(
                    worker=session.worker,
                    index=index,
                    recorded="more of the invocation",
                    requested=f"to leave the guest: {outcome}",
                )
            )
