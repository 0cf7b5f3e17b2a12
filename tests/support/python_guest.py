"""A guest in Python, without Wasm: everything between it and the world is the real thing.

A program is a function of a `Guest`, through which it calls the host's functions as a component
does, on a thread of its own. Session, oplog, store, effects and HTTP client are the executor's. So
a program can be run over the first entries of an oplog, as after a crash, as often as one likes.
"""

import random
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple
from unittest.mock import patch

import trio

from executor.durable.call import host_function
from executor.durable.effects import TrioEffects, perform_effect
from executor.durable.inbox import Bell, Inbox
from executor.durable.retry_rules import RetryRules
from executor.durable.session import DurableSession
from executor.durable.session_world import SessionWorld
from executor.host import INTERFACES
from executor.host.connections import Outside
from executor.host.state import HostState
from executor.replay.cursor import Cursor
from executor.replay.regions import Regions
from executor.services.egress import EgressPolicy
from executor.services.files import FileTree
from executor.services.files_nodes import FileLimits
from executor.services.http_client import HttpClient
from executor.services.sockets import Sockets
from executor.sources import SystemSources
from executor.wasm.host_function import PENDING, LeaveGuest, Pending
from executor.wasm.values import Err, Ok
from executor.worker.entries import WorkerEntries
from oplog.codec import encode_value
from oplog.entry import (
    Create,
    Entry,
    Error,
    InvocationFinished,
    InvocationStarted,
    Log,
    Outcome,
    PendingInvocation,
    Raw,
)
from oplog.memory_engine import MemoryEngine
from oplog.reader import Reader
from oplog.store import Store
from tests.support.executors import LastingEngine

WORKER_ID = bytes(range(16))
BEGIN: tuple[Entry, ...] = (
    Create(at=1, name="c/w", component="c"),
    InvocationStarted(at=2, key="k", function="f"),
)
FUNCTIONS = {
    f"{table.name}.{row.name}": host_function(
        table.name, row, table.wit.functions[row.name], table.wit.types
    )
    for table in INTERFACES
    for row in table.functions
}
DROPS = {
    f"{table.name}.{resource}": drop
    for table in INTERFACES
    for resource, drop in table.drops.items()
}
WAIT_S = 30


LOOPBACK = EgressPolicy.of(["127.0.0.1", "::1", "localhost"])
"""Where the servers of tests are."""


class Lost(Exception):
    """The guest was left."""


class Guest:
    """What a program calls; on its own thread."""

    def __init__(self, state: HostState) -> None:
        self.state = state
        self.trace: list[object] = []
        """Whatever the program tells; compared after a crash."""

    def call(self, path: str, *arguments: object) -> Any:
        """Raises: what the call failed with, Lost."""
        function = FUNCTIONS[path]
        try:
            if not function.waits:
                return function.call(self.state, *arguments)
            pending = Pending()
            value = function.call(self.state, pending, *arguments)
            if value is not PENDING:
                return value
            woken = threading.Event()
            if not pending.arm(woken.set):
                assert woken.wait(WAIT_S), f"nothing came of {path}"
            return pending.take()
        except LeaveGuest as leave:
            raise Lost(leave.reason) from None

    def ok(self, path: str, *arguments: object) -> Any:
        result = self.call(path, *arguments)
        assert isinstance(result, Ok), f"{path}: {result}"
        return result.value

    def err(self, path: str, *arguments: object) -> Any:
        result = self.call(path, *arguments)
        assert isinstance(result, Err), f"{path}: {result}"
        return result.value

    def drop(self, resource: str, number: int) -> None:
        try:
            DROPS[resource](self.state, number)
        except LeaveGuest as leave:
            raise Lost(leave.reason) from None

    def tell(self, value: object) -> None:
        self.trace.append(value)


Program = Callable[[Guest], None]


class Run(NamedTuple):
    entries: list[Entry]
    trace: list[object]
    lost: object
    """Why the guest was left before its end, None if it was not."""


class World:
    """What guests run in; on the trio thread."""

    def __init__(self, nursery: trio.Nursery, perform: Any, egress: Any) -> None:
        self.nursery = nursery
        self.egress = egress
        self.bell = Bell()
        self.inbox = Inbox()
        self.http = HttpClient(nursery)
        self.rules = RetryRules()
        self.sockets = Sockets(nursery, self.inbox.post)
        self.effects = TrioEffects(nursery, self.bell, perform)
        nursery.start_soon(self.inbox.run)

    async def run(
        self, program: Program, recorded: list[Entry] | tuple[Entry, ...] = BEGIN, **live: Any
    ) -> Run:
        """Runs a program to its end over what is recorded of it."""
        instance = Instance(self, recorded)
        return await instance.run(program, **live)


@asynccontextmanager
async def world(perform: Any = perform_effect, egress: Any = None):
    async with trio.open_nursery() as nursery:
        made = World(nursery, perform, egress or LOOPBACK)
        try:
            yield made
        finally:
            made.http.close()
            made.inbox.stop()
            nursery.cancel_scope.cancel()
    made.inbox.close()
    made.bell.close()


class Listener:
    def __init__(self) -> None:
        self.state: HostState

    def on_live(self) -> None:
        state = self.state
        state.clock.anchor(state.sources.wall_ns(), 0, state.sources.monotonic_ns())

    def on_target(self) -> None:
        pass

    def on_full(self) -> None:
        pass

    def on_output(self, line: object) -> None:
        pass


class Instance:
    """One instance of a guest, over a store of its own."""

    def __init__(self, around: World, recorded: list[Entry] | tuple[Entry, ...]) -> None:
        self.world = around
        engine = MemoryEngine()
        self.store = Store(LastingEngine(engine))
        self.entries = WorkerEntries(Reader(engine), WORKER_ID)
        write(self.store, recorded)
        self.writer = self.store.writer(WORKER_ID, len(recorded), None)
        self.attempts = Counter(e.retry_from for e in recorded if isinstance(e, Error))
        listener = Listener()
        sources = SystemSources()
        self.session = DurableSession(
            worker="c/w",
            writer=self.writer,
            cursor=Cursor(self.entries.replayed, first=2, target=len(recorded), regions=Regions()),
            world=SessionWorld(
                effects=around.effects,
                listener=listener,
                sources=sources,
                append=self.append,
                attempts=self.attempts.__getitem__,
                defer=lambda call: call(),
                post=around.inbox.post,
            ),
        )
        self.session.retrying.rules = around.rules
        self.state = HostState(
            session=self.session, sources=sources, files=FileTree(FileLimits(), created_ns=0)
        )
        self.state.outside = Outside(
            http=around.http,
            sockets=around.sockets,
            threads=trio.CapacityLimiter(1),
            post=around.inbox.post,
            read_frame=self.entries.frame,
        )
        self.state.egress = around.egress
        listener.state = self.state
        self.guest = Guest(self.state)

    def append(self, entry: Entry) -> int:
        if isinstance(entry, Error):
            self.attempts[entry.retry_from] += 1
        return self.writer.append(entry)

    async def run(self, program: Program, *, writes_awaited_s: float = 5) -> Run:
        session = self.session
        session.next_invocation()
        lost: object = None
        try:
            await trio.to_thread.run_sync(program, self.guest)
            if session.live:
                await session.deferred.writes_ended()
            self._finish()
        except Lost as left:
            lost = left.args[0]
        finally:
            with trio.CancelScope(shield=True):
                await session.effects.close(writes_awaited_s=writes_awaited_s)
                with trio.move_on_after(writes_awaited_s):
                    await self.state.connections.sent()
                self.state.connections.close()
                await session.commit()
                await trio.to_thread.run_sync(self.store.close)
        return Run(self._all_entries(), self.guest.trace, lost)

    def _finish(self) -> None:
        outcome = Outcome(result=Raw(encode_value(len(self.guest.trace))))
        if not self.session.match_outcome(outcome):
            at = self.state.sources.wall_ns()
            self.writer.append(InvocationFinished(at=at, outcome=outcome))

    def _all_entries(self) -> list[Entry]:
        found: list[Entry] = []
        while page := self.entries.page(len(found) + 1):
            found += [entry for _, entry in page]
        return found


def write(store: Store, recorded: list[Entry] | tuple[Entry, ...]) -> None:
    writer = store.writer(WORKER_ID, 0, None)
    for entry in recorded:
        writer.append(entry)
    done = threading.Event()
    writer.commit(lambda _error: done.set())
    assert done.wait(WAIT_S)


# -- what programs do, and what is done to them ----------------------------------------------------


def say(guest: Guest, stream: str, text: bytes) -> None:
    """Writes to standard output or error."""
    out = guest.call(f"wasi:cli/{stream}.get-{stream}")
    guest.ok("wasi:io/streams.[method]output-stream.blocking-write-and-flush", out, text)
    guest.drop("wasi:io/streams.output-stream", out)


def written(entries: list[Entry], level: str) -> list[str]:
    return [entry.text for entry in entries if isinstance(entry, Log) and entry.level == level]


def accepting(program: Program, seed: int) -> Program:
    """The program, while invocations are accepted at any moment, in replay as well."""
    chance = random.Random(seed)

    def busy(guest: Guest) -> None:
        call = guest.call

        def call_later(path: str, *arguments: object) -> Any:
            for _ in range(chance.choice([0, 0, 1, 2])):
                key = f"{seed}-{chance.random()}"
                guest.state.session.append(PendingInvocation(at=1, key=key, function="f"))
            return call(path, *arguments)

        with patch.object(guest, "call", call_later):
            program(guest)

    return busy
