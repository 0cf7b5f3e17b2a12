"""Reads WIT text: one type, one function, or one interface.

The grammar is that of the component model's `WIT.md`, with two additions: `record { … }`,
`variant { … }`, `enum { … }` and `flags { … }` may stand where a type stands, as
`types.format_type` writes them, and an interface may carry its full name
(`interface wasi:io/poll@0.2.0 { … }`) where no `package` line says it. Within an interface a type
may be used before its declaration. Feature gates (`@since`, `@unstable`) are read and ignored.

Every refusal is a UsageError that says line and column, both counted from 1. What this executor
cannot link (`async` functions, `stream`, `future`, lists of fixed length) is refused by name.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from executor.wasm.types import BorrowType, FuncType, OwnType, WitType
from executor.wasm.wit_grammar import Parser, Token

_BRACED: Final = frozenset({"record", "variant", "enum", "flags", "resource"})
_DECLARATIONS: Final = _BRACED | {"type"}
_CLOSING: Final = {"(": ")", "{": "}"}


class WitInterface(msgspec.Struct, frozen=True, kw_only=True):
    """One interface: what it is called, and what it offers."""

    name: str
    """`wasi:io/poll`, without version; a bare `poll` if the text names no package."""
    version: str
    """`0.2.0`, or "" if the text names none."""
    functions: dict[str, FuncType]
    """By the names of the component model: `poll`, `[method]pollable.ready`, `[constructor]fields`,
    `[static]fields.from-list`; a method's first parameter is `self: borrow<…>`. In order."""
    resources: tuple[str, ...]
    """Resources that the interface itself declares, in order."""
    types: dict[str, WitType]
    """Everything the interface declares or uses, resources as `own`. Another interface's
    `use` takes it from here."""


def parse_type(text: str, uses: Mapping[str, WitType] | None = None) -> WitType:
    """The type that the text names. `own<x>` and `borrow<x>` may name any resource.

    `uses` holds the named types that the text may mention. Raises UsageError.
    """
    parser = Parser(text, dict(uses or {}))
    type_ = parser.type()
    parser.end()
    return type_


def parse_function(text: str, uses: Mapping[str, WitType] | None = None) -> tuple[str, FuncType]:
    """Name and type of `charge: func(who: string, cents: u64) -> result<string, string>`.

    A last semicolon is allowed. `uses` holds the named types that the text may mention.
    Raises UsageError.
    """
    parser = Parser(text, dict(uses or {}))
    name = parser.name("the name of a function")
    parser.expect(":")
    type_ = parser.function()
    parser.take(";")
    parser.end()
    return name, type_


def parse_interface(text: str, uses: Mapping[str, WitType] | None = None) -> WitInterface:
    """The one interface that the text declares.

    A name of a `use` item is looked up in `uses` under its own name (before `as`); one that is not
    there is taken for a resource. Raises UsageError.
    """
    return _InterfaceParser(text, dict(uses or {})).interface()


class _InterfaceParser(Parser):
    """One interface. Declarations are noted first, and read where a name is first needed."""

    def __init__(self, text: str, uses: dict[str, WitType]) -> None:
        super().__init__(text, {})
        self._uses = uses
        self._declared: dict[str, tuple[str, int]] = {}
        """Keyword of each declaration, and the token behind its name."""
        self._open: set[str] = set()
        """Declarations that are being read: a name in here contains itself."""
        self._functions: dict[str, FuncType] = {}

    def interface(self) -> WitInterface:
        self._skip_gates()
        package, version = "", ""
        if self.take("package"):
            package, version = self._path()
            self.expect(";")
            self._skip_gates()
        self.expect("interface")
        name, own_version = self._path()
        self.expect("{")
        body = self._next
        self._note_declarations()
        self.end()
        self._next = body
        while not self.take("}"):
            self._item()
        for declared in self._declared:
            self.lookup(declared)
        return WitInterface(
            name=f"{package}/{name}" if package else name,
            version=own_version or version,
            functions=self._functions,
            resources=tuple(
                n for n, (keyword, _) in self._declared.items() if keyword == "resource"
            ),
            types=self.known,
        )

    def lookup(self, name: str) -> WitType | None:
        if name in self.known or name not in self._declared:
            return self.known.get(name)
        if name in self._open:
            self.refuse(f'the type "{name}" contains itself')
        keyword, position = self._declared[name]
        back, self._next = self._next, position
        self._open.add(name)
        self.known[name] = self._declaration(keyword, name)
        self._open.discard(name)
        self._next = back
        return self.known[name]

    def unknown_resource(self, name: str, token: Token) -> str:
        self.refuse(f'unknown resource "{name}"', token)

    def _declaration(self, keyword: str, name: str) -> WitType:
        match keyword:
            case "resource":
                return OwnType(name)
            case "type":
                self.expect("=")
                type_ = self.type()
                self.expect(";")
                return type_
            case _:
                return self.body(keyword, name)

    def _note_declarations(self) -> None:
        """Walk to the end of the interface, noting types and reading `use` items."""
        while not self.take("}"):
            self._skip_gates()
            token = self.advance()
            if token.kind == "end":
                self.refuse('expected "}", found the end', token)
            if token.text == "use":
                self._use()
                continue
            if token.text in _DECLARATIONS:
                name = self._new_name(f"the name of a {token.text}")
                self._declared[name] = (token.text, self._next)
            self._skip_item(braced=token.text in _BRACED)

    def _new_name(self, expected: str) -> str:
        token = self.token
        name = self.name(expected)
        if name in self._declared or name in self.known or name in self._functions:
            self.refuse(f'"{name}" is declared twice', token)
        return name

    def _use(self) -> None:
        self._path()
        self.expect(".")
        self.expect("{")
        names = self.members("}", self._used_name, lambda pair: pair[1])
        self.expect(";")
        for name, alias in names:
            if alias in self.known or alias in self._declared:
                self.refuse(f'"{alias}" is declared twice')
            self.known[alias] = self._uses.get(name, OwnType(name))

    def _used_name(self) -> tuple[str, str]:
        name = self.name("the name of a type")
        return name, self.name("another name") if self.take("as") else name

    def _item(self) -> None:
        """One item, now that all declarations are noted."""
        self._skip_gates()
        token = self.token
        if token.text == "use":
            self._skip_item(braced=False)
        elif token.text == "resource":
            self._next += 1
            self._resource(self.name("the name of a resource"))
        elif token.text in _DECLARATIONS:
            self._next += 1
            self.lookup(self.name(f"the name of a {token.text}"))
            self._skip_item(braced=token.text in _BRACED)
        else:
            name = self._new_name("a function, a type or a resource")
            self.expect(":")
            self._functions[name] = self.function()
            self.expect(";")

    def _resource(self, resource: str) -> None:
        if self.take(";"):
            return
        self.expect("{")
        while not self.take("}"):
            self._skip_gates()
            token = self.token
            name, type_ = self._resource_function(resource)
            self.expect(";")
            if name in self._functions:
                self.refuse(f'"{name}" is declared twice', token)
            self._functions[name] = type_

    def _resource_function(self, resource: str) -> tuple[str, FuncType]:
        if self.take("constructor"):
            params = self.parameters()
            return f"[constructor]{resource}", FuncType(params, self.result() or OwnType(resource))
        name = self.name('a method, "constructor" or "}"')
        self.expect(":")
        if self.take("static"):
            return f"[static]{resource}.{name}", self.function()
        type_ = self.function()
        params = (("self", BorrowType(resource)), *type_.params)
        return f"[method]{resource}.{name}", FuncType(params, type_.result)

    def _path(self) -> tuple[str, str]:
        """`wasi:io/poll@0.2.0`, `wasi:io` or `poll`, and the version apart."""
        path = self.name("the name of an interface")
        while self.token.text in {":", "/"}:
            path += self.advance().text
            path += self.name("a name")
        if not self.take("@"):
            return path, ""
        if self.token.kind != "number":
            self.refuse_unexpected("a version")
        return path, self.advance().text

    def _skip_gates(self) -> None:
        while self.take("@"):
            self.name("the name of a gate")
            self.expect("(")
            self._skip_to_close("(")

    def _skip_item(self, *, braced: bool) -> None:
        """Step behind the end of an item: its `;`, or the closing brace of a braced declaration."""
        while not self.take(";"):
            token = self.advance()
            if token.kind == "end":
                self.refuse('expected ";", found the end', token)
            if token.text in _CLOSING:
                self._skip_to_close(token.text)
                if token.text == "{" and braced:
                    return

    def _skip_to_close(self, opened: str) -> None:
        """Step behind the bracket that closes the one just read, over all between them."""
        closing = [_CLOSING[opened]]
        while closing:
            token = self.advance()
            if token.kind == "end":
                self.refuse(f'expected "{closing[-1]}", found the end', token)
            if token.text in _CLOSING:
                closing.append(_CLOSING[token.text])
            elif token.text == closing[-1]:
                closing.pop()
