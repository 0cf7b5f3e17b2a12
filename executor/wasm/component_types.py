"""Reading a compiled component's imports and exports into WIT types.

Wasmtime gives types without their names, and a resource as an opaque type that can be compared.
A resource's name is recovered from the interface that exports it; the first import that mentions
it defines it, since a component imports an interface before those that use its types. What a
component exports may be inside a wrapping (`executor.wasm.wrapping`), and is read from there. Every
function can be read twice: with short resource names (`pollable`) for people and comparison, and
with identities (`wasi:io/poll.pollable`) for the codecs, where two resources of one name must not
mix. Reading all types of a large component takes 20 ms, so each is read when it is needed.
"""

from collections.abc import Callable, Iterator
from ctypes import POINTER, addressof, c_void_p, string_at
from functools import cached_property
from typing import Any, Final, TypeAlias

import msgspec
from wasmtime import _ffi as wasmtime_ffi
from wasmtime import component as wasmtime_component

from executor.wasm import ffi
from executor.wasm.types import (
    PRIMITIVES,
    BorrowType,
    EnumType,
    FlagsType,
    FuncType,
    ListType,
    OptionType,
    OwnType,
    RecordType,
    ResultType,
    TupleType,
    VariantType,
    WitType,
)
from executor.wasm.wrapping import DROPS, GUEST

NameOf: TypeAlias = Callable[[Any], str]

_PRIMITIVES = {
    getattr(wasmtime_component, name.title()): primitive for name, primitive in PRIMITIVES.items()
}
_FUNCTION = wasmtime_ffi.WASMTIME_COMPONENT_ITEM_COMPONENT_FUNC.value
_RESOURCE = wasmtime_ffi.WASMTIME_COMPONENT_ITEM_RESOURCE.value
_FUNCTION_POINTER: Any = POINTER(wasmtime_ffi.wasmtime_component_func_type_t)
_RESOURCE_POINTER: Any = POINTER(wasmtime_ffi.wasmtime_component_resource_type_t)
_NOT_GIVEN = frozenset(
    {
        wasmtime_ffi.WASMTIME_COMPONENT_ITEM_COMPONENT.value,
        wasmtime_ffi.WASMTIME_COMPONENT_ITEM_COMPONENT_INSTANCE.value,
        wasmtime_ffi.WASMTIME_COMPONENT_ITEM_MODULE.value,
    }
)
_OTHER: Final = object()
"""A component, an instance or a module within an instance: nothing that a host can give."""
_PRIMITIVE_CLASSES = tuple(_PRIMITIVES)


class UnsupportedType(Exception):
    """A type that no value of this executor can have (streams, futures, error contexts, maps)."""


class DefinedResource(msgspec.Struct, frozen=True):
    """A resource that an interface mentions, and where it is defined."""

    name: str
    """As the mentioning interface calls it."""
    defined_in: str
    """Interface without version."""
    version: str
    defined_as: str
    exported: bool = False
    """It is the component's own; an import may have the same name."""

    @property
    def identity(self) -> str:
        """The key of the codecs' resources."""
        if self.exported:
            return f"exported {self.defined_in}@{self.version}.{self.defined_as}"
        return f"{self.defined_in}.{self.defined_as}"


class ReadFunction:
    """One function; its types are read when they are first asked for, which takes a while."""

    def __init__(self, item: Any, short_name: NameOf, identity: NameOf) -> None:
        self._item = item
        self._short_name = short_name
        self._identity = identity

    @cached_property
    def type(self) -> FuncType:
        """With short resource names. Raises: UnsupportedType."""
        return read_function(self._item, self._short_name)

    @cached_property
    def crossing(self) -> FuncType:
        """With resource identities. Raises: UnsupportedType."""
        return read_function(self._item, self._identity)


class ReadInstance(msgspec.Struct):
    """One imported or exported interface, or (named "") what the world itself has."""

    name: str
    version: str
    functions: dict[str, ReadFunction]
    resources: tuple[DefinedResource, ...]
    others: tuple[str, ...]
    """Components and modules, which cannot be given to a guest."""


class ComponentTypes:
    """What a component imports and exports."""

    def __init__(self, component: Any, engine: Any) -> None:
        self._engine = engine
        self._known: list[tuple[Any, DefinedResource]] = []
        component_type = component.type
        self.imports = self._read(component_type.imports(engine))
        exports = component_type.exports(engine)
        self.wrapped = GUEST in exports
        drops = _item(exports[DROPS]) if DROPS in exports else None
        if self.wrapped:
            exports = _item(exports[GUEST]).exports(engine)
        self.exports = self._read(exports, exported=True)
        self.drops = {} if drops is None else self._read_drops(_members(drops, engine))
        """The function in `DROPS` for a resource that the component exports."""

    def _read_drops(
        self, members: dict[str, Any]
    ) -> dict[str, tuple[DefinedResource, ReadFunction]]:
        drops = {}
        for name, item in members.items():
            resource = self._find(item.params[0][1].ty)
            assert resource is not None
            drops[name] = resource, ReadFunction(item, self._short_name, self._identity)
        return drops

    def _read(self, items: dict[str, Any], *, exported: bool = False) -> list[ReadInstance]:
        world: dict[str, Any] = {}
        instances = []
        for full_name, extern in items.items():
            item = _item(extern)
            if isinstance(item, wasmtime_component.ComponentInstanceType):
                name, _, version = full_name.partition("@")
                members = _members(item, self._engine)
                instances.append(self._read_instance(name, version, members, exported))
            else:
                world[full_name] = item
        if world:
            instances.append(self._read_instance("", "", world, exported))
        return instances

    def _read_instance(
        self, name: str, version: str, members: dict[str, Any], exported: bool
    ) -> ReadInstance:
        resources = tuple(
            self._resource(DefinedResource(member, name, version, member, exported), item)
            for member, item in members.items()
            if isinstance(item, wasmtime_component.ResourceType)
        )
        functions = {
            member: ReadFunction(item, self._short_name, self._identity)
            for member, item in members.items()
            if isinstance(item, wasmtime_component.FuncType)
        }
        others = tuple(
            member
            for member, item in members.items()
            if item is _OTHER
            or isinstance(item, wasmtime_component.ComponentType | wasmtime_component.ModuleType)
        )
        return ReadInstance(name, version, functions, resources, others)

    def _resource(self, defined: DefinedResource, item: Any) -> DefinedResource:
        """What is known of the resource; where it is met first it is defined."""
        known = self._find(item)
        if known is None:
            known = defined
            self._known.append((item, known))
        return msgspec.structs.replace(known, name=defined.name)

    def _find(self, item: Any) -> DefinedResource | None:
        return next((known for of, known in self._known if of == item), None)

    def _short_name(self, item: Any) -> str:
        known = self._find(item)
        return "" if known is None else known.defined_as

    def _identity(self, item: Any) -> str:
        known = self._find(item)
        return "" if known is None else known.identity


def _item(extern: Any) -> Any:
    """What an import or export is; None for a type that wasmtime-py does not know."""
    try:
        return extern.ty
    except (TypeError, NotImplementedError):
        return None


def _members(instance_type: Any, engine: Any) -> dict[str, Any]:
    """The exports of an instance's type: functions and resources; None for anything else.

    What `instance_type.exports(engine)` answers, four times as fast: a large component has
    hundreds, and they are read whenever it is loaded.
    """
    address, engine_address = ffi.pointer_of(instance_type), ffi.pointer_of(engine)
    item = wasmtime_ffi.wasmtime_component_item_t()
    item_at = addressof(item)
    out = (c_void_p * 3)()
    name_at = addressof(out)
    members: dict[str, Any] = {}
    for index in range(ffi.instance_type_export_count(address, engine_address)):
        found = ffi.instance_type_export_nth(
            address, engine_address, index, name_at, name_at + 8, name_at + 16
        )
        assert found
        name = string_at(out[0] or 0, out[1] or 0).decode()
        ffi.extern_type(out[2], item_at)
        ffi.extern_delete(out[2])
        kind = ffi.u8_at(item_at).value
        # The pointer is copied: a field of `item` would change with the next item.
        if kind == _FUNCTION:
            pointer = _FUNCTION_POINTER.from_buffer_copy(item, 8)
            members[name] = wasmtime_component.FuncType._from_ptr(pointer)
        elif kind == _RESOURCE:
            pointer = _RESOURCE_POINTER.from_buffer_copy(item, 8)
            members[name] = wasmtime_component.ResourceType._from_ptr(pointer)
        else:
            members[name] = _OTHER if kind in _NOT_GIVEN else None
            ffi.item_delete(item_at)
    return members


def async_imports(component: Any, engine: Any) -> list[str]:
    """Names of imported functions that WIT declares `async`, which the C API cannot define."""
    return sorted(_async_imports(component, engine))


def _async_imports(component: Any, engine: Any) -> Iterator[str]:
    for name, extern in component.type.imports(engine).items():
        item = _item(extern)
        if isinstance(item, wasmtime_component.ComponentInstanceType):
            for member, of in _members(item, engine).items():
                if _is_async(of):
                    yield f"{name}.{{{member}}}"
        elif _is_async(item):
            yield name


def _is_async(item: Any) -> bool:
    return isinstance(item, wasmtime_component.FuncType) and bool(
        wasmtime_ffi.wasmtime_component_func_type_async(item.ptr())
    )


def read_function(item: Any, name_of: NameOf) -> FuncType:
    """Convert wasmtime-py's function type. Raises: UnsupportedType."""
    try:
        result = item.result
        return FuncType(
            params=tuple((name, read_type(of, name_of)) for name, of in item.params),
            result=None if result is None else read_type(result, name_of),
        )
    except (TypeError, NotImplementedError) as error:
        raise UnsupportedType(str(error)) from error


def read_type(item: Any, name_of: NameOf) -> WitType:
    """Convert wasmtime-py's type; `name_of` names its resource types. Raises: UnsupportedType."""
    if isinstance(item, _PRIMITIVE_CLASSES):
        return _PRIMITIVES[type(item)]
    match item:
        case wasmtime_component.ListType():
            return ListType(read_type(item.element, name_of))
        case wasmtime_component.RecordType():
            return RecordType(tuple((name, read_type(of, name_of)) for name, of in item.fields))
        case wasmtime_component.TupleType():
            return TupleType(tuple(read_type(of, name_of) for of in item.elements))
        case wasmtime_component.VariantType():
            return VariantType(tuple((name, _maybe(of, name_of)) for name, of in item.cases))
        case wasmtime_component.EnumType():
            return EnumType(tuple(item.names))
        case wasmtime_component.OptionType():
            return OptionType(read_type(item.payload, name_of))
        case wasmtime_component.ResultType():
            return ResultType(_maybe(item.ok, name_of), _maybe(item.err, name_of))
        case wasmtime_component.FlagsType():
            return FlagsType(tuple(item.names))
        case wasmtime_component.OwnType():
            return OwnType(name_of(item.ty))
        case wasmtime_component.BorrowType():
            return BorrowType(name_of(item.ty))
        case _:
            raise UnsupportedType(f"values of {type(item).__name__} cannot cross")


def _maybe(item: Any, name_of: NameOf) -> WitType | None:
    return None if item is None else read_type(item, name_of)
