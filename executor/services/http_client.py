"""HTTP for all workers of one executor: connections that are kept, and exchanges over them.

HTTP is spoken by h11 and h2 over trio's sockets and TLS. One pool serves every worker, so the
address that a kept connection leads to is checked again for each worker that is to use it. Runs on
the trio thread.
"""

import math
import ssl
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, NamedTuple

import trio

from executor.durable.signal import Signal
from executor.services.descriptors import descriptors_for_guests
from executor.services.egress import EgressPolicy
from executor.services.http_client_connect import Connected, connect, tls_context
from executor.services.http_client_errors import failure
from executor.services.http_client_one import ConnectionOne, ExchangeOne
from executor.services.http_client_two import ConnectionTwo, ExchangeTwo
from executor.services.http_client_types import (
    Exchange,
    HttpRequest,
    denied,
)
from executor.services.lookups import Lookups

CONNECTIONS_MAX: Final = 1_024
"""Of all workers, if the process may open so many; a request that finds none free waits for one, in
its time to connect."""
IDLE_MAX: Final = 64
"""Kept for one origin."""
IDLE_S: Final = 30.0
"""A connection is kept for so long: peers close theirs sooner or later."""

REAP_S: Final = 5.0
ORIGINS_MAX: Final = 10_000
"""Whose protocol is remembered."""

Origin = tuple[bool, str, int]


class Kept(NamedTuple):
    """A connection that waits for its next exchange."""

    connection: ConnectionOne
    until: float


class HttpClient:
    """Made by the executor, in whose nursery its tasks run; `close` ends it."""

    def __init__(
        self,
        nursery: trio.Nursery,
        context: ssl.SSLContext | None = None,
        connections_max: int | None = None,
    ) -> None:
        """`context` is that of TLS; by default one that trusts what the machine trusts."""
        self.connections_max = connections_max or descriptors_for_guests(CONNECTIONS_MAX)
        self._nursery = nursery
        self._lookups = Lookups(nursery)
        self._context = context
        self._open: set[ConnectionOne | ConnectionTwo] = set()
        self._connecting = 0
        self._kept: dict[Origin, deque[Kept]] = {}
        """Those used last at the end."""
        self._shared: dict[Origin, list[ConnectionTwo]] = {}
        self._turns: dict[Origin, trio.Lock] = {}
        """Held while a connection is made that others may be able to share."""
        self._apart: set[Origin] = set()
        """Those that are known to speak HTTP/1.1, over which nobody shares a connection."""
        self._freed = Signal()
        nursery.start_soon(self._reap)

    def start(
        self, run: Callable[[], Awaitable[None]], failed: Callable[[Exception], None]
    ) -> trio.CancelScope:
        """Runs `run` beside whoever asks; cancelling the answer ends it. `failed` hears of what it
        raises.
        """
        scope = trio.CancelScope()

        async def task() -> None:
            with scope:
                try:
                    await run()
                except Exception as error:
                    failed(error)

        self._nursery.start_soon(task)
        return scope

    async def begin(
        self, request: HttpRequest, egress: EgressPolicy, *, fresh: bool = False
    ) -> Exchange:
        """Sends the head of a request, over a connection that is kept unless it is to be `fresh`.

        Raises: HttpFailure; StaleConnection if a connection that was kept turns out to be closed.
        """
        origin = request.origin
        exchange = None if fresh else self._over_kept(request, egress)
        if exchange is None and request.secure and origin not in self._apart:
            turn = self._turns.setdefault(origin, trio.Lock())
            async with turn:
                exchange = None if fresh else self._over_kept(request, egress)
                if exchange is None:
                    exchange = await self._over_new(request, egress)
            if not turn.locked():
                self._turns.pop(origin, None)
        elif exchange is None:
            exchange = await self._over_new(request, egress)
        done = False
        try:
            await exchange.begin(request)
            done = True
        finally:
            if not done:
                exchange.close()
        return exchange

    def close(self) -> None:
        """Closes every connection; whoever waits on one hears of it."""
        for connection in list(self._open):
            self._drop(connection)

    # -- connections that are there ------------------------------------------------------------

    def _over_kept(self, request: HttpRequest, egress: EgressPolicy) -> Exchange | None:
        origin = request.origin
        for shared in self._shared.get(origin, ()):
            if shared.available and allowed(request, egress, shared.address):
                return ExchangeTwo(shared)
        kept = self._kept.get(origin, deque())
        while kept:
            last = kept.pop()
            if last.until < trio.current_time() or last.connection.heard_something:
                self._drop(last.connection)  # the peer has closed it, or is about to
            elif allowed(request, egress, last.connection.address):
                return ExchangeOne(last.connection, partial(self._over, origin))
            else:
                kept.append(last)
                return None
        return None

    def _over(self, origin: Origin, connection: ConnectionOne, keep: bool) -> None:
        """An exchange was closed."""
        if not keep or connection not in self._open:
            self._drop(connection)
            return
        kept = self._kept.setdefault(origin, deque())
        kept.append(Kept(connection, trio.current_time() + IDLE_S))
        if len(kept) > IDLE_MAX:
            self._drop(kept.popleft().connection)
        self._freed.fire()

    def _drop(self, connection: ConnectionOne | ConnectionTwo) -> None:
        connection.close()
        self._open.discard(connection)
        self._freed.fire()

    def _drop_idle(self, now: float = math.inf) -> bool:
        """Closes what has not been used until `now`; whether there was anything."""
        idle = [
            (origin, kept) for origin, kept in self._kept.items() if kept and kept[0].until < now
        ]
        for origin, kept in idle:
            while kept and kept[0].until < now:
                self._drop(kept.popleft().connection)
            if not kept:
                del self._kept[origin]
        resting = [
            connection
            for shared in self._shared.values()
            for connection in shared
            if not connection.exchanges and connection.idle_since + IDLE_S < now
        ]
        for connection in resting:
            connection.close()
        return bool(idle or resting)

    async def _reap(self) -> None:
        while True:
            await trio.sleep(REAP_S)
            self._drop_idle(trio.current_time())

    # -- new ones ------------------------------------------------------------------------------

    async def _over_new(self, request: HttpRequest, egress: EgressPolicy) -> Exchange:
        refusal = egress.check(request.host, request.port)
        if refusal is not None:
            raise denied(refusal)
        await self._wait_for_room(request)
        self._connecting += 1
        try:
            if request.secure and self._context is None:  # it reads the list of whom to trust
                self._context = await trio.to_thread.run_sync(tls_context)
            connected = await connect(request, egress, self._lookups, self._context)
        finally:
            self._connecting -= 1
        where = f"{request.host}:{request.port}"
        if connected.protocol == "h2":
            shared = self._share(request.origin, connected, where)
            with trio.move_on_after(request.timeouts.connect_s):
                await shared.greeted.wait()
            return ExchangeTwo(shared)
        connection = ConnectionOne(connected, where)
        self._open.add(connection)
        if len(self._apart) < ORIGINS_MAX:
            self._apart.add(request.origin)
        return ExchangeOne(connection, partial(self._over, request.origin))

    def _share(self, origin: Origin, connected: Connected, where: str) -> ConnectionTwo:
        connection = ConnectionTwo(connected, where)
        connections = self._shared.setdefault(origin, [])
        connections.append(connection)
        self._open.add(connection)

        async def run() -> None:
            try:
                await connection.run()
            finally:
                connections.remove(connection)
                if not connections and self._shared.get(origin) is connections:
                    del self._shared[origin]
                self._drop(connection)

        connection.start()
        self.start(run, connection.broken)
        return connection

    async def _wait_for_room(self, request: HttpRequest) -> None:
        """Until one more connection may be made. Raises: HttpFailure."""
        most = self.connections_max
        with trio.move_on_after(request.timeouts.connect_s):
            while len(self._open) + self._connecting >= most and not self._drop_idle():
                await self._freed.wait()
            return
        text = f"{request.host}:{request.port}: {most} connections are open, the limit"
        raise failure("connection-limit-reached", text)


def allowed(request: HttpRequest, egress: EgressPolicy, address: str) -> bool:
    return egress.check_address(request.host, request.port, address) is None
