"""The executor that runs in another process, asked over the store's socket.

It has the methods of `Executor` that commands use, with the same answers and errors and, where
`on_output` is given, the guest's output as it commits. Ctrl-C here ends the waiting only.

A connection that breaks says by the socket what became of the other process: if it was killed, the
caller hears so; if it ended in order, `HandedOver` is raised and the same can be asked of whoever
runs the store next, which may be this process.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final, Unpack
from uuid import uuid4

import msgspec
import trio

from executor.deployment import DeployOptions, host_directory
from executor.durable.retry_rules import split
from executor.errors import Busy, ShemError, StoreError, UsageError
from executor.records import (
    Accepted,
    Deployed,
    Done,
    Invocation,
    NewWorker,
    Rebuild,
    WorkerFile,
)
from executor.requests import WaveArguments
from executor.server import wire
from executor.server.audience import Output
from executor.server.door import was_killed
from executor.server.exchange import ConnectionLost, Exchange, Line
from executor.server.operations import Choice
from executor.server.shapes import Json
from executor.world import World, ignore_output

LOADED_WITHIN_S: Final = 2.0
"""A process that does not say by then whether a worker is loaded is not asked further."""
SILENT_S: Final = 3.0
"""After so long without a word it is asked whether the process answers at all."""
ANSWERED_WITHIN_S: Final = 5.0


class NotServed(Exception):
    """Nobody listens at the socket: the process is starting or ending, or does not serve it."""

    def __init__(self, busy: Busy) -> None:
        super().__init__(str(busy))
        self.busy = busy
        """What to say if it stays so."""


class HandedOver(Exception):
    """The process ended in order before it answered: ask again."""

    key: str | None = None
    """Of an invocation that it may have accepted."""


class ProcessKilled(StoreError):
    """The process ended before it answered, and not in order."""


class AskedExecutor:
    """Made by `ask`."""

    def __init__(
        self, path: Path, world: World, busy: Busy, on_silence: Callable[[str], None]
    ) -> None:
        self._path = path
        self._busy = busy
        self._on_silence: Callable[[str], None] | None = on_silence
        """None once it was told."""
        self._on_output = world.get("on_output") or ignore_output
        self._report = world.get("report") or ignore_text
        self._waiting: dict[tuple[str, str], Exchange] = {}
        """Of accepted invocations: the rest of the connection that accepted each."""
        self._held: list[Exchange] = []
        """Of what was only accepted: nothing runs, unless it is waited for, before they end."""

    async def deploy(
        self,
        wasm: bytes,
        *,
        name: str,
        progress: Callable[[str], None] | None = None,
        **options: Unpack[DeployOptions],
    ) -> Deployed:
        policy, rules = split(options.get("retry"))
        request = wire.DeployRequest(
            wasm=wasm,
            name=name,
            env=options.get("env", {}),
            files=tuple(options.get("files", ())),
            host=tuple(options.get("host", ())),
            host_directory=host_directory(options),
            limits=options.get("limits", {}),
            config=options.get("config", {}),
            allow_net=tuple(options.get("allow_net", ())),
            retry=policy,
            retry_rules=rules,
        )
        answer = await self._ask("deploy", request, progress or ignore_text)
        return wire.record_of(answer, Deployed)

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
        """The connection that accepts stays for `wait`, so that no output falls between. Arguments
        are WAVE texts: their types are known where the component is.
        """
        if not isinstance(arguments, WaveArguments):
            raise UsageError(
                "another process takes its arguments as WAVE texts",
                where=worker,
                hint="give them as WaveArguments",
            )
        args, allow_net = new.get("args"), new.get("allow_net")
        request = wire.SubmitRequest(
            worker=worker,
            function=function,
            arguments=arguments.texts,
            key=str(uuid4()) if key is None else key,
            env=new.get("env"),
            args=None if args is None else tuple(args),
            allow_net=None if allow_net is None else tuple(allow_net),
        )
        exchange = await self._begin("invoke" if run else "submit", request)
        try:
            taken = await self._next(exchange, "accepted", ignore_text)
        except ShemError:
            await exchange.close()
            raise
        except HandedOver as ended:
            await exchange.close()
            ended.key = request.key
            raise
        accepted = wire.record_of(taken, Accepted)
        if run:
            self._waiting[worker, accepted.key] = exchange
        else:
            self._held.append(exchange)
        return accepted

    async def wait(self, worker: str, key: str, *, timeout_s: float | None = None) -> Invocation:
        exchange = self._waiting.pop((worker, key), None)
        if exchange is None:
            request = wire.WaitRequest(worker=worker, key=key, timeout_s=timeout_s)
            return invocation_of(await self._ask("wait", request))
        answer: object = None
        try:
            with trio.move_on_after(float("inf") if timeout_s is None else timeout_s):
                answer = await self._next(exchange, "answer", ignore_text)
        finally:
            await exchange.close()
        if answer is None:
            return await self.invocation(worker, key)
        return invocation_of(answer)

    async def invocation(self, worker: str, key: str) -> Invocation:
        request = wire.KeyRequest(worker=worker, key=key)
        return invocation_of(await self._ask("invocation", request))

    async def crash(self, worker: str, *, go_on: bool = True) -> Rebuild:
        """The worker goes on whatever `go_on` says: the other process runs the store."""
        del go_on
        answer = await self._ask("crash", wire.WorkerRequest(worker=worker))
        return wire.record_of(answer, Rebuild)

    async def replay(self, worker: str, *, to: int | None = None) -> Rebuild:
        answer = await self._ask("replay", wire.ReplayRequest(worker=worker, to=to))
        return wire.record_of(answer, Rebuild)

    async def files(self, worker: str, path: str = "/") -> WorkerFile:
        return wire.file_of(await self._ask("files", wire.FilesRequest(worker=worker, path=path)))

    async def interrupt(self, worker: str) -> Done:
        return wire.record_of(await self._ask("interrupt", wire.WorkerRequest(worker=worker)), Done)

    async def resume(self, worker: str, *, until_ended: bool = False) -> Done:
        """Returns at once whatever `until_ended` says: the other process runs the store."""
        del until_ended
        return wire.record_of(await self._ask("resume", wire.WorkerRequest(worker=worker)), Done)

    async def cancel(self, worker: str, key: str) -> Done:
        request = wire.KeyRequest(worker=worker, key=key)
        return wire.record_of(await self._ask("cancel", request), Done)

    async def resolve(
        self,
        worker: str,
        start: int,
        choice: Choice,
        value: object = None,
        *,
        until_ended: bool = False,
    ) -> Done:
        """Takes the answer as WAVE, and returns at once: the other process runs the store."""
        del until_ended
        texts = value.texts if isinstance(value, WaveArguments) else None
        request = wire.ResolveRequest(worker=worker, start=start, choice=choice, value=texts)
        return wire.record_of(await self._ask("resolve", request), Done)

    async def revert(
        self, worker: str, *, to: int | None = None, last: int | None = None, go_on: bool = True
    ) -> Done:
        """The worker goes on where the other process runs the store."""
        del go_on
        request = wire.RevertRequest(worker=worker, to=to, last=last)
        return wire.record_of(await self._ask("revert", request), Done)

    async def complete_promise(
        self,
        worker: str,
        promise: int,
        value: bytes,
        *,
        key: str | None = None,
        until_rest: bool = False,
    ) -> bool:
        """The worker goes on where the other process runs the store."""
        del until_rest
        request = wire.PromiseRequest(
            worker=worker, promise=promise, value=value, key=key or str(uuid4())
        )
        return (await self._ask("complete-promise", request))["done"] is True

    async def delete(self, worker: str) -> Done:
        return wire.record_of(await self._ask("delete", wire.WorkerRequest(worker=worker)), Done)

    async def run(
        self, *, until_idle: bool = False, begun: Callable[[str], None] = lambda _: None
    ) -> None:
        """Hands over however the other process ends: what is to be run is the same whoever does
        it. `begun` hears who runs the store, once that one runs everything.
        """
        try:
            exchange = await self._begin("run", wire.RunRequest(until_idle=until_idle))
            try:
                begun(self._busy.message)
                await self._next(exchange, "answer", ignore_text)
            finally:
                await exchange.close()
        except ProcessKilled as ended:
            raise HandedOver from ended

    async def close(self) -> None:
        """Ends the waiting for what was accepted; it goes on without."""
        for exchange in (*self._held, *self._waiting.values()):
            await exchange.close()
        self._held.clear()
        self._waiting.clear()

    # -- exchanges -----------------------------------------------------------------------------

    async def _ask(
        self,
        operation: str,
        request: msgspec.Struct,
        progress: Callable[[str], None] = lambda _: None,
    ) -> Json:
        exchange = await self._begin(operation, request)
        try:
            return await self._next(exchange, "answer", progress)
        finally:
            await exchange.close()

    async def _begin(self, operation: str, request: msgspec.Struct) -> Exchange:
        try:
            exchange = await Exchange.connect(self._path)
        except OSError as error:
            raise NotServed(self._busy) from error
        try:
            await exchange.send(operation, wire.encoded(request))
        except ConnectionLost as error:
            await exchange.close()
            raise self._lost() from error
        return exchange

    async def _next(self, exchange: Exchange, wanted: str, progress: Callable[[str], None]) -> Json:
        """Tells what comes until it is what is wanted. Raises: the error that comes instead."""
        while True:
            try:
                kind, value = await self._line(exchange)
            except ConnectionLost as error:
                raise self._lost() from error
            if kind == wanted:
                answer: Json = value
                return answer
            self._tell(kind, value, progress)

    async def _line(self, exchange: Exchange) -> Line:
        """The next line. Nothing may be to tell for days: now and then, ever less often, another
        question shows whether the process answers at all. Raises: ConnectionLost.
        """
        silent_s = SILENT_S
        while self._on_silence is not None:
            with trio.move_on_after(silent_s):
                return await exchange.next_line()
            if not await answers(self._path):
                self._on_silence(f"{self._busy.message} and does not answer: waiting for it")
                self._on_silence = None
            silent_s *= 2
        return await exchange.next_line()

    def _tell(self, kind: str, value: Any, progress: Callable[[str], None]) -> None:
        match kind:
            case "output":
                output = msgspec.convert(value, Output)
                self._on_output(output.worker, output.level, output.text)
            case "report":
                self._report(value)
            case "progress":
                progress(value)
            case "error":
                raise wire.error_of(value)
            case _:
                pass  # what a newer process tells besides

    def _lost(self) -> Exception:
        """What a connection that broke means: see `executor.server.door`."""
        if was_killed(self._path):
            return ProcessKilled(
                "the process that runs the store ended before it answered",
                where=str(self._path),
                hint="what was accepted goes on with the next command, or with `shem run`",
            )
        return HandedOver()


@asynccontextmanager
async def ask(
    path: Path, world: World, busy: Busy, on_silence: Callable[[str], None] = lambda _: None
) -> AsyncIterator[AskedExecutor]:
    """The executor of the process that runs the store at `path`, which `busy` names. `on_silence`
    is told once if that one does not answer.

    Its methods raise NotServed if nobody listens there, HandedOver if it ends in order.
    """
    asked = AskedExecutor(path, world, busy, on_silence)
    try:
        yield asked
    finally:
        await asked.close()


async def is_loaded(path: Path, worker: str) -> bool:
    """Whether the process that serves the store at `path` has the worker loaded."""
    request = wire.encoded(wire.WorkerRequest(worker=worker))
    with trio.move_on_after(LOADED_WITHIN_S), suppress(OSError, ConnectionLost):
        exchange = await Exchange.connect(path)
        try:
            await exchange.send("worker", request)
            kind, answer = await exchange.next_line()
            return kind == "answer" and answer["loaded"] is True
        finally:
            await exchange.close()
    return False


async def answers(path: Path) -> bool:
    """Whether the process that serves the store at `path` answers anything in time, or has ended,
    which whoever waits for it hears.
    """
    with trio.move_on_after(ANSWERED_WITHIN_S) as patience, suppress(OSError, ConnectionLost):
        exchange = await Exchange.connect(path)
        try:
            await exchange.send("worker", wire.encoded(wire.WorkerRequest(worker="")))
            await exchange.next_line()
        finally:
            await exchange.close()
    return not patience.cancelled_caught


def invocation_of(answer: object) -> Invocation:
    return wire.record_of(answer, Invocation)


def ignore_text(_: str) -> None:
    """Nobody listens."""
