"""What is said between the HTTP client and who uses it: requests, answers, failures.

    begin ─▶ send … send_end            one task sends
          └▶ receive_head ─▶ receive …  another receives, at the same time

An exchange is one request and its response on one connection. Whoever began it closes it: the
connection is kept for the next request if both messages are whole, and is closed if not.
"""

from abc import ABC, abstractmethod
from typing import Final

import msgspec
from msgspec.structs import replace

from executor.wasm.values import Variant

PIECE_BYTES_MAX: Final = 64 * 1024
"""What is received at a time."""
HEAD_BYTES_MAX: Final = 128 * 1024
"""Of a response: more is refused."""
DEFAULT_TIMEOUT_S: Final = 600.0
"""For each of the three waits that a request may bound."""

Headers = list[tuple[str, bytes]]


class Timeouts(msgspec.Struct, frozen=True, kw_only=True):
    """In seconds."""

    connect_s: float = DEFAULT_TIMEOUT_S
    """Until the connection stands, its TLS with it."""
    first_byte_s: float = DEFAULT_TIMEOUT_S
    """From the last byte that was sent to the head of the response."""
    between_bytes_s: float = DEFAULT_TIMEOUT_S
    """Until each next piece of its body."""


class HttpRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request without its body."""

    method: str
    secure: bool
    """Over TLS."""
    host: str
    """A name, or an address without brackets."""
    port: int
    authority: str
    """As it stands in the request."""
    target: str
    """Path and query."""
    headers: Headers
    """Without those that frame the message."""
    has_body: bool
    body_bytes: int | None = None
    """The length of the body, None if it is not known or `headers` say it."""
    timeouts: Timeouts = Timeouts()

    def has(self, header: str) -> bool:
        """Whether it says anything under that name, which is in lower case."""
        return any(name.lower() == header for name, _ in self.headers)

    def saying(self, header: str, value: str) -> "HttpRequest":
        """With one more header."""
        return replace(self, headers=[*self.headers, (header, value.encode())])

    @property
    def origin(self) -> tuple[bool, str, int]:
        """What a connection is to."""
        return self.secure, self.host, self.port


class ResponseHead(msgspec.Struct, frozen=True, kw_only=True):
    status: int
    headers: Headers
    """Names in lower case, in the order in which they came."""


class Ended(msgspec.Struct, frozen=True):
    """The body is over."""

    trailers: Headers | None
    """None if there were none."""


class HttpFailure(Exception):
    """A request or its response failed."""

    def __init__(
        self,
        code: Variant,
        message: str,
        *,
        transient: bool = False,
        status: int | None = None,
        retry_after_s: float = 0.0,
    ) -> None:
        """`code` is an `error-code` of wasi:http/types; `status` that of a response which is not
        the one that was to come, with the pause that its peer asks for.
        """
        super().__init__(message)
        self.code = code
        self.message = message
        self.transient = transient
        """Whether it may pass: the same request may succeed in a moment."""
        self.status = status
        self.retry_after_s = retry_after_s


class StaleConnection(Exception):
    """A connection that was kept had been closed by its peer, who has not answered anything."""


class Exchange(ABC):
    """On the trio thread. Raises HttpFailure whatever fails, StaleConnection where it says so."""

    @abstractmethod
    async def begin(self, request: HttpRequest) -> None:
        """Sends the head. Once, before anything else. Raises: StaleConnection."""

    @abstractmethod
    async def send(self, piece: bytes) -> None:
        """A piece of the body; returns when it was handed to the network."""

    @abstractmethod
    async def send_end(self, trailers: Headers) -> None:
        """The request is whole. At once after it was begun, if it has no body."""

    @abstractmethod
    async def receive_head(self) -> ResponseHead:
        """Raises: StaleConnection."""

    @abstractmethod
    async def receive(self) -> bytes | Ended:
        """The next piece of the body, at most `PIECE_BYTES_MAX`, not empty."""

    @abstractmethod
    def at_end(self) -> Ended | None:
        """The end, where it came with the piece that was received last."""

    @abstractmethod
    def whole(self) -> tuple[bytes, Ended] | None:
        """The whole body, where all of it came with the head; else nothing is taken."""

    @abstractmethod
    def close(self) -> None:
        """Gives the connection back if the exchange is whole, else ends it. At once; idempotent."""


def denied(message: str) -> HttpFailure:
    return HttpFailure(Variant("HTTP-request-denied"), message)
