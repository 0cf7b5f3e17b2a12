"""`shem crash` and `replay`: does a worker's oplog still answer?"""

import click

from executor.cli.command_line import CommandLine, command_options
from executor.cli.completion import worker_argument
from executor.cli.output import EXIT_DONE, exit_code, write_error, write_json, write_line
from executor.errors import Divergence
from executor.records import ErrorRecord, Rebuild
from executor.server.operations import Operations
from executor.server.shapes import rebuild_json


@click.command("crash")
@worker_argument
@command_options
@click.pass_context
def crash(context: click.Context, worker: str) -> int:
    """Simulate a crash of WORKER and rebuild it from its oplog.

    Its instance is dropped in the middle of whatever it does. Appends nothing. Where another
    process runs the store, the worker then goes on there.
    """
    line = context.ensure_object(CommandLine)

    async def run(executor: Operations) -> Rebuild:
        return await executor.crash(worker, go_on=False)

    return write_rebuild(line.run(run), as_json=line.json)


@click.command("replay")
@worker_argument
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
