"""Oplogs as guests read and search them: a slice of committed entries at a time.

An oplog is named by the id of its worker, so that another worker of the same name is not taken for
it. What is hidden is there as well, as in `shem oplog`.
"""

from typing import Final

from executor.host.state import OplogSlice
from executor.records import OplogRecord
from executor.replay.regions import Regions
from executor.services.components import read_revision
from executor.worker.entries import WorkerEntries
from executor.worker.public_entries import Beside, Subject, public_entry
from executor.worker.rows import read_status, read_worker_id
from executor.worker.search import Query, matches, parse
from executor.worker.signatures import export_types
from oplog.codec import values_of
from oplog.engine import Engine
from oplog.entry import End, Entry, InvocationFinished, InvocationStarted, PendingInvocation, Start
from oplog.reader import Reader

SLICE_ENTRIES: Final = 50
SLICE_BYTES: Final = 128 * 1024
"""Of values: so many end a slice."""
LOOKED_AT_ENTRIES: Final = 1_000
"""Behind so many, of which none is seen, a slice is empty."""
BESIDE_ENTRIES: Final = (8, 1_024)
"""So far an entry's other half is looked for: the end of a call, the begin of an invocation. It is
nearly always close by.
"""


class PublicOplogs:
    """Any thread. Every method blocks for as long as the disk does."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def end(self, component: str, name: str) -> tuple[str, int]:
        worker_id = read_worker_id(self._engine, f"{component}/{name}")
        status = None if worker_id is None else read_status(self._engine, worker_id)
        if worker_id is None or status is None:
            return "", 0
        return worker_id.hex(), status.last_index

    def read(self, oplog: str, first: int, last: int) -> OplogSlice:
        return PublicOplog(self._engine, bytes.fromhex(oplog)).slice(first, last, None)

    def search(self, oplog: str, first: int, last: int, text: str) -> OplogSlice:
        """Raises: UsageError for a query that makes no sense."""
        query = parse(text)
        return PublicOplog(self._engine, bytes.fromhex(oplog)).slice(first, last, query)


class PublicOplog:
    """One worker's."""

    def __init__(self, engine: Engine, worker_id: bytes) -> None:
        self.entries = WorkerEntries(Reader(engine), worker_id)
        self._status = status = read_status(engine, worker_id)
        self._regions = Regions(() if status is None else status.cuts)
        if status is not None:
            revision = read_revision(engine, status.component, status.revision)
            self._subject = Subject(
                id=worker_id,
                name=status.name,
                component_id=status.component_id,
                component_bytes=revision.size_bytes,
                exports=export_types(revision.exports),
            )

    def slice(self, first: int, last: int, query: Query | None) -> OplogSlice:
        """From `first` on, and where to go on; nothing once the worker is deleted."""
        found: list[tuple[int, object]] = []
        room = SLICE_BYTES
        limit = min(LOOKED_AT_ENTRIES, last - first + 1)
        page = self.entries.page(first, limit) if self._status is not None and limit > 0 else []
        index = last
        for index, entry in page:
            chosen = self._chosen(index, entry, query)
            if chosen is not None:
                beside = self._beside(*chosen)
                with values_of(chosen[0]):
                    value = public_entry(self._subject, chosen[1], beside)
                if value is not None:
                    found.append((chosen[0], value))
                    room -= value_bytes(chosen[1]) + value_bytes(beside.end)
            if len(found) == SLICE_ENTRIES or room <= 0:
                break
        return OplogSlice(found, index + 1 if index < last else 0)

    def _chosen(self, index: int, entry: Entry, query: Query | None) -> tuple[int, Entry] | None:
        """The entry, or the start of a call whose end is found and which is not found itself."""
        if query is None:
            return index, entry
        if not self._matches(index, entry, query):
            return None
        if not isinstance(entry, End):
            return index, entry
        start = self.entries.one(entry.start_index)
        if start is None or self._matches(entry.start_index, start, query):
            return None
        return entry.start_index, start

    def _matches(self, index: int, entry: Entry, query: Query) -> bool:
        hidden = self._regions.conceals(index, entry)
        return matches(query, OplogRecord(index=index, entry=entry, hidden=hidden))

    def _beside(self, index: int, entry: Entry) -> Beside:
        for distance in BESIDE_ENTRIES:
            match entry:
                case Start():
                    for _, later in self.entries.page(index + 1, distance):
                        if isinstance(later, End) and later.start_index == index:
                            return Beside(end=later)
                case InvocationFinished():
                    first = max(1, index - distance)
                    for _, earlier in reversed(self.entries.page(first, index - first)):
                        if isinstance(earlier, InvocationStarted):
                            return Beside(function=earlier.function)
                case _:
                    break
        return Beside()


def value_bytes(entry: Entry | None) -> int:
    """Of the values that an entry holds."""
    match entry:
        case Start():
            return len(entry.request)
        case End():
            return len(entry.response)
        case InvocationStarted() | PendingInvocation():
            return len(entry.arguments)
        case InvocationFinished():
            return len(entry.outcome.result)
        case _:
            return 0
