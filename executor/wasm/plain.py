"""Python values of WIT types as self-describing MessagePack, and as JSON.

| type        | Python                 | plain, as the oplog keeps it      |
|-------------|------------------------|-----------------------------------|
| list<u8>    | bytes                  | bin                               |
| tuple       | tuple                  | array                             |
| record      | dict                   | map by field name, declared order |
| variant     | Variant(case, payload) | {case: payload}, or the bare case |
| flags       | list of names          | array of names, declared order    |
| option      | None or the value      | nil or the value                  |
| … of option | None or Some(value)    | nil or {"some": value}            |
| result      | Ok(value), Err(value)  | {"ok": value}, {"err": value}     |
| own, borrow | int                    | {"handle": number}                |
| float       | float                  | float 64, with one NaN            |

JSON differs from the plain value in two things: bytes are {"base64": "…"}, and what JSON has no
number for is a string: "nan", "inf", "-inf".

The rest is itself everywhere. Encoded bytes are canonical: the same value of the same type gives
the same bytes, so requests and arguments are compared as bytes, never as Python values (to which
`True == 1`, `0.0 == -0.0` and `nan != nan`).

Encoding takes canonical values (`check.canonical`, or what the ABI lifted) and decoding takes bytes
that encoding made; neither checks. What a conversion back stumbles over is looked at then: a value
that is not of the type is refused with msgspec.ValidationError, any other error is a fault of ours.
Both are on the path of every durable call: a conversion is compiled once a type, from one
expression where it has parts, and is `None` where there is nothing to convert. Pure; any thread.
"""

import base64
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from executor.errors import BadArguments
from executor.wasm.check import canonical, round_f32
from executor.wasm.types import (
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
    WitType,
    format_briefly,
    nests_option,
)
from executor.wasm.values import Err, Ok, Some, Variant

Convert: TypeAlias = Callable[[Any], Any]
"""Python value to plain value, or back."""

Plain: TypeAlias = tuple[Convert | None, Convert | None]
"""To plain, from plain; `None` is the identity."""

Raw: TypeAlias = msgspec.Raw

NO_ARGUMENTS: Final = msgspec.Raw(b"\x90")
NO_RESULT: Final = msgspec.Raw(b"\xc0")

STUMBLES: Final = (TypeError, ValueError, LookupError, AttributeError)
"""What a conversion ends in that meets a plain value of another shape."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode


class FunctionCodec(msgspec.Struct, frozen=True):
    """The four conversions of one function. Made once a function by `compile_function`."""

    encode_arguments: Callable[[Sequence[Any]], Raw]
    """Values in order, to the canonical bytes of one array."""
    decode_arguments: Callable[[Raw], list[Any]]
    encode_result: Callable[[Any], Raw]
    """nil for a function without result."""
    decode_result: Callable[[Raw], Any]


def encode_arguments(type_: FuncType, values: Sequence[object]) -> Raw:
    """The canonical bytes of one array. Where it is hot, hold the FunctionCodec instead."""
    return compile_function(type_).encode_arguments(values)


def decode_arguments(type_: FuncType, raw: Raw) -> list[Any]:
    return compile_function(type_).decode_arguments(raw)


def encode_result(type_: FuncType, value: object) -> Raw:
    """The canonical bytes of the function's result, nil if it has none."""
    return compile_function(type_).encode_result(value)


def decode_result(type_: FuncType, raw: Raw) -> Any:
    return compile_function(type_).decode_result(raw)


def to_plain(type_: WitType, value: object) -> Any:
    """The plain value of a canonical value."""
    convert = compile_plain(type_)[0]
    return value if convert is None else convert(value)


def from_plain(type_: WitType, plain: object) -> Any:
    """The canonical value of a plain value. Raises: msgspec.ValidationError."""
    reading = compile_reading(type_)
    return plain if reading is None else reading(plain)


def read_result(type_: WitType, raw: Raw) -> Any:
    """As `decode_result`, every part looked at. Raises: msgspec.MsgspecError."""
    value = from_plain(type_, _decode(raw))
    try:
        return canonical(type_, value)
    except BadArguments as error:
        raise msgspec.ValidationError(error.message) from error


@functools.lru_cache(maxsize=4096)
def compile_function(type_: FuncType) -> FunctionCodec:
    """The conversions of a function's arguments and result."""
    types = [of for _, of in type_.params]
    to, back = (None, None)
    if type_.result is not None:
        to, back = compile_plain(type_.result)[0], compile_reading(type_.result)
    return FunctionCodec(
        encode_arguments=_arguments_encoder([compile_plain(of)[0] for of in types]),
        decode_arguments=_arguments_decoder([compile_reading(of) for of in types]),
        encode_result=_no_result if type_.result is None else _encoder(to),
        decode_result=_decode if back is None else _decoder(back),
    )


def _no_result(value: object) -> Raw:
    del value
    return NO_RESULT


def _encoder(convert: Convert | None) -> Callable[[Any], Raw]:
    raw, encode = msgspec.Raw, _encode
    if convert is None:
        return lambda value: raw(encode(value))
    return lambda value: raw(encode(convert(value)))


def _decoder(convert: Convert) -> Callable[[Raw], Any]:
    decode = _decode
    return lambda raw: convert(decode(raw))


def _arguments_encoder(converts: list[Convert | None]) -> Callable[[Sequence[Any]], Raw]:
    raw, encode = msgspec.Raw, _encode
    if not converts:
        return lambda _values: NO_ARGUMENTS
    if not any(converts):
        return lambda values: raw(encode(values))
    each = _elementwise(converts)
    return lambda values: raw(encode(each(values)))


def _arguments_decoder(readings: list[Convert | None]) -> Callable[[Raw], list[Any]]:
    decode = _decode
    count = len(readings)
    each = _elementwise(readings) if any(readings) else None

    def decoded(raw: Raw) -> list[Any]:
        plain = decode(raw)
        if type(plain) is not list or len(plain) != count:
            raise msgspec.ValidationError(f"$: expected {count} arguments")
        return plain if each is None else each(plain)

    return decoded


def _same(value: Any) -> Any:
    return value


def _elementwise(converts: Sequence[Convert | None], brackets: str = "[]") -> Convert:
    """Converts the values of a sequence, each by its own conversion, to a list or tuple."""
    parts = [_part(place, f"value[{place}]", convert) for place, convert in enumerate(converts)]
    return _compile(f"{brackets[0]}{', '.join(parts)},{brackets[1]}", converts)


def _part(place: int, read: str, convert: Convert | None) -> str:
    return read if convert is None else f"convert_{place}({read})"


def _compile(expression: str, converts: Sequence[Convert | None]) -> Convert:
    """The function of `value` that the expression is. It calls `convert_0` and so on.

    Names of fields stand in the expression as Python literals, so no name can be more than a name.
    """
    scope: dict[str, Any] = {f"convert_{place}": convert for place, convert in enumerate(converts)}
    compiled: Convert = eval(f"lambda value: {expression}", scope)  # noqa: S307 - as namedtuple does
    return compiled


@functools.lru_cache(maxsize=4096)
def compile_plain(type_: WitType) -> Plain:
    """Both conversions of one type, `None` for a direction that changes nothing."""
    match type_:
        case Primitive("f64"):
            return _f64, None
        case Primitive("f32"):
            return _f32, None
        case Primitive() | EnumType():
            return None, None
        case ListType(element):
            to, back = compile_plain(element)
            return _map(to), _map(back)
        case TupleType(elements):
            return _tuple(elements)
        case RecordType(fields):
            return _record(fields)
        case VariantType(cases):
            return _variant(cases)
        case FlagsType(flags):
            return _flags(flags), None
        case OptionType(payload):
            to, back = compile_plain(payload)
            if nests_option(type_):
                return _some_to_plain(to or _same), _some_from_plain(back or _same)
            return _unless_none(to), _unless_none(back)
        case ResultType(ok, err):
            return _result(ok, err)
        case OwnType() | BorrowType():
            return _handle_to_plain, _handle_from_plain


@functools.lru_cache(maxsize=4096)
def compile_reading(type_: WitType) -> Convert | None:
    """The conversion back, for bytes that may be damaged. It raises: msgspec.ValidationError."""
    back = compile_plain(type_)[1]
    return None if back is None else _reading(type_, back)


def _reading(type_: WitType, back: Convert) -> Convert:
    def reading(plain: Any) -> Any:
        try:
            return back(plain)
        except STUMBLES as error:
            damage = misread(type_, plain, error)
            if damage is error:
                raise
            raise damage from error

    return reading


def misread(type_: WitType, plain: object, error: Exception) -> Exception:
    """What is to be raised where a conversion back ended in `error`: that the value is not what
    encoding makes of one of the type, else the error itself.
    """
    try:
        again = to_plain(type_, canonical(type_, plain))
    except BadArguments as mismatch:
        return msgspec.ValidationError(mismatch.message)
    if _encode(again) != _encode(plain):
        return msgspec.ValidationError(f"$: not as a value of {format_briefly(type_)} is written")
    return error


def _f64(value: float) -> float:
    if type(value) is float and value == value:  # noqa: PLR0124 - only NaN differs from itself
        return value
    return math.nan if value != value else float(value)  # noqa: PLR0124


def _f32(value: float) -> float:
    return round_f32(value) if value == value else math.nan  # noqa: PLR0124


def _map(convert: Convert | None) -> Convert | None:
    if convert is None:
        return None
    return lambda values: [*map(convert, values)]


def _tuple(elements: tuple[WitType, ...]) -> Plain:
    plains = [compile_plain(element) for element in elements]
    to = [convert for convert, _ in plains]
    back = [convert for _, convert in plains]
    return (
        _elementwise(to) if any(to) else None,
        _elementwise(back, "()") if any(back) else tuple,
    )


def _record(fields: tuple[tuple[str, WitType], ...]) -> Plain:
    plains = [(name, *compile_plain(of)) for name, of in fields]
    return (
        _fields_to_plain([(name, to) for name, to, _ in plains]),
        _fields_from_plain([(name, back) for name, _, back in plains]),
    )


def _fields_to_plain(fields: list[tuple[str, Convert | None]]) -> Convert:
    """A host function's dict may be in any order; the plain one is in declared order."""
    parts = [
        f"{name!r}: {_part(place, f'value[{name!r}]', convert)}"
        for place, (name, convert) in enumerate(fields)
    ]
    return _compile("{" + ", ".join(parts) + "}", [convert for _, convert in fields])


def _fields_from_plain(fields: list[tuple[str, Convert | None]]) -> Convert | None:
    converted = [(name, convert) for name, convert in fields if convert is not None]
    if not converted:
        return None

    def from_plain(plain: dict[str, Any]) -> dict[str, Any]:
        value = dict(plain)
        for name, convert in converted:
            value[name] = convert(value[name])
        return value

    return from_plain


def _variant(cases: tuple[tuple[str, WitType | None], ...]) -> Plain:
    bare = {name: Variant(name) for name, of in cases if of is None}
    plains = {name: compile_plain(of) for name, of in cases if of is not None}
    to = {name: convert for name, (convert, _) in plains.items()}
    back = {name: convert for name, (_, convert) in plains.items()}

    def to_plain(value: Variant) -> Any:
        case = value.case
        if case in bare:
            return case
        convert = to[case]
        return {case: value.payload if convert is None else convert(value.payload)}

    def from_plain(plain: Any) -> Variant:
        if type(plain) is str:
            return bare[plain]
        ((case, payload),) = plain.items()
        convert = back[case]
        return Variant(case, payload if convert is None else convert(payload))

    return to_plain, from_plain


def _flags(names: tuple[str, ...]) -> Convert:
    return lambda value: [name for name in names if name in value]


def _unless_none(convert: Convert | None) -> Convert | None:
    if convert is None:
        return None
    return lambda value: None if value is None else convert(value)


def _some_to_plain(convert: Convert) -> Convert:
    return lambda value: None if value is None else {"some": convert(value.value)}


def _some_from_plain(convert: Convert) -> Convert:
    return lambda plain: None if plain is None else Some(convert(plain["some"]))


def _result(ok: WitType | None, err: WitType | None) -> Plain:
    ok_to, ok_back = (None, None) if ok is None else compile_plain(ok)
    err_to, err_back = (None, None) if err is None else compile_plain(err)

    def to_plain(value: Ok | Err) -> dict[str, Any]:
        inner = value.value
        if type(value) is Ok:
            return {"ok": inner if ok_to is None else ok_to(inner)}
        return {"err": inner if err_to is None else err_to(inner)}

    def from_plain(plain: dict[str, Any]) -> Ok | Err:
        if "ok" in plain:
            inner = plain["ok"]
            return Ok(inner if ok_back is None else ok_back(inner))
        inner = plain["err"]
        return Err(inner if err_back is None else err_back(inner))

    return to_plain, from_plain


def _handle_to_plain(value: int) -> dict[str, int]:
    return {"handle": value}


def _handle_from_plain(plain: dict[str, int]) -> int:
    return plain["handle"]


def plain_to_json(plain: object) -> Any:
    """The plain value as `json.dumps` takes it: bytes as base64, NaN and infinities as strings.

    Needs no type, so that an oplog prints without its component.
    """
    match plain:
        case bytes() | bytearray() | memoryview():
            return {"base64": base64.b64encode(plain).decode("ascii")}
        case float():
            return plain if math.isfinite(plain) else _float_word(plain)
        case dict():
            return {name: plain_to_json(part) for name, part in plain.items()}
        case list() | tuple():
            return [plain_to_json(part) for part in plain]
        case _:
            return plain


def _float_word(value: float) -> str:
    if math.isnan(value):
        return "nan"
    return "inf" if value > 0 else "-inf"
