"""`shem deploy`, `components` and `component`."""

import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import click
import msgspec
from rich.text import Text

from executor.cli.command_line import Command, CommandLine, command_options
from executor.cli.completion import complete_file, deployed_names, names
from executor.cli.output import (
    EXIT_DONE,
    one_line,
    printable,
    stderr_console,
    table,
    write_json,
    write_line,
)
from executor.cli.parse import (
    initial_file,
    limit,
    pair,
    read_file,
    unicode_text,
)
from executor.cli.retry_text import retry_option, retry_text
from executor.deployment import DeployOptions
from executor.durable.retry import DEFAULT_POLICY, RetryPolicy
from executor.durable.retry_rules import RetryRule, joined
from executor.errors import ShemError
from executor.records import ComponentRecord, Deployed, InitialFile, RevisionRecord, time_text
from executor.server.operations import Operations
from executor.server.shapes import component_json, component_summary_json, deployed_json
from executor.services.limits import RECORDED

LIMIT_NAMES: Final = {recorded: name for name, recorded in RECORDED.items()}


class Deployment(msgspec.Struct, frozen=True, kw_only=True):
    """What the user asked for; the command's argument and options by name."""

    file: str
    name: str | None
    env: tuple[tuple[str, str], ...]
    files: tuple[InitialFile, ...]
    host: tuple[str, ...]
    limits: tuple[tuple[str, int], ...]
    config: tuple[tuple[str, str], ...]
    allow_net: tuple[str, ...]
    retry: tuple[RetryPolicy | RetryRule, ...]

    @property
    def component(self) -> str:
        return Path(self.file).stem if self.name is None else self.name

    @property
    def options(self) -> DeployOptions:
        return DeployOptions(
            env=dict(self.env),
            files=self.files,
            host=self.host,
            limits=dict(self.limits),
            config=dict(self.config),
            retry=self.retry or None,
            allow_net=self.allow_net,
        )


def deployment_options(command: Command) -> Command:
    """What `Deployment` has besides the file."""
    for option in (
        click.option("--retry", metavar="[NAME:…]POLICY", type=retry_option, multiple=True,
                     help="Attempts at what may pass, until the guest sets its own policy; what is"
                     f" not said is as in {retry_text(DEFAULT_POLICY)}. With a NAME, function=,"
                     " error= or status= it is a rule: the first one that fits a failure decides,"
                     " whatever the guest sets. 'never' is a policy."),
        click.option("--allow-net", metavar="HOST[:PORT]", type=unicode_text, multiple=True,
                     help="What they may reach, else nothing:"
                     " example.com:443, '*.example.com', '*', 10.0.0.0/8."),
        click.option("--config", metavar="K=V", type=pair, multiple=True,
                     help="What they read by wasi:config; the last one of a name counts."),
        click.option("--limit", "limits", metavar="NAME=SIZE", type=limit, multiple=True,
                     help="A limit of its workers:"
                     " memory=64MiB, tables=N, files=1MiB, file-count=N."),
        click.option("--host", metavar="MODULE:ATTR", multiple=True,
                     help="Host functions it imports, found from this directory, later too."),
        click.option("--file", "files", metavar="SRC:DST[:ro|rw]", type=initial_file,
                     multiple=True, help="A file that its workers start with."),
        click.option("--env", metavar="K=V", type=pair, multiple=True,
                     help="Environment of its workers; the last one of a name counts."),
        click.option("--name", metavar="N",
                     help="The component's name [default: the file's stem]."),
    ):  # fmt: skip
        command = option(command)
    return command


@click.command("deploy")
@click.argument("file", metavar="FILE", shell_complete=complete_file)
@deployment_options
@command_options
@click.pass_context
def deploy(context: click.Context, /, **asked: Any) -> int:
    """Make FILE the newest revision of a component.

    FILE is a WebAssembly component, as bytes or as text. The same bytes with the same options are
    the revision that is there already; where a newer one has followed, new workers still take that
    one. Prints what the component exports.
    """
    line = context.ensure_object(CommandLine)
    deployment = Deployment(**asked)
    file = Path(deployment.file)
    wasm = read_file(deployment.file)
    with shown_progress(f"deploying {file.name}") as progress:

        async def run(executor: Operations) -> Deployed:
            return await executor.deploy(
                wasm, name=deployment.component, progress=progress, **deployment.options
            )

        try:
            deployed = line.run(run, create=True)
        except ShemError as error:
            error.where = error.where or str(file)
            raise
    if line.json:
        write_json(deployed_json(deployed))
    else:
        there = (
            ""
            if deployed.newest is None
            else f" is there already; new workers take revision {deployed.newest}"
        )
        write_line(f"{deployed.component} revision {deployed.revision}{there}")
        for export in deployed.exports:
            write_line(f"  {export}")
    return EXIT_DONE


@contextmanager
def shown_progress(first: str) -> Iterator[Callable[[str], None] | None]:
    """A line on the terminal that says which stage a deployment is in; None where there is none.

    The callable may be called from any thread.
    """
    console = stderr_console()
    if not console.is_terminal:
        yield None
        return
    with console.status(Text(printable(first))) as status:
        yield lambda stage: status.update(Text(stage))


@click.command("components")
@command_options
@click.pass_context
def components(context: click.Context) -> int:
    """List the components of the store."""
    line = context.ensure_object(CommandLine)
    found = line.read(lambda store: list(store.components()))
    if line.json:
        write_json([component_summary_json(component) for component in found])
    elif found:
        rows = [(item.component, item.revision, item.workers, item.id) for item in found]
        for text in table([("COMPONENT", "REVISION", "WORKERS", "ID"), *rows]):
            write_line(text)
    return EXIT_DONE


@click.command("component")
@click.argument("name", metavar="NAME", shell_complete=names(deployed_names))
@command_options
@click.pass_context
def component(context: click.Context, name: str) -> int:
    """Show a component: its revisions, imports and exports."""
    line = context.ensure_object(CommandLine)
    found = line.read(lambda store: store.component(name))
    if line.json:
        write_json(component_json(found))
    else:
        for text in _component_lines(found):
            write_line(text)
    return EXIT_DONE


def _component_lines(component: ComponentRecord) -> list[str]:
    rows = [
        (item.revision, item.digest, item.bytes, time_text(item.deployed_at))
        for item in component.revisions
    ]
    heading, *lines = table([("REVISION", "DIGEST", "BYTES", "DEPLOYED"), *rows])
    revisions = [heading]
    for text, revision in zip(lines, component.revisions, strict=True):
        revisions += [text, *_indented(_options(revision))]
    return [
        f"{component.component}  {component.id}",
        "revisions",
        *_indented(revisions),
        "imports",
        *_indented(component.imports),
        "exports",
        *_indented(component.exports),
    ]


def _options(revision: RevisionRecord) -> list[str]:
    """What the revision was deployed with, as it is written; of a file only where it is."""
    lines = [
        *(f"--env {name}={value}" for name, value in revision.env.items()),
        *(f"--config {name}={value}" for name, value in revision.config.items()),
        *(f"--file …:{path}:{'rw' if writable else 'ro'}" for path, writable in revision.files),
        *(f"--limit {LIMIT_NAMES.get(name, name)}={n}" for name, n in revision.limits.items()),
        *(f"--host {name}, of {revision.host_directory}" for name in revision.host),
        *(f"--allow-net {rule}" for rule in revision.allow_net),
    ]
    retries = joined(revision.retry, revision.retry_rules)
    lines += [f"--retry {shlex.quote(retry_text(retry))}" for retry in retries]
    return [one_line(line) for line in lines]


def _indented(lines: list[str] | tuple[str, ...]) -> list[str]:
    return [f"  {part}" for line in lines for part in line.splitlines()]
