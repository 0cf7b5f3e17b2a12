"""`shem run`: take up all pending work of the store."""

import click

from executor.cli.command_line import CommandLine, command_options
from executor.cli.guest_output import write_guest_output
from executor.cli.output import EXIT_DONE, one_line, write_json, write_note
from executor.server.operations import Operations


@click.command("run")
@click.option("--until-idle", is_flag=True, help="End when nothing is runnable now.")
@command_options
@click.pass_context
def run(context: click.Context, until_idle: bool) -> int:
    """Take up all pending work, wakeups and retries.

    Until Ctrl-C: what runs then goes on with the next `run`.
    """
    line = context.ensure_object(CommandLine)

    async def run_all(executor: Operations) -> None:
        await executor.run(until_idle=until_idle)

    line.run(run_all, on_output=write_guest_output, report=write_report)
    if line.json:
        write_json({"done": True})
    return EXIT_DONE


def write_report(text: str) -> None:
    """What no caller hears, since none waits: a worker that stands still, and why."""
    write_note(f"shem: {one_line(text)}")
