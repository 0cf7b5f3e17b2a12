"""`shem run`: take up all pending work of the store."""

import click

from executor.cli.command_line import CommandLine, command_options
from executor.cli.guest_output import write_guest_output
from executor.cli.output import EXIT_DONE, write_json, write_report
from executor.server.client import AskedExecutor
from executor.server.operations import Operations
from executor.worker.standing import standing_workers


@click.command("run")
@click.option("--until-idle", is_flag=True, help="End when nothing is runnable now.")
@command_options
@click.pass_context
def run(context: click.Context, until_idle: bool) -> int:
    """Take up all pending work, wakeups and retries.

    Until Ctrl-C: what runs then goes on with the next `run`. With --until-idle it says in the end
    which workers wait or stand still, and what for.
    """
    line = context.ensure_object(CommandLine)
    line.run(WholeRun(until_idle).run, on_output=write_guest_output, report=write_report)
    if until_idle:
        for text in line.read(lambda store: list(standing_workers(store))):
            write_report(text)
    if line.json:
        write_json({"done": True})
    return EXIT_DONE


class WholeRun:
    """Running everything, whichever process does it, and if one after another does."""

    def __init__(self, until_idle: bool) -> None:
        self._until_idle = until_idle
        self._owner = ""
        """Who was last said to run the store, in another process."""

    async def run(self, executor: Operations) -> None:
        if isinstance(executor, AskedExecutor):
            await executor.run(until_idle=self._until_idle, begun=self._show)
            return
        if self._owner:
            write_report("that process has ended: this one takes over")
        await executor.run(until_idle=self._until_idle)

    def _show(self, owner: str) -> None:
        if owner == self._owner:
            return  # it is ending still, and was asked once more
        self._owner = owner
        what = (
            "waits until nothing is left to run"
            if self._until_idle
            else "shows what is run there, and takes over when that one ends"
        )
        write_report(f"{owner}: this one {what}")
