"""The executor under test: what it orders, commits and performs is seen, and it can be killed.

A kill leaves what a dead process leaves: the transactions that returned. From then on no
transaction is written and no effect leaves; the executor is then closed and another one opened on
the same engine.
"""

import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

import trio

from executor import Executor, Transient, host_function
from executor.worker.rows import delete_rows, read_status, read_worker_id
from guests import recipes
from oplog.engine import Batch
from oplog.entry import Create, Entry
from oplog.errors import OplogError
from oplog.memory_engine import MemoryEngine
from oplog.store import Store, Writer
from tests.conformance.model.session import TYPES
from tests.conformance.model.world import Answer, Effect, Refusal, World
from tests.support.engines import DelegatingEngine
from tests.support.executors import COMPILED, write_oplog
from tests.support.sources import FakeSources

OUTSIDE: Final = "demo:stepper/outside"
COMPONENT: Final = "stepper"


class KilledError(Exception):
    """The process is dead."""


@dataclass(slots=True)
class Ordered:
    """An entry that was appended, and how much of its worker was durable then."""

    entry: Entry
    committed: int


@dataclass(slots=True)
class Deed:
    """One effect that the world was asked for, and what became of it."""

    effect: Effect
    committed: int
    """How many entries of the worker were durable when it began."""
    ordered: int
    """How many there were."""
    state: str = "waits"
    """`waits`, `answered`, or `abandoned` by an instance that was left."""


@dataclass(slots=True)
class Outside:
    """One worker's outside: it answers at once, or holds a call until it is let go."""

    world: World = field(default_factory=World)
    deeds: list[Deed] = field(default_factory=list)
    hold_at: int = 0
    """Hold the call that is the n-th deed; 0 is none."""
    held: Deed | None = None
    go: trio.Event = field(default_factory=trio.Event)
    on_hold: Callable[[], None] = lambda: None

    async def wait(self, deed: Deed) -> None:
        """Waits to be let go, if this deed is to be held."""
        if len(self.deeds) != self.hold_at:
            return
        self.held, self.go = deed, trio.Event()
        self.on_hold()
        try:
            await self.go.wait()
        finally:
            self.held = None

    def release(self) -> None:
        self.held = None
        self.go.set()


class Fuse:
    """Where the process dies: at the n-th append, transaction or effect."""

    def __init__(self, kind: str = "", number: int = 0) -> None:
        self.kind = kind
        self.left = number
        self.dead = False
        self._lock = threading.Lock()
        self._told: Callable[[], None] = lambda: None

    def arm(self, scope: trio.CancelScope) -> None:
        """Has the scope cancelled when it blows. For the trio thread."""
        token = trio.lowlevel.current_trio_token()

        def tell() -> None:
            with suppress(trio.RunFinishedError):
                token.run_sync_soon(scope.cancel)

        with self._lock:
            self._told = tell
            if self.dead:
                scope.cancel()

    def reach(self, kind: str) -> None:
        if kind == self.kind:
            with self._lock:
                self.left -= 1
                if self.left == 0:
                    self.dead = True
                    self._told()

    def blow(self) -> None:
        """The process dies here."""
        with self._lock:
            self.dead = True
            self._told()


class MortalEngine(DelegatingEngine):
    """Writes as long as its process lives."""

    def __init__(self) -> None:
        super().__init__(MemoryEngine())
        self.fuse = Fuse()

    def write(self, batches: Sequence[Batch]) -> list[OplogError | None]:
        if self.fuse.dead:
            raise OplogError("the process is dead")
        written = self.inner.write(batches)
        self.fuse.reach("commit")
        if self.fuse.dead:
            raise OplogError("the process is dead")
        return written

    def close(self) -> None:
        """Outlives its executor."""


class TickingSources(FakeSources):
    """Every reading of the wall clock is another one; a sleep is over at once."""

    def wall_ns(self) -> int:
        self.wall += 1_000
        return int(self.wall)


class Subject:
    """One store, and the executors that run it one after another."""

    def __init__(self, seed: int) -> None:
        self.engine = MortalEngine()
        self.sources = TickingSources(seed=seed)
        self.ordered: dict[bytes, list[Ordered]] = {}
        self.born: dict[str, bytes] = {}
        """The latest worker of each name, also one that was never committed."""
        self.outsides: dict[str, Outside] = {}
        """By worker's name."""
        self.reports: list[str] = []

    @property
    def fuse(self) -> Fuse:
        return self.engine.fuse

    @asynccontextmanager
    async def opened(self, fuse: Fuse) -> AsyncIterator[Executor]:
        """An executor until the block ends or the fuse blows; then it raises KilledError, after
        all that it did has come to rest.
        """
        self.engine.fuse = fuse
        store = Store(self.engine)
        store.writer_class = self.writer_class()
        try:
            async with Executor.open(
                COMPILED,
                recover="all",
                host=self.functions(),
                store=store,
                sources=self.sources,
                report=self.reports.append,
            ) as shem:
                with trio.CancelScope() as scope:
                    fuse.arm(scope)
                    yield shem
                if fuse.dead:
                    raise KilledError
        finally:
            fuse.blow()

    async def deploy(self) -> None:
        """The guest is there from now on."""
        async with self.opened(Fuse()) as shem:
            await shem.deploy(recipes.build("stepper").read_bytes(), name=COMPONENT)

    def committed(self, worker: str) -> int:
        """How many entries of the worker are durable."""
        worker_id = read_worker_id(self.engine, worker)
        return 0 if worker_id is None else self.engine.last_index(worker_id)

    def rewrite(self, worker: str, count: int) -> None:
        """Has the worker's first `count` entries be durable, as another death might have left it:
        more than were, or fewer. For a store that nobody runs.
        """
        worker_id = self.born[worker]
        engine = self.engine.inner
        status = read_status(engine, worker_id)
        if status is not None:
            rows = delete_rows(engine, worker_id, status)
            assert engine.write([Batch(rows=rows, deletes=[worker_id])]) == [None]
        entries = [ordered.entry for ordered in self.ordered[worker_id][:count]]
        write_oplog(engine, worker_id, list(enumerate(entries, 1)))

    def writer_class(self) -> type[Writer]:
        """Writers that note what they order, and reach the fuse."""
        ordered_by, born = self.ordered, self.born
        fuse = self.fuse

        class SeenWriter(Writer):
            def append(self, entry: Entry) -> int:
                with self.lock:
                    committed = self.committed_index
                    index = super().append(entry)
                    if fuse.dead:
                        return index
                    if isinstance(entry, Create):
                        born[entry.name] = self.worker_id
                    ordered = ordered_by.setdefault(self.worker_id, [])
                    assert len(ordered) == index - 1
                    ordered.append(Ordered(entry, committed))
                    fuse.reach("append")
                return index

        return SeenWriter

    def functions(self) -> list[Any]:
        """The embedder's functions: each asks the outside of the worker that calls."""
        return [self.function(name, kind) for name, kind in TYPES.items()]

    def function(self, name: str, kind: Any) -> Any:
        @host_function(OUTSIDE, f"{name}: func(n: u32) -> u64", type=kind)
        async def ask(call: Any, n: int) -> int:
            fuse = self.fuse
            fuse.reach("before-effect")
            if fuse.dead:
                await trio.sleep_forever()
            outside = self.outsides[call.worker]
            effect = Effect(name, n, call.key if kind == "write-remote" else None)
            ordered = self.ordered[self.born[call.worker]]
            deed = Deed(effect, self.committed(call.worker), len(ordered))
            outside.deeds.append(deed)
            said = outside.world.perform(effect)
            try:
                await outside.wait(deed)
            except trio.Cancelled:
                if not fuse.dead:
                    deed.state = "abandoned"
                raise
            deed.state = "answered"
            fuse.reach("after-effect")
            if fuse.dead:
                await trio.sleep_forever()
            match said:
                case Answer(value):
                    return value
                case Refusal(True, text):
                    raise Transient(text)
                case Refusal(_, text):
                    raise ValueError(text)

        return ask
