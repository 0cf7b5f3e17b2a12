"""One TCP connection of a guest.

    the peer ─▶ received ─▶ the guest ─▶ unsent ─(what comes before is durable)─▶ the peer

Both buffers are bounded: nothing is received while one is full, and no more than `room` is to be
written. What is written leaves only once everything is durable that the guest saw before.

Threads: made and bound on the guest's lane or on the trio thread, connected on the trio thread;
what says so may be called on any thread.
"""

import socket
import threading
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import trio

from executor.durable.signal import Signal
from executor.services.sockets import (
    SocketAddress,
    SocketFailure,
    Sockets,
    failure_of,
    set_option,
)

PIECE_BYTES_MAX: Final = 64 * 1024
"""What is received, and sent, at a time."""
RECEIVED_BYTES_MAX: Final = 64 * 1024
"""More is left with the system, and so with the peer."""
UNSENT_BYTES_MAX: Final = 256 * 1024
OVERDRAWN_BYTES_MAX: Final = 64 * 1024
"""What may be written beyond."""
LINGER_S: Final = 30.0
"""What is unsent when the guest has dropped the connection has so long to leave."""


class TcpConnection:
    def __init__(self, sockets: Sockets, family: int, options: Mapping[str, int]) -> None:
        """Raises: OSError."""
        self.news = Signal()
        """Fired when something can be read, more can be written, or all was sent."""
        self.on_close: Callable[[], None] = nothing
        """Called once, on the trio thread."""
        self._sockets = sockets
        self._socket = sockets.open(family, socket.SOCK_STREAM)
        for name, value in options.items():
            set_option(self._socket, name, value)
        self._lock = threading.Lock()
        """Of both buffers."""
        self._received = bytearray()
        self._unsent = bytearray()
        self._turn = Signal()
        """Fired when a task of the connection may have something to do."""
        self._ended = False
        """The peer sends no more."""
        self._finished = False
        """The guest sends no more."""
        self._input_failure: SocketFailure | None = None
        self._output_failure: SocketFailure | None = None
        self._receiver: trio.CancelScope | None = None
        self._sender: trio.CancelScope | None = None
        self._released = False
        self._closed = False
        self._used = False
        """On the trio thread; until then it may be closed on any."""

    def bind(self, address: SocketAddress) -> SocketAddress:
        """The local address. Raises: OSError."""
        self._socket.bind(address)
        return local_address(self._socket)

    def set_option(self, name: str, value: int) -> None:
        """Any thread."""
        if not self._closed:
            set_option(self._socket, name, value)

    async def connect(
        self, address: SocketAddress, commit: Callable[[], Awaitable[None]]
    ) -> tuple[SocketAddress, SocketAddress] | SocketFailure:
        """The local and the remote address. `commit` makes durable what the guest has seen."""
        connected = False
        self._used = True
        try:
            connecting = trio.socket.from_stdlib_socket(self._socket)
            await connecting.connect(address)
            local, remote = local_address(self._socket), self._socket.getpeername()
            connected = True
        except OSError as error:
            return failure_of(error, connecting=True)
        finally:
            if not connected:
                self.close()
        self._receiver = self._sockets.start(lambda: self._receive(connecting), self._input_failed)
        self._sender = self._sockets.start(
            lambda: self._send(connecting, commit), self._output_failed
        )
        return local, remote

    # -- any thread ----------------------------------------------------------------------------

    def take(self, count: int) -> bytes | SocketFailure | None:
        """At most `count` bytes that have come, b"" at the end, None if there are none yet."""
        with self._lock:
            if self._received:
                taken = bytes(self._received[:count])
                was_full = len(self._received) >= RECEIVED_BYTES_MAX
                del self._received[:count]
                if was_full:
                    self._sockets.post(self._turn.fire)
                return taken
        if self._ended:
            return b""
        return self._input_failure

    def has_input(self) -> bool:
        """Whether `take` would find something."""
        return bool(self._received) or self._ended or self._input_failure is not None

    def room(self) -> int | SocketFailure:
        """How many bytes may be written."""
        if self._output_failure is not None:
            return self._output_failure
        return max(0, UNSENT_BYTES_MAX - len(self._unsent))

    def write(self, content: bytes) -> bool:
        """Sends it, once everything before is durable. False if it is far more than has room."""
        with self._lock:
            if len(self._unsent) + len(content) > UNSENT_BYTES_MAX + OVERDRAWN_BYTES_MAX:
                return False
            if self._output_failure is None:
                self._unsent += content
        self._sockets.post(self._turn.fire)
        return True

    def is_sent(self) -> bool | SocketFailure:
        """Whether everything that was written has left."""
        return self._output_failure or not self._unsent

    # -- on the trio thread --------------------------------------------------------------------

    async def sent(self) -> None:
        """Returns when everything that was written has left, or never will."""
        while not self.is_sent():
            await self.news.wait()

    def finish(self) -> None:
        """The guest sends no more: the peer hears so once what was written has left."""
        self._finished = True
        self._turn.fire()

    def stop_receiving(self) -> None:
        """The guest wants no more of what comes."""
        if self._receiver is not None:
            self._receiver.cancel()
        with self._lock:
            self._received.clear()

    def release(self) -> None:
        """The guest holds it no more: it is closed when what was written has left."""
        if self._sender is None or self._output_failure is not None or self._closed:
            self.close()
            return
        self._released = True
        self.stop_receiving()
        self.finish()
        self._sender.deadline = trio.current_time() + LINGER_S

    def close(self) -> None:
        """At once; idempotent. Whoever waits for it hears of it."""
        if self._closed:
            return
        self._closed = True
        for task in (self._receiver, self._sender):
            if task is not None:
                task.cancel()
        gone = SocketFailure("connection-aborted", "the connection was closed")
        self._input_failure = self._input_failure or gone
        self._output_failed(self._output_failure or gone)
        if self._used:
            trio.lowlevel.notify_closing(self._socket)
        self._sockets.close(self._socket)
        self.on_close()

    async def _receive(self, connection: trio.socket.SocketType) -> None:
        while True:
            while len(self._received) >= RECEIVED_BYTES_MAX:
                await self._turn.wait()
            piece = await connection.recv(PIECE_BYTES_MAX)
            with self._lock:
                self._received += piece
            self._ended = not piece
            self.news.fire()
            if self._ended:
                return

    async def _send(
        self, connection: trio.socket.SocketType, commit: Callable[[], Awaitable[None]]
    ) -> None:
        try:
            while True:
                piece = bytes(self._unsent[:PIECE_BYTES_MAX])
                if piece:
                    await commit()
                    await send_all(connection, piece)
                    with self._lock:
                        del self._unsent[: len(piece)]
                    self.news.fire()
                elif self._finished:
                    connection.shutdown(socket.SHUT_WR)
                    return
                else:
                    await self._turn.wait()
        finally:
            if self._released:
                self.close()

    def _input_failed(self, failure: SocketFailure) -> None:
        self._input_failure = failure
        self.news.fire()

    def _output_failed(self, failure: SocketFailure) -> None:
        self._output_failure = failure
        with self._lock:
            self._unsent.clear()
        self.news.fire()


async def send_all(connection: trio.socket.SocketType, content: bytes) -> None:
    """Returns when the system has all of it. Raises: OSError."""
    sent = 0
    while sent < len(content):
        sent += await connection.send(content[sent:])


def local_address(opened: socket.socket) -> SocketAddress:
    address: SocketAddress = opened.getsockname()
    return address


def nothing() -> None:
    """Nobody wants to hear of it."""
