"""What an executor consists of from its opening to its closing, and who may use it."""

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, Self, TypeVar

import trio

from executor.durable.effects import TrioEffects, perform_effect
from executor.durable.inbox import Bell, Inbox
from executor.durable.open_effects import WRITES_AWAITED_MAX_S
from executor.errors import InvocationInterrupted, StoreError, UsageError
from executor.host import INTERFACES
from executor.host.embedder import EmbedderFunction
from executor.services.http_client import HttpClient
from executor.services.sockets import Sockets
from executor.wasm.engine import Engine as WasmEngine
from executor.wasm.lane import Lanes
from executor.worker.memory import bearable_bytes, relieve_memory
from executor.worker.opening import open_store
from executor.worker.reader import StoreReader
from executor.worker.revision import Revisions
from executor.worker.worker import WorkerServices
from executor.worker.workers import Workers
from executor.world import Running, World, worker_services
from oplog.store import Store

Parameters = ParamSpec("Parameters")
Answer = TypeVar("Answer")


class Opened:
    """Made by `opened`, for the run of trio that it is made in."""

    def __init__(self, path: Path, services: WorkerServices) -> None:
        self.services = services
        self.reader = StoreReader(services.store.engine)
        self.workers = Workers(services, self.reader)
        self.closed = False
        self._path = path
        self._run = current_run()
        self._operations: set[trio.CancelScope] = set()
        """What callers wait for now."""
        self._ended = trio.Event()

    def asked(self) -> Self:
        """Itself, for an operation that somebody asks for.

        Raises: UsageError unless the caller is in the run of trio that opened it; StoreError once
        it is closed.
        """
        if current_run() is not self._run:
            raise UsageError(
                "an executor is used in another run of trio than the one that opened it",
                where=str(self._path),
                hint="from another thread call it by `trio.from_thread.run(…, trio_token=…)`",
            )
        if self.closed:
            raise StoreError(
                "the executor is closed",
                where=str(self._path),
                hint="use it in the block of `Executor.open`, or open the store again",
            )
        return self

    @contextmanager
    def operation(self) -> Iterator[None]:
        """The block is what a caller waits for. Raises: as `asked`; InvocationInterrupted if the
        executor was closed before it had ended.
        """
        self.asked()
        with trio.CancelScope() as scope:
            self._operations.add(scope)
            try:
                yield
            finally:
                self._operations.discard(scope)
                self._ended.set()
        if scope.cancelled_caught:
            raise InvocationInterrupted(
                "the executor was closed while its caller waited",
                where=str(self._path),
                hint="what was accepted goes on when the store is opened again",
            )

    async def close(self) -> None:
        """Takes no operation any more, and ends those that are under way, while everything that
        they still use is there.
        """
        self.closed = True
        while self._operations:
            for scope in self._operations:
                scope.cancel()
            self._ended = trio.Event()
            await self._ended.wait()


def operation(
    method: Callable[Parameters, Awaitable[Answer]],
) -> Callable[Parameters, Coroutine[Any, Any, Answer]]:
    """A method of the executor that may wait: its caller hears if it is closed meanwhile."""

    @wraps(method)
    async def asked(*arguments: Parameters.args, **named: Parameters.kwargs) -> Answer:
        executor: Any = arguments[0]
        with executor.parts.operation():
            return await method(*arguments, **named)

    return asked


def current_run() -> trio.lowlevel.TrioToken:
    """The run of trio that the caller is in. Raises: UsageError if it is in none."""
    try:
        return trio.lowlevel.current_trio_token()
    except RuntimeError as error:
        raise UsageError(
            "an executor is used outside of trio",
            where="Executor",
            hint="run what uses it by `trio.run`; asyncio does not run it",
        ) from error


@asynccontextmanager
async def opened(
    directory: Path, host: Sequence[EmbedderFunction], world: World
) -> AsyncIterator[Opened]:
    """Opens or creates the store and runs what an executor has, until the block ends: see
    `Executor.open`. Raises: StoreError.
    """
    wasm = WasmEngine.open()
    failure: Exception | None = None
    async with AsyncExitStack() as ends:  # threads of store and lanes call inbox and bell
        inbox, bell = Inbox(), Bell()
        ends.callback(inbox.close)
        ends.callback(bell.close)
        lanes = Lanes(wasm.increment_epoch)
        ends.callback(lanes.close)
        store = world.get("store") or open_store(directory)
        ends.push_async_callback(close_store, store, world.get("before_close"))
        nursery = await ends.enter_async_context(inbox.served())
        effects = TrioEffects(nursery, bell, world.get("perform") or perform_effect)
        revisions = Revisions(directory, store.engine, INTERFACES, host)
        http = HttpClient(nursery)
        sockets = Sockets(nursery, inbox.post)
        running = Running(lanes, effects, inbox, http, sockets, nursery)
        services = worker_services(store, revisions, running, world)
        parts = Opened(directory, services)
        most_bytes = world.get("memory_bytes_max") or bearable_bytes()
        nursery.start_soon(relieve_memory, most_bytes, parts.workers.unload_idle)
        nursery.start_soon(services.wakeups.run)
        nursery.start_soon(services.stores.blobs.garbage.run)
        awaited_s = 0.0
        try:
            yield parts
            awaited_s = WRITES_AWAITED_MAX_S
        except Exception as error:
            failure = error  # raised bare, outside of the nursery's group
        finally:
            with trio.CancelScope(shield=True):
                await parts.workers.close(writes_awaited_s=awaited_s)
                await parts.close()
            http.close()
            nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure


async def close_store(store: Store, before_close: Callable[[], None] | None) -> None:
    """Also in a scope that is cancelled, and whatever `before_close` raises."""
    try:
        if before_close is not None:
            before_close()
    finally:
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(store.close)
