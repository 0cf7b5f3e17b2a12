"""HTTP for all workers of one executor: connections that are kept, and exchanges over them.

HTTP is spoken by h11 and h2 over trio's sockets and TLS. One pool serves every worker, so the
address that a kept connection leads to is checked again for each worker that is to use it. A worker
*holds* a connection that it makes or has an exchange over; of one that several share it is who has
begun. How many it may hold, its share says (`services/shares.py`); what nobody holds is closed when
its room is needed. Runs on the trio thread.
"""

import math
import ssl
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, NamedTuple

import trio

from executor.services.beside import run_beside
from executor.services.descriptors import descriptors_for_guests
from executor.services.egress import EgressPolicy
from executor.services.http_client_connect import Connected, connect, not_in_time, tls_context
from executor.services.http_client_errors import failure
from executor.services.http_client_one import ConnectionOne, ExchangeOne
from executor.services.http_client_two import ConnectionTwo, ExchangeTwo
from executor.services.http_client_types import Exchange, HttpRequest, denied
from executor.services.lookups import Lookups
from executor.services.shares import Shares

CONNECTIONS_MAX: Final = 1_024
"""Of all workers, if the process may open so many; a request that finds none for its worker waits
for one, in its time to connect."""
IDLE_MAX: Final = 64
"""Kept for one origin."""
IDLE_S: Final = 30.0
"""A connection is kept for so long: peers close theirs sooner or later."""

REAP_S: Final = 5.0
ORIGINS_MAX: Final = 10_000
"""Whose protocol is remembered."""

Origin = tuple[bool, str, int]
Connection = ConnectionOne | ConnectionTwo


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
        self.shares = Shares(connections_max or descriptors_for_guests(CONNECTIONS_MAX))
        self._nursery = nursery
        self._lookups = Lookups(nursery)
        self._context = context
        self._open: set[Connection] = set()
        self._connecting = 0
        self._holders: dict[Connection, str] = {}
        self._kept: dict[Origin, deque[Kept]] = {}
        """Those used last at the end."""
        self._shared: dict[Origin, list[ConnectionTwo]] = {}
        self._turns: dict[Origin, trio.Lock] = {}
        """Held while a connection is made that others may be able to share."""
        self._apart: set[Origin] = set()
        """Those that are known to speak HTTP/1.1, over which nobody shares a connection."""
        self._lines: dict[str, deque[trio.Event]] = {}
        """Of each worker, the requests that wait until it may hold one more."""
        nursery.start_soon(self._reap)

    def start(
        self, run: Callable[[], Awaitable[None]], failed: Callable[[Exception], None]
    ) -> trio.CancelScope:
        """Runs `run` beside whoever asks; cancelling the answer ends it. `failed` hears of what it
        raises.
        """
        return run_beside(self._nursery, run, failed)

    async def begin(
        self, request: HttpRequest, egress: EgressPolicy, worker: str, *, fresh: bool = False
    ) -> Exchange:
        """Sends the head of a request, over a connection that is kept unless it is to be `fresh`.

        Raises: HttpFailure; StaleConnection if a connection that was kept turns out to be closed.
        """
        connection: Connection | None = None if fresh else self._shared_to(request, egress)
        if connection is None:
            connection = await self._held_to(request, egress, worker, fresh=fresh)
        elif connection not in self._holders:
            self._holders[connection] = worker
            self.shares.take(worker)
        exchange: Exchange
        if isinstance(connection, ConnectionTwo):
            exchange = ExchangeTwo(connection)
        else:
            exchange = ExchangeOne(connection, partial(self._over, request.origin))
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

    # -- who holds them -------------------------------------------------------------------------

    async def _held_to(
        self, request: HttpRequest, egress: EgressPolicy, worker: str, *, fresh: bool
    ) -> Connection:
        """A connection that is held from here on. Raises: HttpFailure."""
        await self._take_share(request, worker)
        held = False
        try:
            connection = await self._connection_to(request, egress, fresh=fresh)
            held = connection not in self._holders
            if held:
                self._holders[connection] = worker
        finally:
            if not held:
                self._give_back(worker)
        return connection

    async def _take_share(self, request: HttpRequest, worker: str) -> None:
        """The worker holds one more on return; its requests wait in line. Raises: HttpFailure."""
        turn = trio.Event()
        self._lines.setdefault(worker, deque()).append(turn)
        self._serve_lines()
        taken = False
        try:
            with trio.move_on_after(request.timeouts.connect_s):
                await turn.wait()
                taken = True
        finally:
            if not taken and turn.is_set():
                self._give_back(worker)
            elif not taken:
                self._lines[worker].remove(turn)
        if not taken:
            text = f"{request.host}:{request.port}: {self.shares.refusal(worker, 'connections')}"
            raise failure("connection-limit-reached", text)

    def _serve_lines(self) -> None:
        for worker, line in list(self._lines.items()):
            while line and self.shares.may_take(worker):
                self.shares.take(worker)
                line.popleft().set()
            if not line:
                del self._lines[worker]

    def _let_go(self, connection: Connection) -> None:
        worker = self._holders.pop(connection, None)
        if worker is not None:
            self._give_back(worker)

    def _give_back(self, worker: str) -> None:
        self.shares.give_back(worker)
        self._serve_lines()

    # -- connections that are there ------------------------------------------------------------

    def _shared_to(self, request: HttpRequest, egress: EgressPolicy) -> ConnectionTwo | None:
        for shared in self._shared.get(request.origin, ()):
            if shared.available and allowed(request, egress, shared.address):
                return shared
        return None

    def _kept_to(self, request: HttpRequest, egress: EgressPolicy) -> ConnectionOne | None:
        kept = self._kept.get(request.origin, deque())
        while kept:
            last = kept.pop()
            if last.until < trio.current_time() or last.connection.heard_something:
                self._drop(last.connection)  # the peer has closed it, or is about to
            elif allowed(request, egress, last.connection.address):
                return last.connection
            else:
                kept.append(last)
                return None
        return None

    def _over(self, origin: Origin, connection: ConnectionOne, keep: bool) -> None:
        """An exchange was closed."""
        self._let_go(connection)
        if not keep or connection not in self._open:
            self._drop(connection)
            return
        kept = self._kept.setdefault(origin, deque())
        kept.append(Kept(connection, trio.current_time() + IDLE_S))
        if len(kept) > IDLE_MAX:
            self._drop(kept.popleft().connection)

    def _drop(self, connection: Connection) -> None:
        connection.close()
        self._open.discard(connection)
        self._let_go(connection)

    def _drop_idle(self, now: float = math.inf) -> None:
        """Closes what nobody holds and has not been used until `now`."""
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
            if connection.rests and connection.idle_since + IDLE_S < now
        ]
        for connection in resting:
            self._drop(connection)

    async def _reap(self) -> None:
        while True:
            await trio.sleep(REAP_S)
            self._drop_idle(trio.current_time())

    # -- new ones ------------------------------------------------------------------------------

    async def _connection_to(
        self, request: HttpRequest, egress: EgressPolicy, *, fresh: bool
    ) -> Connection:
        """One that is kept, or a new one; others that may be able to share it wait meanwhile, in
        their time to connect. Raises: HttpFailure.
        """
        origin = request.origin
        found: Connection | None = None if fresh else self._kept_to(request, egress)
        if found is not None:
            return found
        if not request.secure or origin in self._apart:
            return await self._connect(request, egress)
        turn = self._turns.setdefault(origin, trio.Lock())
        try:
            with trio.move_on_after(request.timeouts.connect_s):
                async with turn:
                    if not fresh:
                        found = self._shared_to(request, egress) or self._kept_to(request, egress)
                    if found is None and origin not in self._apart:
                        found = await self._connect(request, egress)
                return found or await self._connect(request, egress)
        finally:
            if not turn.locked():
                self._turns.pop(origin, None)
        raise not_in_time(request)

    async def _connect(self, request: HttpRequest, egress: EgressPolicy) -> Connection:
        """Whoever asks may hold one more, so there is room, or somebody's that nobody holds."""
        refusal = egress.check(request.host, request.port)
        if refusal is not None:
            raise denied(refusal)
        if len(self._open) + self._connecting >= self.shares.most:
            self._drop_idle()
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
            try:
                with trio.move_on_after(request.timeouts.connect_s):
                    await shared.greeted.wait()
            finally:
                shared.greeted.set()  # nobody waits for it: at rest it may be closed
            return shared
        connection = ConnectionOne(connected, where)
        self._open.add(connection)
        if len(self._apart) < ORIGINS_MAX:
            self._apart.add(request.origin)
        return connection

    def _share(self, origin: Origin, connected: Connected, where: str) -> ConnectionTwo:
        connection = ConnectionTwo(connected, where, self._let_go)
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


def allowed(request: HttpRequest, egress: EgressPolicy, address: str) -> bool:
    return egress.check_address(request.host, request.port, address) is None
