"""The command `shem` as a whole: its commands, and the one place where errors become exit codes."""

import os
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Final

import click
from click.exceptions import Exit, NoArgsIsHelpError

from executor.cli.command_line import CommandLine, command_options
from executor.cli.demo import demo
from executor.cli.deploy import component, components, deploy
from executor.cli.files import files
from executor.cli.invoke import invoke
from executor.cli.lifecycle import crash, replay
from executor.cli.oplog import oplog
from executor.cli.output import (
    EXIT_DONE,
    EXIT_USAGE,
    discard_stdout,
    error_record,
    exit_code,
    leaf_error,
    write_error,
    write_note,
    write_traceback,
)
from executor.cli.owner import cancel, delete, interrupt, resolve, resume, revert
from executor.cli.promise import promise
from executor.cli.run import run
from executor.cli.torture import torture
from executor.cli.workers import worker, workers

COMMANDS: Final = (
    deploy,
    components,
    component,
    invoke,
    oplog,
    workers,
    worker,
    files,
    crash,
    replay,
    resolve,
    revert,
    interrupt,
    resume,
    cancel,
    promise,
    delete,
    run,
    torture,
    demo,
)


class InOrder(click.Group):
    """A group that lists its commands in the order of a worker's life, not of the alphabet."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  # click's signature
        return list(self.commands)


@click.group("shem", cls=InOrder, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(version("shem"), prog_name="shem")
@command_options
def shem() -> None:
    """Runs WebAssembly components so that they outlive the process."""


for command in COMMANDS:
    shem.add_command(command)


def main(arguments: Sequence[str] | None = None, line: CommandLine | None = None) -> int:
    """Runs one command line and answers its exit code; never raises for what the user did.

    `line` says how stores are opened. Blocks until the command is done.
    """
    line = line or CommandLine()
    open_missing_streams()
    given = list(sys.argv[1:] if arguments is None else arguments)
    line.arguments = tuple(given)
    try:
        with shem.make_context("shem", given.copy(), obj=line) as context:
            code = shem.invoke(context)
            sys.stdout.flush()
            return int(code or EXIT_DONE)
    except Exit as done:
        return done.exit_code
    except NoArgsIsHelpError as error:
        write_note(error.format_message())
        return EXIT_USAGE
    except BrokenPipeError:
        discard_stdout()
        return EXIT_DONE
    except (Exception, KeyboardInterrupt, BaseExceptionGroup) as error:
        return _refuse(error, line, given)


def open_missing_streams() -> None:
    """A stream that the caller has closed takes everything and keeps nothing."""
    if sys.stdout is None or sys.stderr is None:
        nowhere = Path(os.devnull).open("w")  # noqa: SIM115  # as long as the process
        sys.stdout = sys.stdout or nowhere
        sys.stderr = sys.stderr or nowhere


def _refuse(error: BaseException, line: CommandLine, given: Sequence[str]) -> int:
    leaf = leaf_error(error)
    record = error_record(leaf)
    if isinstance(leaf, click.UsageError):  # the options may not have been read yet
        line.json = line.json or "--json" in given
        line.debug = line.debug or "--debug" in given
    if isinstance(leaf, OSError):
        discard_stdout()
    if line.debug:
        write_traceback(error)
    write_error(record, as_json=line.json)
    return exit_code(record.kind)
