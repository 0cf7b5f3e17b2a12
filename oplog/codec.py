"""Entries and values as MessagePack. Pure: no I/O, no state.

Every function may be called on any thread and does not block. What is decoded refers to the bytes
it was decoded from (raw fields are views of them), so it keeps them alive.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import msgspec

from oplog.entry import Entry, Raw
from oplog.errors import OplogCorruptError

encode_entry: Final[Callable[[Entry], bytes]] = msgspec.msgpack.Encoder().encode
"""The bytes of an entry: one map, key `t` its tag, defaults left out.

Bound to the encoder itself, since every durable call comes through here twice.
"""

encode_value: Final[Callable[[object], bytes]] = msgspec.msgpack.Encoder(
    order="deterministic"
).encode
"""The bytes of a plain value. The same value has the same bytes: maps are sorted by key, integers
and floats stay apart, and so do `1` and `True`, `0.0` and `-0.0`. Not-a-number keeps its bits."""

UNREADABLE: Final = (msgspec.MsgspecError, RecursionError)
"""What bytes end in that are not what was written: what msgspec raises of them, and nothing that a
fault of ours might. Who makes more of a plain value than it is refuses it with one of these too."""

_decode_entry = msgspec.msgpack.Decoder(Entry).decode


def _refuse_extension(code: int, _content: memoryview) -> object:
    raise OplogCorruptError(
        f"a value holds the MessagePack extension {code}: if it is a reference to a payload,"
        " resolve it before decoding"
    )


read_value: Final = msgspec.msgpack.Decoder(ext_hook=_refuse_extension).decode
"""As `decode_value`, but that it raises what msgspec does."""


def decode_entry(raw: bytes) -> Entry:
    """Raises: OplogCorruptError for anything that is not exactly one entry of a known kind."""
    try:
        return _decode_entry(raw)
    except UNREADABLE as error:
        raise OplogCorruptError(f"not an entry ({len(raw)} bytes): {error}") from error


def decode_value(raw: bytes | Raw, index: int = 0) -> object:
    """A plain value: None, bool, int, float, str, bytes, list, dict. `index` is that of the entry
    which holds it, as far as it is known.

    Raises: OplogCorruptError, naming the entry, for anything that is not exactly one such value,
    and for a reference to a payload (`Store.resolve` gives what it refers to).
    """
    try:
        return read_value(raw)
    except (OplogCorruptError, *UNREADABLE) as error:
        raise damaged_value(index, error) from error


def damaged_value(index: int, error: Exception) -> OplogCorruptError:
    """The refusal of a value of entry `index`; 0 if nobody knows of which."""
    known = isinstance(error, OplogCorruptError)
    text = str(error) if known else f"a value cannot be read: {error}"
    return OplogCorruptError(f"entry {index} is damaged: {text}" if index else text)


@contextmanager
def values_of(index: int) -> Iterator[None]:
    """What is read inside the block are values of entry `index`. Raises: OplogCorruptError."""
    try:
        yield
    except (OplogCorruptError, *UNREADABLE) as error:
        raise damaged_value(index, error) from error
