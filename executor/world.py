"""What an executor runs in, and what its workers share of it."""

import logging
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, TypedDict

import trio

from executor.durable.effects import Perform, TrioEffects
from executor.durable.inbox import Inbox
from executor.services.blob_garbage import Garbage
from executor.services.blobs import Blobs
from executor.services.environment import Environment, StoreLimits
from executor.services.http_client import HttpClient
from executor.services.keyvalue import KeyValue
from executor.services.promises import Promises
from executor.services.sockets import Sockets
from executor.services.stores import Stores
from executor.sources import Sources, SystemSources
from executor.wasm.lane import Lanes
from executor.worker.commits import submit_if_true
from executor.worker.initial_files import initial_files
from executor.worker.revision import Revisions
from executor.worker.room import RoomProbe
from executor.worker.wakeups import Wakeups
from executor.worker.worker import OnOutput, WorkerServices
from oplog.reader import Reader
from oplog.store import Store

_log = logging.getLogger(__name__)

REBUILDS_MAX: Final = 16
"""Workers that replay at the same time."""
HOST_THREADS_MAX: Final = 40
"""Plain functions of the embedder that run at the same time; more wait."""
SUSPEND_AFTER_S: Final = 10.0


class World(TypedDict, total=False):
    """What an executor runs in; what is left out is the real one."""

    store: Store | None
    """An open store, owned by the executor once path and host functions were found right."""
    sources: Sources | None
    """Clocks, randomness and sleep."""
    perform: Perform | None
    """The one way of effects to the outside."""
    on_output: OnOutput | None
    """Committed output of guests, on the trio thread."""
    report: Callable[[str], None] | None
    """What belongs to no caller: a worker that stands still."""
    suspend_after_s: float
    """A wait that is known to take longer gives up its instance; 10 s."""
    memory_bytes_max: int
    """While the process has more of its own, idle instances are given up; 80 % of the machine's or
    container's."""
    store_limits: StoreLimits | None
    """What guests may keep in key-value buckets and blob containers."""
    before_close: Callable[[], None] | None
    """Called last, before the store and with it its lock is given up."""


class Running(NamedTuple):
    """What an open executor has under way."""

    lanes: Lanes
    effects: TrioEffects
    inbox: Inbox
    http: HttpClient
    sockets: Sockets
    nursery: trio.Nursery


def worker_services(
    store: Store, revisions: Revisions, running: Running, world: World
) -> WorkerServices:
    engine = store.engine
    sources = world.get("sources") or SystemSources()
    write = partial(submit_if_true, store)
    promises = Promises(engine, write, sources.wall_ns)
    environment = Environment(engine, write, world.get("store_limits") or StoreLimits())
    garbage = Garbage(engine, partial(environment.write_beside, worker="blobs"))
    return WorkerServices(
        store=store,
        reader=Reader(engine),
        revisions=revisions,
        lanes=running.lanes,
        effects=running.effects,
        inbox=running.inbox,
        room=RoomProbe(running.nursery, engine.probe),
        store_lost=trio.Event(),
        rebuilds=trio.CapacityLimiter(REBUILDS_MAX),
        host_threads=trio.CapacityLimiter(HOST_THREADS_MAX),
        nursery=running.nursery,
        sources=sources,
        files=initial_files(engine),
        http=running.http,
        sockets=running.sockets,
        wakeups=Wakeups(engine, sources, promises),
        stores=Stores(
            promises=promises,
            keyvalue=KeyValue(environment, sources.random_id),
            blobs=Blobs(environment, garbage, sources.random_id, sources.wall_ns),
        ),
        suspend_after_s=world.get("suspend_after_s", SUSPEND_AFTER_S),
        on_output=world.get("on_output") or ignore_output,
        report=heard(world.get("report") or log_report),
    )


def heard(report: Callable[[str], None]) -> Callable[[str], None]:
    """`report`, and the log where it fails: what is told there is no reason to end anything."""

    def tell(text: str) -> None:
        try:
            report(text)
        except Exception:
            _log.exception("%s (and nobody takes the report)", text)

    return tell


def ignore_output(worker: str, level: str, text: bytes) -> None:
    """Nobody listens; the oplog has it."""


def log_report(text: str) -> None:
    _log.warning("%s", text)
