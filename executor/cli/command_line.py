"""What one run of `shem` was asked for, whatever its command: store, form of answers, debugging.

The two doors to a store, and the maker of processes under torture, stand here as plain callables,
so that a run of the command line can be given other ones. A command that needs the executor runs it
in this process and serves it meanwhile, or asks the process that runs the store already; when that
one ends in order the command goes on by itself, here or with the next one.
"""

import functools
import os
import sys
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, closing, redirect_stdout
from pathlib import Path
from typing import Any, Final, Literal, TypeVar, Unpack

import click
import trio

from executor.cli.collector import settle_collector
from executor.cli.output import leaf_error, write_report
from executor.cli.signals import ended_by_signals
from executor.errors import StoreError
from executor.path_text import system_path
from executor.server.client import HandedOver, NotServed, is_loaded
from executor.server.opening import open_or_ask
from executor.server.operations import Operations
from executor.torture.children import Children
from executor.worker.reader import StoreReader
from executor.world import World

Answer = TypeVar("Answer")
Command = TypeVar("Command", bound=Callable[..., Any])

DEFAULT_STORE: Final = ".shem"
STORE_VARIABLE: Final = "SHEM_DATA"
REACHED_WITHIN_S: Final = 5.0
"""A process that has just taken the store listens within this time, if it serves it at all."""
REACH_AGAIN_S: Final = 0.02
WHOLE: Final = 200
"""Characters of a command's first sentence: more than any has."""


class CommandLine:
    """The options that every command has; `click` carries it as the command's object."""

    def __init__(
        self,
        open_executor: Callable[..., AbstractAsyncContextManager[Operations]] = open_or_ask,
        open_reader: Callable[[Path], StoreReader] = StoreReader,
        children: Callable[[int], Children] = Children,
    ) -> None:
        self.data: str | None = None
        self.json = False
        self.debug = False
        self.arguments: tuple[str, ...] = ()
        """All that was typed behind `shem`."""
        self.children = children
        """Makes the processes under torture, so many at once."""
        self._open_executor = open_executor
        self._open_reader = open_reader

    @property
    def store(self) -> Path:
        """Where the store is: `--data`, else `$SHEM_DATA`, else `./.shem`."""
        path = self.data or os.environ.get(STORE_VARIABLE) or DEFAULT_STORE
        return Path(system_path(path))

    def read(self, use: Callable[[StoreReader], Answer]) -> Answer:
        """`use` on the store opened for reading, beside whoever runs it. Blocks."""
        self.require_store()
        with closing(self._open_reader(self.store)) as reader:
            return use(reader)

    def run(
        self,
        use: Callable[[Operations], Awaitable[Answer]],
        *,
        create: bool = False,
        recover: Literal["named", "all"] = "named",
        **world: Unpack[World],
    ) -> Answer:
        """`await use(executor)` in trio, in the `world` given. Blocks.

        `use` begins again when the process that was asked has ended: it must stand that.
        Without `create` a store must be there: only a deployment makes a new one. Errors of `use`
        arrive bare, not in the exception groups of the executor's own tasks. Stdout is for the
        result: what host functions print meanwhile, or their modules, goes to stderr.
        """
        if not create:
            self.require_store()

        settle_collector()

        async def opened() -> Answer:
            async with (
                ended_by_signals(),
                self._open_executor(
                    self.store, recover=recover, on_silence=write_report, **world
                ) as executor,
            ):
                return await use(executor)

        unreached_since: float | None = None
        while True:
            try:
                with redirect_stdout(sys.stderr):
                    return trio.run(opened, restrict_keyboard_interrupt_to_checkpoints=True)
            except HandedOver:
                unreached_since = None
            except NotServed as error:
                now = time.monotonic()
                unreached_since = unreached_since or now
                if now - unreached_since > REACHED_WITHIN_S:
                    raise error.busy from error
                time.sleep(REACH_AGAIN_S)
            except BaseExceptionGroup as group:
                raise leaf_error(group) from group

    def is_loaded(self, worker: str) -> bool:
        """Whether a process that serves the store has an instance of the worker. Blocks."""
        return trio.run(is_loaded, self.store, worker)

    def has_store(self) -> bool:
        """Whether there is a directory where the store should be, whatever the name of that is."""
        return os.path.isdir(self.store)  # noqa: PTH112  # False for a name that is too long

    def require_store(self) -> None:
        if not self.has_store():
            raise StoreError(
                "there is no store",
                where=str(self.store),
                hint="deploy a component first, or name the store with --data DIR",
            )


def write_commands(
    formatter: click.HelpFormatter, heading: str, commands: Iterable[click.Command]
) -> None:
    """A section of a group's help: each command with its first sentence, whole."""
    with formatter.section(heading):
        formatter.write_dl([(str(one.name), one.get_short_help_str(WHOLE)) for one in commands])


def command_options(command: Command) -> Command:
    """`--data`, `--json` and `--debug`, before or after the command's name."""
    for option in (
        click.option("--debug", is_flag=True, expose_value=False, callback=_set("debug"),
                     is_eager=True, help="Show tracebacks."),
        click.option("--json", is_flag=True, expose_value=False, callback=_set("json"),
                     is_eager=True, help="Answer in JSON, on one line (oplog: a line an entry)."),
        click.option("--data", metavar="DIR", expose_value=False, callback=_set("data"),
                     is_eager=True, help="The store [default: $SHEM_DATA, else ./.shem]."),
    ):  # fmt: skip
        command = option(command)
    return command


def _set(name: str) -> Callable[[click.Context, click.Parameter, object], None]:
    return functools.partial(_store_option, name)


def _store_option(name: str, context: click.Context, _: click.Parameter, value: object) -> None:
    if value == "":
        raise click.BadParameter("it names no directory")
    if value:
        setattr(context.ensure_object(CommandLine), name, value)
