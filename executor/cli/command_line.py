"""What one run of `shem` was asked for, whatever its command: store, form of answers, debugging.

The two doors to a store stand here as plain callables, so that a run of the command line can be
given other ones. A command that needs the executor runs it in this process.
"""

import functools
import os
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, closing
from pathlib import Path
from typing import Any, Final, Literal, TypeVar, Unpack

import click
import trio

from executor.cli.output import leaf_error
from executor.errors import StoreError
from executor.executor import Executor, World
from executor.worker.reader import StoreReader

Answer = TypeVar("Answer")
Command = TypeVar("Command", bound=Callable[..., Any])

DEFAULT_STORE: Final = ".shem"
STORE_VARIABLE: Final = "SHEM_DATA"


class CommandLine:
    """The options that every command has; `click` carries it as the command's object."""

    def __init__(
        self,
        open_executor: Callable[..., AbstractAsyncContextManager[Executor]] = Executor.open,
        open_reader: Callable[[Path], StoreReader] = StoreReader,
    ) -> None:
        self.data: str | None = None
        self.json = False
        self.debug = False
        self._open_executor = open_executor
        self._open_reader = open_reader

    @property
    def store(self) -> Path:
        """Where the store is: `--data`, else `$SHEM_DATA`, else `./.shem`."""
        return Path(self.data or os.environ.get(STORE_VARIABLE) or DEFAULT_STORE)

    def read(self, use: Callable[[StoreReader], Answer]) -> Answer:
        """`use` on the store opened for reading, beside whoever runs it. Blocks."""
        self.require_store()
        with closing(self._open_reader(self.store)) as reader:
            return use(reader)

    def run(
        self,
        use: Callable[[Executor], Awaitable[Answer]],
        *,
        create: bool = False,
        recover: Literal["named", "all"] = "named",
        **world: Unpack[World],
    ) -> Answer:
        """`await use(executor)` in trio, in the `world` given. Blocks.

        Without `create` a store must be there: only a deployment makes a new one. Errors of `use`
        arrive bare, not in the exception groups of the executor's own tasks.
        """
        if not create:
            self.require_store()

        async def opened() -> Answer:
            async with self._open_executor(self.store, recover=recover, **world) as executor:
                return await use(executor)

        try:
            return trio.run(opened)
        except BaseExceptionGroup as group:
            raise leaf_error(group) from group

    def require_store(self) -> None:
        if not self.store.is_dir():
            raise StoreError(
                "there is no store",
                where=str(self.store),
                hint="deploy a component first, or name the store with --data DIR",
            )


def command_options(command: Command) -> Command:
    """`--data`, `--json` and `--debug`, before or after the command's name."""
    for option in (
        click.option("--debug", is_flag=True, expose_value=False, callback=_set("debug"),
                     is_eager=True, help="Show tracebacks."),
        click.option("--json", is_flag=True, expose_value=False, callback=_set("json"),
                     is_eager=True, help="Answer with one JSON object (a line each for oplog)."),
        click.option("--data", metavar="DIR", expose_value=False, callback=_set("data"),
                     is_eager=True, help="The store [default: $SHEM_DATA, else ./.shem]."),
    ):  # fmt: skip
        command = option(command)
    return command


def _set(name: str) -> Callable[[click.Context, click.Parameter, object], None]:
    return functools.partial(_store_option, name)


def _store_option(name: str, context: click.Context, _: click.Parameter, value: object) -> None:
    if value:
        setattr(context.ensure_object(CommandLine), name, value)
