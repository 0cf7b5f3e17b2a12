"""Making an instance of a worker: revision, place in the oplog, host state, lane."""

from collections.abc import Callable

import trio

from executor.durable.reasons import ReachedTarget
from executor.durable.retry import policy_of
from executor.durable.retry_rules import RetryRules
from executor.durable.retrying import Due
from executor.durable.session import DurableSession
from executor.durable.session_world import SessionWorld
from executor.host.connections import Outside
from executor.host.state import HostState, WorkerIdentity
from executor.replay.cursor import Cursor
from executor.replay.regions import Regions
from executor.services.egress import EgressPolicy
from executor.wasm.instance import Instance, Returned
from executor.wasm.lane import Lane
from executor.worker.directory import StoreDirectory, environment
from executor.worker.resident import Replayed, Resident
from executor.worker.status import REFUSING, Status
from executor.worker.worker import Worker
from oplog import entry as entries


async def make_resident(
    worker: Worker,
    *,
    may_go_live: bool,
    to: int | None = None,
    on_live: Callable[[], None] | None = None,
    on_target: Callable[[HostState], None] | None = None,
) -> Resident:
    """A new instance with the worker's committed history before it, not yet instantiated.

    `on_target` is told, on the lane, when one that may not go live was answered its last recorded
    call, before the guest does anything more.
    """
    services = worker.services
    revision = await trio.to_thread.run_sync(
        services.revisions.load, worker.status.component, worker.status.revision
    )
    status = worker.status  # a revert meanwhile has left another one
    stop = recorded_stop(worker)
    files = services.files(revision, status)
    committed = worker.writer.committed_index
    cursor = Cursor(
        worker.entries.replayed,
        first=2,
        target=committed if to is None else min(to, committed),
        regions=Regions(status.cuts),
    )
    listener = WorldListener(worker, on_live, on_target)
    lane = services.lanes.assign()
    world = session_world(worker, listener, lane)
    session = DurableSession(worker=status.name, writer=worker.writer, cursor=cursor, world=world)
    set_policies(session, status)
    session.may_go_live = may_go_live
    session.decisions = dict(status.decisions)
    session.stop = stop
    listener.state = state = HostState(
        session=session,
        sources=services.sources,
        files=files,
        environment=environment(status, revision.row.env),
        arguments=status.args,
        identity=identity(worker),
    )
    state.config = status.config
    state.egress = EgressPolicy.of((*revision.row.allow_net, *status.allow_net))
    state.suspend_after_s = services.suspend_after_s
    state.outside = outside(worker)
    state.directory = StoreDirectory(services.store.engine)
    state.stores = services.stores
    instance = Instance(
        revision.linker,
        lane,
        state,
        memory_bytes_max=status.limits.get("memory_bytes"),
        table_elements_max=status.limits.get("table_elements"),
    )
    listener.instance = instance
    return Resident(
        revision=revision,
        session=session,
        state=state,
        instance=instance,
        lane=lane,
        services=services,
    )


def set_policies(session: DurableSession, status: Status) -> None:
    """What is tried again until the guest says otherwise, and what whatever it says."""
    if status.retry is not None:
        session.modes.policy = policy_of(status.retry)
    session.retrying.rules = RetryRules(status.retry_rules)


def outside(worker: Worker) -> Outside:
    services = worker.services
    return Outside(
        http=services.http,
        sockets=services.sockets,
        threads=services.host_threads,
        post=services.inbox.post,
        read_frame=worker.entries.frame,
    )


def session_world(worker: Worker, listener: "WorldListener", lane: Lane) -> SessionWorld:
    services = worker.services
    return SessionWorld(
        effects=services.effects,
        listener=listener,
        sources=services.sources,
        append=worker.append,
        attempts=lambda index: worker.status.attempts.get(index, 0),
        due=due_attempts(worker),
        defer=lane.defer,
        post=services.inbox.post,
    )


def due_attempts(worker: Worker) -> Callable[[int], Due]:
    """When what has failed is tried again; at once where the loop has waited before the instance
    was made.
    """
    status = worker.status
    waited = (status.retry_at, status.retry_delay) if status.state == "retrying" else (0, 0)

    def due(index: int) -> Due:
        found = worker.status.due.get(index, (0, 0))
        return (0, 0) if found == waited else found

    return due


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
    if not isinstance(finished, entries.InvocationFinished):
        return None  # appended a moment ago and not committed: beyond the target
    return state.started_index, finished.outcome


def identity(worker: Worker) -> WorkerIdentity:
    status = worker.status
    return WorkerIdentity(
        id=worker.id,
        component_id=status.component_id,
        name=status.name.partition("/")[2],
        revision=status.revision,
        retry_count=status.retries,
    )


class WorldListener:
    """Ties a session to its worker and its host state."""

    def __init__(
        self,
        worker: Worker,
        on_live: Callable[[], None] | None,
        on_target: Callable[[HostState], None] | None,
    ) -> None:
        self._worker = worker
        self._on_live = on_live
        self._on_target = on_target
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
        state, instance = self.state, self.instance
        assert state is not None
        assert instance is not None
        if self._on_target is not None:
            self._on_target(state)
        instance.interrupt(ReachedTarget())

    def on_full(self) -> None:
        """On the lane, or on the trio thread while the guest waits: the guest gives way at its next
        epoch check, and runs on once a commit has made room.
        """
        instance = self.instance
        assert instance is not None
        instance.pause()
        self._worker.writer.on_drained(instance.resume)

    def on_output(self, line: entries.Log) -> None:
        self._worker.on_output(line)
