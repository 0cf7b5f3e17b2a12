"""`shem completion`, and what a shell asks for: names of components, workers, functions and keys.

Names are read from the store that the line names, beside whoever runs it. What cannot be read is
no suggestion, and never a message in the middle of somebody's typing. Only names that need no
quoting are suggested, and functions by spellings without a colon, at which shells divide words.
"""

import shlex
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

import click
from click.shell_completion import CompletionItem, get_completion_class, shell_complete

from executor.cli.command_line import CommandLine, command_options
from executor.cli.output import EXIT_DONE, EXIT_USAGE, write_json, write_text
from executor.errors import ShemError
from executor.worker.reader import StoreReader
from oplog.errors import OplogError

VARIABLE: Final = "_SHEM_COMPLETE"
"""In the environment of a `shem` that a shell asks."""
SHELLS: Final = ("bash", "zsh", "fish")
NAMES_MAX: Final = 200


@click.command("completion")
@click.argument("shell", metavar="SHELL", type=click.Choice(SHELLS))
@command_options
@click.pass_context
def completion(context: click.Context, shell: str) -> int:
    """Print what makes SHELL complete commands, options and names.

    SHELL is bash, zsh or fish. Names come from the store that the line names, or $SHEM_DATA.
    """
    line = context.ensure_object(CommandLine)
    text = script(shell, context.find_root().command)
    if line.json:
        write_json({"shell": shell, "script": text})
    else:
        write_text(text)
    return EXIT_DONE


def script(shell: str, shem: click.Command) -> str:
    kind = get_completion_class(shell)
    assert kind is not None
    made = kind(shem, {}, "shem", VARIABLE)
    return (made.source_template % made.source_vars()).rstrip()


def answer_shell(shem: click.Command, line: CommandLine, instruction: str) -> int:
    """Answers what a shell asks, as `instruction` says. Reads the line from the environment."""
    try:
        return shell_complete(shem, {"obj": line}, "shem", VARIABLE, instruction)
    except (KeyError, ValueError):
        return EXIT_USAGE  # there is no such line


Suggest = Callable[[StoreReader, str, dict[str, Any]], Sequence[str]]
"""`suggest(store, typed, arguments)`: names that may follow; `arguments` are those before."""


def names(
    suggest: Suggest,
) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    """A `shell_complete` of click."""

    def complete(context: click.Context, _: click.Parameter, typed: str) -> list[CompletionItem]:
        line = context.ensure_object(CommandLine)
        try:
            found = line.read(lambda store: suggest(store, typed, context.params))
        except (ShemError, OplogError, OSError):
            return []
        plain = [name for name in found if name.startswith(typed) and shlex.quote(name) == name]
        return [CompletionItem(name) for name in plain[:NAMES_MAX]]

    return complete


def deployed_names(store: StoreReader, _typed: str, _arguments: dict[str, Any]) -> Sequence[str]:
    return [component.component for component in store.components()]


def workers(store: StoreReader, typed: str, _arguments: dict[str, Any]) -> Sequence[str]:
    """Workers, and what the name of a component's first one begins with."""
    found = store.worker_names(typed, NAMES_MAX)
    unused = [one.component for one in store.components() if not one.workers]
    return [*found, *(f"{component}/" for component in unused)]


def functions(store: StoreReader, _typed: str, arguments: dict[str, Any]) -> Sequence[str]:
    """The shortest spelling of each function that means only this one."""
    component = str(arguments.get("worker") or "").partition("/")[0]
    paths = store.exports(component, store.component(component).revisions[-1].revision)
    spellings = [[_bare(path), _short(path)] for path in paths]
    counted = Counter(spelling for pair in spellings for spelling in set(pair))
    return [next((one for one in pair if counted[one] == 1), pair[1]) for pair in spellings]


def _bare(path: str) -> str:
    """`add` of `demo:counter/api.{add}`."""
    return path.rpartition("{")[2].removesuffix("}")


def _short(path: str) -> str:
    """`api.add` of `demo:counter/api.{add}`."""
    interface = path.partition(".{")[0].rpartition("/")[2]
    return f"{interface}.{_bare(path)}" if "{" in path else path


def pending_keys(store: StoreReader, _typed: str, arguments: dict[str, Any]) -> Sequence[str]:
    return store.worker(str(arguments.get("worker") or "")).pending


complete_file: Final = click.Path().shell_complete
worker_argument: Final = click.argument("worker", metavar="WORKER", shell_complete=names(workers))
