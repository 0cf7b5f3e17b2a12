"""The binary format of components, as far as wrapping one in another, and looking for the memories
and tables in it, needs it. Pure.

A component is a sequence of sections. Those in front, up to the last import, define types, import,
and name parts of what was imported: its *prologue*. Put in front of another component it means the
same there, index by index, so an outer component imports what the inner one does without anybody
reading a type. Source: `design/mvp/Binary.md` of the component model.
"""

from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from typing import Final, TypeAlias

import msgspec

MAGIC: Final = b"\0asm"
COMPONENT: Final = b"\x0d\x00\x01\x00"


class Section(IntEnum):
    """Kinds of sections."""

    CUSTOM = 0
    CORE_MODULE = 1
    COMPONENT = 4
    INSTANCE = 5
    ALIAS = 6
    TYPE = 7
    IMPORT = 10
    EXPORT = 11


class Sort(IntEnum):
    """Sorts of definitions, each counted by itself."""

    CORE = 0
    FUNCTION = 1
    VALUE = 2
    TYPE = 3
    COMPONENT = 4
    INSTANCE = 5


_DEPTH_MAX: Final = 100
CORE_TABLE_SECTION: Final = 4
CORE_MEMORY_SECTION: Final = 5
PAGE_BITS: Final = 16
_HAS_MAX: Final = 1
_HAS_PAGE_SIZE: Final = 8
_HAS_FIRST_VALUE: Final = 0x40
_REFERENCES: Final = frozenset({0x63, 0x64})
"""Of memories and tables, in `document/core/binary` of the WebAssembly specification."""

Named: TypeAlias = tuple[str, Sort, int]
"""A name for a definition, by its sort and its place among those of its sort."""


Members: TypeAlias = tuple[tuple[str, Sort], ...]
"""What an instance exports, by name."""

COUNTED: Final = (Sort.FUNCTION, Sort.TYPE, Sort.COMPONENT, Sort.INSTANCE)


class UnknownShape(Exception):
    """The component has a shape that this module does not know; it is no error of the component."""


class Import(msgspec.Struct, frozen=True, kw_only=True):
    """One import of a component."""

    name: str
    sort: Sort
    index: int
    """Its place among the definitions of its sort."""
    members: Members = ()
    """Of an imported instance: names and sorts of what it exports."""


class Prologue(msgspec.Struct, frozen=True, kw_only=True):
    """What a component has up to its last import."""

    sections: bytes
    imports: tuple[Import, ...]
    counts: dict[Sort, int]
    """How many definitions of each sort there are."""


class _Reader:
    def __init__(self, content: bytes, at: int = 0) -> None:
        self.content = content
        self.at = at

    def byte(self) -> int:
        if self.at >= len(self.content):
            raise UnknownShape("it ends early")
        self.at += 1
        return self.content[self.at - 1]

    def number(self) -> int:
        """An unsigned LEB128; a type's index among value types reads the same."""
        number = shift = 0
        while True:
            byte = self.byte()
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
            shift += 7

    def text(self) -> str:
        size = self.number()
        self.at += size
        try:
            return self.content[self.at - size : self.at].decode()
        except UnicodeDecodeError as error:
            raise UnknownShape(str(error)) from error

    def sort(self) -> Sort:
        try:
            return Sort(self.byte())
        except ValueError as error:
            raise UnknownShape(str(error)) from error

    def extern_name(self) -> str:
        if self.byte() > 1:
            raise UnknownShape("a name with attributes")
        return self.text()

    def many(self, read: Callable[[], object]) -> None:
        for _ in range(self.number()):
            read()


def read_prologue(component: bytes) -> Prologue:
    """Raises: UnknownShape."""
    sections = _sections(component)
    last = max(
        (at for at, (kind, _, _) in enumerate(sections) if kind == Section.IMPORT), default=-1
    )
    prologue = _PrologueReader()
    copied = []
    for kind, start, end in sections[: last + 1]:
        if kind in (Section.CUSTOM, Section.CORE_MODULE):
            continue
        content = component[start:end]
        prologue.read(kind, content)
        copied.append(section(kind, content))
    return Prologue(
        sections=b"".join(copied), imports=tuple(prologue.imports), counts=prologue.counts
    )


def defines_resources(component: bytes, depth: int = 0) -> bool:
    """Whether it, or a component in it, makes a resource type of its own. Raises: UnknownShape."""
    if depth > _DEPTH_MAX:
        raise UnknownShape("components nested too deep")
    for kind, start, end in _sections(component):
        if kind == Section.COMPONENT and defines_resources(component[start:end], depth + 1):
            return True
        if kind == Section.TYPE:
            types = _TypeReader(component[start:end])
            types.read_all()
            if types.defines_resource:
                return True
    return False


def memory_min(component: bytes) -> int:
    """Bytes that the largest linear memory in it, or in a component in it, begins with.

    Raises: UnknownShape.
    """
    return _largest(component, CORE_MEMORY_SECTION, _read_memory)


def table_min(component: bytes) -> int:
    """Elements that the largest table in it, or in a component in it, begins with.

    Raises: UnknownShape.
    """
    return _largest(component, CORE_TABLE_SECTION, _read_table)


def _largest(component: bytes, section: int, read: Callable[[_Reader], int], depth: int = 0) -> int:
    """The largest of what such sections of its core modules define; 0 if there is none."""
    if depth > _DEPTH_MAX:
        raise UnknownShape("components nested too deep")
    sizes = [0]
    for kind, start, end in _sections(component):
        if kind == Section.COMPONENT:
            sizes.append(_largest(component[start:end], section, read, depth + 1))
        elif kind == Section.CORE_MODULE:
            module = component[start:end]
            for core_kind, first, last in _sections(module):
                if core_kind == section:
                    reader = _Reader(module[first:last])
                    sizes += [read(reader) for _ in range(reader.number())]
    return max(sizes)


def _read_memory(reader: _Reader) -> int:
    """The bytes that it begins with."""
    flags = reader.byte()
    pages = _read_limits(reader, flags)
    return pages << (reader.number() if flags & _HAS_PAGE_SIZE else PAGE_BITS)


def _read_table(reader: _Reader) -> int:
    """The elements that it begins with."""
    of = reader.byte()
    if of == _HAS_FIRST_VALUE:
        raise UnknownShape("a table with a first value")
    if of in _REFERENCES:
        reader.number()
    return _read_limits(reader, reader.byte())


def _read_limits(reader: _Reader, flags: int) -> int:
    least = reader.number()
    if flags & _HAS_MAX:
        reader.number()
    return least


def _sections(component: bytes) -> list[tuple[int, int, int]]:
    """Kind, first byte and end of each section's content."""
    reader = _Reader(component, len(MAGIC) + len(COMPONENT))
    found = []
    while reader.at < len(component):
        kind = reader.byte()
        size = reader.number()
        found.append((kind, reader.at, reader.at + size))
        reader.at += size
    return found


class _PrologueReader:
    """Counts definitions, section after section."""

    def __init__(self) -> None:
        self.imports: list[Import] = []
        self.counts = dict.fromkeys(COUNTED, 0)
        self._members: dict[int, Members] = {}
        """Of instance types, by index."""

    def read(self, kind: int, content: bytes) -> None:
        reader = _Reader(content)
        match kind:
            case Section.TYPE:
                types = _TypeReader(content)
                for members in types.read_all():
                    self._members[self.counts[Sort.TYPE]] = members
                    self.counts[Sort.TYPE] += 1
            case Section.IMPORT:
                reader.many(lambda: self._read_import(reader))
            case Section.ALIAS:
                reader.many(lambda: self._count(_read_alias(reader)))
            case _:
                raise UnknownShape(f"a section of kind {kind} before its last import")

    def _count(self, sort: Sort) -> int:
        index = self.counts.get(sort, 0)
        if sort in self.counts:
            self.counts[sort] += 1
        return index

    def _read_import(self, reader: _Reader) -> None:
        name = reader.extern_name()
        sort, type_index = _read_extern_type(reader)
        if sort in (Sort.CORE, Sort.VALUE):
            raise UnknownShape(f"the import {name}")
        members = self._members.get(type_index, ()) if sort == Sort.INSTANCE else ()
        index = self._count(sort)
        self.imports.append(Import(name=name, sort=sort, index=index, members=members))


def _read_alias(reader: _Reader) -> Sort:
    """The sort of what is named."""
    sort = reader.sort()
    if sort == Sort.CORE:
        reader.byte()
    target = reader.byte()
    reader.number()
    if target in (0, 1):
        reader.text()
    else:
        reader.number()
    return sort


def _read_extern_type(reader: _Reader) -> tuple[Sort, int]:
    """The sort of an import or export, and the index of its type; 0 for that of a type."""
    sort = reader.sort()
    if sort == Sort.CORE:
        reader.byte()
        return sort, reader.number()
    if sort == Sort.TYPE:
        if reader.byte() == 0:
            reader.number()
        return sort, 0
    if sort == Sort.VALUE:
        raise UnknownShape("a value")
    return sort, reader.number()


class _TypeReader:
    """Walks over the types of one section."""

    def __init__(self, content: bytes) -> None:
        self._reader = _Reader(content)
        self._depth = 0
        self.defines_resource = False

    def read_all(self) -> list[Members]:
        """For each type its members, if it is that of an instance."""
        return [self._read() for _ in range(self._reader.number())]

    def _read(self) -> Members:
        reader = self._reader
        match reader.byte():
            case 0x42:
                return tuple(
                    declared
                    for declared in [self._read_declaration() for _ in range(reader.number())]
                    if declared is not None
                )
            case 0x41:
                reader.many(self._read_declaration)
            case 0x40 | 0x43:
                reader.many(lambda: (reader.text(), self._value_type()))
                if reader.byte() == 0:
                    self._value_type()
                else:
                    reader.byte()
            case 0x3F | 0x3E as kind:
                self.defines_resource = True
                reader.byte()
                self._maybe(reader.number)
                if kind == 0x3E:
                    self._maybe(reader.number)
            case kind:
                self._read_value_type(kind)
        return ()

    def _read_declaration(self) -> tuple[str, Sort] | None:
        reader = self._reader
        match reader.byte():
            case 0x01:
                self._depth += 1
                if self._depth > _DEPTH_MAX:
                    raise UnknownShape("types nested too deep")
                self._read()
                self._depth -= 1
            case 0x02:
                _read_alias(reader)
            case 0x03:
                reader.extern_name()
                _read_extern_type(reader)
            case 0x04:
                return reader.extern_name(), _read_extern_type(reader)[0]
            case _:
                raise UnknownShape("a core type in a type")
        return None

    def _read_value_type(self, kind: int) -> None:
        reader = self._reader
        match kind:
            case 0x72:
                reader.many(lambda: (reader.text(), self._value_type()))
            case 0x71:
                reader.many(
                    lambda: (
                        reader.text(),
                        self._maybe(self._value_type),
                        self._maybe(reader.number),
                    )
                )
            case 0x70 | 0x6B:
                self._value_type()
            case 0x67:
                self._value_type()
                reader.number()
            case 0x6F:
                reader.many(self._value_type)
            case 0x6E | 0x6D:
                reader.many(reader.text)
            case 0x6A:
                self._maybe(self._value_type)
                self._maybe(self._value_type)
            case 0x69 | 0x68:
                reader.number()
            case 0x66 | 0x65:
                self._maybe(self._value_type)
            case kind if 0x73 <= kind <= 0x7F or kind == 0x64:
                pass
            case _:
                raise UnknownShape(f"a type of kind {kind:#x}")

    def _value_type(self) -> int:
        return self._reader.number()

    def _maybe(self, read: Callable[[], object]) -> object:
        return read() if self._reader.byte() else None


# -- writing ---------------------------------------------------------------------------------------


def leb(number: int) -> bytes:
    """An unsigned LEB128."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def text(characters: str) -> bytes:
    encoded = characters.encode()
    return leb(len(encoded)) + encoded


def vector(items: Sequence[bytes]) -> bytes:
    return leb(len(items)) + b"".join(items)


def section(kind: int, content: bytes) -> bytes:
    return bytes([kind]) + leb(len(content)) + content


class OuterComponent:
    """Writes a component that begins with another one's prologue, a definition at a time.

    Every method but `binary` answers the index of what it defines.
    """

    def __init__(self, prologue: Prologue) -> None:
        self._sections = [MAGIC + COMPONENT, prologue.sections]
        self._counts = dict(prologue.counts)

    def binary(self) -> bytes:
        return b"".join(self._sections)

    def alias(self, instance: int, sort: Sort, name: str) -> int:
        """A name for what an instance exports."""
        return self._define(Section.ALIAS, sort, bytes([sort, 0]) + leb(instance) + text(name))

    def type(self, definition: bytes) -> int:
        return self._define(Section.TYPE, Sort.TYPE, definition)

    def import_instance(self, name: str, type_index: int) -> int:
        declared = b"\0" + text(name) + bytes([Sort.INSTANCE]) + leb(type_index)
        return self._define(Section.IMPORT, Sort.INSTANCE, declared)

    def component(self, binary: bytes) -> int:
        """A component within, to be instantiated."""
        self._sections.append(section(Section.COMPONENT, binary))
        return self._next(Sort.COMPONENT)

    def instantiate(self, component: int, arguments: Iterable[Named]) -> int:
        given = [text(name) + bytes([sort]) + leb(index) for name, sort, index in arguments]
        definition = b"\0" + leb(component) + vector(given)
        return self._define(Section.INSTANCE, Sort.INSTANCE, definition)

    def instance(self, exports: Iterable[Named]) -> int:
        """An instance that is put together of what there is."""
        members = [b"\0" + text(name) + bytes([sort]) + leb(index) for name, sort, index in exports]
        return self._define(Section.INSTANCE, Sort.INSTANCE, b"\1" + vector(members))

    def export_instance(self, name: str, index: int) -> int:
        exported = b"\0" + text(name) + bytes([Sort.INSTANCE]) + leb(index) + b"\0"
        return self._define(Section.EXPORT, Sort.INSTANCE, exported)

    def _define(self, kind: Section, sort: Sort, definition: bytes) -> int:
        self._sections.append(section(kind, vector([definition])))
        return self._next(sort)

    def _next(self, sort: Sort) -> int:
        self._counts[sort] += 1
        return self._counts[sort] - 1
