"""Sockets of guests, as the system has them: how many there may be, what their failures mean.

A socket belongs to one instance of a guest and ends with it. All are opened here, so that guests
together leave most of the process's file descriptors to the executor. Runs on the trio thread,
but for what says otherwise.
"""

import errno
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

import msgspec
import trio

from executor.services.beside import run_beside
from executor.services.descriptors import descriptors_for_guests
from executor.services.egress import ascii_name
from executor.services.lookups import Lookups

OPEN_MAX: Final = 16_384

SocketAddress = tuple[str, int] | tuple[str, int, int, int]
"""As the system has it: address and port, with IPv6 also flow and scope."""

CODES: Final = {
    errno.EACCES: "access-denied",
    errno.EPERM: "access-denied",
    errno.EOPNOTSUPP: "not-supported",
    errno.EPROTONOSUPPORT: "not-supported",
    errno.EAFNOSUPPORT: "not-supported",
    errno.EINVAL: "invalid-argument",
    errno.ENOMEM: "out-of-memory",
    errno.ENOBUFS: "out-of-memory",
    errno.ETIMEDOUT: "timeout",
    errno.EALREADY: "concurrency-conflict",
    errno.EISCONN: "invalid-state",
    errno.ENOTCONN: "invalid-state",
    errno.EDESTADDRREQ: "invalid-state",
    errno.EMFILE: "new-socket-limit",
    errno.ENFILE: "new-socket-limit",
    errno.EADDRNOTAVAIL: "address-not-bindable",
    errno.EADDRINUSE: "address-in-use",
    errno.EHOSTUNREACH: "remote-unreachable",
    errno.EHOSTDOWN: "remote-unreachable",
    errno.ENETUNREACH: "remote-unreachable",
    errno.ENETDOWN: "remote-unreachable",
    errno.ECONNREFUSED: "connection-refused",
    errno.ECONNRESET: "connection-reset",
    errno.ENETRESET: "connection-reset",
    errno.EPIPE: "connection-reset",
    errno.ECONNABORTED: "connection-aborted",
    errno.EMSGSIZE: "datagram-too-large",
}
"""What an error of the system is in `wasi:sockets/network`."""

OPTIONS: Final = {
    "keep-alive-enabled": (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    "keep-alive-idle-time": (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 32_767),
    "keep-alive-interval": (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 32_767),
    "keep-alive-count": (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 127),
    "receive-buffer-size": (socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22),
    "send-buffer-size": (socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 22),
}
"""What an option is to the system, and its greatest value there."""
HOP_LIMIT: Final = {
    socket.AF_INET: (socket.IPPROTO_IP, socket.IP_TTL),
    socket.AF_INET6: (socket.IPPROTO_IPV6, socket.IPV6_UNICAST_HOPS),
}


LOOKUP_CODES: Final = {
    socket.EAI_AGAIN: "temporary-resolver-failure",
    socket.EAI_MEMORY: "temporary-resolver-failure",
    socket.EAI_SYSTEM: "temporary-resolver-failure",
    socket.EAI_FAIL: "permanent-resolver-failure",
}
"""Everything else is `name-unresolvable`."""


class SocketFailure(msgspec.Struct, frozen=True):
    """Why an operation failed."""

    code: str
    """An `error-code` of `wasi:sockets/network`."""
    message: str


class Sockets:
    """Those of one executor, in whose nursery their tasks run."""

    def __init__(
        self, nursery: trio.Nursery, post: Callable[..., None], open_max: int | None = None
    ) -> None:
        """`post` has something called on the trio thread; any thread."""
        self.post = post
        self._nursery = nursery
        self._open_max = descriptors_for_guests(OPEN_MAX) if open_max is None else open_max
        self._open: set[socket.socket] = set()
        self._lookups = Lookups(nursery)

    def open(self, family: int, kind: int) -> socket.socket:
        """A new one; any thread. Raises: OSError."""
        if len(self._open) >= self._open_max:
            text = f"guests have {self._open_max} sockets open, which is the limit"
            raise OSError(errno.EMFILE, text)
        opened = socket.socket(family, kind | socket.SOCK_NONBLOCK)
        if family == socket.AF_INET6:
            opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        self._open.add(opened)
        return opened

    async def look_up(self, name: str) -> list[str] | SocketFailure:
        """The addresses of a name, in the order in which the system's resolver prefers them."""
        try:
            found = await self._lookups.addresses(ascii_name(name), None)
        except socket.gaierror as error:
            code = LOOKUP_CODES.get(error.errno or 0, "name-unresolvable")
            return SocketFailure(code, f"{name} cannot be resolved: {error.strerror}")
        texts = [str(where[0]).partition("%")[0] for _, _, _, _, where in found]
        return list(dict.fromkeys(texts))

    def close(self, opened: socket.socket) -> None:
        """Idempotent; any thread, if no task waits for the socket."""
        self._open.discard(opened)
        opened.close()

    def start(
        self, run: Callable[[], Awaitable[None]], failed: Callable[[SocketFailure], None]
    ) -> trio.CancelScope:
        """Runs `run` beside whoever asks; cancelling the answer ends it. `failed` hears of what it
        raises.
        """
        return run_beside(self._nursery, run, lambda error: failed(failure_of(error)))


def set_option(opened: socket.socket, name: str, value: int) -> None:
    """As near to it as the system comes; any thread."""
    with suppress(OSError):
        if name == "hop-limit":
            opened.setsockopt(*HOP_LIMIT[opened.family], value)
        else:
            level, option, most = OPTIONS[name]
            opened.setsockopt(level, option, min(value, most))


def failure_of(error: Exception, *, connecting: bool = False) -> SocketFailure:
    """What an error of the system means; a connection that finds no local port is `connecting`."""
    if not isinstance(error, OSError):
        return SocketFailure("unknown", str(error) or repr(error))
    code = CODES.get(error.errno or 0, "unknown")
    if connecting and code == "address-not-bindable":
        code = "address-in-use"
    return SocketFailure(code, error.strerror or str(error))
