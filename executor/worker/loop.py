"""The invocation loop: runs one worker while it has something to do.

    make an instance → replay → next key → started → run → finished, committed → tell waiters → …

However an invocation leaves the guest, the outcome is a value (`Verdict`), and the oplog is the
only thing that the next round starts from.

| the guest                          | recorded                        | then                     |
|------------------------------------|---------------------------------|--------------------------|
| returned                           | invocation-finished, result     | next key                 |
| was given a handle that is none    | invocation-finished, failure    | next key                 |
| trapped, or a host function raised | invocation-finished, failure    | the worker is failed     |
| exited                             | invocation-finished, exit       | the worker is exited     |
| met a transient error, or trapped  | error, with the next attempt    | rebuild after the delay  |
| in a region that wrote             |                                 |                          |
| waits long for what lasts          | suspend, with the time          | unloaded until then      |
| asked to go on from an entry       | jump                            | rebuild                  |
| must not repeat a remote write     | decision: asked                 | the worker is uncertain  |
| diverged, or panicked in replay    | nothing                         | stands still             |
| could not be committed             | nothing                         | held until there is room |
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import trio

from executor.durable.open_effects import WRITES_AWAITED_MAX_S
from executor.durable.reasons import CommitFailed, Exited, Jumped, Suspended, Unsure
from executor.durable.retry import TransientError, storable
from executor.errors import (
    BadHandle,
    Divergence,
    GuestError,
    GuestTrap,
    InternalError,
    LimitError,
    ReplayPanic,
    ShemError,
    StoreError,
)
from executor.wasm.instance import Left, Raised, Returned
from executor.wasm.instance import Outcome as GuestOutcome
from executor.wasm.traps import Trapped
from executor.worker.commits import store_error
from executor.worker.cutting import jump_back, roll_back
from executor.worker.idle import Idle
from executor.worker.making import make_resident, rebuild
from executor.worker.outcomes import own_fault
from executor.worker.rebuild_turn import RebuildTurn
from executor.worker.resident import Resident, failure
from executor.worker.resolving import append_unbegun
from executor.worker.status import REFUSING, RESTING
from executor.worker.verdict import ENDING, Verdict
from executor.worker.worker import Worker
from oplog import entry as entries
from oplog.errors import OplogError, OplogFullError

IDLE_UNLOAD_S: Final = 60.0
NS_PER_S: Final = 1_000_000_000


class InvocationLoop:
    """Runs one worker. All methods are for the trio thread."""

    def __init__(self, worker: Worker, *, closed: bool = False) -> None:
        """If it is `closed`, nothing ever starts it."""
        self.worker = worker
        self.resident: Resident | None = None
        self.running = False
        self._scope = trio.CancelScope()
        self._stopped = trio.Event()
        self._writes_awaited_s = 0.0
        """For how long whoever stops it has writes awaited."""
        self._asked = False
        """Somebody wants it to run who came while it was being stopped."""
        self._lost: OplogError | None = None
        """What could not be committed, until the loop has come to its end for it."""
        self._regaining = False
        """Whether somebody waits for room already."""
        self._closed = closed
        self._idle = Idle()
        self._kept_still = 0
        """How many owners' operations are under way during which nothing starts it."""
        worker.on_lost = self._on_lost

    # -- starting and stopping ------------------------------------------------------------------

    def start(self) -> None:
        """Runs the loop, or wakes it, if there is work. Idempotent."""
        if self.running:
            self._idle.wake()
            self._asked = self._scope.cancel_called
        elif self.has_work() and not self._kept_still:
            self.running = True
            self._writes_awaited_s, self._asked = 0.0, False
            self._scope = trio.CancelScope()
            self._stopped = trio.Event()
            self.worker.services.nursery.start_soon(self._run)

    @contextmanager
    def kept_still(self) -> Iterator[None]:
        """Nothing starts the loop inside the block. It has to be started afterwards."""
        self._kept_still += 1
        try:
            yield
        finally:
            self._kept_still -= 1

    async def stop(self, *, writes_awaited_s: float) -> None:
        """Ends the loop and loses the instance, wherever it is. The oplog stays as it is. Nothing
        runs the worker before it is lost: what it still appends would be met while settling.
        """
        if self.running:
            self._writes_awaited_s = writes_awaited_s
            self._scope.cancel()
            with trio.CancelScope(shield=True):
                await self._stopped.wait()

    async def close(self, *, writes_awaited_s: float) -> None:
        """As `stop`, and nothing starts the loop again."""
        self._closed = True
        await self.stop(writes_awaited_s=writes_awaited_s)

    def take_up_again(self) -> None:
        """After a deletion that failed; what was lost meanwhile was left unsaid."""
        failed = self.worker.writer.failed
        if failed is not None and not self._regaining:
            self._hold(failed)
        self.start()

    def _on_lost(self, error: OplogError) -> None:
        """Entries could not be committed. The guest may wait for hours in a call that needs no
        commit, so the loop is ended wherever it is.
        """
        if self.worker.deleted or self.worker.trouble is not None:
            return
        if self.running:
            self._lost = error
            self._scope.cancel()
        else:
            self._hold(error)

    def has_work(self) -> bool:
        worker = self.worker
        if self._closed or worker.deleted or worker.trouble is not None:
            return False
        if worker.status.state in RESTING:
            return False
        if worker.status.state == "suspended":
            return worker.due
        return worker.status.current is not None or worker.next_key() is not None

    @property
    def loaded(self) -> bool:
        return self.resident is not None

    @property
    def _executing(self) -> bool:
        """Whether an effect is under way beside the guest."""
        return self.resident is not None and self.resident.session.deferred.in_flight

    @property
    def idle_since(self) -> float | None:
        """Since when the instance has nothing to do, on trio's clock; None if it has, or if there
        is none.
        """
        since = self._idle.since
        return None if since is None or self.resident is None or self._executing else since

    def unload(self) -> None:
        """Gives up an idle instance; the worker goes on as after a crash."""
        self._idle.end()

    async def _run(self) -> None:
        try:
            try:
                with self._scope:
                    while await self._has_work_soon() and await self._step() not in ENDING:
                        pass
            finally:
                await self._lose_resident(writes_awaited_s=self._writes_awaited_s)
            if self._lost is not None:
                error, self._lost = self._lost, None
                if self.worker.trouble is None:  # else a step met the same error
                    self._hold(error)
        finally:
            self.running = False
            self._stopped.set()
            self.worker.notify()
        if self._asked or not self._scope.cancel_called:
            self.start()  # for what was accepted while the instance was being lost

    async def _has_work_soon(self) -> bool:
        """Waits until there is work. False after too long: the idle instance is to be unloaded,
        unless an effect is under way in it.
        """
        while not self.has_work():
            self.worker.notify()
            if not await self._idle.wait(IDLE_UNLOAD_S) and not self._executing:
                return self.has_work()
        return True

    async def _lose_resident(self, *, writes_awaited_s: float = WRITES_AWAITED_MAX_S) -> None:
        """Leaves the instance: its effects end, and what it appended is committed. Without time for
        writes it is a crash, which leaves no word of those that had not begun; nobody needs one
        behind the outcome of their invocation.
        """
        resident, self.resident = self.resident, None
        if resident is None:
            return
        with trio.CancelScope(shield=True):  # the log is read again only when this has ended
            await resident.close(writes_awaited_s=writes_awaited_s)
            if self.worker.writer.failed is None:
                try:
                    if writes_awaited_s and self.worker.status.current is not None:
                        append_unbegun(self.worker, resident.session.effects.take_unbegun())
                    await self.worker.commit()
                except StoreError as error:
                    self._refused(error)
        self.worker.notify()

    # -- one round ----------------------------------------------------------------------------

    async def _step(self) -> Verdict:
        """One invocation, or one rebuild with the invocation that it finds open."""
        try:
            if self.resident is None:
                await self._wait_for_retry()
                return await self._rebuild()
            return await self._run_next(self.resident)
        except OplogError as error:
            return self._hold(error)
        except StoreError as error:
            return self._refused(error)
        except Exception as error:
            return self._stand_still(error)

    async def _rebuild(self) -> Verdict:
        """Makes an instance and replays; goes on with the invocation that it finds open."""
        services = self.worker.services
        if self.worker.status.current is not None and self.worker.unsaved:
            await self.worker.commit()  # a replay sees only what is committed
        turn = RebuildTurn(services.rebuilds, services.inbox)
        await turn.take()
        try:
            await roll_back(self.worker)
            self.resident = await make_resident(self.worker, may_go_live=True, on_live=turn.end)
            replayed = await rebuild(self.resident)
        finally:
            turn.end()
        if replayed.outcome is None:
            return Verdict.GO_ON
        return await self._conclude(self.resident, replayed.outcome)

    async def _wait_for_retry(self) -> None:
        status = self.worker.status
        if status.state == "retrying":
            sources = self.worker.services.sources
            # At most the policy's delay: a wall clock that was set back does not hold a retry up.
            delay_ns = min(status.retry_at - sources.wall_ns(), status.retry_delay)
            await sources.sleep_until(sources.monotonic_ns() + max(0, delay_ns))

    async def _run_next(self, resident: Resident) -> Verdict:
        worker = self.worker
        key = worker.next_key()
        if key is None:
            if worker.status.current is not None:
                raise InternalError(f"{worker.name}: an open invocation that no replay found")
            return Verdict.GO_ON
        path, arguments = self._begin(resident, key)
        values = resident.arguments_of(path, arguments)
        return await self._conclude(resident, await resident.call(path, values))

    def _begin(self, resident: Resident, key: str) -> tuple[str, entries.Raw]:
        """Takes a key from the queue; the session is live from here on."""
        worker = self.worker
        session = resident.session
        session.go_live()
        path, arguments = worker.pending(key)
        at = worker.services.sources.wall_ns()
        started = entries.InvocationStarted(at=at, key=key, function=path, arguments=arguments)
        with worker.writer.lock:
            index = worker.append(started)
            session.enter_invocation(index, started)
        worker.services.effects.commit_soon(worker.writer)  # others are to see that it runs
        return path, arguments

    async def _conclude(self, resident: Resident, outcome: GuestOutcome) -> Verdict:
        """What becomes of the guest that was left: an outcome to record, or nothing of its own."""
        outcome = await self._end_writes(resident, outcome)
        match outcome:
            case Left(CommitFailed(error)) if isinstance(error, OplogError):
                return self._hold(error)
            case Left(Jumped(target)):
                return await self._jump(resident, target)
            case Left(Suspended(wake_at, promises)):
                return await self._suspend(wake_at, promises)
            case Left(Unsure(start_index)):
                return await self._ask(start_index)
            case Left(reason) if not isinstance(reason, Exited):
                await self._lose_resident()
                return Verdict.REBUILD
            case Raised(OplogError() as error):
                return self._hold(error)
            case Raised(StoreError() as error):
                return self._refused(error)
            case Raised(Divergence() | ReplayPanic() as error):
                return self._stand_still(error)
            case Raised(error) if not isinstance(error, ShemError | TransientError):
                return self._stand_still(error)
            case _:
                return await self._record(resident, outcome)

    async def _end_writes(self, resident: Resident, outcome: GuestOutcome) -> GuestOutcome:
        """Awaits the remote writes that are under way beside the guest, so that none has to be
        repeated: without end before a result or an exit, whose outcome their failure is; else for
        as long as whoever leaves an instance does, and no effect starts any more.
        """
        session = resident.session
        match outcome:
            case Returned() | Left(Exited()):
                try:
                    await session.deferred.writes_ended()
                except Exception as failed:
                    return Raised(failed)
            case Raised(BadHandle()):
                pass  # the guest was not called, and its instance is kept
            case _:
                if session.live and self.worker.writer.failed is None:
                    await session.effects.close(writes_awaited_s=WRITES_AWAITED_MAX_S)
        return outcome

    async def _record(self, resident: Resident, outcome: GuestOutcome) -> Verdict:
        """Records how the current invocation left the guest."""
        worker = self.worker
        if worker.status.current is None and (key := worker.next_key()) is not None:
            self._begin(resident, key)  # the instance could not even be made for it
        current = worker.status.current
        if current is None:
            raise InternalError(f"{worker.name}: an outcome without an invocation")
        match outcome:
            case Returned():
                return await self._finish(resident.outcome_of(current.function, outcome))
            case Trapped() if resident.session.modes.retries_traps:
                trap = TransientError(outcome.message, kind="guest-trap")
                return await self._retry(resident, "guest-trap", trap)
            case Trapped():
                return await self._finish(failure("guest-trap", outcome.message, outcome.backtrace))
            case Left(Exited(code)):
                exited = entries.Exited(at=worker.services.sources.wall_ns(), code=code)
                return await self._finish(entries.Outcome(exit=code), exited)
            case Raised(BadHandle() as error):
                return await self._finish(resident.outcome_of(current.function, error))
            case Raised(TransientError() as error):
                return await self._retry(resident, "guest-error", error)
            case Raised(LimitError() as error):
                return await self._finish(failure("limit", error.message))
            case Raised(GuestTrap() as error):
                return await self._finish(failure("guest-trap", error.message))
            case Raised(ShemError() as error):
                return await self._finish(failure("guest-error", error.message))
            case Left() | Raised():
                raise InternalError(f"{worker.name}: left the guest for {outcome}")

    async def _finish(self, outcome: entries.Outcome, *hints: entries.Entry) -> Verdict:
        """Appends the outcome, and before it what belongs to it, and commits them as one; only then
        any waiter hears of it.
        """
        worker = self.worker
        at = worker.services.sources.wall_ns()
        with worker.writer.lock:
            for hint in hints:
                worker.append(hint)
            worker.append(entries.InvocationFinished(at=at, outcome=outcome))
        try:
            await worker.commit()
        except StoreError as error:
            return self._refused(error)
        worker.deliver_output()
        if worker.status.state in REFUSING:
            await self._lose_resident(writes_awaited_s=0)
        worker.notify()
        return Verdict.GO_ON

    async def _retry(self, resident: Resident, kind: str, error: TransientError) -> Verdict:
        """Counts the attempt, durably, and rebuilds after the policy's delay."""
        worker = self.worker
        session = resident.session
        retry_from = session.retry_from
        failed_attempts, delay = session.retrying.next_attempt(
            error, retry_from, session.failing_call
        )
        now = worker.services.sources.wall_ns()
        text = str(error)
        retry_at = None if delay is None else now + int(delay * NS_PER_S)
        hint = entries.Error(
            at=now,
            retry_from=retry_from,
            kind=kind,
            details=storable(text),
            retry_at=retry_at,
            policy=session.retrying.chosen(error).rule,
        )
        if retry_at is None:
            cause = failure(kind, f"{text} (after {failed_attempts} attempts)")
            return await self._finish(cause, hint)
        await self._lose_resident()
        worker.append(hint)
        await worker.commit()
        worker.deliver_output()
        worker.notify()
        return Verdict.REBUILD

    async def _jump(self, resident: Resident, target: int) -> Verdict:
        """The guest goes on from `target`, or the invocation fails where it cannot."""
        worker = self.worker
        await self._lose_resident()
        await worker.commit()
        refusal = await jump_back(worker, target)
        if refusal is not None:
            return await self._record(resident, Raised(GuestError(refusal, where=worker.name)))
        worker.deliver_output()
        return Verdict.REBUILD

    async def _suspend(self, wake_at: int | None, promises: tuple[str, ...]) -> Verdict:
        """The worker waits without an instance; what wakes it is durable on return."""
        worker = self.worker
        await self._lose_resident()
        at = worker.services.sources.wall_ns()
        worker.append(entries.Suspend(at=at, wake_at=wake_at, promises=promises))
        await worker.commit()
        worker.deliver_output()
        worker.services.wakeups.look()
        worker.notify()
        return Verdict.REBUILD if worker.due else Verdict.SUSPEND

    async def _ask(self, start_index: int) -> Verdict:
        """Only the worker's owner can say what became of the call at `start_index`."""
        worker = self.worker
        await self._lose_resident()
        at = worker.services.sources.wall_ns()
        worker.append(entries.Decision(at=at, start_index=start_index, choice="asked"))
        await worker.commit()
        worker.notify()
        return Verdict.GO_ON

    # -- standing still -------------------------------------------------------------------------

    def _stand_still(self, error: BaseException) -> Verdict:
        """Nothing is appended; the worker's waiters hear why."""
        worker = self.worker
        if not isinstance(error, ShemError):
            error = own_fault(worker.name, error)
        worker.trouble = error
        worker.services.report(f"{worker.name}: {error.message}")
        worker.notify()
        return Verdict.STAND_STILL

    def _refused(self, error: StoreError) -> Verdict:
        """What the executor's word for a refusal of the store comes to."""
        cause = error.__cause__
        return self._hold(cause) if isinstance(cause, OplogError) else self._stand_still(error)

    def _hold(self, error: OplogError) -> Verdict:
        """Nothing that the instance did since its last commit is kept. A worker without room is
        built again once a probe commit succeeds; any other refusal closed the store, or is of this
        worker's oplog alone.
        """
        worker = self.worker
        worker.trouble = store_error(error, worker.name)
        worker.services.report(f"{worker.name}: {worker.trouble.message}")
        worker.notify()
        if worker.services.store.closed_by is not None:
            worker.services.store_lost.set()
        elif isinstance(error, OplogFullError) and not self._regaining:
            self._regaining = True
            worker.services.nursery.start_soon(self._regain)
        return Verdict.HOLD

    async def _regain(self) -> None:
        """Waits until there is room, then takes the work up again."""
        await self.worker.services.room.wait()
        if self.running:
            await self._stopped.wait()
        self._regaining = False
        if self.worker.deleted or self._closed or self.worker.services.store.closed_by is not None:
            return
        try:
            self.worker.reload()
        except OplogError as error:
            self._hold(error)
            return
        self.worker.notify()
        self.start()
