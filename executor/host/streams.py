"""The byte streams behind `wasi:io/streams`: what a stream is, and the ones that are no file.

What a file or an output holds is the same in a replay, so nothing is recorded of its stream. What
comes from outside is recorded: a `RemoteInput` is read from a connection, and a `RemoteOutput`
feeds one, so how much it takes and whether it still stands is seen from outside. Both answer for
themselves where what was recorded before says enough. A stream that fails once is closed from then
on, which is the rule of `wasi:io/streams`; the rows of the interface see to it.
"""

from abc import ABC, abstractmethod
from typing import Final

import msgspec

from executor.durable.retry import TransientAnswer
from executor.host.pollables import AlwaysReady, Pollable
from executor.host.state import HostState
from executor.wasm.values import Variant

TRANSFER_BYTES_MAX: Final = 64 * 1024
"""What one call reads, or may write: each byte of a list costs 32 in the crossing."""
BLOCKING_WRITE_BYTES_MAX: Final = 4096
"""What `blocking-write-and-flush` and its kin take, by their definition in `wasi:io/streams`."""


class StreamClosed(Exception):
    """The stream is at its end: `stream-error::closed`."""


class StreamFailed(Exception):
    """An operation failed: `stream-error::last-operation-failed`."""

    def __init__(self, error: "IoError") -> None:
        super().__init__(error.message)
        self.error = error


class IoError(msgspec.Struct, frozen=True):
    """A `wasi:io/error` that the guest holds."""

    message: str
    file_error: str = ""
    """The error-code of `wasi:filesystem/types` that it stands for, "" for none."""
    http_error: Variant | None = None
    """That of `wasi:http/types`."""
    socket_error: str = ""
    """That of `wasi:sockets/network`, "" for none."""


class InputStream(ABC):
    """A source of bytes; `closed` once an operation failed."""

    closed: bool = False

    @abstractmethod
    def read(self, state: HostState, count: int) -> bytes:
        """At most `count` of the next bytes, fewer only if there are no more now.

        Raises StreamClosed, StreamFailed.
        """

    @abstractmethod
    def skip(self, state: HostState, count: int) -> int:
        """Passes over at most `count` bytes and returns how many. Raises as `read` does."""

    @abstractmethod
    def drop(self, state: HostState) -> None:
        """The guest holds the stream no more."""

    def pollable(self) -> Pollable:
        """Ready when a read would not wait."""
        return AlwaysReady()


class Piece(msgspec.Struct, frozen=True):
    """What was read from a connection, as it is recorded."""

    content: bytes
    ended: bool = False
    """Nothing follows."""
    trailers: list[tuple[str, bytes]] | None = None
    """Of a body that is over."""


class Failure(msgspec.Struct, frozen=True):
    """Why a connection's stream failed, as it is recorded."""

    code: str
    """A case of the error-code of its interface, without payload."""
    message: str
    transient: bool = False
    """It may pass, if what failed is tried again. Not recorded, as what follows is not."""
    function: str = ""
    """Of the call that failed, where the stream belongs to one: its retry rules hold."""
    status: int | None = None
    """Of HTTP."""
    retry_after_s: float = 0.0

    def passing(self, answer: object) -> TransientAnswer:
        """What an effect raises of it; `answer` is the guest's if it is not tried again."""
        return TransientAnswer(
            self.message,
            answer,
            kind=self.code,
            function=self.function,
            status=self.status,
            retry_after_s=self.retry_after_s,
        )


class RemoteInput(InputStream):
    """The input of a connection. What it holds at the time is answered by `read` and `skip`."""

    told_ready: bool = False
    """The guest heard that it is ready: its next read waits for what has yet to come again."""

    @property
    @abstractmethod
    def answers(self) -> bool:
        """Whether the next read is answered from what was recorded before."""

    @abstractmethod
    def receive(self, count: int) -> Piece | Failure | None:
        """At most `count` bytes that have come, live; None if there are none, and more is asked
        for.
        """

    @abstractmethod
    async def received(self, count: int) -> Piece | Failure:
        """The same, in trio; waits until there are some. After a transient failure, which is told
        once, it waits for new ones.
        """

    @abstractmethod
    def observe(self, state: HostState, piece: Piece) -> None:
        """The guest gets what was received, live and in replay."""

    @abstractmethod
    def io_error(self, failure: Failure) -> IoError:
        """What the guest gets of a failure."""


class OutputStream(ABC):
    """A sink of bytes; `closed` once an operation failed."""

    closed: bool = False

    @abstractmethod
    def write(self, state: HostState, contents: bytes) -> None:
        """Takes all of the bytes. Raises StreamClosed, StreamFailed."""

    @abstractmethod
    def drop(self, state: HostState) -> None:
        """The guest holds the stream no more."""

    def pollable(self) -> Pollable:
        """Ready when a write would not wait."""
        return AlwaysReady()


class RemoteOutput(OutputStream):
    """The output to a connection. `write` takes everything; who asks first does not write more
    than fits.
    """

    @property
    @abstractmethod
    def answers(self) -> bool:
        """Whether how much fits is a matter of what the guest has written alone."""

    @abstractmethod
    def room(self) -> int | Failure:
        """How many bytes fit; also in replay where it `answers`."""

    @abstractmethod
    async def has_room(self) -> int | Failure:
        """The same, in trio; waits until something fits."""

    @abstractmethod
    def is_flushed(self) -> bool | Failure:
        """Whether everything that was written has left, live."""

    @abstractmethod
    async def flushed(self) -> Failure | None:
        """Returns, in trio, once it has."""

    @abstractmethod
    def io_error(self, failure: Failure) -> IoError:
        """What the guest gets of a failure."""


class EmptyInput(InputStream):
    """Standard input of a worker: nobody sits at it, so it is at its end."""

    def read(self, _state: HostState, _count: int) -> bytes:
        raise StreamClosed

    def skip(self, _state: HostState, _count: int) -> int:
        raise StreamClosed

    def drop(self, _state: HostState) -> None:
        """Nothing was held for it."""


class LogOutput(OutputStream):
    """Standard output or error: each write is one log entry of the worker."""

    def __init__(self, level: str) -> None:
        self._level = level

    def write(self, state: HostState, contents: bytes) -> None:
        if contents:
            state.session.log(self._level, contents)

    def drop(self, _state: HostState) -> None:
        """Nothing was held for it."""
