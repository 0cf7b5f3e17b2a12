"""One WIT interface as the host offers it: its text, a row a function, a drop a resource.

The text is WIT, with names and types of the public interface and nothing else. A function without
a row, a row without a function, and the same of resources, are errors when the module is imported,
so that no guest can link with half an interface.
"""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from executor.durable.definition import HostFunctionRow
from executor.errors import InternalError
from executor.host.state import HostState
from executor.wasm.types import WitType
from executor.wasm.wit import WitInterface, parse_interface

Drop = Callable[[HostState, int], None]
"""`drop(state, number)`: the guest dropped the handle, or gave it up; on the lane, both modes."""


class InterfaceTable(msgspec.Struct, frozen=True, kw_only=True):
    """What the linker needs of one interface."""

    name: str
    """`wasi:io/poll`, without version."""
    versions: str
    """The semver track that it serves: `0.2` stands for every 0.2.x, "" for no version."""
    wit: WitInterface
    functions: tuple[HostFunctionRow, ...]
    drops: dict[str, Drop]
    """By the name of the resource; one for each resource that the interface declares."""


def host_interface(
    text: str,
    versions: str,
    functions: Sequence[HostFunctionRow],
    *,
    drops: Mapping[str, Drop] | None = None,
    uses: Mapping[str, WitType] | None = None,
) -> InterfaceTable:
    """The table of the interface that `text` declares.

    A resource without an entry in `drops` is dropped from the handle table, and nothing else.
    `uses` holds the types, other than resources, that the text takes from other interfaces.
    Raises InternalError if text and rows do not agree.
    """
    wit = parse_interface(text, uses)
    given = dict(drops or {})
    _agree(wit.name, "functions", wit.functions, [row.name for row in functions])
    _agree(wit.name, "resources", wit.resources, [*{*wit.resources, *given}])
    return InterfaceTable(
        name=wit.name,
        versions=versions,
        wit=wit,
        functions=tuple(functions),
        drops={resource: given.get(resource, drop_handle) for resource in wit.resources},
    )


def drop_handle(state: HostState, number: int) -> None:
    """Forgets a resource that nothing else depends on."""
    state.handles.drop(number)


def _agree(
    interface: str, what: str, declared: Sequence[str] | Mapping[str, object], given: Sequence[str]
) -> None:
    missing = sorted(set(declared) - set(given))
    surplus = sorted(set(given) - set(declared))
    twice = sorted({name for name in given if given.count(name) > 1})
    if missing or surplus or twice:
        raise InternalError(
            f"{interface}: {what} without a row {missing}, rows without a declaration {surplus},"
            f" rows given twice {twice}"
        )
