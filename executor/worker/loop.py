"""The invocation loop: runs one worker while it has something to do.

    make an instance → replay → next key → started → run → finished, committed → tell waiters → …

However an invocation leaves the guest, the outcome is a value (`Verdict`), and the oplog is the
only thing that the next round starts from.

| the guest                          | recorded                        | then                     |
|------------------------------------|---------------------------------|--------------------------|
| returned                           | invocation-finished, result     | next key                 |
| trapped, or a host function raised | invocation-finished, failure    | the worker is failed     |
| exited                             | invocation-finished, exit       | the worker is exited     |
| met a transient error              | error, with the next attempt    | rebuild after the delay  |
| diverged, or panicked in replay    | nothing                         | stands still             |
| could not be committed             | nothing                         | held until there is room |
"""

import random
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final

import trio

from executor.durable.inbox import Inbox
from executor.durable.reasons import CommitFailed, Exited, ReachedTarget
from executor.durable.retry import DEFAULT_POLICY, TransientError, retry_delay_s
from executor.durable.session import DurableSession, SessionWorld
from executor.errors import Divergence, GuestTrap, InternalError, LimitError, ShemError, StoreError
from executor.host.state import HostState
from executor.replay.cursor import Cursor
from executor.replay.regions import Regions
from executor.wasm.instance import Instance, Left, Raised, Returned
from executor.wasm.instance import Outcome as GuestOutcome
from executor.wasm.plain import decode_arguments
from executor.wasm.traps import Trapped
from executor.worker.commits import store_error
from executor.worker.resident import Replayed, Resident
from executor.worker.revision import Revision
from executor.worker.status import REFUSING
from executor.worker.worker import Worker
from oplog import entry as entries
from oplog.errors import OplogError, OplogFullError

IDLE_UNLOAD_S: Final = 60.0
PROBE_DELAY_MIN_S: Final = 1.0
PROBE_DELAY_MAX_S: Final = 30.0
NS_PER_S: Final = 1_000_000_000


class Verdict(Enum):
    """What the loop does next."""

    GO_ON = "go on"
    REBUILD = "rebuild"
    STAND_STILL = "stand still"
    HOLD = "hold"


class RebuildTurn:
    """A place among those that replay at the same time; it ends when the instance is live, though
    the invocation that it goes on with may take for ever.
    """

    def __init__(self, limiter: trio.CapacityLimiter, inbox: Inbox) -> None:
        self._limiter = limiter
        self._inbox = inbox
        self._held = False

    async def take(self) -> None:
        await self._limiter.acquire_on_behalf_of(self)
        self._held = True

    def end(self) -> None:
        """Any thread; idempotent."""
        self._inbox.post(self._release)

    def _release(self) -> None:
        if self._held:
            self._held = False
            self._limiter.release_on_behalf_of(self)


class InvocationLoop:
    """Runs one worker. All methods are for the trio thread."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.resident: Resident | None = None
        self.running = False
        self._scope = trio.CancelScope()
        self._stopped = trio.Event()
        self._wake = trio.Event()

    # -- starting and stopping ------------------------------------------------------------------

    def start(self) -> None:
        """Runs the loop, or wakes it, if there is work. Idempotent."""
        if self.running:
            self._wake.set()
        elif self.has_work():
            self.running = True
            self._scope = trio.CancelScope()
            self._stopped = trio.Event()
            self.worker.services.nursery.start_soon(self._run)

    async def stop(self, *, writes_awaited_s: float) -> None:
        """Ends the loop and loses the instance, wherever it is. The oplog stays as it is."""
        with trio.CancelScope(shield=True):
            if self.running:
                self._scope.cancel()
                await self._stopped.wait()
            await self._lose_resident(writes_awaited_s=writes_awaited_s)

    def has_work(self) -> bool:
        worker = self.worker
        if worker.deleted or worker.trouble is not None or worker.status.state in REFUSING:
            return False
        return worker.status.current is not None or worker.next_key() is not None

    @property
    def loaded(self) -> bool:
        return self.resident is not None

    async def _run(self) -> None:
        try:
            with self._scope:
                while await self._has_work_soon():
                    verdict = await self._step()
                    if verdict in (Verdict.STAND_STILL, Verdict.HOLD):
                        break
                await self._lose_resident(writes_awaited_s=0)
        finally:
            self.running = False
            self._stopped.set()
            self.worker.notify()
        if not self._scope.cancel_called:
            self.start()  # for what was accepted while the instance was being lost

    async def _has_work_soon(self) -> bool:
        """Whether there is work now, or comes before the idle instance is unloaded."""
        with trio.move_on_after(IDLE_UNLOAD_S):
            while not self.has_work():
                self._wake = trio.Event()
                self.worker.notify()
                await self._wake.wait()
        return self.has_work()

    async def _lose_resident(self, *, writes_awaited_s: float) -> None:
        """Leaves the instance: its effects end, and what it appended is committed."""
        resident, self.resident = self.resident, None
        if resident is None:
            return
        await resident.close(writes_awaited_s=writes_awaited_s)
        if self.worker.writer.failed is None:
            try:
                await self.worker.commit()
            except StoreError as error:
                self._refused(error)

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
        turn = RebuildTurn(services.rebuilds, services.inbox)
        await turn.take()
        try:
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
            delay = (status.retry_at - self.worker.services.sources.wall_ns()) / NS_PER_S
            await trio.sleep(max(0.0, delay))

    async def _run_next(self, resident: Resident) -> Verdict:
        worker = self.worker
        key = worker.next_key()
        if key is None:
            return Verdict.GO_ON
        path, arguments = self._begin(resident, key)
        values = decode_arguments(resident.revision.export(path).type, arguments)
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
            session.enter_invocation(key, index, at)
        return path, arguments

    async def _conclude(self, resident: Resident, outcome: GuestOutcome) -> Verdict:
        """What becomes of the guest that was left: an outcome to record, or nothing of its own."""
        match outcome:
            case Left(CommitFailed(error)) if isinstance(error, OplogError):
                return self._hold(error)
            case Left(reason) if not isinstance(reason, Exited):
                return Verdict.REBUILD
            case Raised(OplogError() as error):
                return self._hold(error)
            case Raised(Divergence() | GuestTrap() | StoreError() | InternalError() as error):
                return self._stand_still(error)
            case _:
                return await self._record(resident, outcome)

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
            case Trapped():
                return await self._finish(failure("guest-trap", outcome.message))
            case Left(Exited(code)):
                return await self._finish(entries.Outcome(exit=code))
            case Raised(TransientError() as error):
                return await self._retry(resident, error)
            case Raised(LimitError() as error):
                return await self._finish(failure("limit", error.message))
            case Raised(ShemError() as error):
                return await self._finish(failure("guest-error", error.message))
            case Raised(error):
                text = f"{type(error).__name__}: {error}"
                return await self._finish(failure("guest-error", text))
            case Left():
                raise InternalError(f"{worker.name}: left the guest for {outcome.reason}")

    async def _finish(self, outcome: entries.Outcome) -> Verdict:
        """Appends the outcome and commits it; only then any waiter hears of it."""
        worker = self.worker
        at = worker.services.sources.wall_ns()
        with worker.writer.lock:
            if outcome.exit is not None:
                worker.append(entries.Exited(at=at, code=outcome.exit))
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

    async def _retry(self, resident: Resident, error: TransientError) -> Verdict:
        """Counts the attempt, durably, and rebuilds after the policy's delay."""
        worker = self.worker
        session = resident.session
        retry_from = session.open_start or session.invocation_index
        failed_attempts = worker.status.attempts.get(retry_from, 0) + 1
        delay = retry_delay_s(DEFAULT_POLICY, failed_attempts, random.random)
        now = worker.services.sources.wall_ns()
        retry_at = None if delay is None else now + int(delay * NS_PER_S)
        worker.append(
            entries.Error(
                at=now,
                retry_from=retry_from,
                kind="guest-error",
                details=str(error),
                retry_at=retry_at,
            )
        )
        if retry_at is None:
            return await self._finish(
                failure("guest-error", f"{error} (after {failed_attempts} attempts)")
            )
        await self._lose_resident(writes_awaited_s=0)
        await worker.commit()
        worker.deliver_output()
        return Verdict.REBUILD

    # -- standing still -------------------------------------------------------------------------

    def _stand_still(self, error: BaseException) -> Verdict:
        """Nothing is appended; the worker's waiters hear why."""
        worker = self.worker
        if isinstance(error, ShemError):
            worker.trouble = error
        else:
            worker.trouble = ShemError(f"internal error: {error}", where=worker.name)
        worker.services.report(f"{worker.name}: {error}")
        worker.notify()
        return Verdict.STAND_STILL

    def _refused(self, error: StoreError) -> Verdict:
        """What the executor's word for a refusal of the store comes to."""
        cause = error.__cause__
        return self._hold(cause) if isinstance(cause, OplogError) else self._stand_still(error)

    def _hold(self, error: OplogError) -> Verdict:
        """Nothing that the instance did since its last commit is kept. A worker without room is
        built again once a probe commit succeeds; any other refusal has closed the store.
        """
        worker = self.worker
        worker.trouble = store_error(error, worker.name)
        worker.notify()
        if isinstance(error, OplogFullError):
            worker.services.nursery.start_soon(self._regain)
        return Verdict.HOLD

    async def _regain(self) -> None:
        """Tries a probe commit every second, up to every 30, then takes the work up again."""
        delay = PROBE_DELAY_MIN_S
        probe = self.worker.services.store.engine.probe
        while not self.worker.deleted:
            await trio.sleep(delay)
            try:
                await trio.to_thread.run_sync(probe)
            except OplogFullError:
                delay = min(delay * 2, PROBE_DELAY_MAX_S)
                continue
            except OplogError:
                return
            break
        await self._stopped.wait()
        self.worker.reload()
        self.worker.notify()
        self.start()


def failure(kind: str, message: str) -> entries.Outcome:
    return entries.Outcome(failure=entries.Failure(kind=kind, message=message))


# -- making and rebuilding an instance ---------------------------------------------------------


async def make_resident(
    worker: Worker,
    *,
    may_go_live: bool,
    to: int | None = None,
    on_live: Callable[[], None] | None = None,
) -> Resident:
    """A new instance with the worker's committed history before it, not yet instantiated."""
    services = worker.services
    status = worker.status
    revision = await trio.to_thread.run_sync(
        services.revisions.load, status.component, status.revision
    )
    lane = services.lanes.assign()
    committed = worker.writer.committed_index
    cursor = Cursor(
        worker.entries.page,
        first=2,
        target=committed if to is None else min(to, committed),
        regions=Regions(status.cuts),
    )
    listener = WorldListener(worker, on_live)
    session = DurableSession(
        worker=status.name,
        writer=worker.writer,
        cursor=cursor,
        world=SessionWorld(
            effects=services.effects,
            listener=listener,
            wall_ns=services.sources.wall_ns,
            defer=lane.defer,
        ),
    )
    session.may_go_live = may_go_live
    session.stop = recorded_stop(worker)
    listener.state = state = HostState(
        session=session,
        sources=services.sources,
        files=services.files(revision, status.created_at),
        environment=environment(worker, revision),
        arguments=(),
    )
    memory = status.limits.get("memory_bytes")
    instance = Instance(revision.linker, lane, state, memory_bytes_max=memory)
    listener.instance = instance
    return Resident(
        revision=revision,
        session=session,
        instance=instance,
        lane=lane,
        inbox=services.inbox,
        release=lambda: services.lanes.release(lane),
    )


async def rebuild(resident: Resident) -> Replayed:
    """Instantiates and replays. A failure to instantiate is the outcome of the invocation that the
    instance is made for, if nothing else is recorded that an instance went through before.
    """
    started = await resident.start()
    if isinstance(started, Returned):
        return await resident.replay()
    return resident.not_made(started)


def recorded_stop(worker: Worker) -> tuple[int, entries.Outcome] | None:
    """The invocation that failed or exited: no instance is run past the last good one."""
    if worker.status.state not in REFUSING:
        return None
    state = worker.key_state(worker.status.failed_key)
    if state is None:
        return None
    finished = worker.entries.one(state.finished_index)
    assert isinstance(finished, entries.InvocationFinished)
    return state.started_index, finished.outcome


def environment(worker: Worker, revision: Revision) -> Sequence[tuple[str, str]]:
    """The component's variables, then the worker's over them, then the three of its own."""
    status = worker.status
    merged = {**revision.row.env, **status.env}
    own = {
        "GOLEM_WORKER_NAME": status.name.partition("/")[2],
        "GOLEM_COMPONENT_ID": status.component_id,
        "GOLEM_COMPONENT_VERSION": str(status.revision),
    }
    return [*((name, value) for name, value in merged.items() if name not in own), *own.items()]


class WorldListener:
    """Ties a session to its worker and its host state."""

    def __init__(self, worker: Worker, on_live: Callable[[], None] | None) -> None:
        self._worker = worker
        self._on_live = on_live
        self.state: HostState | None = None
        self.instance: Instance | None = None

    def on_live(self) -> None:
        state = self.state
        assert state is not None
        state.clock.anchor(
            state.sources.wall_ns(), self._worker.status.created_at, state.sources.monotonic_ns()
        )
        if self._on_live is not None:
            self._on_live()

    def on_target(self) -> None:
        """On the lane: a guest that makes no further host call is left at its next epoch check."""
        instance = self.instance
        assert instance is not None
        instance.interrupt(ReachedTarget())

    def on_full(self) -> None:
        """On the lane, or on the trio thread while the guest waits: the guest gives way at its next
        epoch check, and runs on once a commit has made room.
        """
        instance = self.instance
        assert instance is not None
        instance.pause()
        self._worker.writer.on_drained(instance.resume)

    def on_output(self, level: str, text: bytes) -> None:
        self._worker.on_output(level, text)
