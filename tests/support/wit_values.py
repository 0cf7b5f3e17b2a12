"""Hypothesis strategies: any WIT type, and canonical values of one."""

import math
import struct

from hypothesis import strategies as st

from executor.wasm.types import (
    INTEGER_RANGES,
    PRIMITIVES,
    U8,
    BorrowType,
    EnumType,
    FlagsType,
    FuncType,
    ListType,
    OptionType,
    OwnType,
    Primitive,
    RecordType,
    ResultType,
    TupleType,
    VariantType,
    nests_option,
)
from executor.wasm.values import Err, Ok, Some, Variant

LABELS = st.sampled_from(
    [
        "a",
        "b",
        "c",
        "x1",
        "has-lego",
        "two-words-1",
        "HTTP-3",
        "a-2B-3c",
        "true",
        "false",
        "none",
        "some",
        "ok",
        "err",
        "nan",
        "inf",
        "type",
        "list",
    ]
)
TEXT = st.text(
    st.characters(exclude_categories=["Cs"]) | st.sampled_from("\\\"'\t\n\r\0{}%/é\u0301☃🌊"),
    max_size=12,
)
_NAMES = st.lists(LABELS, min_size=1, max_size=4, unique=True).map(tuple)
_PRIMITIVES = st.sampled_from(list(PRIMITIVES.values()))
_LEAVES = ["primitive", "primitive", "bytes", "enum", "flags"]
_NODES = ["list", "option", "option", "result", "tuple", "record", "variant"]
_HANDLES = ["own", "borrow"]
_INTS = {name: st.integers(*limits) for name, limits in INTEGER_RANGES.items()}
_FLOATS = {"f32": st.floats(width=32), "f64": st.floats()}
_DEPTH = 3


def _type(draw, depth, *, handles):
    kinds = _LEAVES + (_HANDLES if handles else []) + (_NODES if depth else [])
    return _of_kind(draw, draw(st.sampled_from(kinds)), depth - 1, handles=handles)


def _of_kind(draw, kind, depth, *, handles):
    def part():
        return _type(draw, depth, handles=handles)

    def maybe():
        return part() if draw(st.booleans()) else None

    match kind:
        case "primitive":
            return draw(_PRIMITIVES)
        case "bytes":
            return ListType(U8)
        case "enum":
            return EnumType(draw(_NAMES))
        case "flags":
            return FlagsType(draw(_NAMES))
        case "own":
            return OwnType(draw(LABELS))
        case "borrow":
            return BorrowType(draw(LABELS))
        case "list":
            return ListType(part())
        case "option":
            return OptionType(part())
        case "result":
            return ResultType(maybe(), maybe())
        case "tuple":
            return TupleType(tuple(part() for _ in draw(_NAMES)))
        case "record":
            return RecordType(tuple((name, part()) for name in draw(_NAMES)))
        case _:
            return VariantType(tuple((name, maybe()) for name in draw(_NAMES)))


@st.composite
def types(draw, *, handles=True):
    """Any WIT type."""
    return _type(draw, _DEPTH, handles=handles)


@st.composite
def functions(draw):
    """Any function type without handles."""
    names = draw(st.just(()) | _NAMES)
    params = tuple((name, _type(draw, _DEPTH - 1, handles=False)) for name in names)
    return FuncType(params, draw(st.none() | types(handles=False)))


@st.composite
def typed_values(draw):
    """A type and a canonical value of it; NaN is among the floats."""
    type_ = draw(types())
    return type_, _value(draw, type_)


@st.composite
def calls(draw):
    """A function type, canonical arguments and a canonical result."""
    type_ = draw(functions())
    arguments = [_value(draw, of) for _, of in type_.params]
    return type_, arguments, _payload(draw, type_.result)


def _payload(draw, type_):
    return None if type_ is None else _value(draw, type_)


def _value(draw, type_):
    match type_:
        case Primitive(name):
            return _primitive(draw, name)
        case ListType(element):
            if element == U8:
                return draw(st.binary(max_size=6))
            return [_value(draw, element) for _ in range(draw(st.integers(0, 3)))]
        case TupleType(elements):
            return tuple(_value(draw, element) for element in elements)
        case RecordType(fields):
            return {name: _value(draw, of) for name, of in fields}
        case VariantType(cases):
            name, of = draw(st.sampled_from(cases))
            return Variant(name, _payload(draw, of))
        case EnumType(cases):
            return draw(st.sampled_from(cases))
        case FlagsType(flags):
            return [name for name in flags if draw(st.booleans())]
        case OptionType(payload):
            if draw(st.booleans()):
                return None
            present = _value(draw, payload)
            return Some(present) if nests_option(type_) else present
        case ResultType(ok, err):
            if draw(st.booleans()):
                return Ok(_payload(draw, ok))
            return Err(_payload(draw, err))
        case OwnType() | BorrowType():
            return draw(st.integers(1, 1 << 40))


def _primitive(draw, name):
    if name in _INTS:
        return draw(_INTS[name])
    if name in _FLOATS:
        value = draw(_FLOATS[name])
        return math.nan if math.isnan(value) else value
    if name == "bool":
        return draw(st.booleans())
    return draw(TEXT) if name == "string" else (draw(TEXT) or "x")[0]


def exact(value):
    """Something whose `==` is sameness: kinds of sequences, bools and floats are told apart."""
    match value:
        case bool() | None | str() | bytes():
            return type(value).__name__, value
        case float():
            return "float", struct.pack(">d", value)
        case int():
            return "int", value
        case dict():
            return "dict", [(exact(key), exact(part)) for key, part in value.items()]
        case list() | tuple():
            return type(value).__name__, [exact(part) for part in value]
        case Variant(case, payload):
            return "Variant", case, exact(payload)
        case Ok(inner) | Err(inner) | Some(inner):
            return type(value).__name__, exact(inner)
    raise TypeError(type(value))


def unordered(value):
    """As `exact`, but that a record has no order of its fields."""
    return _sorted(exact(value))


def _sorted(part):
    match part:
        case ("dict", fields):
            return "dict", sorted(_sorted(tuple(field)) for field in fields)
        case tuple() | list():
            return type(part)(_sorted(inner) for inner in part)
        case _:
            return part
