"""Values across the canonical ABI: a WIT type compiled once to a lift and a lower function.

`lift(address, crossing) -> value` reads a component value of Wasmtime; `lower(value, address,
crossing)` writes one into a slot that holds a default (`bool` false) value. Rules of this file:

- A lowered tree can be dropped at any instant: the container is made first and filled with
  defaults, its kind is written, then its children; a box pointer is null before the kind is
  written, and a box holds a default before its value. So a failure half-way leaks nothing.
- Wasmtime aborts the process on a lone surrogate or on invalid UTF-8, and truncates integers
  silently. Nothing is lowered that was not checked. Every failure is an ordinary exception; what
  was wrong and where is found afterwards by `abi_mismatch`, so checks cost little.
- Memory is made only by Wasmtime's `*_new` functions, since Wasmtime frees it.

Runs on the lane of the store in question. A type that names a resource needs `crossing`, the
boundary's record of one store; `abi_handles` says what it holds. A resource's name in a type is
here its identity: the key of `ResourceIds`.
"""

import ctypes
from collections.abc import Callable
from ctypes import string_at
from typing import Any, Final, TypeAlias

from executor.wasm.abi_bytes import lift_bytes, lift_digits, lower_bytes, lower_digits
from executor.wasm.abi_handles import ResourceIds, WrongValue, lift_handle, lower_handle
from executor.wasm.ffi import (
    FIELD_BYTES,
    KIND,
    VALUE_BYTES,
    bytes_new,
    flags_new,
    list_new,
    number_slot,
    record_new,
    sequence_at,
    tuple_new,
    u8_at,
    u64_at,
    value_new,
)
from executor.wasm.types import (
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
    is_bytes,
    nests_option,
)
from executor.wasm.values import Err, Ok, Some, Variant

Lift: TypeAlias = Callable[[int, Any], Any]
Lower: TypeAlias = Callable[[Any, int, Any], None]

_number_at: Final[dict[str, Any]] = {
    "s8": number_slot(ctypes.c_int8),
    "u8": number_slot(ctypes.c_uint8),
    "s16": number_slot(ctypes.c_int16),
    "u16": number_slot(ctypes.c_uint16),
    "s32": number_slot(ctypes.c_int32),
    "u32": number_slot(ctypes.c_uint32),
    "s64": number_slot(ctypes.c_int64),
    "u64": number_slot(ctypes.c_uint64),
    "f32": number_slot(ctypes.c_float),
    "f64": number_slot(ctypes.c_double),
}
_char_at: Final = _number_at["u32"]
_bool_at: Final = _number_at["u8"]

_false_value = ctypes.create_string_buffer(VALUE_BYTES)
_FALSE: Final = ctypes.addressof(_false_value)
"""A `bool` false value. `value_new` moves it out and leaves the same behind, so it is shared."""


def compile_lift(type_: WitType, resources: ResourceIds) -> Lift:
    """The function that reads a value of this type."""
    match type_:
        case Primitive(name):
            return _lift_primitive(name)
        case ListType(element):
            return lift_bytes if is_bytes(type_) else _lift_list(compile_lift(element, resources))
        case RecordType(fields):
            return _lift_record([(name, compile_lift(of, resources)) for name, of in fields])
        case TupleType(elements):
            return _lift_tuple([compile_lift(of, resources) for of in elements])
        case VariantType(cases):
            return _lift_variant([(name, _maybe_lift(of, resources)) for name, of in cases])
        case EnumType(cases):
            return _lift_enum(cases)
        case OptionType(payload):
            return _lift_option(compile_lift(payload, resources), nested=nests_option(type_))
        case ResultType(ok, err):
            return _lift_result(_maybe_lift(ok, resources), _maybe_lift(err, resources))
        case FlagsType(flags):
            return _lift_flags(flags)
        case OwnType(resource) | BorrowType(resource):
            return lift_handle(resource, resources)


def compile_lower(type_: WitType, resources: ResourceIds) -> Lower:
    """The function that writes a value of this type."""
    match type_:
        case Primitive(name):
            return _lower_primitive(name)
        case ListType(element):
            if is_bytes(type_):
                return lower_bytes
            return _lower_list(compile_lower(element, resources))
        case RecordType(fields):
            return _lower_record([(name, compile_lower(of, resources)) for name, of in fields])
        case TupleType(elements):
            return _lower_tuple([compile_lower(of, resources) for of in elements])
        case VariantType(cases):
            return _lower_variant([(name, _maybe_lower(of, resources)) for name, of in cases])
        case EnumType(cases):
            return _lower_enum(cases)
        case OptionType(payload):
            return _lower_option(compile_lower(payload, resources), nested=nests_option(type_))
        case ResultType(ok, err):
            return _lower_result(_maybe_lower(ok, resources), _maybe_lower(err, resources))
        case FlagsType(flags):
            return _lower_flags(flags)
        case OwnType(resource):
            return lower_handle(resource, resources, owned=True)
        case BorrowType(resource):
            return lower_handle(resource, resources, owned=False)


def _maybe_lift(type_: WitType | None, resources: ResourceIds) -> Lift | None:
    return None if type_ is None else compile_lift(type_, resources)


def _maybe_lower(type_: WitType | None, resources: ResourceIds) -> Lower | None:
    return None if type_ is None else compile_lower(type_, resources)


def _lift_primitive(name: str) -> Lift:
    if name == "bool":
        return lambda at, _crossing: _bool_at(at).payload != 0
    if name == "char":
        return lambda at, _crossing: chr(_char_at(at).payload)
    if name == "string":
        return _lift_string
    if name == "hexadecimal":
        return lift_digits
    number_at = _number_at[name]
    return lambda at, _crossing: number_at(at).payload


def _lift_string(at: int, _crossing: Any) -> str:
    slot = sequence_at(at)
    return string_at(slot.first, slot.count).decode()


def _lift_list(element: Lift) -> Lift:
    def lift(at: int, crossing: Any) -> list[Any]:
        slot = sequence_at(at)
        first = slot.first
        end = first + VALUE_BYTES * slot.count
        return [element(item, crossing) for item in range(first, end, VALUE_BYTES)]

    return lift


def _lift_record(fields: list[tuple[str, Lift]]) -> Lift:
    placed = [
        (name, lift_field, FIELD_BYTES * index + 16)
        for index, (name, lift_field) in enumerate(fields)
    ]

    def lift(at: int, crossing: Any) -> dict[str, Any]:
        first = sequence_at(at).first
        return {name: field(first + offset, crossing) for name, field, offset in placed}

    return lift


def _lift_tuple(elements: list[Lift]) -> Lift:
    placed = [(element, VALUE_BYTES * index) for index, element in enumerate(elements)]

    def lift(at: int, crossing: Any) -> tuple[Any, ...]:
        first = sequence_at(at).first
        return tuple([element(first + offset, crossing) for element, offset in placed])

    return lift


def _lift_variant(cases: list[tuple[str, Lift | None]]) -> Lift:
    by_name = {name.encode(): (name, payload) for name, payload in cases}

    def lift(at: int, crossing: Any) -> Variant:
        slot = sequence_at(at)
        name, payload = by_name[string_at(slot.first, slot.count)]
        return Variant(name) if payload is None else Variant(name, payload(slot.box, crossing))

    return lift


def _lift_enum(cases: tuple[str, ...]) -> Lift:
    by_name = {name.encode(): name for name in cases}

    def lift(at: int, _crossing: Any) -> str:
        slot = sequence_at(at)
        return by_name[string_at(slot.first, slot.count)]

    return lift


def _lift_option(payload: Lift, *, nested: bool) -> Lift:
    def lift(at: int, crossing: Any) -> Any:
        box = u64_at(at + 8).value
        return payload(box, crossing) if box else None

    def lift_nested(at: int, crossing: Any) -> Some | None:
        box = u64_at(at + 8).value
        return Some(payload(box, crossing)) if box else None

    return lift_nested if nested else lift


def _lift_result(ok: Lift | None, err: Lift | None) -> Lift:
    def lift(at: int, crossing: Any) -> Ok | Err:
        if u8_at(at + 8).value:
            return Ok(None if ok is None else ok(u64_at(at + 16).value, crossing))
        return Err(None if err is None else err(u64_at(at + 16).value, crossing))

    return lift


def _lift_flags(flags: tuple[str, ...]) -> Lift:
    by_name = {name.encode(): name for name in flags}

    def lift(at: int, _crossing: Any) -> list[str]:
        slot = sequence_at(at)
        first = slot.first
        end = first + 16 * slot.count
        return [
            by_name[string_at(u64_at(item + 8).value, u64_at(item).value)]
            for item in range(first, end, 16)
        ]

    return lift


def _new_box(pointer_at: int) -> int:
    """Make a default value on the heap, owned by the pointer at that address."""
    box: int = value_new(_FALSE)
    u64_at(pointer_at).value = box
    return box


def _lower_primitive(name: str) -> Lower:
    if name == "string":
        return _lower_string
    if name == "hexadecimal":
        return lower_digits
    if name == "char":
        return _lower_char
    if name == "bool":
        return _lower_bool
    if name in INTEGER_RANGES:
        return _lower_unsigned(name) if name[0] == "u" else _lower_signed(name)
    return _lower_float(name)


def _lower_unsigned(name: str) -> Lower:
    kind = KIND[name]
    bits = int(name[1:])
    number_at = _number_at[name]

    def lower(value: Any, at: int, _crossing: Any) -> None:
        if type(value) is not int or value >> bits:
            raise WrongValue
        slot = number_at(at)
        slot.payload = value
        slot.kind = kind

    return lower


def _lower_signed(name: str) -> Lower:
    kind = KIND[name]
    least, greatest = INTEGER_RANGES[name]
    number_at = _number_at[name]

    def lower(value: Any, at: int, _crossing: Any) -> None:
        if type(value) is not int or not least <= value <= greatest:
            raise WrongValue
        slot = number_at(at)
        slot.payload = value
        slot.kind = kind

    return lower


def _lower_float(name: str) -> Lower:
    kind = KIND[name]
    number_at = _number_at[name]

    def lower(value: Any, at: int, _crossing: Any) -> None:
        if type(value) is not float and type(value) is not int:
            raise WrongValue
        slot = number_at(at)
        slot.payload = value
        slot.kind = kind

    return lower


_KIND_BOOL: Final = KIND["bool"]
_KIND_CHAR: Final = KIND["char"]
_KIND_STRING: Final = KIND["string"]
_KIND_LIST: Final = KIND["list"]
_KIND_RECORD: Final = KIND["record"]
_KIND_TUPLE: Final = KIND["tuple"]
_KIND_VARIANT: Final = KIND["variant"]
_KIND_ENUM: Final = KIND["enum"]
_KIND_OPTION: Final = KIND["option"]
_KIND_RESULT: Final = KIND["result"]
_KIND_FLAGS: Final = KIND["flags"]


def _lower_bool(value: Any, at: int, _crossing: Any) -> None:
    if type(value) is not bool:
        raise WrongValue
    slot = _bool_at(at)
    slot.payload = value
    slot.kind = _KIND_BOOL


def _lower_char(value: Any, at: int, _crossing: Any) -> None:
    if type(value) is not str or len(value) != 1 or "\ud800" <= value <= "\udfff":
        raise WrongValue
    slot = _char_at(at)
    slot.payload = ord(value)
    slot.kind = _KIND_CHAR


def _lower_string(value: Any, at: int, _crossing: Any) -> None:
    if type(value) is not str:
        raise WrongValue
    encoded = value.encode()
    bytes_new(at + 8, len(encoded), encoded)
    u8_at(at).value = _KIND_STRING


def _lower_list(element: Lower) -> Lower:
    def lower(value: Any, at: int, crossing: Any) -> None:
        if type(value) is not list and type(value) is not tuple:
            raise WrongValue
        count = len(value)
        list_new(at + 8, count)
        u8_at(at).value = _KIND_LIST
        first = u64_at(at + 16).value
        # Bounded by the addresses too: a list that another thread extends cannot be overrun.
        addresses = range(first, first + VALUE_BYTES * count, VALUE_BYTES)
        for item_at, item in zip(addresses, value, strict=False):
            element(item, item_at, crossing)

    return lower


def _lower_record(fields: list[tuple[str, Lower]]) -> Lower:
    count = len(fields)
    placed = [
        (name, name.encode(), len(name.encode()), lower_field, FIELD_BYTES * index)
        for index, (name, lower_field) in enumerate(fields)
    ]

    def lower(value: Any, at: int, crossing: Any) -> None:
        if type(value) is not dict or len(value) != count:
            raise WrongValue
        record_new(at + 8, count)
        u8_at(at).value = _KIND_RECORD
        first = u64_at(at + 16).value
        for name, encoded, size, field, offset in placed:
            field_at = first + offset
            bytes_new(field_at, size, encoded)
            field(value[name], field_at + 16, crossing)

    return lower


def _lower_tuple(elements: list[Lower]) -> Lower:
    count = len(elements)
    placed = [(element, VALUE_BYTES * index) for index, element in enumerate(elements)]

    def lower(value: Any, at: int, crossing: Any) -> None:
        if (type(value) is not tuple and type(value) is not list) or len(value) != count:
            raise WrongValue
        tuple_new(at + 8, count)
        u8_at(at).value = _KIND_TUPLE
        first = u64_at(at + 16).value
        for (element, offset), item in zip(placed, value, strict=True):
            element(item, first + offset, crossing)

    return lower


def _lower_variant(cases: list[tuple[str, Lower | None]]) -> Lower:
    by_name = {name: (name.encode(), len(name.encode()), payload) for name, payload in cases}

    def lower(value: Any, at: int, crossing: Any) -> None:
        if type(value) is not Variant:
            raise WrongValue
        encoded, size, payload = by_name[value.case]
        if payload is None and value.payload is not None:
            raise WrongValue
        u64_at(at + 24).value = 0
        bytes_new(at + 8, size, encoded)
        u8_at(at).value = _KIND_VARIANT
        if payload is not None:
            payload(value.payload, _new_box(at + 24), crossing)

    return lower


def _lower_enum(cases: tuple[str, ...]) -> Lower:
    by_name = {name: name.encode() for name in cases}

    def lower(value: Any, at: int, _crossing: Any) -> None:
        encoded = by_name[value]
        bytes_new(at + 8, len(encoded), encoded)
        u8_at(at).value = _KIND_ENUM

    return lower


def _lower_option(payload: Lower, *, nested: bool) -> Lower:
    def lower(value: Any, at: int, crossing: Any) -> None:
        if nested and value is not None and type(value) is not Some:
            raise WrongValue
        u64_at(at + 8).value = 0
        u8_at(at).value = _KIND_OPTION
        if value is not None:
            payload(value.value if nested else value, _new_box(at + 8), crossing)

    return lower


def _lower_result(ok: Lower | None, err: Lower | None) -> Lower:
    def lower(value: Any, at: int, crossing: Any) -> None:
        is_ok = type(value) is Ok
        if not is_ok and type(value) is not Err:
            raise WrongValue
        payload = ok if is_ok else err
        if payload is None and value.value is not None:
            raise WrongValue
        u64_at(at + 16).value = 0
        u8_at(at + 8).value = is_ok
        u8_at(at).value = _KIND_RESULT
        if payload is not None:
            payload(value.value, _new_box(at + 16), crossing)

    return lower


def _lower_flags(flags: tuple[str, ...]) -> Lower:
    by_name = {name: name.encode() for name in flags}

    def lower(value: Any, at: int, _crossing: Any) -> None:
        if type(value) is not list and type(value) is not tuple:
            raise WrongValue
        encoded = [by_name[name] for name in value]
        flags_new(at + 8, len(encoded))
        u8_at(at).value = _KIND_FLAGS
        item_at = u64_at(at + 16).value
        for name in encoded:
            bytes_new(item_at, len(name), name)
            item_at += 16

    return lower
