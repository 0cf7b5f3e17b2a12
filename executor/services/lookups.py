"""Looking names up for guests: at most so many at a time, by the system's resolver.

A lookup takes one of the threads that trio has for whatever blocks, and may take it for as long as
name servers do not answer, whoever still waits for it. The executor needs those threads itself: to
read oplogs, to compile, to make instances. So a lookup has a task of its own, which goes on until
the thread is free again, and all of them together have a part of the threads. Runs on the trio
thread.
"""

import socket
from collections.abc import Sequence
from typing import Any, Final

import trio

from executor.services.egress import literal_address

LOOKUPS_MAX: Final = 12
"""trio has 40 threads, by default, and there are two of these: for requests, and for sockets."""

Found = Sequence[tuple[socket.AddressFamily, socket.SocketKind, int, str, Any]]
"""As `getaddrinfo` gives it."""


class Lookup:
    def __init__(self, host: str, port: int | None) -> None:
        self.host = host
        self.port = port
        self.done = trio.Event()
        self.wanted = True
        """Somebody waits for it."""
        self.found: Found = ()
        self.error: Exception | None = None


class Lookups:
    """`nursery` is the executor's."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._turns = trio.Semaphore(LOOKUPS_MAX)

    async def addresses(self, host: str, port: int | None) -> Found:
        """Where a name leads, for TCP; an address leads to itself, and waits for nobody.

        Raises: socket.gaierror, UnicodeError.
        """
        if literal_address(host) is not None:
            return await resolved(host, port)
        lookup = Lookup(host, port)
        self._nursery.start_soon(self._look_up, lookup)
        try:
            await lookup.done.wait()
        finally:
            lookup.wanted = False
        if lookup.error is not None:
            raise lookup.error
        return lookup.found

    async def _look_up(self, lookup: Lookup) -> None:
        async with self._turns:
            if lookup.wanted:
                try:
                    lookup.found = await resolved(lookup.host, lookup.port)
                except (OSError, ValueError, RuntimeError) as error:  # or no thread is to be had
                    lookup.error = error
        lookup.done.set()


async def resolved(host: str, port: int | None) -> Found:
    return await trio.socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
