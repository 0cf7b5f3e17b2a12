"""The byte streams behind `wasi:io/streams`: what a stream is, and the ones that are no file.

Every stream here answers at once, so no read, write or flush is recorded: what a file or an output
holds is the same in a replay. A stream that fails once is closed from then on, which is the rule of
`wasi:io/streams`; the rows of the interface see to it.
"""

from abc import ABC, abstractmethod
from typing import Final

import msgspec

from executor.host.state import HostState

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


class OutputStream(ABC):
    """A sink of bytes; `closed` once an operation failed."""

    closed: bool = False

    @abstractmethod
    def write(self, state: HostState, contents: bytes) -> None:
        """Takes all of the bytes. Raises StreamClosed, StreamFailed."""

    @abstractmethod
    def drop(self, state: HostState) -> None:
        """The guest holds the stream no more."""


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
