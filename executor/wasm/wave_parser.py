"""Reads WAVE text as a value of a known type.

The type leads: an unescaped `some`, `none`, `ok` or `err` is the option's or result's own word, a
bare payload stands for `some(…)` or `ok(…)` where it cannot be mistaken, and `%` makes a keyword an
ordinary label. Depth is bounded by the type's.
"""

import difflib
from collections.abc import Iterable
from typing import Any, Final, NoReturn

from executor.wasm.check import HANDLE_MAX, round_f32
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
    format_briefly,
    format_type,
    is_bytes,
    nests_option,
)
from executor.wasm.values import Err, Ok, Some, Variant
from executor.wasm.wave_tokens import KEYWORDS, Source, Token, tokens

_DIGITS_MAX: Final = 20
"""Of an integer in any range; longer ones are out of range without reading them."""


class WaveParser:
    """Recursive descent over the tokens of one text. Every refusal is a BadArguments."""

    def __init__(self, text: str, where: str = "") -> None:
        self._source = Source(text, where)
        self._tokens = tokens(self._source)
        self._token = next(self._tokens)

    def value(self, type_: WitType) -> Any:
        """The value that comes next."""
        match type_:
            case Primitive(name):
                return self._primitive(name)
            case ListType(element):
                values = self._sequence(type_, "[", element)
                return bytes(values) if is_bytes(type_) else values
            case TupleType(elements):
                return self._tuple(type_, elements)
            case RecordType():
                return self._record(type_)
            case VariantType(cases):
                return self._variant(type_, dict(cases))
            case EnumType(cases):
                return self._label(type_, cases)
            case FlagsType(flags):
                return self._flags(type_, flags)
            case OptionType():
                return self._option(type_)
            case ResultType():
                return self._result(type_)
            case OwnType() | BorrowType():
                return self._integer(0, HANDLE_MAX, "a handle's number")

    def end(self) -> None:
        """Nothing but space and comments may be left."""
        if self._token.kind != "end":
            self._refuse("the end")

    def _advance(self) -> Token:
        token = self._token
        if token.kind != "end":
            self._token = next(self._tokens)
        return token

    def _take(self, mark: str) -> bool:
        if self._token.is_mark(mark):
            self._advance()
            return True
        return False

    def _expect(self, mark: str, expected: str = "") -> None:
        if not self._take(mark):
            self._refuse(expected or f'"{mark}"')

    def _refuse(self, expected: str, token: Token | None = None, hint: str = "") -> NoReturn:
        token = token or self._token
        self._fail(token, f"expected {expected}, found {token.shown}", expected, hint)

    def _fail(self, token: Token, message: str, expected: str = "", hint: str = "") -> NoReturn:
        self._source.refuse(token.offset, message, expected=expected, hint=hint)

    def _primitive(self, name: str) -> Any:
        if name in INTEGER_RANGES:
            return self._integer(*INTEGER_RANGES[name], name)
        if name in FLOATS:
            return self._float(name)
        token = self._token
        match name:
            case "bool":
                if not token.is_keyword("true") and not token.is_keyword("false"):
                    self._refuse("bool")
                return self._advance().text == "true"
            case "char":
                if token.kind != "char":
                    self._refuse("char", hint="a char stands in single quotes: 'x'")
                return self._advance().value
            case _:
                if token.kind != "string":
                    self._refuse("string", hint='a string stands in double quotes: "text"')
                return self._advance().value

    def _integer(self, least: int, greatest: int, expected: str) -> int:
        token = self._token
        if token.kind != "number" or not token.text.removeprefix("-").isdigit():
            self._refuse(expected)
        value = int(token.text) if len(token.text) <= _DIGITS_MAX else greatest + 1
        if not least <= value <= greatest:
            self._refuse(f"{expected} ({least} to {greatest})")
        self._advance()
        return value

    def _float(self, name: str) -> float:
        token = self._token
        if not (token.kind == "number" or token.is_keyword("nan") or token.is_keyword("inf")):
            self._refuse(name)
        value = float(self._advance().text)
        return value if name == "f64" or value != value else round_f32(value)  # noqa: PLR0124 - NaN

    def _sequence(self, type_: WitType, opening: str, element: WitType) -> list[Any]:
        self._expect(opening, format_briefly(type_))
        values: list[Any] = []
        while not self._take("]"):
            values.append(self.value(element))
            if not self._take(","):
                self._expect("]", '"," or "]"')
                break
        return values

    def _tuple(self, type_: TupleType, elements: tuple[WitType, ...]) -> tuple[Any, ...]:
        self._expect("(", format_briefly(type_))
        values: list[Any] = []
        for place, element in enumerate(elements):
            if place:
                self._expect(",", f'"," and element {place + 1} of {format_briefly(type_)}')
            values.append(self.value(element))
        self._take(",")
        self._expect(")", f'")" behind the {len(elements)} elements of {format_briefly(type_)}')
        return tuple(values)

    def _record(self, type_: RecordType) -> dict[str, Any]:
        opening = self._token
        fields = dict(type_.fields)
        given: dict[str, Any] = {}
        self._expect("{", format_briefly(type_))
        if self._take(":"):
            self._expect("}")
        elif self._token.is_mark("}"):
            self._refuse(format_briefly(type_), opening, "a record without fields is written {:}")
        else:
            self._fields(type_, fields, given)
        value: dict[str, Any] = {}
        for name, of in type_.fields:
            if name not in given and type(of) is not OptionType:
                expected = f"{name}: {format_type(of)}"
                self._fail(opening, f"the field {name} is missing: expected {expected}", expected)
            value[name] = given.get(name)
        return value

    def _fields(self, type_: RecordType, fields: dict[str, WitType], given: dict[str, Any]) -> None:
        while True:
            token = self._token
            name = self._name(f"a field of {format_briefly(type_)}", fields)
            if name in given:
                self._fail(token, f"the field {name} is there twice", format_briefly(type_))
            self._expect(":")
            given[name] = self.value(fields[name])
            comma = self._take(",")
            if self._take("}"):
                return
            if not comma:
                self._refuse('"," or "}"')

    def _flags(self, type_: FlagsType, flags: tuple[str, ...]) -> list[str]:
        self._expect("{", format_briefly(type_))
        given: set[str] = set()
        while not self._take("}"):
            token = self._token
            name = self._name(f"a flag of {format_briefly(type_)}", flags)
            if name in given:
                self._fail(token, f"the flag {name} is there twice", format_briefly(type_))
            given.add(name)
            if not self._take(","):
                self._expect("}", '"," or "}"')
                break
        return [name for name in flags if name in given]

    def _name(self, expected: str, names: Iterable[str]) -> str:
        """A label where a keyword means nothing else."""
        token = self._token
        if token.kind != "label" or token.text not in names:
            self._refuse(expected, hint=_near(token, names))
        return self._advance().text

    def _label(self, type_: WitType, names: Iterable[str]) -> str:
        """The name of a case, which a keyword is only behind its `%`."""
        token = self._token
        if token.kind == "label" and token.text in KEYWORDS and not token.escaped:
            hint = f"the case is written %{token.text}" if token.text in names else ""
            self._refuse(format_briefly(type_), hint=hint)
        return self._name(format_briefly(type_), names)

    def _variant(self, type_: VariantType, cases: dict[str, WitType | None]) -> Variant:
        case = self._label(type_, cases)
        return Variant(case, self._payload(case, cases[case]))

    def _payload(self, case: str, type_: WitType | None) -> Any:
        if type_ is None:
            if self._token.is_mark("("):
                self._fail(self._token, f"{case} has no payload")
            return None
        self._expect("(", f'"(" and the payload of {case}, {format_briefly(type_)}')
        value = self.value(type_)
        self._expect(")")
        return value

    def _option(self, type_: OptionType) -> Any:
        token = self._token
        if token.is_keyword("none"):
            self._advance()
            return None
        if token.is_keyword("some"):
            self._advance()
            value = self._payload("some", type_.payload)
            return Some(value) if nests_option(type_) else value
        if isinstance(type_.payload, OptionType | ResultType):
            self._refuse(format_briefly(type_), hint="written some(…) or none")
        return self.value(type_.payload)

    def _result(self, type_: ResultType) -> Ok | Err:
        token = self._token
        if token.is_keyword("ok"):
            self._advance()
            return Ok(self._payload("ok", type_.ok))
        if token.is_keyword("err"):
            self._advance()
            return Err(self._payload("err", type_.err))
        if type_.ok is None or isinstance(type_.ok, OptionType | ResultType):
            self._refuse(
                format_briefly(type_), hint="written ok(…) or err(…), without (…) if it is empty"
            )
        return Ok(self.value(type_.ok))


def _near(token: Token, names: Iterable[str]) -> str:
    close = difflib.get_close_matches(token.text, list(names), n=1)
    return f"did you mean {close[0]}?" if close else ""
