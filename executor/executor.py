"""The library: everything the command line and the server can do is a method here first.

    async with Executor.open("data", recover="named") as shem:
        await shem.deploy(wasm_bytes, name="counter")
        value = await shem.invoke("counter/alice", "add", [5], key="order-1")

One executor runs a store at a time. All methods are for the trio thread that opened it; none
blocks it. What is durable when a method returns is said at each. Elsewhere they raise UsageError,
StoreError once the executor is closed, and InvocationInterrupted if it is closed while they wait.
"""

import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, Literal, Self, Unpack, get_type_hints

import trio

from executor.deployment import DeployOptions, deploy
from executor.errors import (
    InternalError,
    PreviousFailed,
    StoreError,
    UsageError,
)
from executor.host.embedder import given_functions
from executor.opened import Opened, current_run, opened, operation
from executor.records import (
    Accepted,
    ComponentRecord,
    ComponentSummary,
    Deployed,
    Done,
    Invocation,
    NewWorker,
    OplogRecord,
    PromisePage,
    PromiseRecord,
    Rebuild,
    WorkerFile,
    WorkerPage,
    WorkerRecord,
)
from executor.requests import (
    WaveArguments,
    canonical_request,
    check_options,
    check_promise,
    check_request,
    resolve_path,
    store_directory,
)
from executor.services.promises import PromiseId
from executor.worker import amending
from executor.worker.commits import store_error
from executor.worker.file_view import read_file
from executor.worker.interruption import cancel, interrupt, resume
from executor.worker.loop import InvocationLoop
from executor.worker.outcomes import unknown_key, value_of
from executor.worker.reader import FOLLOW_S, PROMISES_PER_PAGE, WORKERS_PER_PAGE, StoreReader
from executor.worker.rebuild import rebuild_beside
from executor.worker.status import REFUSING
from executor.worker.worker import Worker, WorkerServices
from executor.worker.workers import Workers
from executor.world import World

NEW_WORKER_TYPES: Final = get_type_hints(NewWorker)
END: Final[list[OplogRecord]] = []
"""This very list is no page: there are no more."""


class Executor:
    """Made by `Executor.open`."""

    def __init__(self, path: Path, parts: Opened) -> None:
        self.path = path
        self.parts = parts
        self._runs_all = 0
        """How many `run` are under way: what is only accepted meanwhile is taken up."""

    # What every operation goes by, and so finds out whether it may be asked for here and now.

    @property
    def _services(self) -> WorkerServices:
        return self.parts.asked().services

    @property
    def _reader(self) -> StoreReader:
        return self.parts.asked().reader

    @property
    def _workers(self) -> Workers:
        return self.parts.asked().workers

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        path: str | os.PathLike[str],
        *,
        recover: Literal["named", "all"] = "named",
        host: object = (),
        **world: Unpack[World],
    ) -> AsyncIterator[Self]:
        """Opens or creates the store and runs it until the block ends.

        `recover="named"` runs the workers that are named in calls; "all" takes up every worker with
        pending work. `host` holds host functions of the embedder, decorated with `@host_function`.
        On leaving, guests are lost: what was accepted continues at the next opening. Remote writes
        under way are awaited for up to five seconds, unless the block ends with an exception.
        Raises: StoreError, also if another process runs the store; UsageError for a path or a host
        function that is none, or outside of trio.
        """
        current_run()
        directory = store_directory(path)
        async with opened(directory, given_functions(host), world) as parts:
            shem = cls(directory, parts)
            if recover == "all":
                await parts.workers.take_up_all()
            yield shem

    # -- components ----------------------------------------------------------------------------

    @operation
    async def deploy(
        self,
        wasm: bytes,
        *,
        name: str,
        progress: Callable[[str], None] | None = None,
        **options: Unpack[DeployOptions],
    ) -> Deployed:
        """A new revision, or the existing one of the same bytes and options. Durable on return.

        Raises: ComponentRejected, HostBindingError, UsageError, StoreError.
        """
        services = self._services
        try:
            return await deploy(services, wasm, name, options, progress)
        finally:
            if services.store.closed_by is not None:
                services.store_lost.set()

    async def components(self) -> tuple[ComponentSummary, ...]:
        return self._reader.components()

    async def component(self, name: str) -> ComponentRecord:
        """Raises: ComponentNotFound."""
        return self._reader.component(name)

    # -- invocations ---------------------------------------------------------------------------

    @operation
    async def submit(
        self,
        worker: str,
        function: str,
        arguments: Sequence[object] | WaveArguments = (),
        *,
        key: str | None = None,
        run: bool = True,
        **new: Unpack[NewWorker],
    ) -> Accepted:
        """Accepts an invocation; creates the worker if there is none. Durable on return: it will
        run once, whatever happens to this process; here and now, unless `run` is false and nobody
        runs everything.

        Raises: RequestError of any kind, PreviousFailed, StoreError; then nothing is recorded.
        """
        accepted, loop = await self._accept(worker, function, arguments, key, new)
        found = loop.worker
        if run:
            loop.start()
        state = found.key_state(accepted.key)
        if state is None or not 0 < state.finished_index <= found.writer.committed_index:
            try:
                await found.commit()
            except StoreError as error:
                raise found.told(error, accepted.key) from error
        return accepted

    def take_up(self, worker: str) -> None:
        """Runs what was only accepted, if this process runs everything."""
        workers = self._workers
        if self._runs_all:
            workers.take_up(worker)

    @operation
    async def wait(self, worker: str, key: str, *, timeout_s: float | None = None) -> Invocation:
        """The outcome of an accepted key, once it is committed; `pending` after the timeout.

        Raises: WorkerNotFound, UnknownKey, PreviousFailed, WorkerDeleted, Divergence, StoreError.
        """
        found = await self._workers.existing(worker)
        if found.key_state(key) is None:
            raise unknown_key(worker, key)
        return await self._wait(found, key, deduplicated=False, timeout_s=timeout_s)

    @operation
    async def invoke(
        self,
        worker: str,
        function: str,
        arguments: Sequence[object] | WaveArguments = (),
        *,
        key: str | None = None,
        **new: Unpack[NewWorker],
    ) -> object:
        """Runs a function once for this key and returns its value, as recorded.

        A returned `Err` is a value. Raises: RequestError, InvocationError for a recorded failure or
        exit (its code is not 0), PreviousFailed, Divergence, StoreError.
        """
        accepted, loop = await self._accept(worker, function, arguments, key, new)
        found = loop.worker
        wit = self._workers.exports(worker)[accepted.function]
        loop.start()
        state = await found.wait(accepted.key)
        return value_of(worker, state.finished_index, found.outcome(state), wit)

    async def _accept(
        self,
        worker: str,
        function: str,
        arguments: Sequence[object] | WaveArguments,
        key: str | None,
        new: NewWorker,
    ) -> tuple[Accepted, InvocationLoop]:
        check_request(worker, function, key)
        check_options(new, NEW_WORKER_TYPES)
        exports = self._workers.exports(worker)
        path = resolve_path(tuple(exports), function, worker.partition("/")[0])
        raw = canonical_request(path, exports[path], arguments)
        loop = await self._workers.named(worker, new)
        chosen = key if key is not None else self._services.sources.random_uuid()
        if loop.worker.status.state in REFUSING and loop.worker.unsaved:
            await loop.worker.commit()  # nobody hears of a failure that is not committed
        try:
            is_new = loop.worker.accept(chosen, path, raw)
        except PreviousFailed as refusal:
            await loop.worker.read_stderr(refusal)
            raise
        if loop.worker.status.state == "uncertain":
            await loop.worker.commit()  # nothing runs that would do so
        return Accepted(worker=worker, function=path, key=chosen, deduplicated=not is_new), loop

    async def _wait(
        self, worker: Worker, key: str, *, deduplicated: bool, timeout_s: float | None = None
    ) -> Invocation:
        state = None
        if timeout_s is None:
            state = await worker.wait(key)
        else:
            with trio.move_on_after(max(0, timeout_s)):
                state = await worker.wait(key)
            state = state or worker.key_state(key)
        if state is None:
            raise InternalError(f"{worker.name}: key {key!r} was forgotten while it was awaited")
        record = self._reader.invocation_of
        if not state.logs:
            return record(worker.status, worker.id, state, deduplicated)
        return await trio.to_thread.run_sync(record, worker.status, worker.id, state, deduplicated)

    @operation
    async def invocation(self, worker: str, key: str) -> Invocation:
        """What is committed of a key, now; runs nothing. Raises: WorkerNotFound, UnknownKey."""
        return await trio.to_thread.run_sync(self._reader.invocation, worker, key)

    # -- inspecting ----------------------------------------------------------------------------

    async def oplog(
        self,
        worker: str,
        first: int = 1,
        limit: int | None = None,
        *,
        search: str | None = None,
        follow: bool = False,
    ) -> AsyncIterator[OplogRecord]:
        """Committed entries from index `first` on, at most `limit`; with `search` those that this
        query matches (`executor.worker.search`), with `follow` also those that are committed from
        now on. Read a page at a time on a worker thread.

        Raises: WorkerNotFound, StoreError; UsageError for a query that makes no sense; with
        `follow` WorkerDeleted.
        """
        pages = self._reader.oplog_pages(worker, first, limit, search=search, follow=follow)
        while (page := await trio.to_thread.run_sync(next, pages, END)) is not END:
            for record in page or ():
                yield record
            if page is None:
                await trio.sleep(FOLLOW_S)
                self.parts.asked()

    async def workers(
        self,
        component: str | None = None,
        *,
        status: str | None = None,
        limit: int = WORKERS_PER_PAGE,
        cursor: str | None = None,
    ) -> WorkerPage:
        """One page of workers in the order of names, as committed."""
        return self._reader.workers(component, status=status, limit=limit, cursor=cursor)

    async def worker(self, name: str) -> WorkerRecord:
        """One worker in full, as committed. Raises: WorkerNotFound."""
        return self._reader.worker(name, loaded=self._workers.is_loaded(name))

    # -- lifecycle -----------------------------------------------------------------------------

    @operation
    async def crash(self, worker: str, *, go_on: bool = True) -> Rebuild:
        """A simulated crash: the instance is dropped in the middle of whatever it does and the
        worker is rebuilt from its oplog; then it goes on, if `go_on`. Appends nothing of its own.
        """
        loop = await self._workers.loop(worker)
        await loop.stop(writes_awaited_s=0)
        try:
            return await rebuild_beside(loop.worker, to=None)
        finally:
            if go_on:
                loop.start()

    @operation
    async def replay(self, worker: str, *, to: int | None = None) -> Rebuild:
        """Rebuilds the worker beside the living one, up to entry `to`. Appends nothing.

        Raises: WorkerNotFound; UsageError if there is no such entry; ReplayPanic, StoreError.
        """
        loop = await self._workers.loop(worker)
        last = loop.worker.writer.committed_index
        if to is not None and not 1 <= to <= last:
            raise UsageError(
                f"there is no entry {to} to replay to",
                where=worker,
                hint=f"its oplog has the entries 1 to {last}",
            )
        return await rebuild_beside(loop.worker, to=to)

    @operation
    async def files(self, worker: str, path: str = "/") -> WorkerFile:
        """What is at `path` among the worker's files: a directory's entries, a file's content. As
        of its last committed entry, from a rebuild beside the living worker. Appends nothing.

        Raises: WorkerNotFound, UnknownFile, Divergence, ReplayPanic, StoreError.
        """
        loop = await self._workers.loop(worker)
        return await read_file(loop.worker, path)

    @operation
    async def resolve(
        self,
        worker: str,
        start: int,
        choice: Literal["repeat", "fail", "value"],
        value: object = None,
        *,
        until_ended: bool = False,
    ) -> Done:
        """An owner's word on the uncertain remote write that begins at entry `start`: perform it
        once more, fail its invocation, or take `value` for its answer (`WaveArguments` for text).
        The worker then goes on. Durable on return; with `until_ended` it returns when the worker's
        invocation has ended.

        Raises: WorkerNotFound, UsageError, BadArguments, StoreError.
        """
        texts = value.texts if isinstance(value, WaveArguments) else None
        loop = await self._workers.loop(worker)
        return await amending.resolve(
            loop, start, choice, value, texts=texts, until_ended=until_ended
        )

    @operation
    async def revert(
        self, worker: str, *, to: int | None = None, last: int | None = None, go_on: bool = True
    ) -> Done:
        """Cuts the worker back: to its entry `to`, or by its `last` invocations. Their keys are
        unknown again; what is queued stays queued. An invocation that is cut in the middle goes on
        from there, if `go_on`. Durable on return; `done` is false if nothing lies behind the cut.

        Raises: WorkerNotFound, UsageError naming the nearest legal cuts, StoreError.
        """
        if (to is None) == (last is None):
            raise UsageError(
                "a revert goes to an entry, or back by invocations",
                where="revert",
                hint="give one of `to` and `last`",
            )
        loop = await self._workers.stopped(worker)
        return await amending.revert(loop, to=to, last=last, go_on=go_on)

    @operation
    async def interrupt(self, worker: str) -> Done:
        """Stops a worker that has something to do until it is resumed or gets a new invocation;
        whoever waits for it hears so. An idle one is left alone: `done` is false. Durable on
        return.

        Raises: WorkerNotFound, StoreError.
        """
        return await interrupt(await self._workers.loop(worker))

    @operation
    async def resume(self, worker: str, *, until_ended: bool = False) -> Done:
        """Lets an interrupted worker go on; `done` is false for any other. Durable on return. With
        `until_ended` it returns when the worker's invocation has ended or was interrupted again.

        Raises: WorkerNotFound, StoreError, Divergence.
        """
        return await resume(await self._workers.loop(worker), until_ended=until_ended)

    @operation
    async def cancel(self, worker: str, key: str) -> Done:
        """Takes a key that waits out of the queue: its outcome is `cancelled`. Durable on return.

        Raises: WorkerNotFound, UnknownKey, Busy if it runs, AlreadyExists if it has its outcome.
        """
        return await cancel((await self._workers.loop(worker)).worker, key)

    @operation
    async def complete_promise(
        self,
        worker: str,
        promise: int,
        value: bytes,
        *,
        key: str | None = None,
        until_rest: bool = False,
    ) -> bool:
        """Completes the promise that entry `promise` of the worker made: False if another
        completion came first. The same `key` again hears the same. Durable on return; whoever
        waits goes on, the worker itself until it rests with `until_rest`.

        Raises: WorkerNotFound, UnknownPromise, LimitError, StoreError.
        """
        check_promise(promise, value)
        found = PromiseId(self._reader.worker_id(worker), promise)
        chosen = key or self._services.sources.random_uuid()
        done = await self._services.stores.promises.complete(found, value, chosen, worker)
        if until_rest:
            await self._workers.run_until_rest(worker)
        return done

    async def promises(
        self, worker: str, *, after: int = 0, limit: int = PROMISES_PER_PAGE
    ) -> PromisePage:
        """The worker's promises that were made after entry `after`. Raises: WorkerNotFound."""
        return self._reader.promises(worker, after=after, limit=limit)

    async def promise(self, worker: str, promise: int) -> PromiseRecord:
        """Raises: WorkerNotFound, UnknownPromise."""
        return self._reader.promise(worker, promise)

    @operation
    async def delete(self, worker: str) -> Done:
        """Interrupts the worker and removes it with its oplog. Durable on return."""
        return await self._workers.delete(worker)

    @operation
    async def run(self, *, until_idle: bool = False) -> None:
        """Takes up all pending work; with `until_idle` returns when nothing is runnable now.

        Raises: StoreError once the store has refused for good; with `until_idle`, in the end, what
        keeps a worker with work from running (each is reported).
        """
        self._runs_all += 1
        try:
            await self._workers.take_up_all()
            lost = self._services.store_lost
            if until_idle:
                await self._workers.wait_idle()
            else:
                await lost.wait()
            closed_by = self._services.store.closed_by
            if lost.is_set() and closed_by is not None:
                raise store_error(closed_by, str(self.path))
            troubles = self._workers.troubles()
            if troubles:
                raise troubles[0]
        finally:
            self._runs_all -= 1
