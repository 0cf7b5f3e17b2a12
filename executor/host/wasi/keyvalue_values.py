"""Values on their way into a store and out of it, as `wasi:keyvalue` has them: a guest writes one
piece by piece before it gives it away, and reads one as it likes.

What the guest does with a value that it holds is not recorded: replay does it again.
"""

from executor.host.held import Held, HeldValue
from executor.host.state import HostState
from executor.host.streams import (
    InputStream,
    IoError,
    OutputStream,
    StreamClosed,
    StreamFailed,
)


class Body(HeldValue):
    """The bytes of one value, shared by its resource and the streams of it."""

    def __init__(self, held: Held, content: bytes = b"") -> None:
        """Raises: LimitError."""
        super().__init__(held, len(content))
        self.content = bytearray(content)
        self.taken = 0
        """How many of them have been read."""

    def append(self, contents: bytes) -> None:
        """Raises: LimitError."""
        self.take_more(len(contents))
        self.content += contents

    @property
    def size(self) -> int:
        return len(self.content) - self.taken

    def take(self, count: int) -> bytes:
        """At most `count` of the next bytes."""
        taken = bytes(memoryview(self.content)[self.taken : self.taken + count])
        self.taken += len(taken)
        return taken


class BodyInput(InputStream):
    """Reads a value; ends with it."""

    def __init__(self, body: Body) -> None:
        self._body = body.use()

    def read(self, _state: HostState, count: int) -> bytes:
        if not self._body.size:
            raise StreamClosed
        return self._body.take(count)

    def skip(self, _state: HostState, count: int) -> int:
        if not self._body.size:
            raise StreamClosed
        return len(self._body.take(count))

    def drop(self, _state: HostState) -> None:
        self._body.leave()


class BodyOutput(OutputStream):
    """Writes a value, as far as one may go."""

    def __init__(self, body: Body, bytes_max: int) -> None:
        self._body = body.use()
        self._bytes_max = bytes_max

    def write(self, _state: HostState, contents: bytes) -> None:
        if len(self._body.content) + len(contents) > self._bytes_max:
            message = f"a value has at most {self._bytes_max} bytes"
            raise StreamFailed(IoError(message))
        self._body.append(contents)

    def drop(self, _state: HostState) -> None:
        self._body.leave()
