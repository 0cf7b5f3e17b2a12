"""What one component revision imports, bound to host functions.

One linker serves all workers of its revision, on any lane: the boundary finds the calling worker by
the address of its store's context. An interface with functions or resources is defined under the
exact name of the import, so several versions of one interface can stand beside each other; one with
types only needs no definition. A resource is one host type per (defining interface, name), also
where other interfaces mention it. What a wrapping imports for itself (`bulk_bytes`) is bound to the
same functions, with codecs of its own.
"""

from collections.abc import Callable, Sequence
from typing import Any

from wasmtime.component import Linker as WasmtimeLinker
from wasmtime.component import ResourceType

from executor.errors import ComponentRejected, InternalError
from executor.wasm import ffi
from executor.wasm.abi_handles import CallerResourceIds
from executor.wasm.boundary import Boundary, Codec
from executor.wasm.bulk_bytes import RAW_STREAMS, STREAMS, as_digits
from executor.wasm.component import Component, ExportedFunction, serving
from executor.wasm.component_types import DefinedResource, ReadFunction, ReadInstance
from executor.wasm.engine import Engine
from executor.wasm.host_function import HostFunction, HostInterface
from executor.wasm.types import format_function, same_function


class Linker:
    """Build it on any thread; afterwards it is only read. Takes a millisecond."""

    def __init__(self, engine: Engine, component: Component, host: Sequence[HostInterface]) -> None:
        """Bind the component's imports.

        What is missing is found here. A signature is compared at the function's first call, so
        that a large component loads fast; `Component.problems` compares all when it is deployed.

        Raises: ComponentRejected listing everything that this host does not offer.
        """
        problems = component.missing(host)
        if problems:
            raise ComponentRejected(
                f"the component imports what this executor does not offer: {problems[0]}"
                + (f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""),
                hint="deploy it again: that says what to do for each",
                imports=problems,
            )
        self.engine = engine
        self.component = component
        self.boundary = Boundary()
        self.host = host
        self._callbacks: list[Any] = []
        self._resource_types: dict[str, Any] = {}
        self._drops: dict[str, Any] = {}
        self._resource_ids: dict[str, int] = {}
        self._codecs: dict[str, Codec] = {}
        self._wasmtime_linker = WasmtimeLinker(component.wasmtime_engine)
        self._number_resources()
        with self._wasmtime_linker.root() as root:
            for read in (*component.read_imports, *component.raw_imports):
                if not read.functions and not read.resources:
                    continue
                if read.name:
                    name = f"{read.name}@{read.version}" if read.version else read.name
                    with root.add_instance(name) as instance:
                        self._define(ffi.pointer_of(instance), read)
                else:
                    self._define(ffi.pointer_of(root), read)
        self.address = ffi.pointer_of(self._wasmtime_linker)
        """For `ffi.instantiate_async`."""

    def codec(self, function: ExportedFunction) -> Codec:
        """How calls of this export cross; compiled at the first call."""
        key = f"{function.interface}@{function.version}.{function.name}"
        codec = self._codecs.get(key)
        if codec is None:
            type_ = self.component.crossing_type(function)
            codec = Codec(type_, CallerResourceIds(self._resource_ids))
            self._codecs[key] = codec
        return codec

    def _number_resources(self) -> None:
        for read in self.component.read_imports:
            for resource in read.resources:
                identity = resource.identity
                if identity not in self._resource_ids:
                    number = len(self._resource_ids) + 1
                    self._resource_ids[identity] = number
                    self._resource_types[identity] = ResourceType.host(number)
                    self._drops[identity] = self.boundary.drop_callback(self._drop_of(resource))

    def _drop_of(self, resource: DefinedResource) -> Callable[[Any, int], None]:
        offered = serving(self.host, resource.defined_in, resource.version)
        if offered is None or resource.defined_as not in offered.resources:
            return _ignore_drop
        return offered.resources[resource.defined_as]

    def _define(self, instance: int, read: ReadInstance) -> None:
        for resource in read.resources:
            encoded = resource.name.encode()
            ffi.check_no_error(
                ffi.linker_add_resource(
                    instance,
                    encoded,
                    len(encoded),
                    ffi.pointer_of(self._resource_types[resource.identity]),
                    ffi.address_of(self._drops[resource.identity]),
                    None,
                    None,
                )
            )
        original = self._original(read)
        offered = serving(self.host, original.name, read.version)
        functions = {} if offered is None else {of.name: of for of in offered.functions}
        for name, crossing in read.functions.items():
            function = functions[name]
            where = f"{original.name}.{name}" if original.name else name
            raw = None if read is original else crossing
            codec_of = self._codec_of(where, function, original.functions[name], raw)
            callback = self.boundary.host_callback(where, function, codec_of)
            self._callbacks.append(callback)
            add = ffi.linker_add_func_async if function.waits else ffi.linker_add_func
            encoded = name.encode()
            ffi.check_no_error(
                add(instance, encoded, len(encoded), ffi.address_of(callback), None, None)
            )

    def _original(self, read: ReadInstance) -> ReadInstance:
        """The interface whose functions one of the wrapping's own stands for; else the same."""
        if read.name != RAW_STREAMS:
            return read
        named = STREAMS, read.version
        return next(of for of in self.component.read_imports if (of.name, of.version) == named)

    def _codec_of(
        self, where: str, function: HostFunction, wanted: ReadFunction, raw: ReadFunction | None
    ) -> Callable[[], Codec]:
        """`raw` is the function as the wrapping imports it, if it is its own."""

        def codec_of() -> Codec:
            if not same_function(wanted.type, function.type):
                raise InternalError(
                    f"{where}: the component wants {format_function('', wanted.type)},"
                    f" the host has {format_function('', function.type)}"
                )
            if raw is None:
                return Codec(wanted.crossing, self._resource_ids)
            codec = Codec(as_digits(raw.crossing), self._resource_ids)
            codec.result_type = wanted.crossing.result  # what is said of a wrong answer
            return codec

        return codec_of


def _ignore_drop(_state: object, _number: int) -> None:
    """For a resource that is only mentioned: no function that was linked can make one."""
