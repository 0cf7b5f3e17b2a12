"""What a component is put into when it is compiled: an outer component with it inside.

The outer one imports the same and exports the inner one whole, as `GUEST`. Two things need it:

- A resource that the guest exports: through Wasmtime's asynchronous interface the host cannot drop
  a handle of it, since its destructor is guest code. A function that takes the handle and drops it
  can be called like any other; there is one for each resource, in the instance `DROPS`.
- Bytes in bulk, which a shim beside the guest passes as text (`bulk_bytes`).

Beside the guest and not around it: a component may not be entered from within a call that it made.
A component that needs neither stays as it is.
"""

from collections.abc import Sequence
from functools import cache
from typing import Final

import msgspec
import wasmtime

from executor.wasm.binary import Import, Named, OuterComponent, Prologue, Sort
from executor.wasm.bulk_bytes import FUNCTIONS, RAW_STREAMS, STREAMS, TYPES, raw_interface, shim

GUEST: Final = "shem:wrapped/guest"
DROPS: Final = "shem:wrapped/drops"

OWN_NAMES: Final = "shem:"
"""Where no component's own imports or exports may lie."""


class ExportedResource(msgspec.Struct, frozen=True):
    """A resource type that a component exports; `interface` with version, "" for the world."""

    interface: str
    name: str


def drop_name(number: int) -> str:
    """The function in `DROPS` for the n-th resource."""
    return f"drop-{number}"


def wrap(
    component: bytes, prologue: Prologue, resources: Sequence[ExportedResource]
) -> bytes | None:
    """The outer component, or None if there is no need of one."""
    outer = OuterComponent(prologue)
    arguments = []
    shimmed = False
    for imported in prologue.imports:
        index = imported.index
        if imported.sort == Sort.INSTANCE and imported.name.partition("@")[0] == STREAMS:
            translated = _translated(outer, imported)
            shimmed = shimmed or translated is not None
            index = index if translated is None else translated
        arguments.append((imported.name, imported.sort, index))
    if not shimmed and not resources:
        return None
    guest = outer.instantiate(outer.component(component), arguments)
    outer.export_instance(GUEST, guest)
    if resources:
        dropper = outer.component(_dropper())
        drops = []
        for number, resource in enumerate(resources):
            instance = guest
            if resource.interface:
                instance = outer.alias(guest, Sort.INSTANCE, resource.interface)
            type_index = outer.alias(instance, Sort.TYPE, resource.name)
            made = outer.instantiate(dropper, [("resource", Sort.TYPE, type_index)])
            function = outer.alias(made, Sort.FUNCTION, "drop")
            drops.append((drop_name(number), Sort.FUNCTION, function))
        outer.export_instance(DROPS, outer.instance(drops))
    return outer.binary()


def _translated(outer: OuterComponent, imported: Import) -> int | None:
    """An instance with the members of an import, in which bytes in bulk go through the shim; None
    if it moves none, or has members that the shim does not know.
    """
    functions = [FUNCTIONS.get(name) for name, sort in imported.members if sort == Sort.FUNCTION]
    types = [name for name, sort in imported.members if sort == Sort.TYPE]
    known = tuple(function for function in functions if function is not None)
    bulk = [function for function in known if function.bulk]
    if (
        not bulk
        or len(known) < len(functions)
        or not {"error", "stream-error"} <= set(types) <= set(TYPES)
    ):
        return None
    aliases = {name: outer.alias(imported.index, Sort.TYPE, name) for name in types}
    version = imported.name.partition("@")[2]
    raw_name = f"{RAW_STREAMS}@{version}" if version else RAW_STREAMS
    raw = outer.import_instance(raw_name, outer.type(raw_interface(bulk, aliases)))
    given: list[Named] = [(name, Sort.TYPE, index) for name, index in aliases.items()]
    for function in known:
        instance = raw if function.bulk else imported.index
        index = outer.alias(instance, Sort.FUNCTION, function.export)
        given.append((function.plain, Sort.FUNCTION, index))
    return outer.instantiate(outer.component(shim(known, tuple(types))), given)


@cache
def _dropper() -> bytes:
    """A component that drops one handle of the resource it is given."""
    return bytes(
        wasmtime.wat2wasm("""(component
          (import "resource" (type $resource (sub resource)))
          (core func $drop (canon resource.drop $resource))
          (core module $code
            (import "host" "drop" (func $drop (param i32)))
            (func (export "drop") (param i32) (call $drop (local.get 0))))
          (core instance $code
            (instantiate $code (with "host" (instance (export "drop" (func $drop))))))
          (func (export "drop") (param "self" (own $resource))
            (canon lift (core func $code "drop"))))""")
    )
