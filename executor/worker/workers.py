"""The workers of one executor: found by name, created, taken up, deleted.

Only workers that somebody named or that have work are in memory; everything else is a row.
"""

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from operator import itemgetter
from typing import Final
from weakref import WeakValueDictionary

import trio

from executor.durable.open_effects import WRITES_AWAITED_MAX_S
from executor.errors import (
    AlreadyExists,
    HostBindingError,
    ShemError,
    StoreError,
    WorkerDeleted,
)
from executor.records import Done, NewWorker
from executor.services.components import check_surroundings, read_component, read_revision
from executor.services.egress import recorded_rules
from executor.wasm.types import FuncType
from executor.worker.commits import store_errors, submit
from executor.worker.loop import InvocationLoop
from executor.worker.reader import StoreReader, worker_parts
from executor.worker.rows import delete_rows, read_status, read_worker_id, unknown_worker
from executor.worker.status import Status
from executor.worker.worker import Worker, WorkerServices
from oplog.engine import Batch
from oplog.entry import Create

NS_PER_S: Final = 1_000_000_000
TAKEN_UP_AT_ONCE: Final = 1_000
"""Rows of the index that are read at once."""


class Workers:
    """All methods are for the trio thread."""

    def __init__(self, services: WorkerServices, reader: StoreReader) -> None:
        self._services = services
        self._reader = reader
        self._loops: WeakValueDictionary[str, InvocationLoop] = WeakValueDictionary()
        """Those that run or that somebody waits for; what is idle and unloaded is only a row."""
        self._runs_all = False
        services.wakeups.wake = self._wake
        self._closing = False
        self._leaving: set[str] = set()
        """Names of workers that are being deleted."""

    def exports(self, name: str) -> Mapping[str, FuncType]:
        """The exported functions of the worker's revision, the latest one if it is a new worker.

        Raises: UsageError, ComponentNotFound, StoreError.
        """
        component, _ = worker_parts(name)
        loop = self._loops.get(name)
        with store_errors(name):
            found = None if loop is not None else self._read(name)
        if loop is not None:
            revision = loop.worker.status.revision
        elif found is not None:
            revision = found[1].revision
        else:
            revision = read_component(self._services.store.engine, component).revision
        return self._reader.exports(component, revision)

    async def named(self, name: str, new: NewWorker) -> InvocationLoop:
        """The worker of that name, created if there is none (durable with its first commit).

        Raises: AlreadyExists if it exists with another environment, other arguments or rules,
        UsageError, ComponentNotFound, StoreError.
        """
        loop = self._known(name)
        env, args, allow_net = new.get("env"), new.get("args"), new.get("allow_net")
        rules = recorded_rules(allow_net or ())
        if loop is None:
            return self._create(name, env or {}, tuple(args or ()), rules)
        status = loop.worker.status
        if env is not None and env != status.env:
            raise _exists_with(name, "another environment", "the environment")
        if args is not None and tuple(args) != status.args:
            raise _exists_with(name, "other command arguments", "the command arguments")
        if allow_net is not None and rules != status.allow_net:
            raise _exists_with(name, "other rules of what it may reach", "--allow-net")
        return loop

    async def loop(self, name: str) -> InvocationLoop:
        """Raises: WorkerNotFound, WorkerDeleted, StoreError."""
        loop = self._known(name)
        if loop is None:
            raise unknown_worker(self._services.store.engine, name)
        return loop

    async def stopped(self, name: str) -> InvocationLoop:
        """The worker with no instance, and all that was appended committed, until it is awaited
        again. Raises: WorkerNotFound, StoreError.
        """
        loop = await self.loop(name)
        worker = loop.worker
        if isinstance(worker.trouble, StoreError):
            raise worker.trouble
        await loop.stop(writes_awaited_s=WRITES_AWAITED_MAX_S)
        while worker.unsaved or loop.running:
            await worker.commit()
            await loop.stop(writes_awaited_s=WRITES_AWAITED_MAX_S)
        return loop

    async def existing(self, name: str) -> Worker:
        """Raises: WorkerNotFound."""
        loop = await self.loop(name)
        loop.start()
        return loop.worker

    async def run_until_rest(self, name: str) -> None:
        """Runs the worker until it has nothing to do now. Raises: WorkerNotFound, StoreError."""
        loop = await self.loop(name)
        loop.start()
        while runs_now(loop):
            await loop.worker.wait_news()

    def take_up(self, name: str) -> None:
        """Starts the worker, if there is one and it has work."""
        loop = self._known(name)
        if loop is not None:
            loop.start()

    def is_loaded(self, name: str) -> bool:
        loop = self._loops.get(name)
        return loop is not None and loop.loaded

    def unload_idle(self) -> int:
        """Gives up instances that have been idle longest: a quarter of them, at least one if there
        is any. How many these are; they are left a moment later.
        """
        idle = [(loop.idle_since, loop) for loop in self._loops.values()]
        longest = sorted(
            ((since, loop) for since, loop in idle if since is not None), key=itemgetter(0)
        )
        given_up = longest[: -(-len(longest) // 4)]
        for _, loop in given_up:
            loop.unload()
        return len(given_up)

    def _known(self, name: str) -> InvocationLoop | None:
        if name in self._leaving:
            raise WorkerDeleted("the worker is being deleted", where=name, hint="try again")
        loop = self._loops.get(name)
        if loop is not None and not loop.worker.deleted:
            if isinstance(loop.worker.trouble, HostBindingError) and not loop.running:
                loop.worker.trouble = None  # what could not be imported may be there by now
            return loop
        with store_errors(name):
            found = self._read(name)
            return None if found is None else self._hold(Worker(self._services, *found))

    def _read(self, name: str) -> tuple[bytes, Status] | None:
        """What is committed of the worker. Raises: OplogCorruptError."""
        engine = self._services.store.engine
        worker_id = read_worker_id(engine, name)
        status = None if worker_id is None else read_status(engine, worker_id)
        return None if worker_id is None or status is None else (worker_id, status)

    def _create(
        self, name: str, env: dict[str, str], args: tuple[str, ...], allow_net: tuple[str, ...]
    ) -> InvocationLoop:
        check_surroundings(name, env, args)
        engine = self._services.store.engine
        component = read_component(engine, worker_parts(name)[0])
        revision = read_revision(engine, component.component, component.revision)
        worker = Worker(
            self._services,
            self._services.sources.random_id(),
            Status(name=name),
        )
        create = Create(
            at=self._services.sources.wall_ns(),
            name=name,
            component=component.component,
            component_id=component.id,
            revision=component.revision,
            env=env,
            args=args,
            config=revision.config,
            limits=revision.limits,
            retry=revision.retry,
            allow_net=allow_net,
            retry_rules=revision.retry_rules,
        )
        with store_errors(name):
            worker.create(create)
        return self._hold(worker)

    def _hold(self, worker: Worker) -> InvocationLoop:
        loop = InvocationLoop(worker, closed=self._closing)
        worker.loop = loop
        self._loops[worker.name] = loop
        return loop

    # -- all of them ---------------------------------------------------------------------------

    async def take_up_all(self) -> None:
        """Starts every worker with pending work, from the index, and wakes from here on every one
        that is due; a bad one is reported. Others get their turn in between, however many there
        are.
        """
        self._runs_all = True
        self._services.wakeups.start_over()
        engine = self._services.store.engine
        after: bytes | None = None
        while page := await trio.to_thread.run_sync(
            engine.read_rows, "worker_index", b"w", after, TAKEN_UP_AT_ONCE
        ):
            for key, _ in page:
                self._take_up(key[1:])
                await trio.lowlevel.checkpoint()
            after = page[-1][0]

    def _take_up(self, worker_id: bytes, *, only_named: bool = False) -> None:
        try:
            status = read_status(self._services.store.engine, worker_id)
            if status is not None and (not only_named or status.name in self._loops):
                self.take_up(status.name)
        except WorkerDeleted:
            pass  # it will have no work, or its deletion fails and takes it up
        except Exception as error:
            self._services.report(f"worker {worker_id.hex()} is skipped: {error}")

    def _wake(self, worker_id: bytes) -> None:
        """A suspended worker is due: it runs if this process runs all, or somebody named it."""
        self._take_up(worker_id, only_named=not self._runs_all)

    def troubles(self) -> list[ShemError]:
        """Why workers with work stand still."""
        loops = list(self._loops.values())
        return [loop.worker.trouble for loop in loops if loop.worker.trouble is not None]

    async def wait_idle(self) -> None:
        """Returns when no worker has anything to run now, and every outcome is committed."""
        while True:
            loops = list(self._loops.values())
            busy = [loop.worker for loop in loops if runs_now(loop)]
            if busy:
                await busy[0].wait_news()
                continue
            unsaved = [loop.worker for loop in loops if loop.worker.unsaved]
            if not unsaved:
                return
            with suppress(StoreError):  # the worker's own loop meets the same error
                await unsaved[0].commit()

    async def delete(self, name: str) -> Done:
        """Interrupts and removes a worker; who names it meanwhile is refused. Durable on return.

        Raises: WorkerNotFound, WorkerDeleted, StoreError.
        """
        loop = await self.loop(name)
        worker = loop.worker
        with worker.writer.lock:
            worker.deleted = True
        self._leaving.add(name)
        try:
            with trio.CancelScope(shield=True):  # a commit under way cannot be called back
                await self._remove(loop)
            worker.gone = True
        finally:
            self._leaving.discard(name)
            if not worker.gone:
                worker.deleted = False
                loop.take_up_again()
        self._loops.pop(name, None)
        worker.notify()
        return Done(worker=name, done=True, status="deleted")

    async def _remove(self, loop: InvocationLoop) -> None:
        """Ends the loop and deletes what is committed of its worker, and what still would be."""
        worker = loop.worker
        engine = self._services.store.engine
        await loop.stop(writes_awaited_s=0)
        if worker.writer.failed is None:
            await worker.commit()
        committed = read_status(engine, worker.id)
        if committed is not None:
            rows = await trio.to_thread.run_sync(delete_rows, engine, worker.id, committed)
            batch = Batch(rows=tuple(rows), deletes=(worker.id,))
            await submit(self._services.store, batch, worker.name)
            self._services.stores.promises.announce(rows)

    async def close(self, *, writes_awaited_s: float) -> None:
        """Loses every instance. Remote writes under way are awaited for a while, so that they need
        not be repeated; what is buffered is committed. Who is woken or named meanwhile is not run.
        """
        self._closing = True
        async with trio.open_nursery() as nursery:
            for loop in list(self._loops.values()):
                nursery.start_soon(partial(loop.close, writes_awaited_s=writes_awaited_s))


def runs_now(loop: InvocationLoop) -> bool:
    """Whether the worker has something to do now: one that is tried again only after a long delay
    waits without an instance, as one that sleeps for so long.
    """
    status, services = loop.worker.status, loop.worker.services
    if status.state != "retrying" or loop.loaded:
        return loop.has_work()
    left_ns = min(status.retry_at - services.sources.wall_ns(), status.retry_delay)
    return left_ns <= services.suspend_after_s * NS_PER_S and loop.has_work()


def _exists_with(worker: str, other: str, kept: str) -> AlreadyExists:
    return AlreadyExists(
        f"the worker exists with {other}",
        where=worker,
        hint=f"a worker keeps {kept} it was created with; use another name",
    )
