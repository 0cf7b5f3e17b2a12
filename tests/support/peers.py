"""Peers of sockets, on threads: what they do with a connection or a datagram is a function.

They keep what they received, by connection in the order of their beginning.
"""

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

WAIT_S = 20
NOBODYS_PORT = 1
"""Where nobody listens, and nothing is bound by chance."""


class TcpPeer:
    """Listens at a free port of the loopback."""

    def __init__(self, serve: Callable[["TcpPeer", socket.socket, bytearray], None], family: int):
        self._serve = serve
        self.received: list[bytearray] = []
        self.go = threading.Event()
        """For peers that wait to be told."""
        self._listening = socket.socket(family, socket.SOCK_STREAM)
        self._listening.bind(("::1" if family == socket.AF_INET6 else "127.0.0.1", 0))
        self._listening.listen(64)
        self.address = self._listening.getsockname()
        self.port = self.address[1]
        self._connections: list[socket.socket] = []
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            connection.settimeout(WAIT_S)
            received = bytearray()
            self.received.append(received)
            self._connections.append(connection)
            threading.Thread(target=self._one, args=(connection, received), daemon=True).start()

    def _one(self, connection: socket.socket, received: bytearray) -> None:
        with connection, contextlib.suppress(OSError):
            self._serve(self, connection, received)

    def close(self) -> None:
        self.go.set()
        for made in (self._listening, *self._connections):
            with contextlib.suppress(OSError):
                made.shutdown(socket.SHUT_RDWR)
            made.close()

    def total(self) -> bytes:
        return b"".join(map(bytes, self.received))


def echo(_peer: TcpPeer, connection: socket.socket, received: bytearray) -> None:
    """Answers everything with itself, and ends when the guest does."""
    while piece := connection.recv(65536):
        received += piece
        connection.sendall(piece)


def swallow(_peer: TcpPeer, connection: socket.socket, received: bytearray) -> None:
    """Takes everything and says nothing; ends when the guest does."""
    while piece := connection.recv(65536):
        received += piece


def reset(peer: TcpPeer, connection: socket.socket, received: bytearray) -> None:
    """Answers what comes first, then resets."""
    received += connection.recv(65536)
    connection.sendall(b"first")
    peer.go.wait(WAIT_S)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def ignore(peer: TcpPeer, _connection: socket.socket, _received: bytearray) -> None:
    """Reads nothing until it is told to, then everything."""
    peer.go.wait(WAIT_S)
    swallow(peer, _connection, _received)


def speak(content: bytes) -> Callable[[TcpPeer, socket.socket, bytearray], None]:
    """Sends something and ends."""

    def serve(_peer: TcpPeer, connection: socket.socket, _received: bytearray) -> None:
        connection.sendall(content)
        connection.shutdown(socket.SHUT_WR)
        connection.recv(1)

    return serve


@contextmanager
def tcp_peer(
    serve: Callable[[TcpPeer, socket.socket, bytearray], None] = echo,
    family: int = socket.AF_INET,
) -> Iterator[TcpPeer]:
    peer = TcpPeer(serve, family)
    try:
        yield peer
    finally:
        peer.close()


class UdpPeer:
    """Answers each datagram with itself, from a free port of the loopback."""

    def __init__(self, *, answers: bool = True) -> None:
        self.received: list[bytes] = []
        self.sources: list[tuple[str, int]] = []
        self.answers = answers
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                content, source = self.socket.recvfrom(65536)
                if source is None:
                    return  # it was closed
                self.received.append(content)
                self.sources.append(source)
                if self.answers:
                    self.socket.sendto(content, source)


@contextmanager
def udp_peer(**options: bool) -> Iterator[UdpPeer]:
    peer = UdpPeer(**options)
    try:
        yield peer
    finally:
        with contextlib.suppress(OSError):
            peer.socket.shutdown(socket.SHUT_RDWR)
        peer.socket.close()
