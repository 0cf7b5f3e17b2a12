"""`shem invoke`: accept one invocation by its key, and wait for its outcome."""

from contextlib import suppress
from typing import Any

import click
import msgspec

from executor.cli.command_line import CommandLine, command_options
from executor.cli.completion import functions, names, worker_argument
from executor.cli.guest_output import write_guest_output
from executor.cli.output import (
    EXIT_DONE,
    error_record,
    exit_code,
    write_error,
    write_json,
    write_note,
    write_text,
)
from executor.cli.parse import WaveArgumentsCommand, pair, seconds, unicode_text
from executor.errors import InvocationError, InvocationInterrupted, PreviousFailed, ShemError
from executor.records import Accepted, Invocation
from executor.requests import WaveArguments
from executor.server.client import HandedOver, NotServed
from executor.server.operations import Operations
from executor.server.shapes import invocation_json
from executor.torture.crash_points import (
    CrashPoint,
    crashing_perform,
    crashing_store,
    parse_crash_point,
)
from executor.world import World
from oplog.errors import OplogError


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What the user asked for; the command's arguments and options by name."""

    worker: str
    function: str
    arguments: tuple[str, ...]
    key: str | None
    env: tuple[tuple[str, str], ...]
    args: tuple[str, ...]
    allow_net: tuple[str, ...]
    timeout_s: float | None
    no_wait: bool
    crash_at: str | None


@click.command("invoke", cls=WaveArgumentsCommand)
@worker_argument
@click.argument("function", metavar="FUNCTION", shell_complete=names(functions))
@click.argument("arguments", metavar="[ARG]...", nargs=-1)
@click.option("--key", metavar="K", help="Idempotency key [default: a new one].")
@click.option(
    "--env",
    metavar="K=V",
    type=pair,
    multiple=True,
    help="Environment of a new worker; the last one of a name counts.",
)
@click.option(
    "--arg",
    "args",
    metavar="A",
    type=unicode_text,
    multiple=True,
    help="Command arguments of a new worker, its program's name first.",
)
@click.option(
    "--allow-net",
    metavar="HOST[:PORT]",
    type=unicode_text,
    multiple=True,
    help="What a new worker may reach besides what its component was deployed with.",
)
@click.option(
    "--timeout",
    "timeout_s",
    metavar="S",
    type=seconds,
    help="Stop waiting after S seconds; the invocation goes on later.",
)
@click.option("--no-wait", is_flag=True, help="Only accept and commit.")
@click.option(
    "--crash-at",
    metavar="POINT",
    help="Kill this process at append:N, commit:N, before-effect:N, after-effect:N, before-result"
    " or after-result.",
)
@command_options
@click.pass_context
def invoke(context: click.Context, /, **asked: Any) -> int:
    """Call FUNCTION of WORKER and print its result as WAVE.

    WORKER is COMPONENT/NAME; a new name is a new worker. ARGs are WAVE: strings are quoted, -5 is
    an argument. FUNCTION may be short where only one is meant. The same key again answers with the
    recorded outcome and runs nothing.
    """
    line = context.ensure_object(CommandLine)
    request = Request(**asked)
    point = parse_crash_point(request.crash_at) if request.crash_at is not None else None

    asked_for = RequestedInvocation(request)
    invocation = line.run(asked_for.run, **_world(line, point))
    return write_invocation(invocation, as_json=line.json)


def _world(line: CommandLine, point: CrashPoint | None) -> World:
    """The real one, but for the crash point. With a point it opens the store: blocks."""
    if point is None:
        return World(on_output=write_guest_output)
    line.require_store()
    return World(
        on_output=write_guest_output,
        store=crashing_store(line.store, point),
        perform=crashing_perform(point),
    )


class RequestedInvocation:
    """One invocation of the user's, whichever process runs it, and if one after another does."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._accepted: Accepted | None = None
        self._key = request.key
        """A generated one is kept when the process that was asked ends before it answers."""

    async def run(self, executor: Operations) -> Invocation:
        """Accepts, says which key was generated, and waits as long as asked for. With a generated
        key nothing runs before it is told: whoever sees an effect of the invocation can ask for it.

        A failure of the guest is an answer. What stops the waiting after the acceptance (an
        interrupt of the worker, a full disk, a divergence) is one too, of status pending: no
        outcome is recorded.
        """
        request = self._request
        try:
            accepted = self._accepted or await self._accept(executor)
        except InvocationError as error:
            blank = Invocation(
                worker=request.worker,
                function=request.function,
                key=request.key or "",
                status="failed",
            )
            return unfinished(blank, error)
        try:
            if request.no_wait:
                invocation = await executor.invocation(request.worker, accepted.key)
            else:
                invocation = await executor.wait(
                    request.worker, accepted.key, timeout_s=request.timeout_s
                )
        except ShemError as error:
            invocation = unfinished(await self._so_far(executor, accepted), error)
        return msgspec.structs.replace(
            invocation, deduplicated=accepted.deduplicated and request.key is not None
        )

    async def _so_far(self, executor: Operations, accepted: Accepted) -> Invocation:
        """What is committed of what was accepted: nothing, if its worker or who runs it is gone."""
        with suppress(ShemError, OplogError, NotServed, HandedOver):
            return await executor.invocation(accepted.worker, accepted.key)
        return Invocation(
            worker=accepted.worker, function=accepted.function, key=accepted.key, status="pending"
        )

    async def _accept(self, executor: Operations) -> Accepted:
        request = self._request
        try:
            self._accepted = accepted = await executor.submit(
                request.worker,
                request.function,
                WaveArguments(request.arguments),
                key=self._key,
                env=dict(request.env) or None,
                args=request.args or None,
                allow_net=request.allow_net or None,
                run=request.key is not None and not request.no_wait,
            )
        except HandedOver as ended:
            self._key = ended.key or self._key
            raise
        if request.key is None:
            write_note(f"key: {accepted.key}")
        return accepted


def unfinished(begun: Invocation, error: ShemError) -> Invocation:
    """An invocation without an outcome, and what it is without one for."""
    failed = isinstance(error, InvocationError) and not isinstance(error, InvocationInterrupted)
    return Invocation(
        worker=begun.worker,
        function=begun.function,
        key=begun.key,
        status="failed" if failed else "pending",
        error=error_record(error),
        attempts=begun.attempts,
        stdout=begun.stdout,
        stderr=error.stderr if isinstance(error, PreviousFailed) else begun.stderr,
    )


def write_invocation(invocation: Invocation, *, as_json: bool) -> int:
    """The result on stdout, or its error where it belongs; answers the exit code."""
    if as_json:
        write_json(invocation_json(invocation))
    elif invocation.error is not None:
        write_error(invocation.error, as_json=False)
    elif invocation.status == "pending":
        write_note(f"pending: {invocation.key}")
    elif invocation.wave:
        write_text(invocation.wave)
    return exit_code(invocation.error.kind) if invocation.error else EXIT_DONE
