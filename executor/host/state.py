"""The host's side of one worker's instance: everything that its host functions read and change.

It is rebuilt by replay, from the same environment, arguments and initial files, and lives as long
as the instance does. The session decides what is recorded; the state does not know in which mode
the guest runs.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Final, NoReturn, Protocol

import msgspec

from executor.durable.reasons import Exited
from executor.host.clock import WorkerClock
from executor.host.connections import Connections, Outside
from executor.host.handles import HandleTable
from executor.host.held import Held
from executor.host.network import GuestNetwork
from executor.services.egress import EgressPolicy
from executor.services.files import FileTree
from executor.services.stores import Stores
from executor.sources import Sources


class Session(Protocol):
    """What host functions need of the durable session of their instance."""

    guest_time_ns: int
    """`at` of the last entry that the guest caused or observed: the time of its files."""
    call_key: str
    """The derived key of the call that is being performed, which an embedder's function gets."""
    worker: str
    """The worker's name."""

    @property
    def may_suspend(self) -> bool:
        """Whether no other durable call is under way, and no atomic region or zone is open."""

    def log(self, level: str, text: bytes, subject: str = "") -> None:
        """One write of output, `level` being `stdout` or `stderr`, or one message of a level of
        wasi:logging about a subject; never blocks.
        """

    def leave(self, reason: Exited) -> NoReturn:
        """Makes the guest leave its instance, from within a host function."""


class WorkerIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker may learn of itself, as of when its instance was made."""

    id: bytes = b""
    component_id: str = ""
    """A hyphenated UUID."""
    name: str = ""
    """Without the component."""
    revision: int = 0
    retry_count: int = 0


class FoundWorker(msgspec.Struct, frozen=True, kw_only=True):
    """A worker as its last commit left it."""

    component_id: str
    name: str
    """Without the component."""
    revision: int
    environment: Sequence[tuple[str, str]]
    arguments: Sequence[str]
    status: str
    retry_count: int
    created_at: int
    """Nanoseconds since the Unix epoch."""


class Directory(Protocol):
    """What is committed of components and workers; on the lane, a read of microseconds."""

    def component_id(self, name: str) -> str | None: ...

    def component_name(self, component_id: str) -> str | None: ...

    def worker_id(self, component_id: str, name: str) -> bytes | None: ...

    def worker(self, component: str, name: str) -> FoundWorker | None: ...

    def workers(self, component: str, after: str, limit: int) -> Sequence[FoundWorker]:
        """Workers of a component in the order of names, behind the one that is called `after`."""

    @property
    def oplogs(self) -> "Oplogs": ...


class OplogSlice(msgspec.Struct, frozen=True):
    """Some entries of an oplog, each as a value of `golem:api/oplog.oplog-entry`."""

    entries: list[tuple[int, object]]
    next: int
    """Where to go on, 0 at the end."""


class Oplogs(Protocol):
    """What is committed of oplogs."""

    def end(self, component: str, name: str) -> tuple[str, int]:
        """Names the oplog of a worker, and says its last index; ("", 0) if there is no worker."""

    def read(self, oplog: str, first: int, last: int) -> OplogSlice:
        """Blocks for milliseconds."""

    def search(self, oplog: str, first: int, last: int, text: str) -> OplogSlice:
        """Blocks for as long as it takes to look at a thousand entries. Raises: UsageError."""


class EmptyOplogs:
    def end(self, _component: str, _name: str) -> tuple[str, int]:
        return "", 0

    def read(self, _oplog: str, _first: int, _last: int) -> OplogSlice:
        return OplogSlice([], 0)

    def search(self, _oplog: str, _first: int, _last: int, _text: str) -> OplogSlice:
        return OplogSlice([], 0)


class EmptyDirectory:
    """Of a state without a store."""

    oplogs = EmptyOplogs()

    def component_id(self, _name: str) -> str | None:
        return None

    def component_name(self, _component_id: str) -> str | None:
        return None

    def worker_id(self, _component_id: str, _name: str) -> bytes | None:
        return None

    def worker(self, _component: str, _name: str) -> FoundWorker | None:
        return None

    def workers(self, _component: str, _after: str, _limit: int) -> Sequence[FoundWorker]:
        return ()


NOBODY: Final = WorkerIdentity()


class HostState:
    """Used on the worker's lane only, but by an effect of the call that the guest waits in."""

    __slots__ = (
        "arguments",
        "clock",
        "config",
        "connections",
        "directory",
        "egress",
        "environment",
        "files",
        "handles",
        "held",
        "identity",
        "network",
        "outside",
        "session",
        "sources",
        "stores",
        "suspend_after_s",
    )
    stores: Stores
    """Of the executor, once whoever makes the instance has set it."""

    def __init__(
        self,
        *,
        session: Session,
        sources: Sources,
        files: FileTree,
        environment: Sequence[tuple[str, str]] = (),
        arguments: Sequence[str] = (),
        identity: WorkerIdentity = NOBODY,
    ) -> None:
        self.session = session
        self.sources = sources
        self.files = files
        self.environment = list(environment)
        """Names and values in the order that the guest sees."""
        self.arguments = list(arguments)
        self.handles = HandleTable()
        self.held = Held()
        self.clock = WorkerClock()
        self.identity = identity
        self.config: Mapping[str, str] = {}
        """Of wasi:config, once whoever makes the instance has set it."""
        self.directory: Directory = EmptyDirectory()
        """Of the store, once whoever makes the instance has set it."""
        self.egress = EgressPolicy()
        """What the worker may reach: nothing, until whoever makes the instance says otherwise."""
        self.suspend_after_s = math.inf
        """A wait that is known to take longer gives up its instance."""
        self.outside: Outside | None = None
        """How the world is reached, once whoever makes the instance has set it."""
        self.network = GuestNetwork()
        self.connections = Connections()
        """Those that would be lost with the instance: it is not given up meanwhile."""

    @property
    def may_suspend(self) -> bool:
        """Whether a long wait may give up the instance: nothing is under way beside it."""
        return not self.connections and self.session.may_suspend
