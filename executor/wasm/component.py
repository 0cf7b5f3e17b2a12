"""A compiled component: what it imports and exports, and whether a host satisfies it.

A component holds no state and may be used on any thread; one serves all workers of its revision.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

import msgspec

from executor.wasm.bulk_bytes import RAW_STREAMS
from executor.wasm.component_types import ComponentTypes, ReadInstance, UnsupportedType
from executor.wasm.host_function import HostInterface
from executor.wasm.types import FuncType, format_function, same_function
from executor.wasm.wrapping import DROPS, GUEST, ExportedResource

TOOLCHAIN_EXPORTS: Final = frozenset({"exports", "init"})
"""What componentize-py and componentize-qjs export for themselves, beside the world's exports."""


class ImportedInterface(msgspec.Struct, frozen=True, kw_only=True):
    """One import: an interface, or (named "") the functions that the world itself imports."""

    name: str
    version: str
    functions: dict[str, FuncType]
    resources: tuple[str, ...]
    """Resource types it mentions, its own and those it uses of other interfaces."""

    @property
    def full_name(self) -> str:
        return f"{self.name}@{self.version}" if self.version else self.name


class ExportedFunction(msgspec.Struct, frozen=True, kw_only=True):
    """One function that may be called."""

    interface: str
    """`demo:counter/api`, without version; "" for a function that the world itself exports."""
    version: str
    name: str
    type: FuncType
    versioned: bool = False
    """Whether the component exports other versions of the interface too."""

    @property
    def path(self) -> str:
        """`demo:counter/api.{add}`, or `add` for a function of the world. The interface's version
        is in it only where it tells one interface from another.
        """
        if not self.interface:
            return self.name
        interface = _full(self.interface, self.version) if self.versioned else self.interface
        return f"{interface}.{{{self.name}}}"


class Component:
    """Made by `Engine.load`. Types are read when they are first asked for."""

    def __init__(self, wasmtime_component: Any, wasmtime_engine: Any) -> None:
        self.wasmtime_component = wasmtime_component
        self.wasmtime_engine = wasmtime_engine
        types = ComponentTypes(wasmtime_component, wasmtime_engine)
        self.read_imports = [read for read in types.imports if read.name != RAW_STREAMS]
        self.raw_imports = [read for read in types.imports if read.name == RAW_STREAMS]
        """What the wrapping imports for itself."""
        self.wrapped = types.wrapped
        self._read_exports = {
            (read.name, read.version): read
            for read in types.exports
            if read.name not in TOOLCHAIN_EXPORTS
        }
        self._drops: dict[tuple[str, str, str], str] = {}
        """By interface, version and name of the function: the wrapping's name of it."""
        for drop, (resource, function) in types.drops.items():
            interface = resource.defined_in, resource.version
            name = f"[resource-drop]{resource.defined_as}"
            self._read_exports[interface].functions[name] = function
            self._drops[*interface, name] = drop

    @cached_property
    def exported_resources(self) -> tuple[ExportedResource, ...]:
        """The resources that it defines itself."""
        return tuple(
            ExportedResource(_full(read.name, read.version), of.name)
            for read in self._read_exports.values()
            for of in read.resources
            if of.exported and (of.defined_in, of.version) == (read.name, read.version)
        )

    @cached_property
    def imports(self) -> tuple[ImportedInterface, ...]:
        """In the component's order. A function whose type no host can have is left out."""
        return tuple(
            ImportedInterface(
                name=read.name,
                version=read.version,
                functions=dict(_readable(read)),
                resources=tuple(resource.name for resource in read.resources),
            )
            for read in self.read_imports
        )

    @cached_property
    def exports(self) -> tuple[ExportedFunction, ...]:
        """What may be called, without toolchains' own exports and what takes streams or futures."""
        versions = Counter(read.name for read in self._read_exports.values() if read.name)
        return tuple(
            ExportedFunction(
                interface=read.name,
                version=read.version,
                name=name,
                type=type_,
                versioned=versions[read.name] > 1,
            )
            for read in self._read_exports.values()
            for name, type_ in _readable(read)
            if read.name or name not in TOOLCHAIN_EXPORTS
        )

    @property
    def import_texts(self) -> tuple[str, ...]:
        """Interfaces as `wasi:io/poll@0.2.0`, functions of the world as WIT."""
        texts = []
        for interface in self.imports:
            if interface.name:
                texts.append(interface.full_name)
            else:
                texts.extend(format_function(*item) for item in interface.functions.items())
        return tuple(texts)

    @property
    def export_texts(self) -> tuple[str, ...]:
        """Functions as WIT with their path: `demo:counter/api.{add}: func(n: u32) -> u32`."""
        return tuple(format_function(export.path, export.type) for export in self.exports)

    def crossing_type(self, function: ExportedFunction) -> FuncType:
        """The function's type with resource identities. Raises: KeyError."""
        return (
            self._read_exports[function.interface, function.version]
            .functions[function.name]
            .crossing
        )

    def export_index(self, function: ExportedFunction) -> Any:
        """Wasmtime's index of the function; raises KeyError for another component's."""
        path = [GUEST] if self.wrapped else []
        if function.interface:
            path.append(_full(function.interface, function.version))
        path.append(function.name)
        drop = self._drops.get((function.interface, function.version, function.name))
        if drop is not None:
            path = [DROPS, drop]
        index = None
        for name in path:
            index = self.wasmtime_component.get_export_index(name, index)
            if index is None:
                break
        if index is None:
            raise KeyError(function.path)
        return index

    def problems(self, host: Sequence[HostInterface]) -> tuple[str, ...]:
        """Everything that keeps this host from satisfying the imports, one sentence each.

        Takes tens of milliseconds for a large component.
        """
        return tuple(_problems(self.read_imports, host, signatures=True))

    def missing(self, host: Sequence[HostInterface]) -> tuple[str, ...]:
        """The same without comparing signatures: what is not offered at all. Takes little time."""
        return tuple(_problems(self.read_imports, host, signatures=False))


def _readable(read: ReadInstance) -> Iterator[tuple[str, FuncType]]:
    for name, function in read.functions.items():
        try:
            yield name, function.type
        except UnsupportedType:
            continue


def serving(host: Sequence[HostInterface], name: str, version: str) -> HostInterface | None:
    """The host's interface for an import of this name and version."""
    return next(
        (offered for offered in host if offered.name == name and offered.serves(version)), None
    )


def _full(name: str, version: str) -> str:
    return f"{name}@{version}" if version else name


def _problems(
    imports: Sequence[ReadInstance], host: Sequence[HostInterface], *, signatures: bool
) -> Iterator[str]:
    for read in imports:
        full_name = _full(read.name, read.version)
        for member in read.others:
            yield f"{_member(full_name, member)}: only functions can be given to a guest"
        offered = serving(host, read.name, read.version)
        if offered is None:
            if read.functions or any(of.defined_in == read.name for of in read.resources):
                yield from _missing_interface(read, full_name, host)
            continue
        yield from _missing_resources(read, full_name, offered)
        functions = {function.name: function.type for function in offered.functions}
        for name in read.functions:
            if name not in functions:
                yield f"{_member(full_name, name)}: this function is not offered"
        if signatures:
            yield from _mismatches(read, full_name, functions)


def _member(full_name: str, member: str) -> str:
    return f"{full_name}.{{{member}}}" if full_name else member


def _missing_interface(
    read: ReadInstance, full_name: str, host: Sequence[HostInterface]
) -> Iterator[str]:
    if not read.name:
        for name in read.functions:
            yield f"{name}: this function is not offered"
        return
    tracks = [
        _full(offered.name, offered.versions or "any version")
        for offered in host
        if offered.name == read.name
    ]
    nearest = f"; offered: {', '.join(tracks)}" if tracks else ""
    yield f"{full_name}: this interface is not offered{nearest}"


def _missing_resources(read: ReadInstance, full_name: str, offered: HostInterface) -> Iterator[str]:
    for resource in read.resources:
        own = (resource.defined_in, resource.version) == (read.name, read.version)
        if own and resource.defined_as not in offered.resources:
            yield f"{_member(full_name, resource.name)}: this resource is not offered"


def _mismatches(
    read: ReadInstance, full_name: str, offered: Mapping[str, FuncType]
) -> Iterator[str]:
    for name, function in read.functions.items():
        where = _member(full_name, name)
        try:
            wanted = function.type
        except UnsupportedType as error:
            yield f"{where}: {error}"
            continue
        had = offered.get(name, wanted)
        if not same_function(wanted, had):
            yield (
                f"{where}: the component wants {format_function('', wanted)},"
                f" the host has {format_function('', had)}"
            )
