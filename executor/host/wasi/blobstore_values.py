"""The values of `wasi:blobstore`, of any size: on their way into a store, and out of it.

What the guest writes into an outgoing value is not recorded: replay writes it again. It lies in a
file of the machine, which nobody else can name and which ends with the instance.
Of an incoming value each read is a remote read that is recorded with what it gave, since the object
may be another one when it is replayed.
"""

from bisect import bisect_right
from hashlib import blake2b
from typing import Any, Final

import trio

from executor.durable.definition import Local
from executor.host.held import EXTENT_BYTES, Held, HeldValue
from executor.host.interface import host_interface
from executor.host.state import HostState
from executor.host.streams import (
    Failure,
    IoError,
    OutputStream,
    Piece,
    RemoteInput,
    StreamClosed,
    StreamFailed,
)
from executor.host.wasi.store_rows import drop_value, read_row
from executor.services.blob_garbage import Pin
from executor.services.blobs import OBJECT_BYTES_MAX
from executor.services.environment import MIB, Refused
from executor.wasm.values import Err, Ok

AT_ONCE_BYTES_MAX: Final = MIB
"""Of a value that is read in one piece."""
GONE: Final = "the object was written again, or deleted, and the bytes that were opened are gone"


class Outgoing(HeldValue):
    """An `outgoing-value`, and the source of what is written."""

    def __init__(self, held: Held) -> None:
        """Raises: LimitError."""
        super().__init__(held, 0)
        held.use_file()
        self.size = 0
        self._hash = blake2b(digest_size=16)
        self._extents: list[tuple[int, int]] = []
        """Where in the file it is: starts, and how many bytes of it are before each."""

    @property
    def digest(self) -> bytes:
        return self._hash.digest()

    def append(self, contents: bytes) -> None:
        """Raises: LimitError, StoreError."""
        start = self._held.append(contents)
        last = self._extents[-1] if self._extents else (-1, 0)
        if start != last[0] + self.size - last[1]:  # another value was written in between
            self.take_more(EXTENT_BYTES)
            self._extents.append((start, self.size))
        self._hash.update(contents)
        self.size += len(contents)

    def end(self) -> None:
        self._held.leave_file()

    async def read(self, start: int, count: int) -> bytes:
        return await trio.to_thread.run_sync(self._read, start, count)

    def _read(self, start: int, count: int) -> bytes:
        pieces = []
        number = bisect_right(self._extents, start, key=lambda extent: extent[1]) - 1
        while count > 0:
            at, before = self._extents[number]
            following = self._extents[number + 1 : number + 2]
            end = following[0][1] if following else self.size
            pieces.append(self._held.read(at + start - before, min(count, end - start)))
            start += len(pieces[-1])
            count -= len(pieces[-1])
            number += 1
        return b"".join(pieces)


class OutgoingBody(OutputStream):
    """Writes an outgoing value."""

    def __init__(self, value: Outgoing) -> None:
        self._value = value.use()

    def write(self, _state: HostState, contents: bytes) -> None:
        if self._value.size + len(contents) > OBJECT_BYTES_MAX:
            raise StreamFailed(IoError(f"an object has at most {OBJECT_BYTES_MAX} bytes"))
        if contents:
            self._value.append(contents)

    def drop(self, _state: HostState) -> None:
        self._value.leave()


class Incoming:
    """An `incoming-value`: what is left of a range of a content."""

    def __init__(self, pin: Pin, start: int, end: int) -> None:
        self.pin = pin
        self.at = start
        self.end = end

    @property
    def size(self) -> int:
        return self.end - self.at


class IncomingBody(RemoteInput):
    """Reads an incoming value."""

    def __init__(self, blobs: Any, value: Incoming) -> None:
        self._blobs = blobs
        self._value = value

    @property
    def answers(self) -> bool:
        return not self._value.size

    def read(self, _state: HostState, _count: int) -> bytes:
        """At its end, or asked for nothing."""
        if not self._value.size:
            raise StreamClosed
        return b""

    def skip(self, state: HostState, count: int) -> int:
        return len(self.read(state, count))

    def drop(self, _state: HostState) -> None:
        """The value stays with its resource."""

    def receive(self, count: int) -> Piece | Failure:
        value = self._value
        wanted = min(count, value.size)
        content = self._blobs.read(value.pin.content, value.at, wanted)
        if content is None:
            return Failure("gone", GONE)
        return Piece(content, ended=wanted == value.size)

    async def received(self, count: int) -> Piece | Failure:
        return self.receive(count)

    def observe(self, _state: HostState, piece: Piece) -> None:
        self._value.at += len(piece.content)

    def io_error(self, failure: Failure) -> IoError:
        return IoError(failure.message)


def new_outgoing(state: HostState) -> int:
    return state.handles.add(Outgoing(state.held))


def write_body(state: HostState, number: int) -> Ok:
    return Ok(state.handles.add(OutgoingBody(state.handles.get(number, Outgoing))))


def read_at_once(state: HostState, number: int) -> bytes:
    value = state.handles.get(number, Incoming)
    if value.size > AT_ONCE_BYTES_MAX:
        raise Refused(
            f"{value.size} bytes are too many for one answer: at most {AT_ONCE_BYTES_MAX} are read"
            " at once, more through the stream of incoming-value-consume-async"
        )
    content = state.stores.blobs.read(value.pin.content, value.at, value.size)
    if content is None:
        raise Refused(GONE)
    return content


def observe_at_once(state: HostState, answer: Ok | Err, number: int) -> Ok | Err:
    if isinstance(answer, Ok):
        value = state.handles.get(number, Incoming)
        value.at = value.end
    return answer


def consume(state: HostState, number: int) -> Ok:
    value = state.handles.get(number, Incoming)
    return Ok(state.handles.add(IncomingBody(state.stores.blobs, value)))


def size(state: HostState, number: int) -> int:
    return state.handles.get(number, Incoming).size


TYPES: Final = host_interface(
    """
    interface wasi:blobstore/types {
        use wasi:io/streams@0.2.0.{input-stream, output-stream};

        type container-name = string;
        type object-name = string;
        type timestamp = u64;
        type object-size = u64;
        type error = string;
        record container-metadata { name: container-name, created-at: timestamp }
        record object-metadata {
            name: object-name,
            container: container-name,
            created-at: timestamp,
            size: object-size,
        }
        record object-id { container: container-name, object: object-name }
        resource outgoing-value {
            new-outgoing-value: static func() -> outgoing-value;
            outgoing-value-write-body: func() -> result<output-stream>;
        }
        resource incoming-value {
            incoming-value-consume-sync: func() -> result<list<u8>, error>;
            incoming-value-consume-async: func() -> result<input-stream, error>;
            size: func() -> u64;
        }
    }
    """,
    "",
    [
        Local("[static]outgoing-value.new-outgoing-value", new_outgoing),
        Local("[method]outgoing-value.outgoing-value-write-body", write_body),
        read_row(
            "[method]incoming-value.incoming-value-consume-sync",
            read_at_once,
            "list<u8>",
            observe_at_once,
        ),
        Local("[method]incoming-value.incoming-value-consume-async", consume),
        Local("[method]incoming-value.size", size),
    ],
    drops={"outgoing-value": drop_value},
)
