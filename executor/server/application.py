"""The HTTP application: each operation of the library at `/v1/<operation>`.

An operation that only waits ends with its connection; every other one goes on to its end whether or
not somebody still listens, since who asks may be gone at any moment and half of it is worse.

A Ctrl-C is for the process and not for an exchange, where Hypercorn would take it for a failure of
the application and go on: it is put off until it reaches the process's own task.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

import msgspec
import trio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from executor.errors import ShemError, UsageError
from executor.executor import Executor
from executor.records import Accepted
from executor.requests import WaveArguments
from executor.server import shapes, wire
from executor.server.audience import (
    ALL_WORKERS,
    Audience,
    Event,
    Listener,
    Output,
    Progress,
    Report,
    Taken,
)
from executor.server.shapes import Json

LINES: Final = [(b"content-type", b"application/x-ndjson")]


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    request: type[msgspec.Struct]
    perform: Callable[[Executor, Any, Listener], Awaitable[Json]]
    waits: bool = False
    """Whether it ends with its connection."""
    hears: Callable[[Any], str | None] = lambda _: None
    """Whose output is told meanwhile."""


# -- operations ------------------------------------------------------------------------------------


async def deploy(shem: Executor, asked: wire.DeployRequest, listener: Listener) -> Json:
    token = trio.lowlevel.current_trio_token()

    def progress(stage: str) -> None:
        token.run_sync_soon(listener.hear, Progress(stage))

    deployed = await shem.deploy(
        asked.wasm,
        name=asked.name,
        progress=progress,
        env=asked.env,
        files=asked.files,
        host=asked.host,
        host_directory=asked.host_directory,
        limits=asked.limits,
        config=asked.config,
        allow_net=asked.allow_net,
        retry=[*([] if asked.retry is None else [asked.retry]), *asked.retry_rules],
    )
    return shapes.deployed_json(deployed)


async def accept(
    shem: Executor, asked: wire.SubmitRequest, listener: Listener, *, run: bool
) -> Accepted:
    """Accepts and tells it, in one step that a connection which ends meanwhile does not undo."""
    with trio.CancelScope(shield=True):
        accepted = await shem.submit(
            asked.worker,
            asked.function,
            WaveArguments(asked.arguments),
            key=asked.key,
            env=asked.env,
            args=asked.args,
            allow_net=asked.allow_net,
            run=run,
        )
    listener.hear(Taken(accepted))
    return accepted


async def submit(shem: Executor, asked: wire.SubmitRequest, listener: Listener) -> Json:
    """Only accepts. Who asked may yet say that it waits; where everything runs, what was accepted
    is taken up when the connection ends.
    """
    await accept(shem, asked, listener, run=False)
    try:
        await trio.sleep_forever()
    finally:
        with suppress(ShemError):
            shem.take_up(asked.worker)


async def invoke(shem: Executor, asked: wire.SubmitRequest, listener: Listener) -> Json:
    """Accepts, tells it, and waits."""
    accepted = await accept(shem, asked, listener, run=True)
    return wire.invocation_shape(await shem.wait(asked.worker, accepted.key))


async def wait(shem: Executor, asked: wire.WaitRequest, _: Listener) -> Json:
    found = await shem.wait(asked.worker, asked.key, timeout_s=asked.timeout_s)
    return wire.invocation_shape(found)


async def invocation(shem: Executor, asked: wire.KeyRequest, _: Listener) -> Json:
    return wire.invocation_shape(await shem.invocation(asked.worker, asked.key))


async def worker(shem: Executor, asked: wire.WorkerRequest, _: Listener) -> Json:
    """As committed, but that only this process knows whether it is loaded."""
    return shapes.worker_json(await shem.worker(asked.worker))


async def crash(shem: Executor, asked: wire.WorkerRequest, _: Listener) -> Json:
    """The worker then goes on: this process runs the store."""
    return shapes.rebuild_json(await shem.crash(asked.worker))


async def replay(shem: Executor, asked: wire.ReplayRequest, _: Listener) -> Json:
    return shapes.rebuild_json(await shem.replay(asked.worker, to=asked.to))


async def files(shem: Executor, asked: wire.FilesRequest, _: Listener) -> Json:
    return shapes.worker_file_json(await shem.files(asked.worker, asked.path))


async def interrupt(shem: Executor, asked: wire.WorkerRequest, _: Listener) -> Json:
    return shapes.done_json(await shem.interrupt(asked.worker))


async def resume(shem: Executor, asked: wire.WorkerRequest, _: Listener) -> Json:
    """Not until it has ended: this process runs the store."""
    return shapes.done_json(await shem.resume(asked.worker))


async def cancel(shem: Executor, asked: wire.KeyRequest, _: Listener) -> Json:
    return shapes.done_json(await shem.cancel(asked.worker, asked.key))


async def resolve(shem: Executor, asked: wire.ResolveRequest, _: Listener) -> Json:
    """Not until its invocation has ended: this process runs the store."""
    value = None if asked.value is None else WaveArguments(asked.value)
    return shapes.done_json(await shem.resolve(asked.worker, asked.start, asked.choice, value))


async def revert(shem: Executor, asked: wire.RevertRequest, _: Listener) -> Json:
    return shapes.done_json(await shem.revert(asked.worker, to=asked.to, last=asked.last))


async def complete_promise(shem: Executor, asked: wire.PromiseRequest, _: Listener) -> Json:
    done = await shem.complete_promise(asked.worker, asked.promise, asked.value, key=asked.key)
    return {"done": done}


async def delete(shem: Executor, asked: wire.WorkerRequest, _: Listener) -> Json:
    return shapes.done_json(await shem.delete(asked.worker))


async def run(shem: Executor, asked: wire.RunRequest, _: Listener) -> Json:
    await shem.run(until_idle=asked.until_idle)
    return {"done": True}


OPERATIONS: Final = {
    "deploy": Operation(request=wire.DeployRequest, perform=deploy),
    "submit": Operation(request=wire.SubmitRequest, perform=submit, waits=True),
    "invoke": Operation(
        request=wire.SubmitRequest, perform=invoke, waits=True, hears=lambda asked: asked.worker
    ),
    "wait": Operation(
        request=wire.WaitRequest, perform=wait, waits=True, hears=lambda asked: asked.worker
    ),
    "invocation": Operation(request=wire.KeyRequest, perform=invocation),
    "worker": Operation(request=wire.WorkerRequest, perform=worker),
    "crash": Operation(request=wire.WorkerRequest, perform=crash),
    "replay": Operation(request=wire.ReplayRequest, perform=replay, waits=True),
    "files": Operation(request=wire.FilesRequest, perform=files, waits=True),
    "interrupt": Operation(request=wire.WorkerRequest, perform=interrupt),
    "resume": Operation(request=wire.WorkerRequest, perform=resume),
    "cancel": Operation(request=wire.KeyRequest, perform=cancel),
    "resolve": Operation(request=wire.ResolveRequest, perform=resolve),
    "revert": Operation(request=wire.RevertRequest, perform=revert),
    "complete-promise": Operation(request=wire.PromiseRequest, perform=complete_promise),
    "delete": Operation(request=wire.WorkerRequest, perform=delete),
    "run": Operation(request=wire.RunRequest, perform=run, waits=True, hears=lambda _: ALL_WORKERS),
}


# -- one exchange ----------------------------------------------------------------------------------


class Exchange:
    """The ASGI application behind the one route."""

    def __init__(self, shem: Executor, audience: Audience, nursery: trio.Nursery) -> None:
        self._shem = shem
        self._audience = audience
        self._nursery = nursery
        """Of what goes on without its connection."""

    @trio.lowlevel.enable_ki_protection
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        body = await request.body()
        name = request.path_params["operation"]
        operation = OPERATIONS.get(name)
        if operation is None:
            unknown = UsageError(
                f"there is no operation {name!r}",
                where="/v1",
                hint=f"one of {', '.join(sorted(OPERATIONS))}",
            )
            await refuse(unknown, wire.NOT_FOUND)(scope, receive, send)
            return
        try:
            asked = wire.request_of(body, operation.request)
        except ValueError as error:
            refusal = UsageError(
                f"the request cannot be read: {error}",
                where=name,
                hint="send one JSON object, its arguments by name",
            )
            await refuse(refusal, wire.BAD_REQUEST)(scope, receive, send)
            return
        with self._audience.listening(operation.hears(asked)) as listener:
            async with trio.open_nursery() as connection:
                connection.start_soon(
                    end_with_connection, receive, listener, connection.cancel_scope
                )
                told: list[Json] = []
                nursery = connection if operation.waits else self._nursery
                nursery.start_soon(self._perform, operation, asked, listener, told)
                await answer(listener, told, scope, receive, send)
                connection.cancel_scope.cancel()

    @trio.lowlevel.enable_ki_protection
    async def _perform(
        self, operation: Operation, asked: msgspec.Struct, listener: Listener, told: list[Json]
    ) -> None:
        try:
            told.append({"answer": await operation.perform(self._shem, asked, listener)})
        except Exception as error:
            where = str(getattr(asked, "worker", ""))
            told.append({"error": wire.error_shape(error, where)})
        listener.end()


@trio.lowlevel.enable_ki_protection
async def end_with_connection(
    receive: Receive, listener: Listener, scope: trio.CancelScope
) -> None:
    """Cancels the exchange when its connection ends, unless it does so behind the answer."""
    while (await receive())["type"] != "http.disconnect":
        pass
    if not listener.ended:
        scope.cancel()


async def answer(
    listener: Listener, told: list[Json], scope: Scope, receive: Receive, send: Send
) -> None:
    """Lines as they come, then what the operation came to; without lines, plain JSON."""
    started = False
    async for event in listener.events:
        if not started:
            started = True
            head = {"type": "http.response.start", "status": wire.OK, "headers": LINES}
            await send(head)
        await send(body_line(event_shape(event), more=True))
    if started:
        if listener.left_out:
            left_out = f"{listener.left_out} lines of output were left out: see the oplog"
            await send(body_line(event_shape(Report(left_out)), more=True))
        await send(body_line(told[0], more=False))
        return
    status = wire.OK
    if (error := told[0].get("error")) is not None:
        status = wire.STATUS.get(error["kind"], wire.FAILED)  # type: ignore[index]
    await json_response(told[0], status)(scope, receive, send)


def event_shape(event: Event) -> Json:
    match event:
        case Output():
            return {"output": msgspec.to_builtins(event)}
        case Report():
            return {"report": event.text}
        case Progress():
            return {"progress": event.stage}
        case Taken():
            return {"accepted": shapes.accepted_json(event.accepted)}


def body_line(shape: Json, *, more: bool) -> dict[str, object]:
    return {
        "type": "http.response.body",
        "body": wire.encoded(shape) + b"\n",
        "more_body": more,
    }


def json_response(shape: Json, status: int) -> Response:
    return Response(wire.encoded(shape) + b"\n", status, media_type="application/json")


def refuse(error: UsageError, status: int) -> Response:
    return json_response({"error": wire.error_shape(error, error.where)}, status)


def application(shem: Executor, audience: Audience, nursery: trio.Nursery) -> Starlette:
    exchange = Exchange(shem, audience, nursery)
    return Starlette(routes=[Route("/v1/{operation}", exchange, methods=["POST"])])
