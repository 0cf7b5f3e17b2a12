"""A component revision made ready to run: compiled, checked against the host, linked.

One linker serves all workers of the revision. Loading reads the compiled artifact (a few
milliseconds) and compiles again only where the artifact is missing or of another Wasmtime.
"""

import threading
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import trio

from executor.durable.call import host_function
from executor.errors import ComponentRejected, InternalError, StoreError, UsageError
from executor.host.embedder import (
    EmbedderFunction,
    embedder_interfaces,
    find_binding,
    find_bindings,
)
from executor.host.interface import InterfaceTable
from executor.services.components import (
    RevisionRow,
    artifact_path,
    is_whole_artifact,
    read_content,
    read_revision,
    write_artifact,
)
from executor.wasm.component import Component, ExportedFunction
from executor.wasm.engine import Engine as WasmEngine
from executor.wasm.engine import StaleArtifact
from executor.wasm.host_function import HostInterface
from executor.wasm.linker import Linker
from oplog.engine import Engine as StoreEngine

LOADED_MAX: Final = 64
"""Revisions that are kept though nobody may use them."""


class Revision:
    """A revision that instances can be made of. Immutable; used by every lane."""

    def __init__(self, row: RevisionRow, component: Component, linker: Linker) -> None:
        self.row = row
        self.component = component
        self.linker = linker
        self.exports: dict[str, ExportedFunction] = {
            function.path: function for function in component.exports
        }

    def export(self, path: str) -> ExportedFunction:
        """The exported function of a recorded invocation."""
        try:
            return self.exports[path]
        except KeyError:
            raise InternalError(
                f"{self.row.component} revision {self.row.revision} exports no {path}"
            ) from None


class Revisions:
    """Loads revisions and keeps those used last. `load` blocks for milliseconds, or for seconds if
    it compiles: call it on a worker thread.
    """

    def __init__(
        self,
        path: Path,
        store: StoreEngine,
        interfaces: Sequence[InterfaceTable],
        host: Sequence[EmbedderFunction],
    ) -> None:
        self._path = path
        self._store = store
        self._builtin = tuple(linked_interface(table) for table in interfaces)
        self._host = tuple(host)
        self._loaded: OrderedDict[tuple[str, int], Revision] = OrderedDict()
        """The one used last at the end. An instance holds its own, whatever is dropped here."""
        self._compiling: dict[str, threading.Lock] = {}
        """By digest, while it is compiled: nobody does it twice or waits for another one."""
        self._lock = threading.Lock()
        """Guards the two; held for no longer than a look."""
        self.deploying = trio.Lock()
        """Held from the choice of a revision's number until it is durable; for the trio thread."""

    def load(self, name: str, number: int) -> Revision:
        """Raises: ComponentNotFound, ComponentRejected, HostBindingError."""
        key = name, number
        with self._lock:
            found = self._loaded.get(key)
            if found is not None:
                self._loaded.move_to_end(key)
                return found
        row = read_revision(self._store, name, number)
        component = self._component(row.digest, None)
        revision = Revision(row, component, self._link(component, row))
        with self._lock:
            revision = self._loaded.setdefault(key, revision)
            self._loaded.move_to_end(key)
            if len(self._loaded) > LOADED_MAX:
                self._loaded.popitem(last=False)
        return revision

    def compiled(self, wasm: bytes, digest: str) -> Component:
        """Compiles a component that is being deployed, and keeps its artifact.

        Raises: ComponentRejected with the sentence that fits the bytes; StoreError if the artifact
        cannot be kept.
        """
        return self._component(digest, wasm)

    def check(self, component: Component, bindings: Sequence[str], directory: str) -> None:
        """Raises: ComponentRejected naming every import that nothing offers or that differs;
        UsageError for a binding of which nothing is imported; HostBindingError.
        """
        for binding in bindings:
            refuse_unused(binding, find_binding(binding, directory), component)
        problems = component.problems(self._interfaces(bindings, directory))
        if problems:
            raise ComponentRejected(
                f"{len(problems)} of its imports cannot be satisfied: " + "; ".join(problems),
                where="deploy",
                hint="bind the missing ones with --host MODULE:ATTR",
                imports=tuple(problems),
            )

    def _component(self, digest: str, wasm: bytes | None) -> Component:
        engine = WasmEngine.open()
        path = artifact_path(self._path, digest, engine.settings_tag)
        found = self._stored(path)
        if found is not None:
            return found
        with self._lock:
            compiling = self._compiling.setdefault(digest, threading.Lock())
        try:
            with compiling:
                found = self._stored(path)
                if found is not None:
                    return found  # compiled meanwhile
                content = read_content(self._store, digest) if wasm is None else wasm
                artifact = engine.compile(content)
                try:
                    write_artifact(path, artifact)
                except StoreError:
                    if wasm is not None:
                        raise  # who deploys hears of it; a worker that is there runs without
                    return engine.load(artifact)
                return engine.load(path)
        finally:
            with self._lock:
                self._compiling.pop(digest, None)

    def _stored(self, path: Path) -> Component | None:
        """What is in the artifact, unless it has to be compiled."""
        if is_whole_artifact(path):
            with suppress(FileNotFoundError, StaleArtifact):
                return WasmEngine.open().load(path)
        return None

    def _link(self, component: Component, row: RevisionRow) -> Linker:
        interfaces = self._interfaces(row.host, row.host_directory)
        return Linker(WasmEngine.open(), component, interfaces)

    def _interfaces(self, bindings: Sequence[str], directory: str) -> tuple[HostInterface, ...]:
        custom = [*self._host, *find_bindings(bindings, directory)]
        return (
            *self._builtin,
            *(linked_interface(table) for table in embedder_interfaces(custom)),
        )


def refuse_unused(binding: str, offered: Sequence[EmbedderFunction], component: Component) -> None:
    """Raises: UsageError if the component imports nothing that the binding holds."""
    imported = {(found.name, name) for found in component.imports for name in found.functions}
    names = [(function.interface.partition("@")[0], function.name) for function in offered]
    if imported.isdisjoint(names):
        held = ", ".join(f"{interface}.{name}" for interface, name in dict.fromkeys(names))
        raise UsageError(
            f"the component imports nothing of --host {binding}, which holds {held}",
            where="deploy",
            hint="leave it out, or see the interface's name",
        )


def linked_interface(table: InterfaceTable) -> HostInterface:
    """Compiles a table's rows into what the linker defines."""
    return HostInterface(
        name=table.name,
        versions=table.versions,
        functions=tuple(
            host_function(table.name, row, table.wit.functions[row.name], table.wit.types)
            for row in table.functions
        ),
        resources=dict(table.drops),
    )
