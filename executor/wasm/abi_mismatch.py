"""Where a value and its type disagree: the slow half of lowering, run only after a failure.

Pure: no memory of Wasmtime is touched. A path begins at `$`: `$.items[2].id`.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from executor.wasm.types import (
    FLOATS,
    INTEGER_RANGES,
    BorrowType,
    EnumType,
    FlagsType,
    ListType,
    OptionType,
    OwnType,
    Primitive,
    RecordType,
    ResultType,
    TupleType,
    VariantType,
    WitType,
    format_type,
    is_bytes,
    nests_option,
)
from executor.wasm.values import Err, Ok, Some, Variant

REPR_CHARACTERS_MAX = 80


def explain_mismatch(type_: WitType, value: object) -> str:
    """One sentence: the path of the first part that its type does not allow, and why."""
    found = next(_mismatches(type_, value, "$"), None)
    if found is None:
        return f"$: {_show(value)} could not be converted to {format_type(type_)}"
    return found


def _show(value: object) -> str:
    text = repr(value)
    if len(text) > REPR_CHARACTERS_MAX:
        text = f"{text[:REPR_CHARACTERS_MAX]}…"
    return f"{text} ({type(value).__name__})"


def _wrong(type_: WitType, value: object, path: str) -> str:
    return f"{path}: expected {format_type(type_)}, got {_show(value)}"


def _mismatches(type_: WitType, value: Any, path: str) -> Iterator[str]:
    match type_:
        case Primitive(name):
            if not _allows(name, value):
                yield _wrong(type_, value, path)
        case ListType(element):
            if is_bytes(type_):
                if type(value) not in {bytes, bytearray}:
                    yield f"{path}: expected bytes for list<u8>, got {_show(value)}"
            elif type(value) not in {list, tuple}:
                yield _wrong(type_, value, path)
            else:
                yield from _each((element, item, f"[{i}]") for i, item in enumerate(value))(path)
        case TupleType(elements):
            if type(value) not in {list, tuple} or len(value) != len(elements):
                yield _wrong(type_, value, path)
            else:
                pairs = enumerate(zip(elements, value, strict=True))
                yield from _each((of, item, f"[{i}]") for i, (of, item) in pairs)(path)
        case RecordType(fields):
            yield from _record(type_, fields, value, path)
        case VariantType() | EnumType() | FlagsType() | ResultType() | OptionType():
            yield from _choices(type_, value, path)
        case OwnType() | BorrowType():
            if type(value) is not int or value >> 32:
                yield _wrong(type_, value, path)
            else:
                yield f"{path}: {value} is no handle of {format_type(type_)} that may be given"


def _allows(name: str, value: Any) -> bool:
    if name in INTEGER_RANGES:
        least, greatest = INTEGER_RANGES[name]
        return type(value) is int and least <= value <= greatest
    if name in FLOATS:
        return type(value) in {float, int}
    if name == "bool":
        return type(value) is bool
    if type(value) is not str or any("\ud800" <= letter <= "\udfff" for letter in value):
        return False
    return name == "string" or len(value) == 1


def _each(parts: Iterable[tuple[WitType, object, str]]) -> Any:
    def walk(path: str) -> Iterator[str]:
        for type_, value, step in parts:
            yield from _mismatches(type_, value, path + step)

    return walk


def _record(
    type_: WitType, fields: tuple[tuple[str, WitType], ...], value: Any, path: str
) -> Iterator[str]:
    if type(value) is not dict:
        yield _wrong(type_, value, path)
        return
    for name, of in fields:
        if name not in value:
            yield f"{path}: expected {format_type(type_)}, but field {name!r} is missing"
        else:
            yield from _mismatches(of, value[name], f"{path}.{name}")
    names = {name for name, _ in fields}
    for name in value:
        if name not in names:
            yield f"{path}: expected {format_type(type_)}, which has no field {name!r}"


def _choices(type_: WitType, value: Any, path: str) -> Iterator[str]:
    match type_, value:
        case VariantType(cases), Variant(case, payload) if case in dict(cases):
            yield from _payload(dict(cases)[case], payload, f"{path}.{case}")
        case ResultType(ok, _), Ok(payload):
            yield from _payload(ok, payload, f"{path}.ok")
        case ResultType(_, err), Err(payload):
            yield from _payload(err, payload, f"{path}.err")
        case OptionType(), None:
            return
        case OptionType(payload_type), Some(payload) if nests_option(type_):
            yield from _mismatches(payload_type, payload, f"{path}.some")
        case OptionType(payload_type), _ if not nests_option(type_):
            yield from _mismatches(payload_type, value, path)
        case EnumType(cases), str() if value in cases:
            return
        case FlagsType(flags), list() | tuple() if all(item in flags for item in value):
            return
        case _:
            yield _wrong(type_, value, path)


def _payload(type_: WitType | None, payload: object, path: str) -> Iterator[str]:
    if type_ is not None:
        yield from _mismatches(type_, payload, path)
    elif payload is not None:
        yield f"{path}: expected no payload, got {_show(payload)}"
