"""`shem files`: a worker's files, from outside."""

import click

from executor.cli.command_line import CommandLine, command_options
from executor.cli.completion import worker_argument
from executor.cli.output import EXIT_DONE, table, write_json, write_line, write_note
from executor.records import FileRecord, WorkerFile, time_text
from executor.server.operations import Operations
from executor.server.shapes import worker_file_json

HEADING = ("KIND", "SIZE", "MODIFIED", "NAME")


@click.command("files")
@worker_argument
@click.argument("path", metavar="[PATH]", default="/")
@command_options
@click.pass_context
def files(context: click.Context, worker: str, path: str) -> int:
    """List a directory of WORKER's files, or print a file.

    PATH is taken from the root, which is the default; symbolic links are followed. The files are
    those of the worker's last committed entry: its oplog is replayed beside it. Appends nothing.
    """
    line = context.ensure_object(CommandLine)
    text = path.encode(errors="surrogateescape").decode(errors="replace")

    async def run(executor: Operations) -> WorkerFile:
        return await executor.files(worker, text)

    found = line.run(run)
    if line.json:
        write_json(worker_file_json(found))
        return EXIT_DONE
    if found.stopped_at is not None:
        write_note(f"{worker}: its files before the invocation that ended it ({found.stopped_at})")
    if found.content is not None:
        click.echo(found.content, nl=False)
    elif found.entries:
        for text in table([HEADING, *(_row(entry) for entry in found.entries)]):
            write_line(text)
    return EXIT_DONE


def _row(file: FileRecord) -> tuple[object, ...]:
    name = file.name if file.target is None else f"{file.name} -> {file.target}"
    return file.kind, file.size, time_text(file.modified_at), name
