"""`shem interrupt`, `resume`, `cancel`, `resolve`, `revert` and `delete`: what an owner does."""

import click

from executor.cli.command_line import CommandLine, command_options
from executor.cli.completion import names, pending_keys, worker_argument
from executor.cli.guest_output import write_guest_output
from executor.cli.output import EXIT_DONE, write_json, write_line
from executor.records import Done
from executor.requests import WaveArguments
from executor.server.operations import Choice, Operations
from executor.server.shapes import done_json


@click.command("interrupt")
@worker_argument
@command_options
@click.pass_context
def interrupt(context: click.Context, worker: str) -> int:
    """Stop WORKER until it is resumed or gets a new invocation.

    It stays so whatever becomes of the process. A worker that has nothing to do is left alone.
    """
    line = context.ensure_object(CommandLine)

    async def run(executor: Operations) -> Done:
        return await executor.interrupt(worker)

    return write_done(line.run(run), as_json=line.json)


@click.command("resume")
@worker_argument
@command_options
@click.pass_context
def resume(context: click.Context, worker: str) -> int:
    """Let an interrupted WORKER go on.

    Where no other process runs the store this one runs the worker until its invocation has ended,
    or waits for long.
    """
    line = context.ensure_object(CommandLine)

    async def run(executor: Operations) -> Done:
        return await executor.resume(worker, until_ended=True)

    return write_done(line.run(run, on_output=write_guest_output), as_json=line.json)


@click.command("cancel")
@worker_argument
@click.argument("key", metavar="KEY", shell_complete=names(pending_keys))
@command_options
@click.pass_context
def cancel(context: click.Context, worker: str, key: str) -> int:
    """Take the invocation KEY out of WORKER's queue.

    One that runs or has its outcome is refused. The key stays known, as cancelled.
    """
    line = context.ensure_object(CommandLine)

    async def run(executor: Operations) -> Done:
        return await executor.cancel(worker, key)

    done = line.run(run)
    if line.json:
        write_json(done_json(done))
    else:
        write_line(f"{worker}: {key} {'cancelled' if done.done else 'was cancelled before'}")
    return EXIT_DONE


@click.command("delete")
@worker_argument
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
@worker_argument
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
    answer. The worker then goes on; where no other process runs the store this one runs it until
    its invocation has ended, or waits for long.
    """
    line = context.ensure_object(CommandLine)
    if [repeat, fail, value is not None].count(True) != 1:
        raise click.UsageError("give one of --repeat, --fail and --value")
    choice: Choice = "repeat" if repeat else "fail" if fail else "value"

    async def run(executor: Operations) -> Done:
        answer = None if value is None else WaveArguments((value,))
        return await executor.resolve(worker, start, choice, answer, until_ended=True)

    return write_done(line.run(run, on_output=write_guest_output), as_json=line.json)


@click.command("revert")
@worker_argument
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
