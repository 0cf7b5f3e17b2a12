"""The small notations of options: `K=V`, `memory=64MiB`, `SRC:DST:rw`."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from executor.path_text import is_unicode, system_path
from executor.records import InitialFile

SIZE: Final = re.compile(r"(\d{1,100})\s*([A-Za-z]*)")
UNITS: Final[dict[str, int]] = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}


def unicode_text(text: str) -> str:
    """Text that a guest can be given: a terminal may pass any bytes."""
    if not is_unicode(text):
        raise click.BadParameter(f"{text!r} is not Unicode text")
    return text


def pair(text: str) -> tuple[str, str]:
    """`K=V`; the first `=` divides."""
    name, divider, value = unicode_text(text).partition("=")
    if not divider or not name:
        raise click.BadParameter(f"{text!r} is not of the form K=V")
    return name, value


def limit(text: str) -> tuple[str, int]:
    """`memory=64MiB`: a limit's name, and bytes. Which limits there are the executor knows."""
    name, _, size = text.partition("=")
    found = SIZE.fullmatch(size.strip())
    unit = UNITS.get(found[2].lower()) if found else None
    if found is None or unit is None or not name:
        raise click.BadParameter(f"{text!r} is not of the form NAME=SIZE, as memory=64MiB")
    return name, int(found[1]) * unit


def seconds(text: str) -> float:
    """A duration of zero or more."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise click.BadParameter(f"{text!r} is not a number of seconds, 0 or more")
    return value


def initial_file(text: str) -> InitialFile:
    """`SRC:DST[:ro|rw]`: a file of this machine, read now, and its absolute path at the worker."""
    rest, writable = text, False
    for suffix, means in ((":ro", False), (":rw", True)):
        if text.endswith(suffix):
            rest, writable = text.removesuffix(suffix), means
    source, divider, path = rest.rpartition(":")
    unicode_text(path)
    if not divider or not source or not path.startswith("/"):
        raise click.BadParameter(f"{text!r} is not SRC:DST[:ro|rw] with an absolute DST")
    if path.endswith("/"):
        raise click.BadParameter(f"{text!r} is to be a file: its DST names a directory")
    return InitialFile(path=path, content=read_file(source), writable=writable)


def read_file(path: str, bytes_max: int = -1) -> bytes:
    """The file's bytes, or the first of them. Blocks. Raises click's own error with the system's
    reason.
    """
    try:
        with Path(system_path(path)).open("rb") as file:
            return file.read(bytes_max)
    except OSError as error:
        raise click.BadParameter(f"{path or repr(path)}: {error.strerror or error}") from error


class WaveArgumentsCommand(click.Command):
    """A command whose last arguments are WAVE texts: `-5` and `-inf` are arguments, not options.

    Options may stand between and after the arguments; everything after `--` is an argument.
    """

    NEGATIVE: Final = re.compile(r"-(\d|\.\d|inf\b|nan\b)")
    MARK: Final = "\0"
    """Put before a negative number while `click` parses; no argument of a process can hold it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        rest = super().parse_args(ctx, self._marked(args))
        for name, value in ctx.params.items():
            if isinstance(value, tuple):
                ctx.params[name] = tuple(self._plain(item) for item in value)
            else:
                ctx.params[name] = self._plain(value)
        return rest

    def _plain(self, value: object) -> object:
        return value.removeprefix(self.MARK) if isinstance(value, str) else value

    def _marked(self, args: Sequence[str]) -> list[str]:
        marked: list[str] = []
        takes_value = False
        for position, argument in enumerate(args):
            if argument == "--" and not takes_value:
                return [*marked, *args[position:]]
            negative = not takes_value and self.NEGATIVE.match(argument)
            takes_value = not takes_value and argument in self._options_with_value()
            marked.append(self.MARK + argument if negative else argument)
        return marked

    def _options_with_value(self) -> set[str]:
        options = (param for param in self.params if isinstance(param, click.Option))
        return {name for option in options if not option.is_flag for name in option.opts}
