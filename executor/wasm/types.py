"""WIT types as frozen, hashable values, and their text.

A type is structure only. `name` is what its WIT text called it; it is a matter of documentation and
never of meaning: `same_type` ignores it, and `format_type` writes the structure. So the type of a
field read from a component (which carries no names) compares with one read from WIT text. Types
are trees: the component model has no recursive types. This module knows nothing of values or bytes.
"""

from typing import Final, TypeAlias

import msgspec


class Primitive(msgspec.Struct, frozen=True, cache_hash=True):
    """A type without parts: `bool`, an integer, a float, `char` or `string`."""

    name: str


class ListType(msgspec.Struct, frozen=True, cache_hash=True):
    """`list<element>`; `list<u8>` is bytes in Python."""

    element: "WitType"


class RecordType(msgspec.Struct, frozen=True, cache_hash=True):
    """`record { name: type, … }`, in order."""

    fields: tuple[tuple[str, "WitType"], ...]
    name: str = ""


class TupleType(msgspec.Struct, frozen=True, cache_hash=True):
    """`tuple<…>`."""

    elements: tuple["WitType", ...]


class VariantType(msgspec.Struct, frozen=True, cache_hash=True):
    """`variant { name(type), name, … }`, in order."""

    cases: tuple[tuple[str, "WitType | None"], ...]
    name: str = ""


class EnumType(msgspec.Struct, frozen=True, cache_hash=True):
    """`enum { name, … }`, in order."""

    cases: tuple[str, ...]
    name: str = ""


class OptionType(msgspec.Struct, frozen=True, cache_hash=True):
    """`option<payload>`."""

    payload: "WitType"


class ResultType(msgspec.Struct, frozen=True, cache_hash=True):
    """`result<ok, err>`; either may be absent."""

    ok: "WitType | None" = None
    err: "WitType | None" = None


class FlagsType(msgspec.Struct, frozen=True, cache_hash=True):
    """`flags { name, … }`, in order."""

    flags: tuple[str, ...]
    name: str = ""


class OwnType(msgspec.Struct, frozen=True, cache_hash=True):
    """`own<resource>`, in WIT also written as the bare name of the resource."""

    resource: str = ""
    """The resource's name without its interface, "" where it is not known."""


class BorrowType(msgspec.Struct, frozen=True, cache_hash=True):
    """`borrow<resource>`."""

    resource: str = ""
    """The resource's name without its interface, "" where it is not known."""


WitType: TypeAlias = (
    Primitive
    | ListType
    | RecordType
    | TupleType
    | VariantType
    | EnumType
    | OptionType
    | ResultType
    | FlagsType
    | OwnType
    | BorrowType
)


class FuncType(msgspec.Struct, frozen=True, cache_hash=True):
    """A function: named parameters in order, and its result if it has one."""

    params: tuple[tuple[str, WitType], ...] = ()
    result: WitType | None = None


BOOL: Final = Primitive("bool")
S8: Final = Primitive("s8")
U8: Final = Primitive("u8")
S16: Final = Primitive("s16")
U16: Final = Primitive("u16")
S32: Final = Primitive("s32")
U32: Final = Primitive("u32")
S64: Final = Primitive("s64")
U64: Final = Primitive("u64")
F32: Final = Primitive("f32")
F64: Final = Primitive("f64")
CHAR: Final = Primitive("char")
STRING: Final = Primitive("string")

PRIMITIVES: Final[dict[str, Primitive]] = {
    primitive.name: primitive
    for primitive in (BOOL, S8, U8, S16, U16, S32, U32, S64, U64, F32, F64, CHAR, STRING)
}

INTEGER_RANGES: Final[dict[str, tuple[int, int]]] = {
    f"{sign}{bits}": (-(1 << bits - 1), (1 << bits - 1) - 1)
    if sign == "s"
    else (0, (1 << bits) - 1)
    for sign in "su"
    for bits in (8, 16, 32, 64)
}
"""Least and greatest value of each integer type, both included."""

KEYWORDS: Final = frozenset(
    "as async bool borrow char constructor enum export f32 f64 flags from func future import"  # noqa: SIM905 - a line a word buries the list
    " include interface list option own package record resource result s16 s32 s64 s8 static"
    " stream string tuple type u16 u32 u64 u8 use variant with world".split()
)
"""Words of WIT that are no identifiers; as a name they are written with a `%`."""

_BRIEF_MAX: Final = 120
"""Characters of a type in an error message."""

FLOATS: Final = frozenset({"f32", "f64"})


def is_bytes(type_: WitType) -> bool:
    """Whether the type is `list<u8>`, which Python knows as `bytes`."""
    return type(type_) is ListType and type_.element == U8


def nests_option(type_: OptionType) -> bool:
    """Whether a present value needs `Some` to be told from `None`."""
    return type(type_.payload) is OptionType


def same_type(first: WitType | None, second: WitType | None) -> bool:
    """Whether both have the same structure; `None` is no type.

    Names of types are ignored, names of fields and cases are not; resources are compared by name
    where both names are known.
    """
    match first, second:
        case None, None:
            return True
        case ListType(a), ListType(b):
            return same_type(a, b)
        case OptionType(a), OptionType(b):
            return same_type(a, b)
        case TupleType(a_all), TupleType(b_all):
            return len(a_all) == len(b_all) and all(map(same_type, a_all, b_all))
        case ResultType(a_ok, a_err), ResultType(b_ok, b_err):
            return same_type(a_ok, b_ok) and same_type(a_err, b_err)
        case RecordType(a_fields), RecordType(b_fields):
            return _same_members(a_fields, b_fields)
        case VariantType(a_cases), VariantType(b_cases):
            return _same_members(a_cases, b_cases)
        case EnumType(a_names), EnumType(b_names):
            return a_names == b_names
        case FlagsType(a_names), FlagsType(b_names):
            return a_names == b_names
        case (OwnType(a_name), OwnType(b_name)) | (BorrowType(a_name), BorrowType(b_name)):
            return not a_name or not b_name or a_name == b_name
        case Primitive(a_name), Primitive(b_name):
            return a_name == b_name
        case _:
            return False


def _same_members(
    first: tuple[tuple[str, WitType | None], ...], second: tuple[tuple[str, WitType | None], ...]
) -> bool:
    return len(first) == len(second) and all(
        a_name == b_name and same_type(a, b)
        for (a_name, a), (b_name, b) in zip(first, second, strict=True)
    )


def same_function(first: FuncType, second: FuncType) -> bool:
    """Whether both take and give the same types.

    Names of parameters are ignored: they are no part of what the canonical ABI passes.
    """
    return (
        len(first.params) == len(second.params)
        and all(same_type(a, b) for (_, a), (_, b) in zip(first.params, second.params, strict=True))
        and same_type(first.result, second.result)
    )


def format_type(type_: WitType) -> str:
    """Write the type as WIT text on one line.

    WIT has no inline records, variants, enums or flags; they are written like the body of their
    declaration (`record { x: u32 }`), which `wit.parse_type` reads back.
    """
    match type_:
        case Primitive(name):
            return name
        case ListType(element):
            return f"list<{format_type(element)}>"
        case OptionType(payload):
            return f"option<{format_type(payload)}>"
        case TupleType(elements):
            return f"tuple<{', '.join(map(format_type, elements))}>"
        case ResultType(ok, err):
            return _format_result(ok, err)
        case RecordType(fields):
            return _format_body(
                "record", [f"{escape_name(name)}: {format_type(of)}" for name, of in fields]
            )
        case VariantType(cases):
            return _format_body(
                "variant",
                [
                    escape_name(name) if of is None else f"{escape_name(name)}({format_type(of)})"
                    for name, of in cases
                ],
            )
        case EnumType(cases):
            return _format_body("enum", [*map(escape_name, cases)])
        case FlagsType(flags):
            return _format_body("flags", [*map(escape_name, flags)])
        case OwnType(resource):
            return f"own<{escape_name(resource) or '_'}>"
        case BorrowType(resource):
            return f"borrow<{escape_name(resource) or '_'}>"


def format_briefly(type_: WitType) -> str:
    """The type as WIT text, cut to what an error message has room for."""
    text = format_type(type_)
    return text if len(text) <= _BRIEF_MAX else f"{text[: _BRIEF_MAX - 1]}…"


def escape_name(name: str) -> str:
    """The name as an identifier of WIT text."""
    return f"%{name}" if name in KEYWORDS else name


def _format_result(ok: WitType | None, err: WitType | None) -> str:
    if err is None:
        return "result" if ok is None else f"result<{format_type(ok)}>"
    return f"result<{'_' if ok is None else format_type(ok)}, {format_type(err)}>"


def _format_body(keyword: str, members: list[str]) -> str:
    return f"{keyword} {{ {', '.join(members)} }}" if members else f"{keyword} {{}}"


def format_function(name: str, type_: FuncType) -> str:
    """`add: func(n: u32) -> u32`; with an empty name only `func(n: u32) -> u32`."""
    params = ", ".join(f"{escape_name(param)}: {format_type(of)}" for param, of in type_.params)
    result = "" if type_.result is None else f" -> {format_type(type_.result)}"
    return f"{name}: func({params}){result}" if name else f"func({params}){result}"
