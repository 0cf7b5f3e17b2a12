"""HTTP/1.1 over one connection, with h11: one exchange at a time, one after another."""

from collections import deque
from collections.abc import Callable, Iterable

import h11

from executor.services.http_client_connect import Connected
from executor.services.http_client_errors import failure, translated
from executor.services.http_client_types import (
    HEAD_BYTES_MAX,
    PIECE_BYTES_MAX,
    Ended,
    Exchange,
    Headers,
    HttpFailure,
    HttpRequest,
    ResponseHead,
    StaleConnection,
)


class ConnectionOne:
    """A connection that is used by one exchange, or kept for the next."""

    def __init__(self, connected: Connected, where: str) -> None:
        self.address = connected.address
        self.where = where
        self.stream = connected.stream
        self._socket = connected.socket
        self.state = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_BYTES_MAX)
        self.used = False
        """An exchange over it was whole, and it was kept."""

    @property
    def heard_something(self) -> bool:
        """While it is kept: the peer has closed it, or said what nobody asked for."""
        return self._socket.is_readable()

    def close(self) -> None:
        """At once. Whoever waits on it hears of it."""
        self._socket.close()

    def keep(self) -> bool:
        """Makes it ready for the next exchange, if the last one left it so."""
        whole = self.state.our_state is h11.DONE and self.state.their_state is h11.DONE
        if not whole or self.state.trailing_data[0]:
            return False
        self.state.start_next_cycle()
        self.used = True
        return True


class ExchangeOne(Exchange):
    def __init__(
        self, connection: ConnectionOne, over: Callable[[ConnectionOne, bool], None]
    ) -> None:
        """`over(connection, kept)` is told once, when the exchange is closed."""
        self._connection = connection
        self._over = over
        self._closed = False
        self._heard = False
        """Anything came from the peer."""
        self._ahead: deque[h11.Event | HttpFailure] = deque()
        """What follows the piece that was received last, where it came with it."""

    async def begin(self, request: HttpRequest) -> None:
        headers = [("Host", request.authority.encode()), *request.headers]
        if request.body_bytes is not None:
            headers.append(("Content-Length", str(request.body_bytes).encode()))
        elif request.has_body and not request.has("content-length"):
            headers.append(("Transfer-Encoding", b"chunked"))
        with translated(self._connection.where):
            event = h11.Request(
                method=request.method.encode(),
                target=request.target.encode(),
                headers=encoded(headers),
            )
        try:
            await self._send(event)
        except HttpFailure as broken:
            if self._connection.used:
                raise StaleConnection from broken
            raise

    async def send(self, piece: bytes) -> None:
        await self._send(h11.Data(data=piece))

    async def send_end(self, trailers: Headers) -> None:
        await self._send(h11.EndOfMessage(headers=encoded(trailers)))

    async def receive_head(self) -> ResponseHead:
        while True:
            event = await self._receive()
            if isinstance(event, h11.Response):
                self._look_ahead()
                return ResponseHead(status=event.status_code, headers=decoded(event.headers))

    async def receive(self) -> bytes | Ended:
        while True:
            event = await self._receive()
            if isinstance(event, h11.EndOfMessage):
                self._ahead.append(event)
                return ended(event)
            if isinstance(event, h11.Data) and event.data:
                if not self._ahead:
                    self._look_ahead()
                return bytes(event.data)

    def at_end(self) -> Ended | None:
        following = self._ahead[0] if self._ahead else None
        return ended(following) if isinstance(following, h11.EndOfMessage) else None

    def whole(self) -> tuple[bytes, Ended] | None:
        while self._ahead and isinstance(self._ahead[-1], h11.Data):
            before = len(self._ahead)
            self._look_ahead()
            if len(self._ahead) == before:
                return None
        last = self._ahead[-1] if self._ahead else None
        if not isinstance(last, h11.EndOfMessage):
            return None
        content = [bytes(event.data) for event in self._ahead if isinstance(event, h11.Data)]
        end = ended(last)
        self._ahead = deque([last])
        return b"".join(content), end

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._over(self._connection, self._connection.keep())

    def _look_ahead(self) -> None:
        connection = self._connection
        try:
            with translated(connection.where):
                event = connection.state.next_event()
        except HttpFailure as failed:
            self._ahead.append(failed)
        else:
            if isinstance(event, h11.Data | h11.EndOfMessage):
                self._ahead.append(event)

    async def _send(self, event: h11.Event) -> None:
        connection = self._connection
        with translated(connection.where):
            content = connection.state.send(event)
            if content:
                await connection.stream.send_all(content)

    async def _receive(self) -> h11.Event:
        if self._ahead:
            ahead = self._ahead.popleft()
            if isinstance(ahead, HttpFailure):
                raise ahead
            return ahead
        connection = self._connection
        while True:
            with translated(connection.where):
                event = connection.state.next_event()
            if event is h11.NEED_DATA:
                await self._read_more()
            elif isinstance(event, h11.Event):
                return event
            else:
                raise failure("connection-terminated", f"{connection.where}: nothing follows")

    async def _read_more(self) -> None:
        connection = self._connection
        try:
            with translated(connection.where):
                received = await connection.stream.receive_some(PIECE_BYTES_MAX)
        except HttpFailure as broken:
            if connection.used and not self._heard:
                raise StaleConnection from broken
            raise
        if received:
            self._heard = True
        elif connection.state.their_state is h11.SEND_RESPONSE:
            if connection.used and not self._heard:
                raise StaleConnection
            text = f"{connection.where}: the connection was closed before there was a response"
            raise failure("HTTP-response-incomplete", text)
        with translated(connection.where):
            connection.state.receive_data(bytes(received))


def encoded(headers: Headers) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.strip(b" \t")) for name, value in headers]


def decoded(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    return [(name.decode("latin-1"), bytes(value)) for name, value in headers]


def ended(event: h11.EndOfMessage) -> Ended:
    return Ended(decoded(event.headers) or None)
