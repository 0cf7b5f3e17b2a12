"""Writes values as WAVE, letter by letter as the wasm-wave crate (`wasmtime run --invoke`) does.

Options and results are written in full (`some(1)`, `ok("x")`), fields of records that are none are
left out, floats have no exponent, and what is not printable is escaped.
"""

import math
import unicodedata
from decimal import Decimal
from typing import Any, Final

from executor.wasm.check import round_f32
from executor.wasm.types import (
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
    nests_option,
)
from executor.wasm.values import Ok
from executor.wasm.wave_tokens import KEYWORDS

_ESCAPES: Final = {"\\": "\\\\", '"': '\\"', "'": "\\'", "\t": "\\t", "\r": "\\r", "\n": "\\n"}
_COMBINING: Final = frozenset({"Mn", "Me"})
_F32_DIGITS_MAX: Final = 9
"""Digits that tell every f32 from every other."""


def print_value(type_: WitType, value: Any) -> str:
    """The value as WAVE. It must be canonical."""
    match type_:
        case Primitive(name):
            return _primitive(name, value)
        case ListType(element):
            return f"[{', '.join(print_value(element, part) for part in value)}]"
        case TupleType(elements):
            parts = zip(elements, value, strict=True)
            return f"({', '.join(print_value(element, part) for element, part in parts)})"
        case RecordType():
            return _record(type_, value)
        case VariantType(cases):
            return _case(value.case, dict(cases)[value.case], value.payload)
        case EnumType():
            return _label(value)
        case FlagsType(flags):
            return f"{{{', '.join(name for name in flags if name in value)}}}"
        case OptionType(payload):
            if value is None:
                return "none"
            return f"some({print_value(payload, value.value if nests_option(type_) else value)})"
        case ResultType(ok, err):
            if type(value) is Ok:
                return _payload("ok", ok, value.value)
            return _payload("err", err, value.value)
        case OwnType() | BorrowType():
            return str(value)


def _primitive(name: str, value: Any) -> str:
    match name:
        case "bool":
            return "true" if value else "false"
        case "string":
            return f'"{_escaped(value)}"'
        case "char":
            return f"'{_escaped(value)}'"
        case "f32" | "f64":
            return _float(float(value), name)
        case _:
            return str(int(value))


def _record(type_: RecordType, value: dict[str, Any]) -> str:
    fields = [
        f"{name}: {print_value(of, value[name])}"
        for name, of in type_.fields
        if type(of) is not OptionType or value[name] is not None
    ]
    return f"{{{', '.join(fields)}}}" if fields else "{:}"


def _case(name: str, type_: WitType | None, payload: Any) -> str:
    return _payload(_label(name), type_, payload)


def _payload(label: str, type_: WitType | None, payload: Any) -> str:
    return label if type_ is None else f"{label}({print_value(type_, payload)})"


def _label(name: str) -> str:
    return f"%{name}" if name in KEYWORDS else name


def _float(value: float, name: str) -> str:
    if math.isnan(value):
        return "nan"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    shortest = repr(value) if name == "f64" else _shortest_f32(value)
    text = format(Decimal(shortest), "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def _shortest_f32(value: float) -> str:
    """The fewest digits that read back as the same f32."""
    for digits in range(1, _F32_DIGITS_MAX):
        text = f"{value:.{digits}g}"
        if round_f32(float(text)) == value:
            return text
    return f"{value:.{_F32_DIGITS_MAX}g}"


def _escaped(text: str) -> str:
    if text.isascii() and text.isalnum():
        return text
    return "".join(map(_escaped_character, text))


def _escaped_character(character: str) -> str:
    escape = _ESCAPES.get(character)
    if escape is not None:
        return escape
    if character.isprintable() and unicodedata.category(character) not in _COMBINING:
        return character
    return f"\\u{{{ord(character):x}}}"
