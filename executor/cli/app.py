"""The command `shem` as a whole: its commands, and the one place where errors become exit codes."""

import io
import logging
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Final

import click
from click.exceptions import Exit, NoArgsIsHelpError

from executor.cli.command_line import CommandLine, command_options, write_commands
from executor.cli.completion import VARIABLE, answer_shell, completion
from executor.cli.demo import demo
from executor.cli.deploy import component, components, deploy
from executor.cli.ending import end_by_sigterm
from executor.cli.examples import epilog
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
    write_remark,
    write_traceback,
)
from executor.cli.owner import cancel, delete, interrupt, resolve, resume, revert
from executor.cli.promise import promise
from executor.cli.run import run
from executor.cli.signals import Terminated
from executor.cli.torture import torture
from executor.cli.workers import worker, workers
from executor.path_text import legible

SILENCE: Final = logging.NullHandler()
"""What a user has to hear is an error or a report of the command; a line of a log says it again."""

SECTIONS: Final[dict[str, tuple[click.Command, ...]]] = {
    "Deploy and invoke": (deploy, invoke, run),
    "Look": (components, component, workers, worker, oplog, files),
    "Steer a worker": (interrupt, resume, cancel, promise, resolve, revert, delete),
    "Prove": (crash, replay, torture, demo),
    "Shell": (completion,),
}
"""The commands, as `shem --help` lists them."""

START: Final = """\b
Start with `shem demo`, or with a component of your own:
  shem deploy counter.wasm
  shem invoke counter/alice add 5 --key order-1
  shem oplog counter/alice
Each command has --help with examples."""


class Sections(click.Group):
    """A group whose help lists its commands by what they are for."""

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002  # click's signature
        formatter: click.HelpFormatter,
    ) -> None:
        for heading, commands in SECTIONS.items():
            write_commands(formatter, heading, commands)


@click.group(
    "shem",
    cls=Sections,
    epilog=START,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(version("shem"), prog_name="shem")
@command_options
def shem() -> None:
    """Runs WebAssembly components so that they outlive the process."""


def add_commands() -> None:
    for commands in SECTIONS.values():
        for command in commands:
            shem.add_command(command)
            inner = command.commands.values() if isinstance(command, click.Group) else ()
            for one in inner or (command,):
                one.epilog = epilog(f"{command.name} {one.name}" if inner else str(command.name))


add_commands()


def main(arguments: Sequence[str] | None = None, line: CommandLine | None = None) -> int:
    """Runs one command line and answers its exit code; never raises for what the user did.

    `line` says how stores are opened. Blocks until the command is done.
    """
    line = line or CommandLine()
    given = [legible(text) for text in (sys.argv[1:] if arguments is None else arguments)]
    try:
        prepare_streams()
        line.arguments = tuple(given)
        if "--debug" not in given:
            logging.getLogger().addHandler(SILENCE)
        if instruction := os.environ.get(VARIABLE):
            return answer_shell(shem, line, instruction)
        with shem.make_context("shem", given.copy(), obj=line) as context:
            code = shem.invoke(context)
            sys.stdout.flush()
            return int(code or EXIT_DONE)
    except Exit as done:
        return done.exit_code
    except NoArgsIsHelpError as error:
        write_remark(error.format_message())
        return EXIT_USAGE
    except BrokenPipeError:
        discard_stdout()
        return EXIT_DONE
    except (Exception, KeyboardInterrupt, BaseExceptionGroup) as error:
        return _refuse(error, line, given)


def prepare_streams() -> None:
    """A stream that the caller has closed takes everything and keeps nothing; the others take any
    text, whatever the locale says.
    """
    for number in range(3):  # a file of the store that is opened must not become stderr
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    if sys.stdout is None or sys.stderr is None:
        nowhere = Path(os.devnull).open("w")  # noqa: SIM115  # as long as the process
        sys.stdout = sys.stdout or nowhere
        sys.stderr = sys.stderr or nowhere
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")


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
    if isinstance(leaf, Terminated):
        end_by_sigterm()
    return exit_code(record.kind)
