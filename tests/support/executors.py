"""Executors of tests: over a store in memory that outlives them, every host call traced.

`opened` runs an executor; the engine stays readable and can be opened again, as a disk can after
the death of a process. `copy_oplog` puts the first entries of a recorded oplog into another engine,
with the rows that the fold gives. `Traces` keeps what each instance asked and was answered.
"""

import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

import trio
from msgspec.structs import replace

from executor import Executor
from executor import opened as opened_module
from executor.host import INTERFACES
from executor.replay.regions import Regions
from executor.wasm.host_function import PENDING, HostFunction, HostInterface
from executor.wasm.instance import Instance
from executor.worker import revision as revision_module
from executor.worker.entries import WorkerEntries
from executor.worker.rows import (
    WorkerRows,
    decode_key_state,
    decode_status,
    has_work,
    key_row,
    read_queue,
    read_status,
    read_worker_id,
    state_row,
    work_row,
)
from executor.worker.status import KeyState, RevertedFold, Status, fold, forgotten, with_cut
from guests import recipes
from oplog.engine import Batch, Engine, Row
from oplog.entry import (
    CancelPendingInvocation,
    Entry,
    InvocationStarted,
    Jump,
    PendingInvocation,
    Revert,
)
from oplog.errors import OplogFullError
from oplog.memory_engine import MemoryEngine
from oplog.payload import stored_references
from oplog.reader import Reader
from oplog.store import Store
from tests.support import programs
from tests.support.engines import DelegatingEngine

TIMEOUT_S = 30
APART_TIMEOUT_S = 120
COMPILED = recipes.GUESTS / "build" / "compiled"
COMPONENT_TABLES = ("components", "component_names")


class LastingEngine(DelegatingEngine):
    """A store in memory that is still there when its executor has closed it."""

    def __init__(self, inner: Engine | None = None, **options: Any) -> None:
        super().__init__(inner or MemoryEngine(), **options)

    def close(self) -> None:
        self.closed = True


class FullEngine(LastingEngine):
    """Has no room for what is written while `full`; a probe finds room once it is not."""

    def __init__(self):
        super().__init__(on_write=self._refused)
        self.full = False
        self.probes = 0

    def _refused(self, batches):
        return [OplogFullError("the disk is full")] * len(batches) if self.full else None

    def probe(self):
        self.probes += 1
        if self.full:
            raise OplogFullError("the disk is full")


@asynccontextmanager
async def opened(engine: Engine, *, host: Any = (), **options: Any) -> AsyncIterator[Executor]:
    """Compiled components are kept with the built guests, for all tests and runs."""
    interfaces = (*INTERFACES, programs.mirror())
    with patch.object(opened_module, "INTERFACES", interfaces):
        async with Executor.open(COMPILED, host=host, store=Store(engine), **options) as shem:
            yield shem


@asynccontextmanager
async def deployed(wasm=programs.RELAY, name="relay", engine=None, **options):
    async with opened(engine or LastingEngine(), **options) as shem:
        await shem.deploy(wasm, name=name)
        yield shem


def kinds(engine, worker):
    return [type(entry) for _, entry in worker_entries(engine, worker)]


def run(test, *arguments):
    """Runs an async test, which must end in time."""

    async def bounded():
        with trio.fail_after(TIMEOUT_S):
            return await test(*arguments)

    return trio.run(bounded)


def run_apart(test, *arguments):
    """As `run`, on a thread of its own: a test that hangs where nothing can be cancelled fails."""
    errors = []

    def apart():
        try:
            run(test, *arguments)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=apart, name="test", daemon=True)
    thread.start()
    thread.join(APART_TIMEOUT_S)
    assert not thread.is_alive(), "the test hangs"
    if errors:
        raise errors[0]


async def until(condition):
    """Waits for something that is only seen in the store."""
    while not condition():  # noqa: ASYNC110
        await trio.sleep(0.001)


def status_of(engine: Engine, worker: str) -> Status | None:
    """What is committed of the worker, if there is one."""
    worker_id = read_worker_id(engine, worker)
    return None if worker_id is None else read_status(engine, worker_id)


async def until_state(engine: Engine, worker: str, state: str) -> None:
    with trio.fail_after(APART_TIMEOUT_S):
        await until(lambda: (found := status_of(engine, worker)) and found.state == state)


def worker_entries(engine: Engine, worker: str) -> list[tuple[int, Entry]]:
    """Every committed entry, large values in place."""
    worker_id = read_worker_id(engine, worker)
    assert worker_id is not None, worker
    return entries_of(engine, worker_id)


def entries_of(engine: Engine, worker_id: bytes) -> list[tuple[int, Entry]]:
    entries = WorkerEntries(Reader(engine), worker_id)
    found: list[tuple[int, Entry]] = []
    while page := entries.page(len(found) + 1):
        found += page
    return found


def folded_rows(worker_id: bytes, entries: list[tuple[int, Entry]]) -> list[Row]:
    """Every row of a worker whose oplog this is, made from nothing but the oplog."""
    rows = WorkerRows(worker_id, Status(), ())
    for index, entry in entries:
        if isinstance(entry, Revert):
            rows.revert(fold_reverted(entries[:index]))
        else:
            rows.apply(index, entry)
    return rows.take(0)


def copy_components(source: Engine, target: Engine) -> None:
    rows = [
        Row(table=table, key=key, value=value)
        for table in COMPONENT_TABLES
        for key, value in source.read_rows(table)
    ]
    assert target.write([Batch(rows=rows)]) == [None]


def copy_oplog(
    source: Engine,
    target: Engine,
    worker: str,
    count: int,
    change: Callable[[list[tuple[int, Entry]]], list[tuple[int, Entry]]] | None = None,
) -> None:
    """The component and the first `count` entries of a worker. `change` may tamper with them."""
    copy_components(source, target)
    worker_id = read_worker_id(source, worker)
    assert worker_id is not None
    if change is not None:
        write_oplog(target, worker_id, change(entries_of(source, worker_id)[:count]))
        return
    entries = source.read_entries(worker_id, 1, count)
    digests = {digest for _, raw in entries for digest in stored_references(raw)}
    batch = Batch(
        entries=[(worker_id, index, raw) for index, raw in entries],
        rows=folded_rows(worker_id, entries_of(source, worker_id)[:count]),
        payloads=[(digest, source.read_payload(digest)) for digest in digests],
    )
    assert target.write([batch]) == [None]


def write_oplog(target: Engine, worker_id: bytes, entries: list[tuple[int, Entry]]) -> None:
    """Entries, renumbered from 1, as one commit with the rows of their fold."""
    store = Store(LastingEngine(target))
    numbered = list(enumerate((entry for _, entry in entries), 1))
    writer = store.writer(worker_id, 0, lambda: folded_rows(worker_id, numbered))
    for _, entry in numbered:
        writer.append(entry)
    errors: list[object] = []
    writer.commit(errors.append)
    store.close()
    assert errors == [None]


class Traces:
    """What each instance asked and was answered, by its session, oldest first."""

    def __init__(self) -> None:
        self.sessions: list[tuple[Any, list[tuple[str, tuple[object, ...], object]]]] = []

    @property
    def calls(self) -> list[list[tuple[str, tuple[object, ...], object]]]:
        return [calls for _, calls in self.sessions]

    def installed(self) -> Any:
        """While it is entered, host functions are traced in executors that open."""
        linked = revision_module.linked_interface

        def traced(table: Any) -> HostInterface:
            interface = linked(table)
            functions = tuple(self._traced(table.name, row) for row in interface.functions)
            return replace(interface, functions=functions)

        return patch.object(revision_module, "linked_interface", traced)

    def _of(self, session: Any) -> list[tuple[str, tuple[object, ...], object]]:
        for known, calls in self.sessions:
            if known is session:
                return calls
        self.sessions.append((session, []))
        return self.sessions[-1][1]

    def _traced(self, interface: str, function: HostFunction) -> HostFunction:
        path = f"{interface}.{function.name}"

        def plain(state: Any, *arguments: object) -> object:
            value = function.call(state, *arguments)
            self._of(state.session).append((path, arguments, value))
            return value

        def waiting(state: Any, pending: Any, *arguments: object) -> object:
            calls = self._of(state.session)
            told = TracedPending(pending, lambda v: calls.append((path, arguments, v)))
            value = function.call(state, told, *arguments)
            if value is not PENDING:
                calls.append((path, arguments, value))
            return value

        return replace(function, call=waiting if function.waits else plain)


class SlowClosing:
    """The lane is busy with something else when the first instance is to be closed."""

    def __init__(self):
        self.begun = trio.Event()
        self.go = threading.Event()

    def installed(self):
        close = Instance.close
        slow = self

        def closed(self, done=None):
            if not slow.begun.is_set():
                slow.begun.set()
                self._lane.post(partial(slow.go.wait, 10))
            close(self, done)

        return patch.object(Instance, "close", closed)


class TracedPending:
    def __init__(self, pending: Any, seen: Callable[[object], None]) -> None:
        self._pending = pending
        self._seen = seen
        self.fail = pending.fail

    def set(self, value: object) -> None:
        self._seen(value)
        self._pending.set(value)


def fold_reverted(history: list[tuple[int, Entry]]) -> Status:
    """The status after a revert, the last entry of the whole oplog."""
    cuts: list[tuple[int, Any]] = []
    for index, entry in history:
        if isinstance(entry, Jump | Revert):
            cuts = with_cut(cuts, index, entry)
    reverted = RevertedFold(cuts)
    for index, entry in history:
        reverted.add(index, entry)
    return reverted.finished(cuts)


def check_rows(engine: Engine, worker_id: bytes) -> Status:
    """Every row of the worker is what a fold over its whole oplog gives; that fold's status."""
    status = Status()
    keys: dict[str, KeyState] = {}
    queue: dict[int, str] = {}
    entries = entries_of(engine, worker_id)
    for index, entry in entries:
        if isinstance(entry, Revert):
            status = fold_reverted(entries[:index])
            current = status.current
            keys |= {} if current is None else {current.key: current}
            continue
        change = fold(status, index, entry)
        if change is not None:
            keys[change.key.key] = change.key
        match entry:
            case PendingInvocation():
                queue[index] = entry.key
            case InvocationStarted() | CancelPendingInvocation():
                queue = {at: key for at, key in queue.items() if key != entry.key}
            case _:
                pass
    checkpoint = read_status(engine, worker_id)
    assert checkpoint is not None
    assert replace(checkpoint, bytes=0) == status
    raw = engine.read_row("workers", worker_id)
    assert raw is not None
    assert decode_status(raw).last_index <= status.last_index, "a checkpoint ahead of its log"
    assert read_queue(engine, worker_id) == sorted(queue.items())
    assert read_worker_id(engine, status.name) == worker_id
    named = [row for row in engine.read_rows("worker_index") if row[1] == worker_id]
    assert named == [(state_row(status.state, status.name), worker_id)]
    works = engine.read_row("worker_index", work_row(worker_id)) is not None
    assert works == has_work(status)
    found = {key: decode_key_state(raw) for key, raw in engine.read_rows("results", worker_id)}
    assert found.keys() <= {key_row(worker_id, key) for key in keys}
    reverted = Regions(status.cuts).reverted
    for key, state in keys.items():
        if forgotten(state, reverted):
            continue  # nobody reads its row, if it has one
        row = found[key_row(worker_id, key)]
        if state is status.current:
            # A running key's attempts and output are in the checkpoint, and come to its row last.
            row = replace(row, attempts=state.attempts, logs=state.logs)
        assert row == state
    return status
