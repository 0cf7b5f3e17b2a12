"""Deploying: from bytes to a durable revision.

Compiling and checking take seconds and happen on a worker thread; the revision, its bytes and its
files become durable in one unit. Revisions are numbered one deployment after another.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypedDict, get_type_hints

import msgspec
import trio

from executor.durable.retry import recorded_policy
from executor.durable.retry_rules import Deployable, recorded_retry_rules, refuse_unmatched, split
from executor.errors import UsageError
from executor.host.embedder import check_binding
from executor.path_text import is_unicode, legible
from executor.records import Deployed, InitialFile
from executor.requests import check_options, check_type
from executor.services.components import (
    FileRow,
    RevisionRow,
    check_component_name,
    check_surroundings,
    content_digest,
    deployment,
    next_component,
    same_revision,
)
from executor.services.egress import recorded_rules
from executor.services.files import FileTree
from executor.services.files_nodes import FileError
from executor.services.limits import file_limits, recorded_limits
from executor.wasm.component import Component
from executor.wasm.engine import memory_bytes_min, table_elements_min
from executor.worker.commits import submit
from executor.worker.worker import WorkerServices


class DeployOptions(TypedDict, total=False):
    """What a revision has besides its bytes."""

    env: dict[str, str]
    """Environment of its workers."""
    files: Sequence[InitialFile]
    """Files that its workers start with."""
    config: dict[str, str]
    """What its workers read by wasi:config."""
    host: Sequence[str]
    """`MODULE:ATTR` of host functions, imported from a directory, now and at recovery."""
    host_directory: str
    """That directory; the current one if it is left out."""
    allow_net: Sequence[str]
    """What its workers may reach: rules as `executor.services.egress` has them."""
    retry: Deployable
    """What its workers retry by until their guests say otherwise, None for the default policy, and
    the rules for what has a policy of its own: one policy, or a sequence of it and rules.
    """
    limits: dict[str, int]
    """By the names, and in the units, of `executor.services.limits`."""


OPTION_TYPES: Final = {**get_type_hints(DeployOptions), "retry": None}
"""The type of `retry` is looked at by `split`."""


async def deploy(
    services: WorkerServices,
    wasm: bytes,
    name: str,
    options: DeployOptions,
    progress: Callable[[str], None] | None,
) -> Deployed:
    """A new revision, or the existing one with the same bytes and options. Durable on return."""
    check_type(wasm, bytes, "wasm")
    check_type(name, str, "name")
    check_component_name(name)
    check_options({**options, "retry": None}, OPTION_TYPES)
    check_surroundings("deploy", options.get("env", {}))
    check_surroundings("deploy", options.get("config", {}))
    check_files(options)
    for binding in options.get("host", ()):
        check_binding(binding)
    recorded_rules(options.get("allow_net", ()))
    policy, rules = split(options.get("retry"))
    retry = None if policy is None else recorded_policy(policy)
    retry_rules = recorded_retry_rules(rules)
    tell = progress or ignore_progress
    component = await trio.to_thread.run_sync(compile_checked, services, wasm, options, tell)
    refuse_unmatched(retry_rules, imported_functions(component))
    tell("storing")
    async with services.revisions.deploying:
        # A number is taken once it is durable: the next deployment waits, if this one is cancelled
        # too, since its commit is under way.
        with trio.CancelScope(shield=True):
            row, contents = revision_row(services, wasm, name, options, component)
            row = msgspec.structs.replace(row, retry=retry, retry_rules=retry_rules)
            existing = same_revision(services.store.engine, row)
            if existing is None:
                await submit(services.store, deployment(row, contents), name)
    found = existing or row
    newest = row.revision if existing is None else row.revision - 1
    return Deployed(
        component=found.component,
        id=found.component_id,
        revision=found.revision,
        digest=found.digest,
        imports=found.imports,
        exports=found.exports,
        newest=newest if newest != found.revision else None,
    )


def imported_functions(component: Component) -> list[str]:
    """As oplogs name them: without versions."""
    return [
        f"{imported.name}.{name}" if imported.name else name
        for imported in component.imports
        for name in imported.functions
    ]


def check_files(options: DeployOptions) -> None:
    """Raises: UsageError for an unknown limit, or files that no worker could begin with."""
    files = FileTree(file_limits(recorded_limits(options.get("limits", {}))))
    check_surroundings("deploy", {}, [file.path for file in options.get("files", ())])
    for file in options.get("files", ()):
        if file.path.endswith("/"):
            raise UsageError(
                f"{file.path!r} names a directory, not a file",
                where="deploy",
                hint="give the file's own path at the worker",
            )
        try:
            files.add_file(file.path, file.content, writable=file.writable, now_ns=0)
        except FileError as refusal:
            raise UsageError(
                f"no worker could begin with the file {file.path!r}: {refusal.code}",
                where="deploy",
                hint="each path once, and all within the limit: --limit files=SIZE"
                if refusal.code in {"exist", "quota"}
                else "give a path of names, as /etc/rates",
            ) from refusal


def compile_checked(
    services: WorkerServices, wasm: bytes, options: DeployOptions, tell: Callable[[str], None]
) -> Component:
    """Compiles and checks every import. Blocks for seconds. Raises: ComponentRejected."""
    tell(f"compiling {len(wasm):,} bytes")
    component = services.revisions.compiled(wasm, content_digest(wasm))
    tell("checking imports")
    host = options.get("host", ())
    services.revisions.check(component, host, host_directory(options))
    check_sizes(wasm, options.get("limits", {}))
    return component


def check_sizes(wasm: bytes, limits: Mapping[str, int]) -> None:
    """Raises: UsageError if no instance could be made within the limits."""
    for name, what, unit, least_of in (
        ("memory", "a memory", "bytes", memory_bytes_min),
        ("tables", "a table", "elements", table_elements_min),
    ):
        if name in limits and (least := least_of(wasm)) > limits[name]:
            raise UsageError(
                f"{what} of the component begins with {least:,} {unit},"
                f" and its limit is {limits[name]:,}",
                where=f"limit {name}",
                hint=f"deploy with --limit {name}={least} or more",
            )


def revision_row(
    services: WorkerServices, wasm: bytes, name: str, options: DeployOptions, component: Component
) -> tuple[RevisionRow, dict[str, bytes]]:
    """The row of the revision, and everything that is stored by digest."""
    engine = services.store.engine
    digest = content_digest(wasm)
    contents = {digest: wasm}
    files = []
    for file in options.get("files", ()):
        file_digest = content_digest(file.content)
        contents[file_digest] = file.content
        files.append(FileRow(path=file.path, digest=file_digest, writable=file.writable))
    candidate = next_component(engine, name)
    host = tuple(options.get("host", ()))
    row = RevisionRow(
        component=name,
        component_id=candidate.id,
        revision=candidate.revision,
        digest=digest,
        size_bytes=len(wasm),
        deployed_at=services.sources.wall_ns(),
        imports=component.import_texts,
        exports=component.export_texts,
        env=dict(options.get("env", {})),
        files=tuple(files),
        host=host,
        host_directory=host_directory(options),
        config=dict(options.get("config", {})),
        limits=recorded_limits(options.get("limits", {})),
        allow_net=recorded_rules(options.get("allow_net", ())),
    )
    return row, contents


def host_directory(options: DeployOptions) -> str:
    """Where the revision's host functions are imported from; "" if there are none.

    Raises: UsageError for a directory whose path cannot be recorded.
    """
    if not options.get("host"):
        return ""
    directory = legible(options.get("host_directory") or os.fspath(Path.cwd()))
    if not is_unicode(directory):
        raise UsageError(
            "the directory of the host functions cannot be recorded: its path is not UTF-8",
            where=directory,
            hint="deploy from another directory",
        )
    return directory


def ignore_progress(stage: str) -> None:
    """Nobody watches."""
