"""Blob containers: objects of any size by name, each written whole or not at all.

| row of `blobs`        | value                                                           |
|-----------------------|-----------------------------------------------------------------|
| `c` container         | ContainerRow                                                    |
| `o` generation, name  | ObjectRow                                                       |
| `t` generation        | bytes of all its objects and their names, a number              |
| `p`, `gc`, `gn`       | contents, and what is garbage: see `services/blob_garbage.py`   |

The objects of a container are those of its generation; clearing it, or deleting it, takes a
generation away, in one step however many they are. An object's row names its content, which is
written before, under an id that is never used again: so whoever has begun to read one reads it to
its end, though another is there under the name by then, for as long as this process runs.

Content that is being written, or is no more referred to, is marked as garbage, so that a crash
leaves nothing behind for good. However large an object is, no more than a mebibyte of it is in
memory.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

import msgspec

from executor.services.blob_garbage import (
    PIECE_BYTES,
    TABLE,
    Garbage,
    ObjectRow,
    Pin,
    content_mark,
    decode_object,
    generation_mark,
    piece_key,
)
from executor.services.environment import (
    ENVIRONMENT,
    MIB,
    Caller,
    Environment,
    Plan,
    Refused,
    check_name,
    held_name,
    name_key,
    name_of,
    place_id,
)
from oplog.engine import Count, Row
from oplog.errors import OplogCorruptError

OBJECT_BYTES_MAX: Final = 4 << 30
"""A guest meets this where nothing is recorded, so it never changes."""
PIECES_AT_ONCE: Final = MIB // PIECE_BYTES
PAGE_NAMES: Final = 1_000


class ContainerRow(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    environment: str
    created_at: int
    generation: bytes


class Page(msgspec.Struct, frozen=True):
    names: list[str]
    more: bool
    """Whether more follow the last one."""


class Source(Protocol):
    """What is to be written; the same bytes whenever they are read."""

    @property
    def size(self) -> int: ...

    @property
    def digest(self) -> bytes:
        """Of all of it."""

    async def read(self, start: int, count: int) -> bytes: ...


encode_blob_row: Final = msgspec.msgpack.Encoder().encode
_decode_container: Final = msgspec.msgpack.Decoder(ContainerRow).decode


class Blobs:
    """The containers of one store. Reads are for any thread, writes for the trio thread."""

    def __init__(
        self,
        environment: Environment,
        garbage: Garbage,
        new_id: Callable[[], bytes],
        wall_ns: Callable[[], int],
    ) -> None:
        self.garbage = garbage
        self._environment = environment
        self._engine = environment.engine
        self._new_id = new_id
        self._wall_ns = wall_ns

    # -- reads ---------------------------------------------------------------------------------

    def find_container(self, name: str) -> ContainerRow | None:
        """Raises: Refused."""
        raw = self._engine.read_row(TABLE, container_key(name))
        return None if raw is None else decode_container(raw)

    def container(self, name: str) -> ContainerRow:
        """Raises: Refused."""
        found = self.find_container(name)
        if found is None:
            raise Refused(f"there is no container {name[:100]!r}")
        return found

    def find_object(self, container: str, name: str) -> ObjectRow | None:
        """Raises: Refused, also if there is no such container."""
        key = object_key(self.container(container), name)
        raw = self._engine.read_row(TABLE, key)
        return None if raw is None else decode_object(raw)

    def stored_object(self, container: str, name: str) -> ObjectRow:
        """Raises: Refused."""
        found = self.find_object(container, name)
        if found is None:
            raise Refused(f"there is no object {name[:100]!r} in container {container[:100]!r}")
        return found

    def list_objects(self, container: str, after: str | None, limit: int = PAGE_NAMES) -> Page:
        """Names in their order, at most `limit`. Raises: Refused."""
        prefix = b"o" + self.container(container).generation
        last = None if after is None else prefix + name_key(check_name("object", after))
        rows = self._engine.read_rows(TABLE, prefix=prefix, after=last, limit=limit + 1)
        names = [name_of(key[len(prefix) :], decode_object(raw).name) for key, raw in rows[:limit]]
        return Page(names, len(rows) > limit)

    def open(self, container: str, name: str) -> tuple[ObjectRow, Pin]:
        """An object whose content stays while the pin is held. Raises: Refused."""
        while True:
            found = self.stored_object(container, name)
            pin = self.garbage.pin(found.content)
            if self.stored_object(container, name) == found:
                return found, pin

    def read(self, content: bytes, start: int, count: int) -> bytes | None:
        """Bytes of a content, which has that many from `start` on; None if it is gone."""
        number, offset = divmod(start, PIECE_BYTES)
        pieces: list[bytes] = []
        left = count
        while left > 0:
            piece = self._engine.read_row(TABLE, piece_key(content, number))
            if piece is None:
                return None
            pieces.append(piece[offset : offset + left])
            left -= len(pieces[-1])
            number, offset = number + 1, 0
        return b"".join(pieces)

    # -- containers ----------------------------------------------------------------------------

    async def create_container(self, caller: Caller, name: str) -> int:
        """Makes an empty container, unless it is there; when it was made. Durable on return.

        Raises: Refused, StoreError.
        """

        def plan() -> Plan:
            raw = self._engine.read_row(TABLE, container_key(name))
            if raw is not None:
                return Plan(rows=(), expects=(), answer=decode_container(raw).created_at)
            made = ContainerRow(
                name=name,
                environment=ENVIRONMENT,
                created_at=self._wall_ns(),
                generation=self._new_id(),
            )
            row = Row(TABLE, container_key(name), encode_blob_row(made))
            expects = (Row(TABLE, row.key, None),)
            size = len(name.encode())
            return Plan(rows=(row,), expects=expects, added_bytes=size, answer=made.created_at)

        answer = await self._environment.write(caller, ["create-container", name], plan)
        assert isinstance(answer, int)
        return answer

    async def delete_container(self, caller: Caller, name: str) -> None:
        """With its objects; nothing if there is none. Durable on return.

        Raises: Refused, StoreError.
        """

        def plan() -> Plan:
            raw = self._engine.read_row(TABLE, container_key(name))
            if raw is None:
                return Plan(rows=(), expects=())
            gone = self._without_objects(decode_container(raw), raw)
            rows = (*gone.rows, Row(TABLE, container_key(name), None))
            size = gone.added_bytes - len(name.encode())
            return Plan(rows=rows, expects=gone.expects, added_bytes=size)

        await self._written(self._environment.write(caller, ["delete-container", name], plan))

    async def clear(self, caller: Caller, name: str) -> None:
        """Takes all objects away. Durable on return. Raises: Refused, StoreError."""

        def plan() -> Plan:
            found = self.container(name)
            gone = self._without_objects(found, encode_blob_row(found))
            emptied = msgspec.structs.replace(found, generation=self._new_id())
            row = Row(TABLE, container_key(name), encode_blob_row(emptied))
            return Plan(rows=(*gone.rows, row), expects=gone.expects, added_bytes=gone.added_bytes)

        await self._written(self._environment.write(caller, ["clear", name], plan))

    # -- objects -------------------------------------------------------------------------------

    async def write(self, caller: Caller, container: str, name: str, source: Source) -> None:
        """Puts an object in the place of what is there. Durable on return.

        Raises: Refused, StoreError.
        """
        request = ["write", container, name, source.size, source.digest]
        if self._environment.repeated(caller, request) is not None:
            return
        self._check_room(container, name, source.size)
        content = self._new_id()
        with self.garbage.kept(content):
            pieces = await self._put_content(content, source, caller.worker)
            made = ObjectRow(
                size=source.size,
                created_at=self._wall_ns(),
                content=content,
                name=held_name(check_name("object", name)),
            )
            plan = self._replacing(container, name, made, pieces)
            await self._written(self._environment.write(caller, request, plan))

    async def delete_objects(self, caller: Caller, container: str, names: Sequence[str]) -> None:
        """All of them; one that is not there is passed over. Durable on return.

        Raises: Refused, StoreError.
        """
        if len(names) > self._environment.limits.keys_max:
            raise Refused(f"one call names at most {self._environment.limits.keys_max} objects")

        def plan() -> Plan:
            changes = Changes(self._engine.read_row, container)
            for name in dict.fromkeys(names):
                changes.put(name, None)
            return changes.plan()

        request = ["delete-objects", container, *names]
        await self._written(self._environment.write(caller, request, plan))

    async def copy(self, caller: Caller, source: tuple[str, str], target: tuple[str, str]) -> None:
        """Writes the object `source`, a container and a name, to `target` as well. Durable on
        return. Raises: Refused, StoreError.
        """
        request = ["copy", *source, *target]
        if self._environment.repeated(caller, request) is not None:
            return
        found, pin = self.open(*source)
        self._check_room(*target, found.size)
        content = self._new_id()
        with self.garbage.kept(content):
            stored = StoredContent(self, pin, found.size)
            pieces = await self._put_content(content, stored, caller.worker)
            name = held_name(check_name("object", target[1]))
            made = msgspec.structs.replace(
                found, content=content, name=name, created_at=self._wall_ns()
            )
            plan = self._replacing(*target, made, pieces)
            await self._written(self._environment.write(caller, request, plan))

    async def move(self, caller: Caller, source: tuple[str, str], target: tuple[str, str]) -> None:
        """Gives the object another container and name. Durable on return.

        Raises: Refused, StoreError.
        """

        def plan() -> Plan:
            found = self.stored_object(*source)
            if source == target:
                return Plan(rows=(), expects=())
            taken = Changes(self._engine.read_row, source[0])
            taken.take(source[1], found)
            put = taken if source[0] == target[0] else Changes(self._engine.read_row, target[0])
            name = held_name(check_name("object", target[1]))
            put.put(target[1], msgspec.structs.replace(found, name=name))
            return taken.plan() if put is taken else both(taken.plan(), put.plan())

        request = ["move", *source, *target]
        await self._written(self._environment.write(caller, request, plan))

    # ------------------------------------------------------------------------------------------

    async def _written(self, write: Awaitable[object]) -> None:
        """Whatever it has left behind is taken away later."""
        await write
        self.garbage.look()

    def _check_room(self, container: str, name: str, size: int) -> None:
        """Refuses at once what would be refused in the end."""
        found = self.find_object(container, name)
        if size > OBJECT_BYTES_MAX:
            raise Refused(f"an object has at most {OBJECT_BYTES_MAX} bytes, not {size}")
        added = size - (0 if found is None else found.size)
        if self._environment.used_bytes + added > self._environment.limits.environment_bytes_max:
            raise self._environment.full(added)

    async def _put_content(self, content: bytes, source: Source, worker: str) -> list[Row]:
        """Writes all of it but the last mebibyte, whose rows it gives."""
        rows: list[Row] = []
        marked = False
        for start in range(0, source.size, PIECE_BYTES):
            if len(rows) == PIECES_AT_ONCE:
                if not marked:
                    rows.append(content_mark(content, source.size))
                    marked = True
                await self._environment.write_beside(rows, worker)
                rows = []
            piece = await source.read(start, min(PIECE_BYTES, source.size - start))
            rows.append(Row(TABLE, piece_key(content, start // PIECE_BYTES), piece))
        if marked:
            rows.append(content_mark(content, source.size, gone=True))
        return rows

    def _replacing(
        self, container: str, name: str, made: ObjectRow, pieces: Sequence[Row]
    ) -> Callable[[], Plan]:
        def plan() -> Plan:
            changes = Changes(self._engine.read_row, container)
            changes.put(name, made)
            changes.rows.extend(pieces)
            return changes.plan()

        return plan

    def _without_objects(self, container: ContainerRow, raw: bytes) -> Plan:
        """What takes the generation of a container away, whose row is `raw`."""
        total = total_key(container)
        held = self._engine.read_row(TABLE, total)
        size = int.from_bytes(held or b"", "big", signed=True)
        return Plan(
            rows=(generation_mark(container.generation), Row(TABLE, total, None)),
            expects=(Row(TABLE, container_key(container.name), raw), Row(TABLE, total, held)),
            added_bytes=-size,
        )


class StoredContent:
    """A content as the source of another one."""

    def __init__(self, blobs: Blobs, pin: Pin, size: int) -> None:
        self.size = size
        self.digest = pin.content
        self._pin = pin
        self._blobs = blobs

    async def read(self, start: int, count: int) -> bytes:
        piece = self._blobs.read(self._pin.content, start, count)
        if piece is None:
            raise OplogCorruptError(f"content {self.digest.hex()} of an object is not whole")
        return piece


class Changes:
    """What a write changes of the objects of one container, as of what is there."""

    def __init__(self, read: Callable[[str, bytes], bytes | None], container: str) -> None:
        """Raises: Refused if there is no such container."""
        key = container_key(container)
        raw = read(TABLE, key)
        if raw is None:
            raise Refused(f"there is no container {container[:100]!r}")
        self._container = decode_container(raw)
        self._read = read
        self._added = 0
        self.rows: list[Row] = []
        self.expects: list[Row] = [Row(TABLE, key, raw)]

    def put(self, name: str, made: ObjectRow | None) -> None:
        """An object in the place of what is there, whose content is garbage then."""
        key = object_key(self._container, name)
        raw = self._read(TABLE, key)
        self.expects.append(Row(TABLE, key, raw))
        self.rows.append(Row(TABLE, key, None if made is None else encode_blob_row(made)))
        if made is not None:
            self._added += made.size + len(name.encode())
        if raw is not None:
            old = decode_object(raw)
            self._added -= old.size + len(name.encode())
            self.rows.append(content_mark(old.content, old.size))

    def take(self, name: str, found: ObjectRow) -> None:
        """The object goes, and not its content."""
        key = object_key(self._container, name)
        self.expects.append(Row(TABLE, key, encode_blob_row(found)))
        self.rows.append(Row(TABLE, key, None))
        self._added -= found.size + len(name.encode())

    def plan(self) -> Plan:
        counts = (Count(TABLE, total_key(self._container), self._added),) if self._added else ()
        return Plan(rows=self.rows, expects=self.expects, added_bytes=self._added, counts=counts)


def both(one: Plan, other: Plan) -> Plan:
    return Plan(
        rows=(*one.rows, *other.rows),
        expects=(*one.expects, *other.expects),
        added_bytes=one.added_bytes + other.added_bytes,
        counts=(*one.counts, *other.counts),
    )


def container_key(name: str) -> bytes:
    """Raises: Refused."""
    return b"c" + place_id("container", name)


def object_key(container: ContainerRow, name: str) -> bytes:
    """Raises: Refused."""
    return b"o" + container.generation + name_key(check_name("object", name))


def total_key(container: ContainerRow) -> bytes:
    return b"t" + container.generation


def decode_container(raw: bytes) -> ContainerRow:
    """Raises: OplogCorruptError."""
    try:
        return _decode_container(raw)
    except msgspec.MsgspecError as error:
        raise OplogCorruptError(f"a container's row is damaged: {error}") from error
