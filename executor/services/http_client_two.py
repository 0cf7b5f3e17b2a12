"""HTTP/2 over one connection, with h2: many exchanges at a time.

Two tasks of the connection's own read and write its stream, so that whoever waits for an exchange
may be cancelled at any time without harm to the others. A peer may send as much of a body as was
not read yet, up to `STREAM_WINDOW_BYTES`; what is received counts for the connection at once, so an
exchange that nobody reads holds up no other.
"""

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import h2.config
import h2.connection
import h2.events
import h2.exceptions
import h2.settings
import trio
from h2.errors import ErrorCodes

from executor.services.http_client_connect import Connected
from executor.services.http_client_errors import failure, translated
from executor.services.http_client_one import decoded
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

STREAM_WINDOW_BYTES: Final = 256 * 1024
CONNECTION_WINDOW_BYTES: Final = 1 << 24
WINDOW_STEP_BYTES: Final = 32 * 1024
"""So much is consumed before the peer is told of it."""


class ConnectionTwo:
    def __init__(
        self, connected: Connected, where: str, on_rest: Callable[["ConnectionTwo"], None]
    ) -> None:
        """`on_rest` is told whenever its last exchange is closed."""
        self.address = connected.address
        self.where = where
        self.open = True
        """New exchanges may begin."""
        self.used = False
        """An exchange over it was whole."""
        self.failed: HttpFailure | None = None
        self.state = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding=None))
        self.exchanges: dict[int, ExchangeTwo] = {}
        self.idle_since = trio.current_time()
        self.greeted = trio.Event()
        """The peer has said how many exchanges it takes, or nobody waits for that any more."""
        self._on_rest = on_rest
        self._stream = connected.stream
        self._socket = connected.socket
        self._to_write = trio.Event()
        self._written = trio.Event()
        self._received_bytes = 0
        """That the connection's window was not opened for again."""

    @property
    def available(self) -> bool:
        most = self.state.remote_settings.max_concurrent_streams
        return self.open and self.state.open_outbound_streams < most

    @property
    def rests(self) -> bool:
        """Whether it stands and has no exchange."""
        return self.greeted.is_set() and not self.exchanges

    def start(self) -> None:
        """What begins a connection; written once `run` runs."""
        settings = h2.settings.SettingCodes
        self.state.local_settings = h2.settings.Settings(
            client=True,
            initial_values={
                settings.ENABLE_PUSH: 0,
                settings.INITIAL_WINDOW_SIZE: STREAM_WINDOW_BYTES,
                settings.MAX_HEADER_LIST_SIZE: HEAD_BYTES_MAX,
            },
        )
        self.state.initiate_connection()
        self.state.increment_flow_control_window(CONNECTION_WINDOW_BYTES)

    async def run(self) -> None:
        """Reads and writes until the connection is closed by either side."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._write, nursery.cancel_scope)
                nursery.start_soon(self._read, nursery.cancel_scope)
        finally:
            self.close()

    def broken(self, error: Exception) -> None:
        """Its task has failed in a way that is nobody's fault but ours."""
        self._fail(failure("internal-error", f"{self.where}: {error!r}", repr(error), lasting=True))

    def close(self) -> None:
        """At once. Whoever waits for an exchange hears of it."""
        self._fail(failure("connection-terminated", f"{self.where}: the connection was closed"))
        self._socket.close()

    def rest(self) -> None:
        """It has no exchange any more."""
        self.idle_since = trio.current_time()
        self._on_rest(self)

    def flush(self) -> None:
        """Has everything written that the state machine wants to say."""
        self._to_write.set()

    async def flushed(self) -> None:
        """Until what was to be written now is, or the connection has failed."""
        if self.failed is None:
            written = self._written
            self.flush()
            await written.wait()

    async def _write(self, scope: trio.CancelScope) -> None:
        try:
            while True:
                content = self.state.data_to_send()
                if content:
                    with translated(self.where):
                        await self._stream.send_all(content)
                else:
                    written, self._written = self._written, trio.Event()
                    written.set()
                    await self._to_write.wait()
                    self._to_write = trio.Event()
        except HttpFailure as broken:
            self._fail(broken)
            scope.cancel()

    async def _read(self, scope: trio.CancelScope) -> None:
        try:
            with translated(self.where):
                while content := await self._stream.receive_some(PIECE_BYTES_MAX):
                    for event in self.state.receive_data(content):
                        self._take(event)
                    self.flush()
            text = f"{self.where}: the connection was closed by the peer"
            self._fail(failure("connection-terminated", text))
        except HttpFailure as broken:
            self._fail(broken)
        scope.cancel()

    def _fail(self, broken: HttpFailure) -> None:
        self.open = False
        self.failed = self.failed or broken
        self._written.set()
        self.greeted.set()
        for exchange in self.exchanges.values():
            stale = self.used and not exchange.heard
            exchange.fail(StaleConnection() if stale else self.failed)

    def _take(self, event: h2.events.Event) -> None:
        match event:
            case h2.events.DataReceived():
                self._received_bytes += event.flow_controlled_length
                if self._received_bytes >= WINDOW_STEP_BYTES:
                    self.state.increment_flow_control_window(self._received_bytes)
                    self._received_bytes = 0
            case h2.events.ConnectionTerminated():
                self.open = False
                for number, exchange in self.exchanges.items():
                    if event.last_stream_id is None or number > event.last_stream_id:
                        exchange.fail(StaleConnection())
                return
            case h2.events.RemoteSettingsChanged() | h2.events.WindowUpdated(stream_id=0):
                self.greeted.set()
                for exchange in self.exchanges.values():
                    exchange.news.set()
                return
            case _:
                pass
        concerned = self.exchanges.get(getattr(event, "stream_id", None) or 0)
        if concerned is not None:
            concerned.take(event)


class ExchangeTwo(Exchange):
    def __init__(self, connection: ConnectionTwo) -> None:
        self.news = trio.Event()
        """Set when something was received, or the peer lets more be sent."""
        self.heard = False
        """Anything came from the peer."""
        self._connection = connection
        self._number = connection.state.get_next_available_stream_id()
        self._head: ResponseHead | None = None
        self._received: deque[bytes] = deque()
        self._consumed_bytes = 0
        """That the stream's window was not opened for again."""
        self._trailers: Headers | None = None
        self._end: Ended | None = None
        self._failure: HttpFailure | StaleConnection | None = None
        self._sent = False
        self._closed = False

    async def begin(self, request: HttpRequest) -> None:
        connection = self._connection
        if connection.failed is not None:
            raise connection.failed
        headers = [
            (b":method", request.method.encode()),
            (b":scheme", b"https" if request.secure else b"http"),
            (b":authority", request.authority.encode()),
            (b":path", request.target.encode()),
            *((name.lower().encode(), value.strip(b" \t")) for name, value in request.headers),
        ]
        if request.body_bytes is not None:
            headers.append((b"content-length", str(request.body_bytes).encode()))
        connection.exchanges[self._number] = self
        self._sent = not request.has_body
        with translated(connection.where):
            connection.state.send_headers(self._number, headers, end_stream=self._sent)
        await connection.flushed()
        self._check()

    async def send(self, piece: bytes) -> None:
        connection = self._connection
        rest = memoryview(piece)
        while rest:
            room = await self._room()
            with translated(connection.where):
                connection.state.send_data(self._number, bytes(rest[:room]))
            rest = rest[room:]
            await connection.flushed()
            self._check()

    async def send_end(self, trailers: Headers) -> None:
        if self._sent:
            return
        self._check()
        with translated(self._connection.where):
            if trailers:
                fields = [(name.lower().encode(), value.strip(b" \t")) for name, value in trailers]
                self._connection.state.send_headers(self._number, fields, end_stream=True)
            else:
                self._connection.state.end_stream(self._number)
        self._sent = True
        await self._connection.flushed()
        self._check()

    async def receive_head(self) -> ResponseHead:
        while self._head is None:
            self._check()
            await self._wait()
        return self._head

    async def receive(self) -> bytes | Ended:
        while not self._received:
            if self._end is not None:
                return self._end
            self._check()
            await self._wait()
        pieces = [self._received.popleft()]
        size = len(pieces[0])
        while self._received and size + len(self._received[0]) <= PIECE_BYTES_MAX:
            pieces.append(self._received.popleft())
            size += len(pieces[-1])
        self._consume(size)
        return b"".join(pieces)

    def at_end(self) -> Ended | None:
        return None if self._received else self._end

    def whole(self) -> tuple[bytes, Ended] | None:
        if self._end is None:
            return None
        content = b"".join(self._received)
        self._received.clear()
        return content, self._end

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        connection = self._connection
        connection.exchanges.pop(self._number, None)
        if self._sent and self._end is not None:
            connection.used = True
        elif connection.failed is None:
            with suppress(h2.exceptions.ProtocolError):
                connection.state.reset_stream(self._number, ErrorCodes.CANCEL)
            connection.flush()
        if not connection.exchanges:
            connection.rest()

    def fail(self, broken: HttpFailure | StaleConnection) -> None:
        """Nothing more comes. What was received before can still be read."""
        if self._end is None:
            self._failure = self._failure or broken
        self.news.set()

    def take(self, event: h2.events.Event) -> None:
        self.heard = True
        match event:
            case h2.events.ResponseReceived():
                fields = decoded(event.headers)
                status = next(value for name, value in fields if name == ":status")
                headers = [field for field in fields if not field[0].startswith(":")]
                self._head = ResponseHead(status=int(status), headers=headers)
            case h2.events.DataReceived():
                if event.data:
                    self._received.append(bytes(event.data))
                self._consume(event.flow_controlled_length - len(event.data))
            case h2.events.TrailersReceived():
                self._trailers = decoded(event.headers)
            case h2.events.StreamEnded():
                self._end = Ended(self._trailers)
            case h2.events.StreamReset():
                self.fail(reset_failure(self._connection.where, event.error_code))
            case _:
                pass
        self.news.set()

    def _consume(self, size: int) -> None:
        """The peer may send so much more."""
        self._consumed_bytes += size
        if self._consumed_bytes >= WINDOW_STEP_BYTES and self._end is None:
            with suppress(KeyError, h2.exceptions.ProtocolError):  # the stream is over
                self._connection.state.increment_flow_control_window(
                    self._consumed_bytes, self._number
                )
            self._consumed_bytes = 0
            self._connection.flush()

    async def _room(self) -> int:
        """How much may be sent now, at least one byte. Raises: HttpFailure, StaleConnection."""
        state = self._connection.state
        while True:
            self._check()
            with translated(self._connection.where):
                window = state.local_flow_control_window(self._number)
            if window > 0:
                return min(window, state.max_outbound_frame_size)
            await self._wait()

    async def _wait(self) -> None:
        if self.news.is_set():
            self.news = trio.Event()
        await self.news.wait()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure


def reset_failure(where: str, code: ErrorCodes | int | None) -> HttpFailure | StaleConnection:
    if code == ErrorCodes.REFUSED_STREAM:  # RFC 9113, 8.7: it was not begun
        return StaleConnection()
    name = code.name if isinstance(code, ErrorCodes) else str(code)
    if code == ErrorCodes.NO_ERROR:
        return failure("HTTP-response-incomplete", f"{where}: the peer ended the response early")
    return failure("connection-terminated", f"{where}: the peer reset the request: {name}")
