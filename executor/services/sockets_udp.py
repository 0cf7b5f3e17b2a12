"""One UDP socket of a guest.

Datagrams of peers that the guest may not reach are not received: a bound port is open to anybody.
As with UDP everywhere, what comes while the queue is full is lost. What is sent leaves only once
everything is durable that the guest saw before.

Threads: as `sockets_tcp`.
"""

import ctypes
import os
import socket
import struct
from collections import deque
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
from executor.services.sockets_tcp import local_address, nothing

DATAGRAM_BYTES_MAX: Final = 65_507
"""Of IPv4; the system says of a datagram if it is too large for IPv6."""
RECEIVED_MAX: Final = 256
RECEIVED_BYTES_MAX: Final = 256 * 1024
TAKEN_BYTES_MAX: Final = 64 * 1024
"""What is taken at a time, but for one datagram."""
UNSENT_MAX: Final = 32
UNSPECIFIED: Final = struct.pack("=H14x", socket.AF_UNSPEC)
"""An address of no family: connecting to it undoes a connection (connect(2))."""

Datagram = tuple[bytes, SocketAddress]


class UdpSocket:
    def __init__(self, sockets: Sockets, family: int, options: Mapping[str, int]) -> None:
        """Raises: OSError."""
        self.news = Signal()
        """Fired when something was received, or sent."""
        self.on_close: Callable[[], None] = nothing
        """Called once, on the trio thread."""
        self._sockets = sockets
        self._socket = sockets.open(family, socket.SOCK_DGRAM)
        for name, value in options.items():
            set_option(self._socket, name, value)
        self._remote: SocketAddress | None = None
        self._received: deque[Datagram] = deque()
        self._received_bytes = 0
        self._unsent: deque[Datagram] = deque()
        self._turn = Signal()
        """Fired when there may be something to send."""
        self._failure: SocketFailure | None = None
        """What an earlier datagram came to; told once."""
        self._tasks: list[trio.CancelScope] = []
        self._released = False
        self._closed = False
        self._used = False
        """On the trio thread; until then it may be closed on any."""

    def bind(self, address: SocketAddress) -> SocketAddress:
        """The local address. Raises: OSError."""
        self._socket.bind(address)
        return local_address(self._socket)

    def begin(
        self, allowed: Callable[[SocketAddress], bool], commit: Callable[[], Awaitable[None]]
    ) -> None:
        """Receives and sends from now on, what is `allowed`; on the trio thread."""
        if self._closed:
            return
        self._used = True
        opened = trio.socket.from_stdlib_socket(self._socket)
        self._tasks = [
            self._sockets.start(lambda: self._receive(opened, allowed), self._failed),
            self._sockets.start(lambda: self._send(opened, commit), self._failed),
        ]

    # -- any thread ----------------------------------------------------------------------------

    def set_option(self, name: str, value: int) -> None:
        if not self._closed:
            set_option(self._socket, name, value)

    def associate(self, remote: SocketAddress | None) -> SocketAddress | SocketFailure:
        """Sends to, and receives from, one peer or any; the local address from then on."""
        try:
            if remote is not None:
                self._socket.connect(remote)
            elif self._remote is not None:
                dissociate(self._socket)
            self._remote = remote
            self._received.clear()
            return local_address(self._socket)
        except OSError as error:
            return failure_of(error, connecting=True)

    def take(self, count: int) -> list[Datagram] | SocketFailure:
        """At most `count` datagrams that have come, maybe none."""
        taken: list[Datagram] = []
        size = 0
        while self._received and len(taken) < count:
            size += len(self._received[0][0])
            if taken and size > TAKEN_BYTES_MAX:
                break
            taken.append(self._received.popleft())
        if not taken and count and self._failure is not None:
            return self._told_failure(self._failure)
        return taken

    def has_input(self) -> bool:
        """Whether `take` would find something."""
        return bool(self._received) or self._failure is not None

    def room(self) -> int | SocketFailure:
        """How many datagrams may be sent."""
        if self._failure is not None:
            return self._told_failure(self._failure)
        return max(0, UNSENT_MAX - len(self._unsent))

    def has_room(self) -> bool:
        return len(self._unsent) < UNSENT_MAX or self._failure is not None

    def send(self, content: bytes, remote: SocketAddress) -> None:
        self._unsent.append((content, remote))
        self._sockets.post(self._turn.fire)

    def _told_failure(self, failure: SocketFailure) -> SocketFailure:
        if not self._closed:
            self._failure = None
        return failure

    # -- on the trio thread --------------------------------------------------------------------

    async def sent(self) -> None:
        """Returns when every datagram has left, or never will."""
        while self._unsent and not self._closed:
            await self.news.wait()

    def release(self) -> None:
        """The guest holds it no more: it is closed when what is to be sent has left."""
        self._released = True
        if not self._tasks:
            self.close()
        self._turn.fire()

    def close(self) -> None:
        """At once; idempotent."""
        if self._closed:
            return
        self._closed = True
        for task in self._tasks:
            task.cancel()
        self._failed(SocketFailure("connection-aborted", "the socket was closed"))
        if self._used:
            trio.lowlevel.notify_closing(self._socket)
        self._sockets.close(self._socket)
        self.on_close()

    async def _receive(
        self, opened: trio.socket.SocketType, allowed: Callable[[SocketAddress], bool]
    ) -> None:
        while True:
            try:
                content, source = await opened.recvfrom(DATAGRAM_BYTES_MAX + 1)
            except ConnectionRefusedError as error:
                self._failed(failure_of(error))  # what was sent before met no socket
                continue
            remote = self._remote
            if not allowed(source) or (remote is not None and not same_peer(source, remote)):
                continue
            waiting = sum(len(datagram) for datagram, _ in self._received)
            if len(self._received) < RECEIVED_MAX and waiting < RECEIVED_BYTES_MAX:
                self._received.append((content, source))
                self.news.fire()

    async def _send(
        self, opened: trio.socket.SocketType, commit: Callable[[], Awaitable[None]]
    ) -> None:
        while True:
            if not self._unsent:
                if self._released:
                    self.close()
                await self._turn.wait()
                continue
            await commit()
            content, remote = self._unsent[0]
            try:
                if remote == self._remote:
                    await opened.send(content)
                else:
                    await opened.sendto(content, remote)
            except OSError as error:
                self._failed(failure_of(error))
            self._unsent.popleft()
            self.news.fire()

    def _failed(self, failure: SocketFailure) -> None:
        self._failure = failure
        self.news.fire()


def same_peer(source: SocketAddress, remote: SocketAddress) -> bool:
    return source[:2] == remote[:2]


def dissociate(opened: socket.socket) -> None:
    """Undoes the connection of a UDP socket, which keeps its port. Raises: OSError."""
    local = local_address(opened)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.connect(opened.fileno(), UNSPECIFIED, len(UNSPECIFIED)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    if not local_address(opened)[1]:
        opened.bind(local)  # the system gives a port back that it had chosen
