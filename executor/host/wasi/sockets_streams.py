"""The two streams of a TCP connection (`wasi:io/streams`)."""

from typing import Protocol

from executor.durable.signal import Signal
from executor.errors import GuestTrap
from executor.host.pollables import Pollable, Watched
from executor.host.state import HostState
from executor.host.streams import (
    TRANSFER_BYTES_MAX,
    Failure,
    IoError,
    Piece,
    RemoteInput,
    RemoteOutput,
    StreamClosed,
)
from executor.host.wasi.sockets_network import LOST, io_error, stream_failure
from executor.services.sockets import SocketFailure
from executor.services.sockets_tcp import TcpConnection


class Socket(Protocol):
    """What a stream sees of its socket."""

    live: TcpConnection | None


def news_of(socket: Socket) -> Signal:
    return Signal() if socket.live is None else socket.live.news


class TcpInput(RemoteInput):
    def __init__(self, socket: Socket) -> None:
        self._socket = socket
        self._ended = False

    @property
    def answers(self) -> bool:
        return self._ended

    def read(self, _state: HostState, _count: int) -> bytes:
        raise StreamClosed

    def skip(self, _state: HostState, _count: int) -> int:
        raise StreamClosed

    def drop(self, _state: HostState) -> None:
        """The socket may still send."""

    def pollable(self) -> Pollable:
        return Watched(news_of(self._socket), self._is_ready)

    def receive(self, count: int) -> Piece | Failure | None:
        live = self._socket.live
        found = LOST if live is None else live.take(count)
        if found is None:
            return None
        if isinstance(found, SocketFailure):
            return stream_failure(found)
        return Piece(found, ended=not found)

    async def received(self, count: int) -> Piece | Failure:
        while (found := self.receive(count)) is None:
            await news_of(self._socket).wait()
        return found

    def observe(self, _state: HostState, piece: Piece) -> None:
        self._ended = piece.ended

    def io_error(self, failure: Failure) -> IoError:
        return io_error(failure)

    def _is_ready(self) -> bool:
        live = self._socket.live
        return self.closed or self.answers or live is None or live.has_input()


class TcpOutput(RemoteOutput):
    def __init__(self, socket: Socket) -> None:
        self._socket = socket

    @property
    def answers(self) -> bool:
        return False

    def write(self, _state: HostState, contents: bytes) -> None:
        live = self._socket.live
        if live is not None and not live.write(contents):
            raise GuestTrap(
                f"a write of {len(contents)} bytes, for which check-write had not said that there"
                " was room",
                where="wasi:io/streams",
            )

    def drop(self, _state: HostState) -> None:
        """What was written leaves; the socket may still receive."""

    def pollable(self) -> Pollable:
        return Watched(news_of(self._socket), lambda: self.closed or self.room() != 0)

    def room(self) -> int | Failure:
        live = self._socket.live
        found = LOST if live is None else live.room()
        if isinstance(found, SocketFailure):
            return stream_failure(found)
        return min(found, TRANSFER_BYTES_MAX)

    async def has_room(self) -> int | Failure:
        while (room := self.room()) == 0:
            await news_of(self._socket).wait()
        return room

    def is_flushed(self) -> bool | Failure:
        live = self._socket.live
        found = LOST if live is None else live.is_sent()
        return stream_failure(found) if isinstance(found, SocketFailure) else found

    async def flushed(self) -> Failure | None:
        while not (sent := self.is_flushed()):
            await news_of(self._socket).wait()
        return sent if isinstance(sent, Failure) else None

    def io_error(self, failure: Failure) -> IoError:
        return io_error(failure)
