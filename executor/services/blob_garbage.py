"""Contents of objects that nobody refers to, and how they are taken away.

| row of `blobs`      | value                            | stands for                       |
|---------------------|----------------------------------|----------------------------------|
| `p` content, number | `PIECE_BYTES`, the last fewer    | a piece of a content             |
| `gc` content        | the size of the content, 8 bytes | the pieces of it that are there  |
| `gn` generation     | empty                            | the objects of it that are there |

A mark is written with what makes something garbage: with the first pieces of a content that is not
whole yet, with the row that takes an object's place. What is marked goes in the background, a page
at a time, unless somebody in this process still reads or writes it; after a crash the marks are
there, and the next process goes on.
"""

import threading
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final, Protocol
from weakref import WeakValueDictionary

import msgspec
import trio

from executor.errors import StoreError
from oplog.engine import Engine, Row
from oplog.errors import OplogCorruptError, OplogError

TABLE: Final = "blobs"
PIECE_BYTES: Final = (64 << 10) - 16
"""With LMDB's header it fills sixteen pages."""
ID_BYTES: Final = 16
PAGE_ROWS: Final = 1_000


class Pin:
    """While somebody holds it, its content stays."""

    __slots__ = ("__weakref__", "content")

    def __init__(self, content: bytes) -> None:
        self.content = content


class ObjectRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    size: int
    created_at: int
    content: bytes
    name: str = ""
    """Where it is too long to be a row's key."""


_decode_object: Final = msgspec.msgpack.Decoder(ObjectRow).decode


def decode_object(raw: bytes) -> ObjectRow:
    """Raises: OplogCorruptError."""
    try:
        return _decode_object(raw)
    except msgspec.MsgspecError as error:
        raise OplogCorruptError(f"an object's row is damaged: {error}") from error


def piece_key(content: bytes, number: int) -> bytes:
    return b"p" + content + number.to_bytes(4, "big")


def content_mark(content: bytes, size: int, *, gone: bool = False) -> Row:
    return Row(TABLE, b"gc" + content, None if gone else size.to_bytes(8, "big"))


def generation_mark(generation: bytes) -> Row:
    return Row(TABLE, b"gn" + generation, b"")


class Write(Protocol):
    def __call__(self, rows: Sequence[Row], *, expects: Sequence[Row] = ()) -> Awaitable[bool]:
        """Makes rows durable; False if an expected row is another one. Raises: StoreError."""


class Garbage:
    """`pin` is for any thread, the rest for the trio thread."""

    def __init__(self, engine: Engine, write: Write) -> None:
        self._engine = engine
        self._write = write
        self._lock = threading.Lock()
        self._pins: WeakValueDictionary[bytes, Pin] = WeakValueDictionary()
        self._found = trio.Event()
        self._found.set()  # what another process has left

    def pin(self, content: bytes) -> Pin:
        with self._lock:
            return self._pins.setdefault(content, Pin(content))

    @contextmanager
    def kept(self, content: bytes) -> Iterator[None]:
        """The content stays inside the block, whatever is marked."""
        pin = self.pin(content)
        try:
            yield
        finally:
            del pin
            self.look()

    def look(self) -> None:
        """Something was marked, or may go now."""
        self._found.set()

    async def run(self) -> None:
        while True:
            await self._found.wait()
            self._found = trio.Event()
            with suppress(StoreError, OplogError):  # it goes another time
                await self.collect()

    async def collect(self) -> None:
        """Takes away all that is marked and not kept. Raises: StoreError."""
        after: bytes | None = None
        while page := self._engine.read_rows(TABLE, prefix=b"g", after=after, limit=PAGE_ROWS):
            for key, value in page:
                marked = key[2:]
                if key[1:2] == b"n":
                    await self._take_objects(marked)
                elif marked not in self._pins:
                    await self._take_pieces(marked, Row(TABLE, key, value))
            after = page[-1][0]

    async def _take_objects(self, generation: bytes) -> None:
        """Their contents are marked instead, which is why these are looked through afterwards."""
        while page := self._engine.read_rows(TABLE, prefix=b"o" + generation, limit=PAGE_ROWS):
            objects = [decode_object(raw) for _, raw in page]
            marks = [content_mark(found.content, found.size) for found in objects]
            await self._write([*marks, *(Row(TABLE, key, None) for key, _ in page)])
        await self._write([Row(TABLE, b"gn" + generation, None)])
        self.look()

    async def _take_pieces(self, content: bytes, mark: Row) -> None:
        """Unless the mark is gone by then: the content has become an object's meanwhile, also by a
        write that is under way and that nobody waits for any more.
        """
        assert mark.value is not None
        count = -(-int.from_bytes(mark.value, "big") // PIECE_BYTES)
        for first in range(0, count, PAGE_ROWS):
            numbers = range(first, min(first + PAGE_ROWS, count))
            pieces = [Row(TABLE, piece_key(content, n), None) for n in numbers]
            if not await self._write(pieces, expects=[mark]):
                return
        await self._write([Row(TABLE, mark.key, None)])
