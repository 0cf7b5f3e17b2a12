"""The body of an outgoing request: what the guest writes, and how it is sent, maybe more than once.

    the guest writes ─▶ early ──handle──▶ frames in the oplog ─▶ one connection after another

Before the request is handed over what is written stays in memory, up to `EARLY_BYTES_MAX`. From
then on it is frames (`durable/frames.py`): a piece is sent once its frame is durable, so that the
world never sees what a crash may have the guest write otherwise, and it is read back from the oplog
for it, so that a body of any size, sent again from its beginning, takes no memory.

The guest's own writes are the same in replay. How much fits at a time, and whether the body has
left, is seen from outside and recorded.
"""

from array import array
from collections.abc import Callable
from typing import Final

from executor.durable.frames import Frames
from executor.durable.signal import Signal
from executor.host.connections import Outside
from executor.host.pollables import Pollable, Watched
from executor.host.state import HostState
from executor.host.streams import (
    TRANSFER_BYTES_MAX,
    Failure,
    IoError,
    RemoteOutput,
    StreamClosed,
    StreamFailed,
)
from executor.services.http_client_errors import failure
from executor.services.http_client_types import Exchange, Headers
from executor.wasm.values import Variant

EARLY_BYTES_MAX: Final = 4 << 20
"""What may be written before the request is handed over."""
UNSENT_BYTES_MAX: Final = 1 << 20
"""What may be written and not have left: more does not fit."""


class RequestBody:
    """Written on the guest's lane, sent on the trio thread."""

    def __init__(self, declared_bytes: int | None = None) -> None:
        """`declared_bytes` is what the request's content-length says."""
        self.declared_bytes = declared_bytes
        self.written_bytes = 0
        self.finished = False
        self.dropped = False
        """Given up before it was finished: the request is not to be completed."""
        self.trailers: Headers = []
        self.news = Signal()
        """Fired when there is more to send, and when more fits."""
        self.why_unsent: Callable[[], Failure | None] = no_reason
        """Why what is written leads nowhere."""
        self.on_more: Callable[[], None] = nothing_to_do
        """Called on the trio thread when the live guest writes, finishes, or waits for what it
        wrote to leave."""
        self._early: list[bytes] = []
        self._outside: Outside | None = None
        self._frames: Frames | None = None
        self._pieces = array("Q")
        """The indices of the frames."""
        self._kept: list[bytes] = []
        """The pieces themselves in a zone that persists nothing, where no frames are."""
        self._sent_bytes = 0
        """Over the connection that is there, or was there last."""

    # -- on the lane, live and in replay -------------------------------------------------------

    @property
    def handed_over(self) -> bool:
        return self._frames is not None

    def write(self, content: bytes) -> None:
        """Raises: StreamClosed, StreamFailed."""
        if self.finished or self.dropped:
            raise StreamClosed
        if not content:
            return
        self.written_bytes += len(content)
        if self.declared_bytes is not None and self.written_bytes > self.declared_bytes:
            raise StreamFailed(self._too_long())
        if self._frames is not None:
            self._send_later(self._frames, content)
        elif self.written_bytes > EARLY_BYTES_MAX:
            raise StreamFailed(IoError(TOO_EARLY, http_error=Variant("configuration-error")))
        else:
            self._early.append(content)

    def finish(self, trailers: Headers) -> Variant | None:
        """The body is whole, or the `error-code` that says why it is not."""
        if self.declared_bytes is not None and self.written_bytes != self.declared_bytes:
            self.drop()
            return Variant("HTTP-request-body-size", self.written_bytes)
        self.trailers = trailers
        self.finished = True
        if self._frames is not None:
            self._frames.append(None)
            self._tell()
        return None

    def drop(self) -> None:
        """The guest holds it no more."""
        if not self.finished:
            self.dropped = True
            self._tell()

    def hand_over(self, frames: Frames, outside: Outside | None) -> None:
        """Its request was handed over: what was written so far is framed, in whole pieces."""
        self._outside = outside
        early, self._early = b"".join(self._early), []
        for start in range(0, len(early), TRANSFER_BYTES_MAX):
            self._send_later(frames, early[start : start + TRANSFER_BYTES_MAX])
        if self.finished:
            frames.append(None)
        self._frames = frames
        self._tell()

    def room(self) -> int | Failure:
        """How much may be written now; also in replay before the request was handed over."""
        if self._frames is None:
            room = EARLY_BYTES_MAX - self.written_bytes
        elif (failure := self.why_unsent()) is not None:
            return failure
        else:
            room = UNSENT_BYTES_MAX - (self.written_bytes - self._sent_bytes)
            if room <= 0:
                self._ask()
        return max(0, min(room, TRANSFER_BYTES_MAX))

    def is_sent(self) -> bool | Failure:
        """Whether all that was written has left; live."""
        sent = self._sent_bytes >= self.written_bytes
        if not sent:
            self._ask()
        return self.why_unsent() or sent

    def _send_later(self, frames: Frames, content: bytes) -> None:
        index = frames.append(content)
        if not index:
            self._kept.append(content)
        self._pieces.append(index)
        self._tell()

    def _tell(self) -> None:
        if self._outside is not None and self._frames is not None and self._frames.live:
            self._outside.post(self._more)

    def _ask(self) -> None:
        """As `_tell`, of one who waits: nobody is woken for it."""
        if self._outside is not None:
            self._outside.post(self.on_more)

    def _too_long(self) -> IoError:
        return IoError(
            f"more was written than the {self.declared_bytes} bytes that content-length says",
            http_error=Variant("HTTP-request-body-size", self.written_bytes),
        )

    # -- on the trio thread --------------------------------------------------------------------

    async def send(self, exchange: Exchange, progress: Callable[[], None]) -> None:
        """Sends all of it, from its beginning, as it is written. `progress` is told of each piece.

        Raises: HttpFailure, StaleConnection, OplogError.
        """
        self._sent_bytes = 0
        position = 0
        while True:
            while position < len(self._pieces):
                content = await self._content(position)
                await exchange.send(content)
                position += 1
                self._sent_bytes += len(content)
                self.news.fire()
                progress()
            if self.dropped:
                text = "the request's body was dropped before it was finished"
                raise failure("internal-error", text, text, lasting=True)
            if self.finished and self.handed_over and position == len(self._pieces):
                await exchange.send_end(self.trailers)
                progress()
                return
            await self.news.wait()

    def _more(self) -> None:
        self.news.fire()
        self.on_more()

    async def _content(self, position: int) -> bytes:
        index = self._pieces[position]
        if not index:
            return self._kept[position]
        assert self._frames is not None
        assert self._outside is not None
        await self._frames.committed(index)
        return self._outside.read_frame(index)


TOO_EARLY: Final = (
    f"a body of more than {EARLY_BYTES_MAX} bytes was written before its request was handed to"
    " wasi:http/outgoing-handler"
)


def nothing_to_do() -> None:
    """Its request was not handed over."""


def no_reason() -> Failure | None:
    """Its request was not handed over."""
    return None


class BodyOutput(RemoteOutput):
    """The stream of a request's body."""

    def __init__(self, body: RequestBody) -> None:
        self._body = body

    @property
    def answers(self) -> bool:
        return not self._body.handed_over

    def write(self, _state: HostState, contents: bytes) -> None:
        self._body.write(contents)

    def drop(self, _state: HostState) -> None:
        """The body itself says whether it is whole."""

    def pollable(self) -> Pollable:
        return Watched(self._body.news, lambda: self._body.room() != 0)

    def room(self) -> int | Failure:
        return self._body.room()

    async def has_room(self) -> int | Failure:
        while (room := self._body.room()) == 0:
            await self._body.news.wait()
        return room

    def is_flushed(self) -> bool | Failure:
        return self._body.is_sent()

    async def flushed(self) -> Failure | None:
        while not (sent := self._body.is_sent()):
            await self._body.news.wait()
        return sent if isinstance(sent, Failure) else None

    def io_error(self, failure: Failure) -> IoError:
        return http_io_error(failure)


def http_io_error(failure: Failure) -> IoError:
    """What the guest gets of a failure; a code that says more than its case has a plainer one."""
    match failure.code:
        case "internal-error":
            code = Variant("internal-error", failure.message)
        case "DNS-error" | "TLS-alert-received":
            code = Variant("connection-terminated")
        case case:
            code = Variant(case)
    return IoError(failure.message, http_error=code)
