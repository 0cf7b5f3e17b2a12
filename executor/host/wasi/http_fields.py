"""`fields` of wasi:http/types: header names and values, and what may be put into them.

Names are compared without regard to case and kept as they were given. What frames a message, or
says something of a connection, is the host's: a guest may not set it. All of it is the guest's own
state, so nothing is recorded.
"""

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from executor.durable.definition import Local
from executor.errors import LimitError
from executor.host.state import HostState
from executor.wasm.values import Err, Ok, Variant

Entries = list[tuple[str, bytes]]

FORBIDDEN: Final = frozenset(
    {
        "connection",
        "host",
        "http2-settings",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "transfer-encoding",
        "upgrade",
    }
)
FIELDS_BYTES_MAX: Final = 1 << 20
"""Of one `fields`: they live in the host's memory."""
ENTRY_BYTES: Final = 64
"""What an entry takes besides its text."""

_NAME: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+\Z")
"""RFC 9110, 5.1."""
_VALUE: Final = re.compile(rb"[\t\x20-\x7e\x80-\xff]*\Z")
"""RFC 9110, 5.5; blanks around it are no part of it and are not sent."""


class Refused(Exception):
    """A change that is not made: a case of `header-error`."""

    def __init__(self, case: str) -> None:
        super().__init__(case)
        self.case = case


class Fields:
    """Names and values in order. `frozen` once they belong to a message."""

    def __init__(self, entries: Sequence[tuple[str, bytes]] = (), *, frozen: bool = False) -> None:
        self.entries: Entries = list(entries)
        self.frozen = frozen
        self._size = sum(map(size_of, self.entries))

    def get(self, name: str) -> list[bytes]:
        wanted = name.lower()
        return [value for given, value in self.entries if given.lower() == wanted]

    def set(self, name: str, values: Sequence[bytes]) -> None:
        """Raises: Refused."""
        self._check(name, values)
        self._remove(name)
        self._add([(name, value) for value in values])

    def append(self, name: str, value: bytes) -> None:
        """Raises: Refused."""
        self._check(name, [value])
        self._add([(name, value)])

    def delete(self, name: str) -> None:
        """Raises: Refused."""
        self._check(name, ())
        self._remove(name)

    def _check(self, name: str, values: Sequence[bytes]) -> None:
        check_name(name)
        for value in values:
            check_value(value)
        if self.frozen:
            raise Refused("immutable")

    def _remove(self, name: str) -> None:
        wanted = name.lower()
        self.entries = [entry for entry in self.entries if entry[0].lower() != wanted]
        self._size = sum(map(size_of, self.entries))

    def _add(self, entries: Entries) -> None:
        self._size += sum(map(size_of, entries))
        if self._size > FIELDS_BYTES_MAX:
            raise LimitError(
                f"the fields of one message take more than {FIELDS_BYTES_MAX} bytes, the limit",
                hint="the guest has to send what is so large as a body",
            )
        self.entries += entries


def size_of(entry: tuple[str, bytes]) -> int:
    return len(entry[0]) + len(entry[1]) + ENTRY_BYTES


def check_name(name: str) -> None:
    if _NAME.match(name) is None:
        raise Refused("invalid-syntax")
    if name.lower() in FORBIDDEN:
        raise Refused("forbidden")


def check_value(value: bytes) -> None:
    if _VALUE.match(value) is None:
        raise Refused("invalid-syntax")


def refusable(change: Callable[[], object]) -> Ok | Err:
    try:
        change()
    except Refused as refused:
        return Err(Variant(refused.case))
    return Ok()


# -- rows ----------------------------------------------------------------------------------------


def construct(state: HostState) -> int:
    return state.handles.add(Fields())


def from_list(state: HostState, entries: Entries) -> Ok | Err:
    fields = Fields()
    for name, value in entries:
        appended = refusable(partial(fields.append, name, value))
        if isinstance(appended, Err):
            return appended
    return Ok(state.handles.add(fields))


def get(state: HostState, number: int, name: str) -> list[bytes]:
    return state.handles.get(number, Fields).get(name)


def has(state: HostState, number: int, name: str) -> bool:
    return bool(get(state, number, name))


def set_values(state: HostState, number: int, name: str, values: list[bytes]) -> Ok | Err:
    fields = state.handles.get(number, Fields)
    return refusable(lambda: fields.set(name, values))


def delete(state: HostState, number: int, name: str) -> Ok | Err:
    fields = state.handles.get(number, Fields)
    return refusable(lambda: fields.delete(name))


def append(state: HostState, number: int, name: str, value: bytes) -> Ok | Err:
    fields = state.handles.get(number, Fields)
    return refusable(lambda: fields.append(name, value))


def entries_of(state: HostState, number: int) -> Entries:
    return list(state.handles.get(number, Fields).entries)


def clone(state: HostState, number: int) -> int:
    return state.handles.add(Fields(state.handles.get(number, Fields).entries))


ROWS: Final = (
    Local("[constructor]fields", construct),
    Local("[static]fields.from-list", from_list),
    Local("[method]fields.get", get),
    Local("[method]fields.has", has),
    Local("[method]fields.set", set_values),
    Local("[method]fields.delete", delete),
    Local("[method]fields.append", append),
    Local("[method]fields.entries", entries_of),
    Local("[method]fields.clone", clone),
)
