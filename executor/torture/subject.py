"""The component under torture, and the store that all its cases begin with."""

import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from executor.deployment import DeployOptions
from executor.durable.retry_rules import joined
from executor.executor import Executor
from executor.records import Deployed, InitialFile
from executor.services.components import (
    artifact_path,
    content_digest,
    read_component,
    read_content,
    read_revision,
)
from executor.services.limits import RECORDED
from executor.wasm.engine import Engine as WasmEngine
from executor.worker.reader import StoreReader


class Subject(NamedTuple):
    name: str
    wasm: bytes
    options: DeployOptions


def deployed_subject(reader: StoreReader, name: str) -> Subject:
    """The newest revision of a deployed component. Raises: ComponentNotFound."""
    engine = reader.engine
    row = read_revision(engine, name, read_component(engine, name).revision)
    return Subject(
        name=name,
        wasm=read_content(engine, row.digest),
        options=DeployOptions(
            env=row.env,
            files=[
                InitialFile(
                    path=file.path,
                    content=read_content(engine, file.digest),
                    writable=file.writable,
                )
                for file in row.files
            ],
            host=row.host,
            host_directory=row.host_directory,
            limits={
                name: row.limits[kept] for name, kept in RECORDED.items() if kept in row.limits
            },
            config=row.config,
            allow_net=row.allow_net,
            retry=joined(row.retry, row.retry_rules),
        ),
    )


async def deploy_subject(
    subject: Subject, store: Path, known: Path, progress: Callable[[str], None] | None
) -> Deployed:
    """A new store at `store`, with the component and nothing else. What is compiled already in the
    store `known` is not compiled again; that store is only read. In trio.

    Raises: ComponentRejected, HostBindingError, UsageError, StoreError.
    """
    async with Executor.open(store) as shem:
        tag = WasmEngine.open().settings_tag
        digest = content_digest(subject.wasm)
        artifact = artifact_path(store, digest, tag)
        artifact.parent.mkdir()
        with suppress(OSError):  # it is compiled then
            shutil.copyfile(artifact_path(known, digest, tag), artifact)
        return await shem.deploy(
            subject.wasm, name=subject.name, progress=progress, **subject.options
        )
