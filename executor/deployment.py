"""Deploying: from bytes to a durable revision.

Compiling and checking take seconds and happen on a worker thread; the revision, its bytes and its
files become durable in one unit. Revisions are numbered one deployment after another.
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypedDict

import trio

from executor.errors import UsageError
from executor.records import Deployed, InitialFile
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
from executor.wasm.component import Component
from executor.worker.commits import submit
from executor.worker.worker import WorkerServices

LIMITS = ("memory",)
"""Names of the limits that a deployment may set; in bytes."""


PAGE_BYTES = 65_536
"""A memory is at least one page, or nothing."""


class DeployOptions(TypedDict, total=False):
    """What a revision has besides its bytes."""

    env: dict[str, str]
    """Environment of its workers."""
    files: Sequence[InitialFile]
    """Files that its workers start with."""
    host: Sequence[str]
    """`MODULE:ATTR` of host functions, imported from a directory, now and at recovery."""
    host_directory: str
    """That directory; the current one if it is left out."""
    limits: dict[str, int]
    """By name, in bytes: `memory`."""


async def deploy(
    services: WorkerServices,
    wasm: bytes,
    name: str,
    options: DeployOptions,
    progress: Callable[[str], None] | None,
) -> Deployed:
    """A new revision, or the existing one with the same bytes and options. Durable on return."""
    check_component_name(name)
    check_surroundings("deploy", options.get("env", {}))
    for limit, size in options.get("limits", {}).items():
        if limit not in LIMITS:
            raise UsageError(
                f"there is no limit {limit!r}", where="deploy", hint=f"one of {', '.join(LIMITS)}"
            )
        if size < PAGE_BYTES:
            raise UsageError(
                f"a limit of {size} bytes is less than one page of {PAGE_BYTES} bytes",
                where=f"limit {limit}",
                hint="write the unit, as memory=64MiB",
            )
    tell = progress or ignore_progress
    component = await trio.to_thread.run_sync(compile_checked, services, wasm, options, tell)
    tell("storing")
    async with services.revisions.deploying:
        # A number is taken once it is durable: the next deployment waits, if this one is cancelled
        # too, since its commit is under way.
        with trio.CancelScope(shield=True):
            row, contents = revision_row(services, wasm, name, options, component)
            existing = same_revision(services.store.engine, row)
            if existing is None:
                await submit(services.store, deployment(row, contents), name)
    found = existing or row
    return Deployed(
        component=found.component,
        id=found.component_id,
        revision=found.revision,
        digest=found.digest,
        imports=found.imports,
        exports=found.exports,
    )


def compile_checked(
    services: WorkerServices, wasm: bytes, options: DeployOptions, tell: Callable[[str], None]
) -> Component:
    """Compiles and checks every import. Blocks for seconds. Raises: ComponentRejected."""
    tell(f"compiling {len(wasm):,} bytes")
    component = services.revisions.compiled(wasm, content_digest(wasm))
    tell("checking imports")
    host = options.get("host", ())
    services.revisions.check(component, host, host_directory(options))
    return component


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
        limits={f"{limit}_bytes": size for limit, size in options.get("limits", {}).items()},
    )
    return row, contents


def host_directory(options: DeployOptions) -> str:
    """Where the revision's host functions are imported from; "" if there are none."""
    if not options.get("host"):
        return ""
    return options.get("host_directory") or os.fspath(Path.cwd())


def ignore_progress(stage: str) -> None:
    """Nobody watches."""
