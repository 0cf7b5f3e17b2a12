"""`shem oplog`: a worker's entries, one line each."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import click
import msgspec
from rich.console import Console

from executor.cli.command_line import CommandLine, command_options
from executor.cli.completion import worker_argument
from executor.cli.oplog_text import TO_MILLISECONDS, entry_text
from executor.cli.output import (
    EXIT_DONE,
    stdout_console,
    wait_while_read,
    write_json,
    write_line,
)
from executor.records import OplogRecord
from executor.server.shapes import entry_json
from executor.worker.commits import store_errors
from executor.worker.reader import FOLLOW_S, StoreReader
from oplog.entry import KIND_OF, TAGS

INDEX_WIDTH: Final = 5


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """Which entries; the command's argument and options by name."""

    worker: str
    first: int
    limit: int | None
    kinds: tuple[str, ...]
    search: str | None
    follow: bool


@click.command("oplog")
@worker_argument
@click.option(
    "--from",
    "first",
    metavar="I",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="The first index.",
)
@click.option("--limit", metavar="N", type=click.IntRange(min=0), help="At most N entries.")
@click.option(
    "--kind",
    "kinds",
    metavar="K",
    type=click.Choice(sorted(TAGS)),
    multiple=True,
    help="Only entries of this kind; may be repeated.",
)
@click.option("--search", metavar="Q", help="Only entries that match the query, as above.")
@click.option(
    "--follow",
    is_flag=True,
    help="Go on as entries are committed, until Ctrl-C or until nobody reads them.",
)
@command_options
@click.pass_context
def oplog(context: click.Context, /, **asked: Any) -> int:
    """Print what WORKER was asked, what it did and was answered.

    One line an entry. An entry that a jump or a revert has hidden is marked ~.

    A query of --search holds words and "quoted" texts, which an entry has to say in its kind,
    function, key or values, in any order. AND goes without saying; OR, NOT and parentheses combine
    them. FIELD:VALUE looks at fields of that name only, however deep in a value.
    """
    line = context.ensure_object(CommandLine)

    query = Query(**asked)

    def show(store: StoreReader) -> None:
        width = max(INDEX_WIDTH, len(str(store.worker(query.worker).entries)))
        write = json_writer() if line.json else line_writer(stdout_console(), width)
        with store_errors(query.worker):
            for record in chosen(read(store, query), query.kinds, query.limit):
                write(record)

    line.read(show)
    return EXIT_DONE


def json_writer() -> Callable[[OplogRecord], None]:
    return lambda record: write_json(entry_json(record))


def line_writer(console: Console, index_width: int) -> Callable[[OplogRecord], None]:
    """Aligned lines; on a terminal coloured, with the time of day, and cut at its width."""

    def write(record: OplogRecord) -> None:
        if console.is_terminal:
            text = entry_text(record, index_width, TO_MILLISECONDS)
            text.truncate(console.width, overflow="ellipsis")
            console.print(text)
        else:
            write_line(entry_text(record, index_width).plain)

    return write


def chosen(
    records: Iterator[OplogRecord], kinds: tuple[str, ...], limit: int | None
) -> Iterator[OplogRecord]:
    """The first `limit` records of the kinds asked for; every kind if none is named."""
    left = limit
    if left == 0:
        return
    for record in records:
        if kinds and KIND_OF[type(record.entry)] not in kinds:
            continue
        yield record
        if left is not None:
            left -= 1
            if left == 0:
                return


def read(store: StoreReader, query: Query) -> Iterator[OplogRecord]:
    """The worker's committed entries; those that follow them too, if they were asked for."""
    if not query.follow:
        return store.oplog(query.worker, query.first, search=query.search)
    return store.follow_oplog(
        query.worker, query.first, search=query.search, wait=partial(wait_while_read, FOLLOW_S)
    )
