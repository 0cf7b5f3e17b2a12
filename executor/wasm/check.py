"""Turns what a caller hands over into the one Python value the executor works with.

`canonical` accepts what people write in Python or get from JSON, and returns the value that the
ABI lifts and lowers: ints in range, `bytes` for `list<u8>`, tuples, records as dicts in declared
order, flags as a list in declared order, `Variant`, `Ok`, `Err`, `Some` where options nest. Two
callers who mean the same value get equal values, so that a repeated request is recognised.

| type       | accepted besides the canonical value                                        |
|------------|-----------------------------------------------------------------------------|
| integer    | anything with `__index__` but `bool`                                        |
| float      | an integer; every NaN becomes the one NaN, f32 is rounded to f32            |
| list       | any sequence but text and bytes; for `list<u8>` any bytes or ints           |
| tuple      | any sequence but text and bytes, of that length                             |
| record     | a mapping or an object with such attributes, `snake_case` for `kebab-case`; |
|            | fields of option type may be missing                                        |
| variant    | the bare name of a case without payload, or `{case: payload}`               |
| flags      | a sequence or set of names                                                  |
| option     | `Some(value)`; where options nest also `{"some": value}`                    |
| result     | `{"ok": value}` or `{"err": value}`                                         |
| own/borrow | `{"handle": number}`                                                        |

Pure: no I/O, any thread. A checker is compiled once a type.
"""

import ctypes
import difflib
import functools
import math
import operator
import reprlib
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final, TypeAlias

from executor.errors import BadArguments
from executor.wasm.types import (
    INTEGER_RANGES,
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
    format_function,
    is_bytes,
    nests_option,
)
from executor.wasm.values import Err, Ok, Some, Variant

Check: TypeAlias = Callable[[Any], Any]

HANDLE_MAX: Final = (1 << 63) - 1
"""Handles are numbered from 1 in the order they are made."""

_SURROGATES: Final = range(0xD800, 0xE000)
_MISSING: Final = object()

_repr = reprlib.Repr()
_repr.maxstring = _repr.maxother = 60
_repr.maxlong = 40
_repr.maxlevel = 3


class _Mismatch(Exception):
    """Travels up through the checkers, which add where they are."""

    def __init__(self, expected: str, found: str, *path: str) -> None:
        super().__init__(expected, found)
        self.expected = expected
        self.found = found
        self.path = list(path)
        """Innermost first."""


def canonical(type_: WitType, value: object, where: str = "") -> Any:
    """The canonical value, or BadArguments saying the path (`$.items[2].id`), what is expected and
    what was given. `where` names the value for the error: an argument, a host function's answer.
    """
    return compile_canonical(type_, where)(value)


def compile_canonical(type_: WitType, where: str = "") -> Check:
    """As `canonical`, for a type that many values come of."""
    check = compile_check(type_)

    def checked(value: object) -> Any:
        try:
            return check(value)
        except _Mismatch as mismatch:
            path = "".join(["$", *reversed(mismatch.path)])
            raise BadArguments(
                f"{path}: expected {mismatch.expected}, got {mismatch.found}",
                where=where,
                hint="give a value of that type",
                expected=mismatch.expected,
            ) from None

    return checked


def canonical_arguments(
    type_: FuncType, values: Sequence[object], where: str = "function"
) -> list[Any]:
    """The canonical values of all arguments. `where` is the function's name.

    As in WAVE, options at the end may be left out. Raises BadArguments, also for too few or too
    many.
    """
    given = fill_arguments(type_, list(values), None, where)
    return [
        canonical(of, value, f"{where}: argument {number} ({name})")
        for number, ((name, of), value) in enumerate(zip(type_.params, given, strict=True), start=1)
    ]


def fill_arguments(type_: FuncType, given: list[Any], absent: Any, where: str) -> list[Any]:
    """`given` and an `absent` for each option left out at its end.

    Raises BadArguments where its length is wrong in any other way.
    """
    params = type_.params
    missing = params[len(given) :]
    if len(given) <= len(params) and all(type(of) is OptionType for _, of in missing):
        return [*given, *[absent] * len(missing)]
    problem = (
        f"missing: {', '.join(name for name, of in missing if type(of) is not OptionType)}"
        if missing
        else f"{len(given) - len(params)} too many"
    )
    count = "1 argument" if len(params) == 1 else f"{len(params)} arguments"
    raise BadArguments(
        f"takes {count}, {len(given)} given ({problem})",
        where=where,
        hint=f"it is a {format_function('', type_)}",
        expected=count,
    )


@functools.lru_cache(maxsize=4096)
def compile_check(type_: WitType) -> Check:
    """The checker of one type, from value to canonical value; `canonical` words its errors."""
    match type_:
        case Primitive(name):
            return _primitive(name)
        case ListType(element):
            return _bytes if is_bytes(type_) else _list(type_, compile_check(element))
        case TupleType(elements):
            return _tuple(type_, [compile_check(element) for element in elements])
        case RecordType():
            return _record(type_)
        case VariantType():
            return _variant(type_)
        case EnumType(cases):
            return _enum(type_, frozenset(cases))
        case FlagsType():
            return _flags(type_)
        case OptionType(payload):
            check = compile_check(payload)
            return _nested_option(type_, check) if nests_option(type_) else _option(check)
        case ResultType():
            return _result(type_)
        case OwnType() | BorrowType():
            return _handle


def _primitive(name: str) -> Check:
    if name in INTEGER_RANGES:
        return _integer(name)
    return {"bool": _bool, "char": _char, "string": _string, "f32": _f32, "f64": _f64}[name]


def _bool(value: object) -> bool:
    if value is True or value is False:
        return value
    raise _Mismatch("bool", _found(value))


def _integer(name: str) -> Check:
    least, greatest = INTEGER_RANGES[name]
    expected = f"{name} ({least} to {greatest})"

    def check(value: Any) -> int:
        if type(value) is not int:
            if isinstance(value, bool) or not hasattr(value, "__index__"):
                raise _Mismatch(expected, _found(value))
            value = operator.index(value)
        if least <= value <= greatest:
            return int(value)
        raise _Mismatch(expected, _found(value))

    return check


def _float(value: Any, name: str) -> float:
    if type(value) is not float:
        if isinstance(value, bool) or not (isinstance(value, float) or hasattr(value, "__index__")):
            raise _Mismatch(name, _found(value))
        try:
            value = float(value)
        except OverflowError:
            raise _Mismatch(name, _found(value)) from None
    return math.nan if value != value else float(value)  # noqa: PLR0124 - only NaN differs from itself


def _f64(value: object) -> float:
    return _float(value, "f64")


def _f32(value: object) -> float:
    return round_f32(_float(value, "f32"))


def round_f32(value: float) -> float:
    """The nearest value of f32; beyond its range an infinity, as IEEE 754 rounds."""
    return ctypes.c_float(value).value


def _char(value: object) -> str:
    if isinstance(value, str) and len(value) == 1:
        return _string(value)
    raise _Mismatch("char (a string of one character)", _found(value))


def _string(value: object) -> str:
    if not isinstance(value, str):
        raise _Mismatch("string", _found(value))
    text = str.__str__(value)
    if not text.isascii():
        for place, character in enumerate(text):
            if ord(character) in _SURROGATES:
                found = f"the lone surrogate U+{ord(character):04X} at position {place}"
                raise _Mismatch("string of Unicode scalar values", found)
    return text


def _sequence(value: object, expected: str) -> Sequence[Any]:
    if type(value) is list or type(value) is tuple:
        return value
    if isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray | memoryview):
        return value
    raise _Mismatch(expected, _found(value))


def _bytes(value: Any) -> bytes:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    check = compile_check(Primitive("u8"))
    return bytes(_elements(_sequence(value, "list<u8> (bytes, or a list of ints)"), check))


def _elements(values: Sequence[Any], check: Check) -> list[Any]:
    checked: list[Any] = []
    try:
        for value in values:
            checked.append(check(value))  # noqa: PERF401 - its length is the index of a mismatch
    except _Mismatch as mismatch:
        mismatch.path.append(f"[{len(checked)}]")
        raise
    return checked


def _list(type_: ListType, element: Check) -> Check:
    expected = format_briefly(type_)

    def check(value: object) -> list[Any]:
        return _elements(_sequence(value, expected), element)

    return check


def _tuple(type_: TupleType, elements: list[Check]) -> Check:
    expected = f"{format_briefly(type_)} ({len(elements)} elements)"

    def check(value: object) -> tuple[Any, ...]:
        values = _sequence(value, expected)
        if len(values) != len(elements):
            raise _Mismatch(expected, f"{len(values)} elements")
        checked: list[Any] = []
        try:
            for element, part in zip(elements, values, strict=True):
                checked.append(element(part))
        except _Mismatch as mismatch:
            mismatch.path.append(f"[{len(checked)}]")
            raise
        return tuple(checked)

    return check


def _record(type_: RecordType) -> Check:
    expected = format_briefly(type_)
    fields = [
        (
            name,
            name.replace("-", "_"),
            type(of) is OptionType,
            compile_check(of),
            format_briefly(of),
        )
        for name, of in type_.fields
    ]
    known = {spelling for name, snake, *_ in fields for spelling in (name, snake)}

    def check(value: Any) -> dict[str, Any]:
        if isinstance(value, Mapping):
            for key in value:
                if key not in known:
                    raise _Mismatch(f"{expected}{_near(key, known)}", f"the field {key!r}")
            read = value.get
        elif _has_attributes(value):
            read = functools.partial(_attribute, value)
        else:
            raise _Mismatch(expected, _found(value))
        checked: dict[str, Any] = {}
        for name, snake, optional, field, wanted in fields:
            part = read(name, _MISSING)
            if part is _MISSING and snake != name:
                part = read(snake, _MISSING)
            if part is _MISSING:
                if not optional:
                    raise _Mismatch(wanted, "nothing: the field is missing", f".{name}")
                part = None
            try:
                checked[name] = field(part)
            except _Mismatch as mismatch:
                mismatch.path.append(f".{name}")
                raise
        return checked

    return check


def _has_attributes(value: object) -> bool:
    """A dataclass, a msgspec Struct, a named tuple, or a plain object."""
    declared = ("__dataclass_fields__", "__struct_fields__", "_fields")
    if isinstance(value, type | Ok | Err | Some | Variant):
        return False
    return hasattr(value, "__dict__") or any(hasattr(value, name) for name in declared)


def _attribute(value: object, name: str, default: object) -> Any:
    return getattr(value, name, default)


def _variant(type_: VariantType) -> Check:
    expected = format_briefly(type_)
    cases = {name: None if of is None else compile_check(of) for name, of in type_.cases}
    payloads = {name: "" if of is None else format_briefly(of) for name, of in type_.cases}

    def check(value: Any) -> Variant:
        case: Any
        payload: Any = _MISSING
        if isinstance(value, Variant):
            case, payload = value.case, value.payload
        elif isinstance(value, Mapping) and len(value) == 1:
            ((case, payload),) = value.items()
        elif isinstance(value, str):
            case = value
        else:
            raise _Mismatch(expected, _found(value))
        if not isinstance(case, str) or case not in cases:
            raise _Mismatch(f"{expected}{_near(case, cases)}", f"the case {case!r}")
        payload_check = cases[case]
        if payload is _MISSING:
            if payload_check is not None:
                raise _Mismatch(payloads[case], "no payload", f".{case}")
            payload = None
        return Variant(str.__str__(case), _payload(payload_check, payload, f".{case}"))

    return check


def _enum(type_: EnumType, cases: frozenset[str]) -> Check:
    expected = format_briefly(type_)

    def check(value: object) -> str:
        if isinstance(value, str) and value in cases:
            return str.__str__(value)
        raise _Mismatch(f"{expected}{_near(value, cases)}", _found(value))

    return check


def _flags(type_: FlagsType) -> Check:
    expected = format_briefly(type_)
    names = type_.flags

    def check(value: Any) -> list[str]:
        given = value if isinstance(value, AbstractSet) else _sequence(value, expected)
        for name in given:
            if name not in names:
                raise _Mismatch(f"{expected}{_near(name, names)}", f"the flag {_found(name)}")
        if len(set(given)) != len(given):
            raise _Mismatch(expected, "a flag twice")
        return [name for name in names if name in given]

    return check


def _option(payload: Check) -> Check:
    def check(value: Any) -> Any:
        if value is None:
            return None
        return payload(value.value if type(value) is Some else value)

    return check


def _nested_option(type_: OptionType, payload: Check) -> Check:
    expected = f"{format_briefly(type_)} (None or Some(value), since options nest)"

    def check(value: Any) -> Some | None:
        match value:
            case None:
                return None
            case Some(inner):
                pass
            case {"some": inner, **rest} if not rest:
                pass
            case _:
                raise _Mismatch(expected, _found(value))
        return Some(_payload(payload, inner, ".some"))

    return check


def _result(type_: ResultType) -> Check:
    expected = f"{format_briefly(type_)} (Ok(…) or Err(…))"
    ok = None if type_.ok is None else compile_check(type_.ok)
    err = None if type_.err is None else compile_check(type_.err)

    def check(value: Any) -> Ok | Err:
        match value:
            case Ok(inner):
                return Ok(_payload(ok, inner, ".ok"))
            case Err(inner):
                return Err(_payload(err, inner, ".err"))
            case {"ok": inner, **rest} if not rest:
                return Ok(_payload(ok, inner, ".ok"))
            case {"err": inner, **rest} if not rest:
                return Err(_payload(err, inner, ".err"))
            case _:
                raise _Mismatch(expected, _found(value))

    return check


def _payload(check: Check | None, value: object, step: str) -> Any:
    if check is None:
        if value is not None:
            raise _Mismatch("no payload", _found(value), step)
        return None
    try:
        return check(value)
    except _Mismatch as mismatch:
        mismatch.path.append(step)
        raise


def _handle(value: Any) -> int:
    match value:
        case {"handle": number, **rest} if not rest:
            pass
        case _:
            number = value
    if type(number) is int and 0 <= number <= HANDLE_MAX:
        return number
    raise _Mismatch("a handle (its number)", _found(value))


def _found(value: object) -> str:
    """A value as an error shows it: short, and with its type where the value does not tell."""
    try:
        text = _repr.repr(value)
    except Exception:
        text = "a value that cannot be shown"
    if value is None or isinstance(value, bool | int | str | bytes):
        return text
    return f"{text} ({type(value).__name__})"


def _near(name: object, names: Any) -> str:
    if not isinstance(name, str):
        return ""
    close = difflib.get_close_matches(name, names, n=1)
    return f" (did you mean {close[0]}?)" if close else ""
