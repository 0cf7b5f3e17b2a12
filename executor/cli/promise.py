"""`shem promise`: what a worker waits for, and giving it."""

from typing import Final
from uuid import uuid4

import click

from executor.cli.command_line import CommandLine, command_options, write_commands
from executor.cli.completion import worker_argument
from executor.cli.guest_output import write_guest_output
from executor.cli.output import (
    EXIT_DONE,
    shortened,
    table,
    write_json,
    write_line,
    write_note,
)
from executor.cli.parse import read_file
from executor.errors import BadArguments
from executor.records import PromiseRecord, time_text
from executor.server.operations import Operations
from executor.server.shapes import promise_json, promise_page_json
from executor.services.promises import INDEX_MAX, VALUE_BYTES_MAX
from executor.wasm.types import ListType, Primitive
from executor.wasm.wave import format_wave, parse_wave
from executor.worker.reader import PROMISES_PER_PAGE

PAGE_MAX: Final = 1_000
HEADING: Final = ("PROMISE", "STATUS", "CREATED", "COMPLETED", "VALUE")
TEXT: Final = Primitive("string")
NUMBERS: Final = ListType(Primitive("u8"))
TOO_LONG: Final = VALUE_BYTES_MAX + 1
SHOWN_MAX: Final = 60
"""Characters of a value in a list."""


class Promises(click.Group):
    """A group whose help does not cut its commands' sentences."""

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002  # click's signature
        formatter: click.HelpFormatter,
    ) -> None:
        write_commands(formatter, "Commands", self.commands.values())


@click.group("promise", cls=Promises)
@command_options
def promise() -> None:
    """What a worker waits for: list, show, complete."""


@promise.command("complete")
@worker_argument
@click.argument("index", metavar="ID", type=click.IntRange(1, INDEX_MAX))
@click.argument("value", metavar="[VALUE]", required=False)
@click.option("--file", "path", metavar="FILE", help="Take the value's bytes from FILE.")
@command_options
@click.pass_context
def complete(
    context: click.Context, worker: str, index: int, value: str | None, path: str | None
) -> int:
    """Complete promise ID of WORKER, which goes on if it waited for it.

    ID is the entry that made it. VALUE is WAVE: a string is its UTF-8 bytes, a list of numbers is
    bytes. Exactly one completion counts; a later one is told so and changes nothing.
    """
    line = context.ensure_object(CommandLine)
    if (value is None) == (path is None):
        raise click.UsageError("give one of VALUE and --file")
    content = value_bytes(value) if value is not None else read_file(path or "", TOO_LONG)
    if len(content) > VALUE_BYTES_MAX:
        raise BadArguments(
            f"a promise's value has at most {VALUE_BYTES_MAX} bytes, and this has more",
            where=path or "VALUE",
            hint="put it where the guest can fetch it, and complete the promise with its name",
        )
    key = str(uuid4())

    async def run(executor: Operations) -> bool:
        return await executor.complete_promise(worker, index, content, key=key, until_rest=True)

    done = line.run(run, on_output=write_guest_output)
    if line.json:
        write_json({"worker": worker, "promise": index, "done": done})
    else:
        what = "completed" if done else "had been completed before"
        write_line(f"{worker}: promise {index} {what}")
    return EXIT_DONE


@promise.command("list")
@worker_argument
@click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(1, PAGE_MAX),
    default=PROMISES_PER_PAGE,
    show_default=True,
    help="At most N promises.",
)
@click.option(
    "--cursor",
    metavar="C",
    type=click.IntRange(0, INDEX_MAX),
    default=0,
    help="Go on where the page that named C ended.",
)
@command_options
@click.pass_context
def list_(context: click.Context, worker: str, limit: int, cursor: int) -> int:
    """List the promises of WORKER, oldest first."""
    line = context.ensure_object(CommandLine)
    page = line.read(lambda store: store.promises(worker, after=cursor, limit=limit))
    if line.json:
        write_json(promise_page_json(page))
        return EXIT_DONE
    rows = [
        (
            found.promise,
            found.status,
            time_text(found.created_at),
            "" if found.completed_at is None else time_text(found.completed_at),
            shortened(value_text(found), SHOWN_MAX),
        )
        for found in page.promises
    ]
    for text in table([HEADING, *rows]) if rows else ():
        write_line(text)
    if page.cursor is not None:
        write_note(f"more: --cursor {page.cursor}")
    return EXIT_DONE


@promise.command("show")
@worker_argument
@click.argument("index", metavar="ID", type=click.IntRange(1, INDEX_MAX))
@command_options
@click.pass_context
def show(context: click.Context, worker: str, index: int) -> int:
    """Show one promise of WORKER, with what it was completed with."""
    line = context.ensure_object(CommandLine)
    found = line.read(lambda store: store.promise(worker, index))
    if line.json:
        write_json({"worker": worker, **promise_json(found)})
        return EXIT_DONE
    fields = {"worker": worker, **promise_json(found), "value": value_text(found)}
    for name, field in fields.items():
        if field not in (None, ""):
            write_line(f"{name:<12}  {field}")
    return EXIT_DONE


def value_bytes(text: str) -> bytes:
    """Of a WAVE string or list of numbers. Raises: BadArguments."""
    if text.lstrip().startswith("["):
        return bytes(parse_wave(NUMBERS, text, "VALUE"))
    value: str = parse_wave(TEXT, text, "VALUE")
    return value.encode()


def value_text(found: PromiseRecord) -> str:
    """A completed promise's value as WAVE: a string where it is UTF-8."""
    if found.value is None:
        return ""
    try:
        return format_wave(TEXT, found.value.decode())
    except UnicodeDecodeError:
        return format_wave(NUMBERS, found.value)
