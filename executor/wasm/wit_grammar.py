"""The grammar of WIT types and functions: tokens, and recursive descent over them.

`wit` builds on this and has the entrances. Every refusal is a UsageError that says line and column,
both counted from 1.
"""

import re
from collections.abc import Callable
from typing import Final, NoReturn, TypeVar

import msgspec

from executor.errors import UsageError
from executor.wasm.types import (
    KEYWORDS,
    PRIMITIVES,
    BorrowType,
    EnumType,
    FlagsType,
    FuncType,
    ListType,
    OptionType,
    OwnType,
    RecordType,
    ResultType,
    TupleType,
    VariantType,
    WitType,
)

_T = TypeVar("_T")

_DEPTH_MAX: Final = 100
"""Nesting of a type; Wasmtime refuses deeper ones."""

_FLAGS_MAX: Final = 32
"""Members of one `flags`; the canonical ABI has no more bits."""

_UNSUPPORTED: Final = frozenset({"stream", "future", "error-context"})

_TOKEN: Final = re.compile(
    r"""
    (?P<space> \s+ | //[^\n]* )
  | (?P<block> /\* )
  | (?P<word> %?[A-Za-z][A-Za-z0-9]*(?:-[A-Za-z0-9]+)* )
  | (?P<number> [0-9]+(?:\.[0-9]+)*
        (?:-[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)? (?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)? )
  | (?P<text> "(?:[^"\\]|\\.)*" )
  | (?P<operator> -> | [=,:;(){}<>*/.@_] )
    """,
    re.VERBOSE,
)

_WORD: Final = re.compile(
    r"(?:[a-z][a-z0-9]*|[A-Z][A-Z0-9]*)(?:-(?:[a-z0-9]+|[A-Z0-9]+))*", re.ASCII
)


class Token(msgspec.Struct, frozen=True, gc=False):
    kind: str
    """`word`, `number`, `text`, `operator`, or `end`."""
    text: str
    offset: int


def _refuse(text: str, offset: int, message: str) -> NoReturn:
    line = text.count("\n", 0, offset) + 1
    column = offset - (text.rfind("\n", 0, offset) + 1) + 1
    raise UsageError(f"WIT line {line}, column {column}: {message}")


def _tokens(text: str) -> list[Token]:
    tokens = []
    offset = 0
    while offset < len(text):
        match = _TOKEN.match(text, offset)
        if match is None:
            _refuse(text, offset, f"unexpected character {text[offset]!r}")
        kind = str(match.lastgroup)
        if kind == "block":
            offset = _block_end(text, offset)
            continue
        if kind != "space":
            tokens.append(Token(kind, match.group(), offset))
        offset = match.end()
    tokens.append(Token("end", "", len(text)))
    return tokens


def _block_end(text: str, start: int) -> int:
    """The offset behind a block comment; they nest."""
    depth = 0
    for match in re.compile(r"/\*|\*/").finditer(text, start):
        depth += 1 if match.group() == "/*" else -1
        if depth == 0:
            return match.end()
    _refuse(text, start, "this comment is never closed")


class Parser:
    """Recursive descent over the tokens of one text; `known` holds the named types."""

    def __init__(self, text: str, known: dict[str, WitType]) -> None:
        self.text = text
        self.known = known
        self._tokens = _tokens(text)
        self._next = 0
        self._depth = 0

    @property
    def token(self) -> Token:
        return self._tokens[self._next]

    def advance(self) -> Token:
        token = self.token
        if token.kind != "end":
            self._next += 1
        return token

    def refuse(self, message: str, token: Token | None = None) -> NoReturn:
        _refuse(self.text, (token or self.token).offset, message)

    def refuse_unexpected(self, expected: str) -> NoReturn:
        token = self.token
        found = "the end" if token.kind == "end" else f'"{token.text}"'
        self.refuse(f"expected {expected}, found {found}")

    def take(self, text: str) -> bool:
        """Step over the operator or keyword if it comes next."""
        token = self.token
        if token.kind in {"operator", "word"} and token.text == text:
            self._next += 1
            return True
        return False

    def expect(self, text: str) -> None:
        if not self.take(text):
            self.refuse_unexpected(f'"{text}"')

    def end(self) -> None:
        if self.token.kind != "end":
            self.refuse_unexpected("the end")

    def name(self, expected: str) -> str:
        """An identifier, without its `%`."""
        token = self.token
        if token.kind != "word":
            self.refuse_unexpected(expected)
        if token.text in KEYWORDS:
            self.refuse(
                f'expected {expected}, found the keyword "{token.text}": write %{token.text}'
            )
        name = token.text.removeprefix("%")
        if _WORD.fullmatch(name) is None:
            self.refuse(f'"{name}" is no identifier: each word is all lower or all upper case')
        self._next += 1
        return name

    def function(self) -> FuncType:
        """`func(…) -> …`."""
        if self.token.text == "async":
            self.refuse("async functions belong to WASI 0.3 and cannot be linked")
        self.expect("func")
        params = self.parameters()
        return FuncType(params, self.result())

    def parameters(self) -> tuple[tuple[str, WitType], ...]:
        self.expect("(")
        return self.members(")", lambda: self._named_type("a parameter"), lambda param: param[0])

    def result(self) -> WitType | None:
        if not self.take("->"):
            return None
        token = self.token
        type_ = self.type()
        if _holds_borrow(type_):
            self.refuse("a function cannot give a borrow", token)
        return type_

    def _named_type(self, what: str) -> tuple[str, WitType]:
        name = self.name(f"the name of {what}")
        self.expect(":")
        return name, self.type()

    def members(
        self, close: str, one: Callable[[], _T], key: Callable[[_T], str]
    ) -> tuple[_T, ...]:
        """Members between commas up to `close`, which is stepped over; names must differ."""
        found: dict[str, _T] = {}
        while not self.take(close):
            token = self.token
            member = one()
            if key(member) in found:
                self.refuse(f'"{key(member)}" is there twice', token)
            found[key(member)] = member
            if not self.take(","):
                self.expect(close)
                break
        return tuple(found.values())

    def type(self) -> WitType:
        """One type. Raises UsageError if it nests too deeply."""
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            self.refuse(f"types nest at most {_DEPTH_MAX} deep")
        type_ = self._type()
        self._depth -= 1
        return type_

    def _type(self) -> WitType:
        token = self.token
        if token.kind != "word":
            self.refuse_unexpected("a type")
        if token.text in PRIMITIVES:
            self._next += 1
            return PRIMITIVES[token.text]
        if token.text in _UNSUPPORTED:
            self.refuse(f"{token.text} belongs to WASI 0.3 and cannot be linked")
        match token.text:
            case "list" | "option" | "tuple" | "result" | "own" | "borrow":
                self._next += 1
                return self._generic(token.text)
            case "record" | "variant" | "enum" | "flags":
                self._next += 1
                return self.body(token.text, "")
            case _:
                return self.named()

    def _generic(self, keyword: str) -> WitType:
        if keyword == "result":
            return self._result_type()
        self.expect("<")
        type_: WitType
        match keyword:
            case "own":
                type_ = OwnType(self.resource())
            case "borrow":
                type_ = BorrowType(self.resource())
            case "tuple":
                type_ = TupleType(self._elements())
            case "option":
                type_ = OptionType(self.type())
            case _:
                type_ = ListType(self.type())
                if self.token.text == ",":
                    self.refuse("lists of fixed length cannot be linked")
        self.expect(">")
        return type_

    def _elements(self) -> tuple[WitType, ...]:
        elements = [self.type()]
        while self.take(",") and self.token.text != ">":
            elements.append(self.type())
        return tuple(elements)

    def _result_type(self) -> ResultType:
        if not self.take("<"):
            return ResultType()
        ok = None if self.take("_") else self.type()
        err = self.type() if self.take(",") else None
        self.expect(">")
        return ResultType(ok, err)

    def body(self, keyword: str, name: str) -> WitType:
        """`{ … }` of a record, variant, enum or flags."""
        start = self.token
        self.expect("{")
        type_: WitType
        match keyword:
            case "record":
                fields = self.members(
                    "}", lambda: self._named_type("a field"), lambda field: field[0]
                )
                count, type_ = len(fields), RecordType(fields, name)
            case "variant":
                cases = self.members("}", self._case, lambda case: case[0])
                count, type_ = len(cases), VariantType(cases, name)
            case "enum":
                names = self.members("}", lambda: self.name("the name of a case"), str)
                count, type_ = len(names), EnumType(names, name)
            case _:
                names = self.members("}", lambda: self.name("the name of a flag"), str)
                count, type_ = len(names), FlagsType(names, name)
                if count > _FLAGS_MAX:
                    self.refuse(f"flags have at most {_FLAGS_MAX} members", start)
        if count == 0:
            self.refuse(f"a {keyword} has at least one member", start)
        return type_

    def _case(self) -> tuple[str, WitType | None]:
        name = self.name("the name of a case")
        if not self.take("("):
            return name, None
        payload = self.type()
        self.expect(")")
        return name, payload

    def named(self) -> WitType:
        """A type by its own name."""
        token = self.token
        name = self.name("a type")
        type_ = self.lookup(name)
        if type_ is None:
            self.refuse(f'unknown type "{name}"', token)
        return type_

    def lookup(self, name: str) -> WitType | None:
        return self.known.get(name)

    def resource(self) -> str:
        """The resource of a handle: a known one, or outside an interface any name."""
        if self.take("_"):
            return ""
        token = self.token
        name = self.name("the name of a resource")
        type_ = self.lookup(name)
        if type_ is None:
            return self.unknown_resource(name, token)
        if not isinstance(type_, OwnType):
            self.refuse(f'"{name}" is no resource', token)
        return type_.resource

    def unknown_resource(self, name: str, token: Token) -> str:
        del token
        return name


def _holds_borrow(type_: WitType | None) -> bool:
    match type_:
        case BorrowType():
            return True
        case ListType(part) | OptionType(part):
            return _holds_borrow(part)
        case TupleType(parts):
            return any(map(_holds_borrow, parts))
        case ResultType(ok, err):
            return _holds_borrow(ok) or _holds_borrow(err)
        case RecordType(members) | VariantType(members):
            return any(_holds_borrow(part) for _, part in members)
        case _:
            return False
