"""`shem workers` and `shem worker`."""

from typing import Final

import click
import msgspec

from executor.cli.command_line import CommandLine, command_options
from executor.cli.completion import deployed_names, names, worker_argument
from executor.cli.output import (
    EXIT_DONE,
    one_line,
    shortened,
    table,
    write_json,
    write_line,
    write_note,
)
from executor.records import WorkerRecord, time_text
from executor.server.shapes import worker_json, worker_page_json
from executor.worker.reader import WORKERS_PER_PAGE
from executor.worker.status import STATES

PAGE_MAX: Final = 1000
ERROR_MAX: Final = 100
"""Characters of an error in a list."""
HEADING: Final = (
    "WORKER", "STATUS", "REVISION", "PENDING", "ENTRIES", "CREATED", "LAST ERROR",
)  # fmt: skip


@click.command("workers")
@click.argument(
    "component",
    metavar="[COMPONENT]",
    required=False,
    shell_complete=names(deployed_names),
)
@click.option(
    "--status",
    metavar="S",
    type=click.Choice(STATES),
    help=f"Only those that are S: {', '.join(STATES)}.",
)
@click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(1, PAGE_MAX),
    default=WORKERS_PER_PAGE,
    show_default=True,
    help="At most N workers.",
)
@click.option("--cursor", metavar="C", help="Go on where the page that named C ended.")
@command_options
@click.pass_context
def workers(
    context: click.Context,
    component: str | None,
    status: str | None,
    limit: int,
    cursor: str | None,
) -> int:
    """List workers, of one component or of all."""
    line = context.ensure_object(CommandLine)
    page = line.read(
        lambda store: store.workers(component, status=status, limit=limit, cursor=cursor)
    )
    if line.json:
        write_json(worker_page_json(page))
        return EXIT_DONE
    rows = [
        (
            worker.worker,
            worker.status,
            worker.revision,
            worker.pending,
            worker.entries,
            time_text(worker.created_at),
            shortened(one_line(worker.last_error or ""), ERROR_MAX),
        )
        for worker in page.workers
    ]
    for text in table([HEADING, *rows]) if rows else ():
        write_line(text)
    if page.cursor is not None:
        write_note(f"more: --cursor {page.cursor}")
    return EXIT_DONE


@click.command("worker")
@worker_argument
@command_options
@click.pass_context
def worker(context: click.Context, worker: str) -> int:
    """Show one worker in full.

    It is loaded while a process that runs the store has an instance of it.
    """
    line = context.ensure_object(CommandLine)
    found = line.read(lambda store: store.worker(worker))
    found = msgspec.structs.replace(found, loaded=line.is_loaded(worker))
    if line.json:
        write_json(worker_json(found))
    else:
        for text in _worker_lines(found):
            write_line(text)
    return EXIT_DONE


def _worker_lines(worker: WorkerRecord) -> list[str]:
    """A line a field; fields that hold nothing are left out."""
    shape = worker_json(worker)
    width = max(len(name) for name in shape)
    lines = []
    for name, value in shape.items():
        if value is None or value in ([], {}):
            continue
        match value:
            case list():
                text = ", ".join(str(item) for item in value)
            case dict():
                text = ", ".join(f"{key}={item}" for key, item in value.items())
            case bool():
                text = "yes" if value else "no"
            case _:
                text = one_line(str(value)) if name == "last_error" else str(value)
        lines.append(f"{name:<{width}}  {text}")
    return lines
