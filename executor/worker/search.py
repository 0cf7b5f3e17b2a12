r"""Searching an oplog: a query in a small language, and whether an entry matches it. Pure.

    query   = all { "OR" all }
    all     = one { ["AND"] one }
    one     = { "NOT" } ( "(" query ")" | field ":" target | term )
    target  = "(" query ")" | term
    term    = word | '"' text '"'

A term matches an entry of that kind (by its whole name, or the one that Golem gives it), and an
entry that holds it in a function, a key, a message or anywhere inside a request, response, argument
or result: text that contains it, a number or boolean that equals it. A word does not mind case; a
quoted text is taken as it is written. `\` takes the next character as it is.

`field:term` looks at fields of that name only, at any depth: `level:stderr`, `product-id:G1001`,
`kind:start`; with several names, `env.CURRENCY:EUR`, at what lies under them in this order. Only so
does a query look at `index`, `at`, `hint` and `hidden`. Since names of functions hold colons
themselves, an unquoted `a:b` also matches text that contains `a:b`.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Final, TypeAlias

import msgspec

from executor.errors import UsageError
from executor.records import ENTRY_TIMES, OplogRecord, time_text
from oplog.codec import decode_value, values_of
from oplog.entry import (
    HINTS,
    KIND_OF,
    CancelPendingInvocation,
    Error,
    InvocationFinished,
    InvocationStarted,
    NoOp,
    PendingInvocation,
    SetPersistenceLevel,
    SetRetryPolicy,
    Start,
)

LENGTH_MAX: Final = 4_096
DEPTH_MAX: Final = 64
"""Of parentheses."""

GOLEM_KINDS: Final[dict[type, tuple[str, ...]]] = {
    Start: ("imported-function", "imported-function-invoked"),
    InvocationStarted: ("exported-function", "exported-function-invoked"),
    InvocationFinished: ("exported-function", "exported-function-completed"),
    PendingInvocation: ("pending-worker-invocation",),
    CancelPendingInvocation: ("cancel-invocation",),
    NoOp: ("noop",),
    SetPersistenceLevel: ("change-persistence-level", "persistence-level"),
    SetRetryPolicy: ("change-retry-policy",),
}
"""Other names of kinds, as the oplog search of Golem 1.2 knows them."""

UNLESS_NAMED: Final = ENTRY_TIMES | {"index", "hint", "hidden"}
"""Fields that every query would meet by accident."""
TIMES: Final = frozenset((name,) for name in ENTRY_TIMES)

TOKEN: Final = re.compile(r'\s*(?:(?P<text>"(?:[^"\\]|\\.)*")|(?P<word>(?:[^\s()"\\]|\\.)+)|(.))')
ESCAPED: Final = re.compile(r"\\(.)")
FIELD: Final = re.compile(r"((?:[^:\\]|\\.)+):")


class Term(msgspec.Struct, frozen=True):
    text: str
    exact: bool = False
    """Whether it was quoted: case counts."""


class Field(msgspec.Struct, frozen=True):
    names: tuple[str, ...]
    inner: "Query"
    whole: Term | None = None
    """What the words say read as one term, colon and all."""


class Not(msgspec.Struct, frozen=True):
    inner: "Query"


class And(msgspec.Struct, frozen=True):
    parts: tuple["Query", ...]


class Or(msgspec.Struct, frozen=True):
    parts: tuple["Query", ...]


Query: TypeAlias = Term | Field | Not | And | Or

Path: TypeAlias = tuple[str, ...]


def parse(text: str) -> Query:
    """Raises: UsageError naming the column (from 1) where the query stops making sense."""
    if len(text) > LENGTH_MAX:
        raise UsageError(
            f"a query has at most {LENGTH_MAX} characters, not {len(text)}",
            where="search",
            hint="search for a part of it, or search twice",
        )
    return _Parser(text).query_to_end()


def matches(query: Query, record: OplogRecord) -> bool:
    """Whether the entry is one that the query asks for. Large values must be in place."""
    with values_of(record.index):
        return _matches(query, _Texts(record), ())


class _Token(msgspec.Struct, frozen=True):
    text: str
    column: int
    quoted: bool = False

    @property
    def is_name(self) -> bool:
        return self.quoted or self.text not in {"AND", "OR", "NOT", "(", ")"}


class _Parser:
    """Recursive descent over the tokens; one token is looked ahead."""

    def __init__(self, text: str) -> None:
        self._tokens = list(tokens(text))
        self._end_column = len(text) + 1
        self._at = 0
        self._depth = 0

    def query_to_end(self) -> Query:
        query = self._query()
        if (left := self._next) is not None:
            raise refusal("this `)` closes nothing", left.column)
        return query

    @property
    def _next(self) -> _Token | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _takes(self, word: str) -> bool:
        token = self._next
        found = token is not None and token.text == word and not token.quoted
        self._at += found
        return found

    def _query(self) -> Query:
        parts = [self._all()]
        while self._takes("OR"):
            parts.append(self._all())
        return parts[0] if len(parts) == 1 else Or(tuple(parts))

    def _all(self) -> Query:
        parts = [self._one()]
        while self._takes("AND") or not self._ends_all():
            parts.append(self._one())
        return parts[0] if len(parts) == 1 else And(tuple(parts))

    def _ends_all(self) -> bool:
        token = self._next
        return token is None or (not token.quoted and token.text in {"OR", ")"})

    def _one(self) -> Query:
        negated = False
        while self._takes("NOT"):
            negated = not negated
        found = self._group() or self._named()
        return Not(found) if negated else found

    def _group(self) -> Query | None:
        opening = self._next
        if not self._takes("("):
            return None
        assert opening is not None
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise refusal(f"parentheses nest at most {DEPTH_MAX} deep", opening.column)
        query = self._query()
        if not self._takes(")"):
            raise refusal("this `(` is not closed", opening.column)
        self._depth -= 1
        return query

    def _named(self) -> Query:
        token = self._next
        if token is None or not token.is_name:
            what = "the query ends" if token is None else f"there is `{token.text}`"
            column = self._end_column if token is None else token.column
            raise refusal(f"{what} where a term is expected", column)
        self._at += 1
        found = None if token.quoted else FIELD.match(token.text)
        if found is None:
            return Term(plain(token.text), exact=token.quoted)
        names = tuple(plain(name).lower() for name in found[1].split("."))
        if rest := token.text[found.end() :]:
            return Field(names, Term(plain(rest)), whole=Term(plain(token.text)))
        return Field(names, self._target(token))

    def _target(self, field: _Token) -> Query:
        """What follows the colon: a quoted text or a group, which touch it."""
        end = field.column + len(field.text)
        token = self._next
        if token is None or token.column != end or not (token.quoted or token.text == "("):
            raise refusal(f"`{field.text}` is followed by no value", end)
        if (group := self._group()) is not None:
            return group
        self._at += 1
        return Term(plain(token.text), exact=True)


def tokens(text: str) -> Iterator[_Token]:
    """Words, quoted texts (without their quotes, escapes in place) and parentheses."""
    for found in TOKEN.finditer(text.rstrip()):
        if (quoted := found["text"]) is not None:
            yield _Token(quoted[1:-1], found.start("text") + 1, quoted=True)
        elif (word := found["word"]) is not None:
            yield _Token(word, found.start("word") + 1)
        elif found[3] in "()":
            yield _Token(found[3], found.start(3) + 1)
        elif found[3] == '"':
            raise refusal("this quote is not closed", found.start(3) + 1)
        else:
            raise refusal("nothing follows this `\\`", found.start(3) + 1)


def plain(text: str) -> str:
    """Without its escapes."""
    return ESCAPED.sub(r"\1", text)


def refusal(message: str, column: int) -> UsageError:
    return UsageError(
        message,
        where=f"search, column {column}",
        hint='write terms, AND, OR, NOT, ( ), "quoted text", field:value; quote what is none',
    )


def _matches(query: Query, texts: "_Texts", names: Path) -> bool:
    match query:
        case Or(parts):
            return any(_matches(part, texts, names) for part in parts)
        case And(parts):
            return all(_matches(part, texts, names) for part in parts)
        case Not(inner):
            return not _matches(inner, texts, names)
        case Field(field, inner, whole):
            return _matches(inner, texts, names + field) or (
                whole is not None and _matches(whole, texts, names)
            )
        case Term():
            return texts.hold(query, names)


class _Texts:
    """What one entry says: its scalars with the names that lead to them, list positions left out.

    They are gathered once, however many terms a query has.
    """

    def __init__(self, record: OplogRecord) -> None:
        entry = record.entry
        self._kinds = (KIND_OF[type(entry)], *GOLEM_KINDS.get(type(entry), ()))
        self._scalars: list[tuple[Path, object]] = [
            (("index",), record.index),
            (("hint",), type(entry) in HINTS),
            (("hidden",), record.hidden),
            *scalars((), entry),
        ]
        if isinstance(entry, Error):
            self._scalars.append((("error_kind",), entry.kind))

    def hold(self, term: Term, names: Path) -> bool:
        if names in ((), ("kind",)) and term.text.lower() in self._kinds:
            return True
        return any(
            (leads_through(path, names) if names else path[0] not in UNLESS_NAMED)
            and says(term, value)
            for path, value in self._scalars
        )


def scalars(path: Path, value: object) -> Iterator[tuple[Path, object]]:
    """Every scalar inside a value, with the lower-case names on the way to it."""
    match value:
        case msgspec.Raw():
            if memoryview(value).nbytes:
                yield from scalars(path, decode_value(value))
        case msgspec.Struct():
            for name in value.__struct_fields__:
                yield from scalars((*path, name), getattr(value, name))
        case dict():
            for name, item in value.items():
                yield from scalars((*path, *str(name).lower().split(".")), item)
        case list() | tuple():
            for item in value:
                yield from scalars(path, item)
        case int() if path in TIMES:
            yield path, time_text(value)
        case None:
            pass
        case _:
            yield path, value


def leads_through(path: Path, names: Path) -> bool:
    """Whether the path goes through these names, in this order."""
    left = iter(path)
    return all(name in left for name in names)


def says(term: Term, value: object) -> bool:
    """Text contains the term; a number or a boolean equals it."""
    match value:
        case bool():
            return term.text.lower() == str(value).lower()
        case int() | float():
            return number(term.text) == value
        case bytes():
            return says(term, value.decode(errors="replace"))
        case str():
            return term.text in value if term.exact else term.text.lower() in value.lower()
        case _:
            return False


@lru_cache(maxsize=256)
def number(text: str) -> int | float | None:
    """The number that a term writes, if it writes one."""
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            pass
    return None
