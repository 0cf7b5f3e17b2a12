"""An executor and a reader without components: what the command line calls, answered by script.

One `FakeStore` is the durable part; executors and readers are opened on it as the real ones are on
a folder. Nothing is run: an invocation answers what `outcomes` says for its key.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import trio

from executor.errors import ComponentNotFound, ShemError, WorkerDeleted, WorkerNotFound
from executor.records import (
    Accepted,
    ComponentRecord,
    ComponentSummary,
    Deployed,
    Done,
    Invocation,
    OplogRecord,
    Rebuild,
    WorkerFile,
    WorkerPage,
    WorkerRecord,
    WorkerSummary,
)
from executor.worker.search import matches, parse
from oplog.entry import Entry

GENERATED_KEY = "generated-key"


class FakeStore:
    """Everything that was asked for, and everything that is to be answered."""

    def __init__(self) -> None:
        self.calls: list[tuple] = []
        self.opened: list[tuple[Path, dict[str, object]]] = []
        self.components: dict[str, ComponentRecord] = {}
        self.workers: dict[str, WorkerRecord] = {}
        self.oplogs: dict[str, list[OplogRecord]] = {}
        self.outcomes: dict[str, Invocation | ShemError | BaseException] = {}
        self.refusal: ShemError | None = None
        self.rebuild: Rebuild | None = None
        self.files: dict[str, WorkerFile] = {}
        self.while_waiting: Callable[[], Awaitable[None]] | None = None
        self.known_keys: set[str] = set()

    def append(self, worker: str, entry: Entry, *, hidden: bool = False) -> None:
        records = self.oplogs.setdefault(worker, [])
        records.append(OplogRecord(index=len(records) + 1, entry=entry, hidden=hidden))

    def open_executor(self, path: Path, **options: object):
        self.opened.append((path, options))
        return opened(FakeExecutor(self))

    def open_reader(self, path: Path) -> "FakeReader":
        return FakeReader(self, path)

    def read_worker(self, name: str) -> WorkerRecord:
        if name not in self.workers:
            raise WorkerNotFound(f"no worker {name!r}", where="store", hint="see `shem workers`")
        found = self.workers[name]
        return msgspec.structs.replace(found, entries=len(self.oplogs.get(name, ())))


@asynccontextmanager
async def opened(executor: "FakeExecutor") -> AsyncIterator["FakeExecutor"]:
    """Like the real one, it wraps the errors of its block in a group."""
    async with trio.open_nursery():
        yield executor


class FakeExecutor:
    def __init__(self, store: FakeStore) -> None:
        self.store = store

    async def deploy(self, wasm: bytes, *, progress=None, **options: object) -> Deployed:
        self.store.calls.append(("deploy", wasm, options))
        if self.store.refusal is not None:
            raise self.store.refusal
        if progress is not None:
            progress("compiling")
        return Deployed(
            component=str(options["name"]),
            id="8d2f9c1e-0000-4000-8000-000000000001",
            revision=0,
            digest="ab" * 32,
            imports=("wasi:clocks/wall-clock@0.2.0",),
            exports=("demo:counter/api.{add}: func(n: u32) -> u32",),
        )

    async def worker(self, name: str) -> WorkerRecord:
        return self.store.read_worker(name)

    async def submit(self, worker, function, arguments, *, key=None, run=True, **new) -> Accepted:
        given = new["env"], new["args"], new["allow_net"]
        self.store.calls.append(("submit", worker, function, arguments, key, *given, run))
        if self.store.refusal is not None:
            raise self.store.refusal
        return Accepted(
            worker=worker,
            function=f"demo:counter/api.{{{function}}}",
            key=key or GENERATED_KEY,
            deduplicated=key in self.store.known_keys,
        )

    async def wait(self, worker: str, key: str, *, timeout_s: float | None = None) -> Invocation:
        self.store.calls.append(("wait", worker, key, timeout_s))
        if self.store.while_waiting is not None:
            await self.store.while_waiting()
        outcome = self.store.outcomes[key]
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    async def oplog(self, worker: str, first: int = 1, limit: int | None = None):
        self.store.read_worker(worker)
        for record in self.store.oplogs.get(worker, [])[first - 1 :][:limit]:
            yield record

    async def invocation(self, worker: str, key: str) -> Invocation:
        self.store.calls.append(("invocation", worker, key))
        outcome = self.store.outcomes[key]
        if isinstance(outcome, BaseException):
            return Invocation(
                worker=worker, function="f", key=key, status="pending", attempts=1, stdout="begun\n"
            )
        return outcome

    async def crash(self, name: str, *, go_on: bool = True) -> Rebuild:
        return self.rebuilt("crash", name, go_on)

    async def replay(self, name: str, to: int | None = None) -> Rebuild:
        return self.rebuilt("replay", name, to)

    def rebuilt(self, *call: object) -> Rebuild:
        self.store.calls.append(call)
        self.store.read_worker(str(call[1]))
        assert self.store.rebuild is not None
        return self.store.rebuild

    async def resolve(self, name, start, choice, value=None, *, until_ended=False) -> Done:
        self.store.calls.append(("resolve", name, start, choice, value))
        return Done(worker=name, done=True, status="running")

    async def revert(self, name, *, to=None, last=None, go_on=True) -> Done:
        self.store.calls.append(("revert", name, to, last, go_on))
        self.store.read_worker(name)
        return Done(worker=name, done=True, status="idle")

    async def files(self, name: str, path: str = "/") -> WorkerFile:
        self.store.calls.append(("files", name, path))
        self.store.read_worker(name)
        return self.store.files[path]

    async def interrupt(self, name: str) -> Done:
        return self.done("interrupt", name, status="interrupted")

    async def resume(self, name: str, *, until_ended: bool = False) -> Done:
        return self.done("resume", name, until_ended, status="idle")

    async def cancel(self, name: str, key: str) -> Done:
        return self.done("cancel", name, key, status="running")

    def done(self, *call: object, status: str) -> Done:
        self.store.calls.append(call)
        self.store.read_worker(str(call[1]))
        return Done(worker=str(call[1]), done=True, status=status)

    async def delete(self, name: str) -> Done:
        self.store.calls.append(("delete", name))
        self.store.read_worker(name)
        return Done(worker=name, done=True, status="deleted")

    async def run(self, *, until_idle: bool = False) -> None:
        self.store.calls.append(("run", until_idle))


class FakeReader:
    def __init__(self, store: FakeStore, path: Path) -> None:
        self.store = store
        self.path = path
        self.closed = False

    def close(self) -> None:
        self.closed = True

    def components(self) -> tuple[ComponentSummary, ...]:
        return tuple(
            ComponentSummary(
                component=found.component,
                id=found.id,
                revision=found.revisions[-1].revision,
                workers=sum(w.component == found.component for w in self.store.workers.values()),
            )
            for found in self.store.components.values()
        )

    def component(self, name: str) -> ComponentRecord:
        if name not in self.store.components:
            raise ComponentNotFound(f"no component {name!r}")
        return self.store.components[name]

    def workers(self, component=None, *, status=None, limit=50, cursor=None) -> WorkerPage:
        self.store.calls.append(("workers", component, status, limit, cursor))
        found = tuple(
            WorkerSummary(
                worker=worker.worker,
                component=worker.component,
                revision=worker.revision,
                status=worker.status,
                pending=len(worker.pending),
                entries=worker.entries,
                created_at=worker.created_at,
                last_error=worker.last_error,
            )
            for worker in self.store.workers.values()
            if component in (None, worker.component) and status in (None, worker.status)
        )
        return WorkerPage(workers=found[:limit], cursor="next" if len(found) > limit else None)

    def worker(self, name: str) -> WorkerRecord:
        return self.store.read_worker(name)

    def oplog(self, worker, first=1, limit=None, *, search=None) -> Iterator[OplogRecord]:
        self.store.read_worker(worker)
        found = self.store.oplogs.get(worker, [])[first - 1 :]
        query = None if search is None else parse(search)
        yield from [item for item in found if query is None or matches(query, item)][:limit]

    def follow_oplog(self, worker, first=1, *, search=None, wait) -> Iterator[OplogRecord]:
        while worker in self.store.workers:
            for record in self.oplog(worker, first, search=search):
                first = record.index + 1
                yield record
            wait()
        raise WorkerDeleted("the worker was deleted", where=worker)
