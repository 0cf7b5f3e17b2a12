"""How much memory a value takes while it crosses between guest and host, and how much it may.

A component value is 32 bytes, and every byte of a `list<u8>` is one. Wasmtime ends a guest that
passes more than 128 MiB in one call, where it counts 48 bytes a value: 2.6 MiB of `list<u8>`, or
128 MiB of text. Nothing bounds what the host passes to a guest, so this does: 128 MiB as well, or
4 MiB of `list<u8>`. Pure; any thread.
"""

from collections.abc import Iterable
from typing import Any, Final

from msgspec import Raw

from executor.errors import LimitError
from executor.wasm.types import (
    EnumType,
    FlagsType,
    ListType,
    OptionType,
    Primitive,
    RecordType,
    ResultType,
    TupleType,
    VariantType,
    WitType,
    nests_option,
)
from executor.wasm.values import Ok

MIB: Final = 1 << 20
VALUE_BYTES: Final = 32
FIELD_BYTES: Final = 48
"""As `ffi` has them, which is not pure."""
CROSSING_BYTES_MAX: Final = 128 * MIB
LIGHT_BYTES: Final = CROSSING_BYTES_MAX // 96
"""Whatever is encoded in so few bytes is within the bound: a byte of MessagePack is at most one
value in a box, as in a list of `option<bool>`.
"""


def check_weight(
    values: Iterable[tuple[WitType | None, Any]], raw: Raw, what: str, where: str
) -> None:
    """Raises: LimitError if values with their types, together encoded as `raw`, are too large."""
    if memoryview(raw).nbytes <= LIGHT_BYTES:
        return
    weight = sum(_weigh_box(type_, value) for type_, value in values)
    if weight > CROSSING_BYTES_MAX:
        raise LimitError(
            f"{what} {weight // MIB} MiB as component values; one call passes at most"
            f" {CROSSING_BYTES_MAX // MIB} MiB (32 bytes for each byte of a list<u8>)",
            where=where,
            hint="pass large bytes in parts, or as a string",
        )


def weigh(type_: WitType, value: Any) -> int:
    """Bytes of memory of a canonical value while it crosses."""
    match type_:
        case Primitive("string"):
            return VALUE_BYTES + len(value.encode())
        case ListType(element):
            if isinstance(element, Primitive) and element.name != "string":
                return VALUE_BYTES * (1 + len(value))
            return VALUE_BYTES + sum(weigh(element, item) for item in value)
        case RecordType(fields):
            around = FIELD_BYTES - VALUE_BYTES
            return VALUE_BYTES + sum(
                around + len(name) + weigh(of, value[name]) for name, of in fields
            )
        case TupleType(elements):
            return VALUE_BYTES + sum(map(weigh, elements, value))
        case VariantType(cases):
            return (
                VALUE_BYTES + len(value.case) + _weigh_box(dict(cases)[value.case], value.payload)
            )
        case ResultType(ok, err):
            return VALUE_BYTES + _weigh_box(ok if isinstance(value, Ok) else err, value.value)
        case OptionType(payload):
            if value is None:
                return VALUE_BYTES
            held = value.value if nests_option(type_) else value
            return VALUE_BYTES + _weigh_box(payload, held)
        case EnumType():
            return VALUE_BYTES + len(value)
        case FlagsType():
            return VALUE_BYTES + sum(16 + len(name) for name in value)
        case _:
            return VALUE_BYTES


def _weigh_box(type_: WitType | None, value: Any) -> int:
    return 0 if type_ is None else weigh(type_, value)
