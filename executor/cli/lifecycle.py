"""`shem crash`, `replay`, `resolve`, `revert` and `delete`: from outside, to one worker."""

from typing import Literal, TypeAlias

import click

from executor.cli.command_line import CommandLine, command_options
from executor.cli.output import EXIT_DONE, exit_code, write_error, write_json, write_line
from executor.errors import Divergence
from executor.executor import WaveArguments
from executor.records import Done, ErrorRecord, Rebuild
from executor.server.operations import Operations
from executor.server.shapes import done_json, rebuild_json

Choice: TypeAlias = Literal["repeat", "fail", "value"]


@click.command("crash")
@click.argument("worker", metavar="WORKER")
@command_options
@click.pass_context
def crash(context: click.Context, worker: str) -> int:
    """Simulate a crash of WORKER and rebuild it from its oplog.

    Its instance is dropped in the middle of whatever it does. Appends nothing.
    """
    line = context.ensure_object(CommandLine)

    async def run(executor: Operations) -> Rebuild:
        return await executor.crash(worker, go_on=False)

    return write_rebuild(line.run(run), as_json=line.json)


@click.command("replay")
@click.argument("worker", metavar="WORKER")
@click.option("--to", "last", metavar="I", type=click.IntRange(min=1), help="Stop at this index.")
@command_options
@click.pass_context
def replay(context: click.Context, worker: str, last: int | None) -> int:
    """Rebuild WORKER beside the living one, and report.

    Appends nothing.
    """
    line = context.ensure_object(CommandLine)

    async def run(executor: Operations) -> Rebuild:
        return await executor.replay(worker, to=last)

    return write_rebuild(line.run(run), as_json=line.json)


def write_rebuild(rebuild: Rebuild, *, as_json: bool) -> int:
    """The report; a divergence is an error besides, so that scripts see it."""
    found = rebuild.divergence
    if as_json:
        write_json(rebuild_json(rebuild))
    else:
        stopped = f", stopped: {rebuild.stopped_at}" if rebuild.stopped_at else ""
        write_line(
            f"{rebuild.worker}: {rebuild.replayed} recorded steps replayed in {rebuild.ms:.1f} ms"
            f" of an oplog of {rebuild.entries} entries,"
            f" {'diverged' if found else 'no divergence'}{stopped}"
        )
    if found is None:
        return EXIT_DONE
    divergence = Divergence(
        worker=rebuild.worker,
        index=found.index,
        recorded=found.recorded,
        requested=found.requested,
    )
    if not as_json:
        write_error(
            ErrorRecord(
                kind=divergence.kind,
                message=divergence.message,
                where=divergence.where,
                hint=divergence.hint,
            ),
            as_json=False,
        )
    return exit_code(divergence.kind)


@click.command("delete")
@click.argument("worker", metavar="WORKER")
@command_options
@click.pass_context
def delete(context: click.Context, worker: str) -> int:
    """Delete WORKER and its oplog.

    An invocation that runs is interrupted.
    """
    line = context.ensure_object(CommandLine)

    async def run(executor: Operations) -> Done:
        return await executor.delete(worker)

    return write_done(line.run(run), as_json=line.json)


@click.command("resolve")
@click.argument("worker", metavar="WORKER")
@click.argument("start", metavar="START", type=click.IntRange(min=1))
@click.option("--repeat", is_flag=True, help="Perform it once more, under the same key.")
@click.option("--fail", is_flag=True, help="It failed, and so does its invocation.")
@click.option("--value", metavar="WAVE", help="It happened, and this was its answer.")
@command_options
@click.pass_context
def resolve(
    context: click.Context, worker: str, start: int, repeat: bool, fail: bool, value: str | None
) -> int:
    """Say what became of the remote write that begins at entry START of WORKER.

    Asked for where the guest turned idempotence off and a crash came between the write and its
    answer. The worker then runs until its invocation ends.
    """
    line = context.ensure_object(CommandLine)
    if [repeat, fail, value is not None].count(True) != 1:
        raise click.UsageError("give one of --repeat, --fail and --value")
    choice: Choice = "repeat" if repeat else "fail" if fail else "value"

    async def run(executor: Operations) -> Done:
        key = (await executor.worker(worker)).current_key
        answer = None if value is None else WaveArguments((value,))
        done = await executor.resolve(worker, start, choice, answer)
        if key is not None:
            await executor.wait(worker, key)
        return Done(worker=worker, done=done.done, status=(await executor.worker(worker)).status)

    return write_done(line.run(run), as_json=line.json)


@click.command("revert")
@click.argument("worker", metavar="WORKER")
@click.option("--to", metavar="I", type=click.IntRange(min=1), help="The last entry to keep.")
@click.option("--last", metavar="N", type=click.IntRange(min=1), help="So many invocations back.")
@command_options
@click.pass_context
def revert(context: click.Context, worker: str, to: int | None, last: int | None) -> int:
    """Cut WORKER back to an earlier entry of its oplog, or by its last invocations.

    The keys of what is cut off are unknown again. A cut inside a call or an atomic region is
    refused, and the nearest ones that are not are named.
    """
    line = context.ensure_object(CommandLine)
    if (to is None) == (last is None):
        raise click.UsageError("give one of --to and --last")

    async def run(executor: Operations) -> Done:
        return await executor.revert(worker, to=to, last=last, go_on=False)

    return write_done(line.run(run), as_json=line.json)


def write_done(done: Done, *, as_json: bool) -> int:
    if as_json:
        write_json(done_json(done))
    else:
        write_line(f"{done.worker}: {done.status}")
    return EXIT_DONE
