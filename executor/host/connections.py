"""How host functions reach the world, and what an instance has open there.

A connection does not outlive its instance: `Connections.close` ends those that the guest has not
read to their end or given up. While there is one, a long wait keeps the instance.
"""

from collections.abc import Callable
from typing import Protocol

import msgspec
import trio

from executor.services.http_client import HttpClient
from executor.services.sockets import Sockets


class Outside(msgspec.Struct, frozen=True, kw_only=True):
    """What the host functions of one worker use of the executor around it."""

    http: HttpClient
    sockets: Sockets
    threads: trio.CapacityLimiter
    """For the embedder's plain functions."""
    post: Callable[..., None]
    """Has something called on the trio thread, with arguments; any thread."""
    read_frame: Callable[[int], bytes]
    """What a committed frame of the worker's oplog holds."""


class Connection(Protocol):
    """Something open; for the trio thread."""

    async def sent(self) -> None:
        """Returns when what the guest has written to it has left, or never will."""

    def close(self) -> None:
        """At once; idempotent."""


class Connections:
    """Those of one instance; added on the trio thread, discarded on any. One that was not used yet
    may be added on the lane.
    """

    def __init__(self) -> None:
        self._open: set[Connection] = set()
        self._closed = False

    def __bool__(self) -> bool:
        return bool(self._open)

    def add(self, connection: Connection) -> None:
        self._open.add(connection)
        if self._closed:
            self._open.discard(connection)
            connection.close()

    def discard(self, connection: Connection) -> None:
        self._open.discard(connection)

    async def sent(self) -> None:
        """Returns when everything that the guest has written has left, or never will; in trio."""
        for connection in list(self._open):
            await connection.sent()

    def close(self) -> None:
        """The instance is left; in trio."""
        self._closed = True
        while self._open:
            self._open.pop().close()
