"""Tokens of WAVE text, and where they stand.

WAVE is the text encoding of component model values by the wasm-wave crate of
bytecodealliance/wasm-tools. Every refusal is a BadArguments with the 1-based column of the
offending token; in text of several lines the message also says the line.
"""

import re
from collections.abc import Iterator
from typing import Final, Literal, NoReturn, TypeAlias

import msgspec

from executor.errors import BadArguments

Kind: TypeAlias = Literal["number", "label", "char", "string", "punctuation", "unknown", "end"]

KEYWORDS: Final = frozenset({"true", "false", "inf", "nan", "some", "none", "ok", "err"})
"""Labels that mean themselves only behind a `%`."""

_FOUND_LENGTH_MAX: Final = 40

_SPACE: Final = re.compile(r"(?:[ \t\r\n]|//[^\n]*)*")
_TOKEN: Final = re.compile(
    r"""
    (?P<number> -?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)? | -inf(?![A-Za-z0-9]) )
  | (?P<label> %?(?:[a-z][a-z0-9]*|[A-Z][A-Z0-9]*)(?:-(?:[a-z0-9]++(?![A-Z])|[A-Z0-9]+))* )
  | (?P<punctuation> [(){}\[\],:] )
    """,
    re.VERBOSE | re.ASCII,
)
_PLAIN: Final = re.compile(r'[^"\\\n]+')
_ESCAPE: Final = re.compile(r"\\(?:(?P<one>['\"tnr\\])|u\{(?P<hex>[0-9a-fA-F]{1,6})\})")
_ESCAPES: Final = {"'": "'", '"': '"', "t": "\t", "n": "\n", "r": "\r", "\\": "\\"}
_SCALAR_MAX: Final = 0x10FFFF


class Token(msgspec.Struct, frozen=True, gc=False):
    kind: Kind
    text: str
    """As it is written; for a label without its `%`."""
    offset: int
    value: str = ""
    """What a char or string means."""
    escaped: bool = False
    """Whether a label has a `%`, and so is no keyword."""

    def is_keyword(self, word: str) -> bool:
        return self.kind == "label" and not self.escaped and self.text == word

    def is_mark(self, mark: str) -> bool:
        return self.kind == "punctuation" and self.text == mark

    @property
    def shown(self) -> str:
        """As an error shows it."""
        if self.kind == "end":
            return "the end"
        text = self.text if self.text.isprintable() else repr(self.text)[1:-1]
        if len(text) > _FOUND_LENGTH_MAX:
            text = f"{text[: _FOUND_LENGTH_MAX - 1]}…"
        return text if self.kind in {"char", "string"} else f'"{text}"'


WAVE_HINT: Final = """write WAVE, as 5, 'c', "text", [1, 2], {id: 1}, some(1), ok(1)"""


class Source(msgspec.Struct, frozen=True):
    """The text that is read, and what the caller calls it."""

    text: str
    where: str = ""

    def refuse(self, offset: int, message: str, *, expected: str = "", hint: str = "") -> NoReturn:
        """Raise BadArguments for the place in the text."""
        line = self.text.count("\n", 0, offset) + 1
        column = offset - (self.text.rfind("\n", 0, offset) + 1) + 1
        place = f"column {column}" if "\n" not in self.text else f"line {line}, column {column}"
        raise BadArguments(
            f"{place}: {message}",
            where=self.where,
            hint=hint or WAVE_HINT,
            column=column,
            expected=expected,
        )


def tokens(source: Source) -> Iterator[Token]:
    """The tokens in order, the last of kind `end`. Raises BadArguments at what is none."""
    surrogate = re.search("[\ud800-\udfff]", source.text)
    if surrogate is not None:
        source.refuse(surrogate.start(), "expected Unicode text, found a lone surrogate")
    scanner = _Scanner(source)
    while True:
        token = scanner.next()
        yield token
        if token.kind == "end":
            return


class _Scanner:
    def __init__(self, source: Source) -> None:
        self._text = source.text
        self._refuse = source.refuse
        self._offset = 0

    def next(self) -> Token:
        text = self._text
        space = _SPACE.match(text, self._offset)
        start = self._offset if space is None else space.end()
        if start == len(text):
            return Token("end", "", start)
        if text.startswith('"""', start):
            return self._multiline(start)
        if text[start] == '"':
            return self._string(start)
        if text[start] == "'":
            return self._char(start)
        match = _TOKEN.match(text, start)
        if match is None:
            self._offset = start + 1
            return Token("unknown", text[start], start)
        self._offset = match.end()
        match match.lastgroup:
            case "label":
                label = match.group()
                return Token("label", label.removeprefix("%"), start, escaped=label[0] == "%")
            case "number":
                return Token("number", match.group(), start)
            case _:
                return Token("punctuation", match.group(), start)

    def _string(self, start: int) -> Token:
        text, offset = self._text, start + 1
        parts: list[str] = []
        while True:
            character = text[offset : offset + 1]
            if character == '"':
                break
            if character in {"", "\n"}:
                self._refuse(start, 'this string is never closed (a line break is written "\\n")')
            if character == "\\":
                part, offset = self._escape(offset)
            else:
                plain = _PLAIN.match(text, offset)
                assert plain is not None, "neither quote, break nor backslash"
                part, offset = plain.group(), plain.end()
            parts.append(part)
        self._offset = offset + 1
        return Token("string", text[start : offset + 1], start, value="".join(parts))

    def _char(self, start: int) -> Token:
        text = self._text
        character = text[start + 1 : start + 2]
        if character in {"", "\n", "'"}:
            self._refuse(start, "expected one character between single quotes")
        if character == "\\":
            value, end = self._escape(start + 1)
        else:
            value, end = character, start + 2
        if text[end : end + 1] != "'":
            self._refuse(start, "expected one character between single quotes")
        self._offset = end + 1
        return Token("char", text[start : end + 1], start, value=value)

    def _escape(self, offset: int, end: int | None = None) -> tuple[str, int]:
        """What the escape at `offset` means, and where it ends."""
        match = _ESCAPE.match(self._text, offset, len(self._text) if end is None else end)
        if match is None:
            self._refuse(offset, "expected an escape: \\\" \\' \\\\ \\t \\n \\r or \\u{…}")
        if match["one"] is not None:
            return _ESCAPES[match["one"]], match.end()
        scalar = int(match["hex"], 16)
        if scalar > _SCALAR_MAX or 0xD800 <= scalar <= 0xDFFF:
            self._refuse(offset, f"U+{scalar:04X} is no Unicode scalar value")
        return chr(scalar), match.end()

    def _multiline(self, start: int) -> Token:
        """Lines between triple quotes; the closing quotes' indent is taken off every line."""
        text, first = self._text, start + 3
        end = text.find('"""', first)
        if end < 0:
            self._refuse(start, 'this string is never closed by """')
        if not text.startswith(("\n", "\r\n"), first) or "\n" not in text[first:end]:
            self._refuse(start, 'expected a line break behind the opening """')
        last_break = text.rindex("\n", first, end)
        indent = text[last_break + 1 : end]
        if indent.strip(" "):
            self._refuse(end, 'expected only spaces before the closing """')
        lines: list[str] = []
        offset = text.index("\n", first) + 1
        while offset <= last_break:
            line_end = text.index("\n", offset)
            lines.append(self._line(offset, line_end, indent))
            offset = line_end + 1
        self._offset = end + 3
        return Token("string", text[start : end + 3], start, value="\n".join(lines))

    def _line(self, start: int, end: int, indent: str) -> str:
        text = self._text
        if not text.startswith(indent, start, end):
            self._refuse(start, f'expected an indent of {len(indent)} as before the closing """')
        offset = start + len(indent)
        if text.endswith("\r", offset, end):
            end -= 1
        parts: list[str] = []
        while offset < end:
            if text[offset] == "\\":
                part, offset = self._escape(offset, end)
            else:
                stop = text.find("\\", offset, end)
                stop = end if stop < 0 else stop
                part, offset = text[offset:stop], stop
            parts.append(part)
        return "".join(parts)
