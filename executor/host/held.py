"""What a guest's values take of the host while it holds them: memory, and a file of the machine.

Both have a bound for each worker. A guest meets it where nothing is recorded, live and in replay
alike, so neither ever changes.
"""

import os
import weakref
from tempfile import TemporaryFile
from typing import Final, Self

from executor.errors import LimitError, StoreError

MEMORY_BYTES_MAX: Final = 64 << 20
FILE_BYTES_MAX: Final = 4 << 30
VALUE_BYTES: Final = 400
"""Of a value besides its bytes."""
EXTENT_BYTES: Final = 100


class Held:
    """Of one instance; used on its lane, but `read`."""

    def __init__(self) -> None:
        self.memory_bytes = 0
        self.file_bytes = 0
        self._file_users = 0
        self._descriptor: int | None = None

    def take(self, count: int) -> None:
        """So many more bytes of memory are held. Raises: LimitError."""
        if self.memory_bytes + count > MEMORY_BYTES_MAX:
            raise LimitError(
                f"the values that the guest holds take more than {MEMORY_BYTES_MAX} bytes",
                hint="the guest has to drop what it no longer uses",
            )
        self.memory_bytes += count

    def give_back(self, count: int) -> None:
        self.memory_bytes -= count

    # -- the file --------------------------------------------------------------------------------

    def use_file(self) -> None:
        """Another value has bytes there, or may have."""
        self._file_users += 1

    def leave_file(self) -> None:
        """The bytes of the last one that leaves are gone with those of all others."""
        self._file_users -= 1
        if not self._file_users and self._descriptor is not None:
            os.ftruncate(self._descriptor, 0)
            self.file_bytes = 0

    def append(self, contents: bytes) -> int:
        """Where they are in the file. Raises: LimitError, StoreError."""
        start = self.file_bytes
        if start + len(contents) > FILE_BYTES_MAX:
            raise LimitError(
                f"the values that the guest writes take more than {FILE_BYTES_MAX} bytes",
                hint="the guest has to drop those that it has given away",
            )
        try:
            if self._descriptor is None:
                self._descriptor = self._opened()
            write_whole(self._descriptor, contents, start)
        except OSError as error:
            raise StoreError(
                f"no room for a value that the guest writes: {error.strerror}",
                where="the machine's folder for temporary files",
                hint="make room there",
            ) from error
        self.file_bytes += len(contents)
        return start

    def read(self, start: int, count: int) -> bytes:
        """Any thread, while the guest waits. Blocks."""
        assert self._descriptor is not None
        return os.pread(self._descriptor, count, start)

    def _opened(self) -> int:
        file = TemporaryFile()  # noqa: SIM115  # closed with the instance
        weakref.finalize(self, file.close)
        return file.fileno()


class HeldValue:
    """What one value takes, until its resource and every stream of it were dropped."""

    def __init__(self, held: Held, size: int) -> None:
        """`size` is what it takes besides itself. Raises: LimitError."""
        self._held = held
        self._taken_bytes = 0
        self._users = 1
        self.take_more(VALUE_BYTES + size)

    def take_more(self, count: int) -> None:
        """Raises: LimitError."""
        self._held.take(count)
        self._taken_bytes += count

    def use(self) -> Self:
        """A stream of it stands as well."""
        self._users += 1
        return self

    def leave(self) -> None:
        """Its resource, or a stream of it, was dropped."""
        self._users -= 1
        if not self._users:
            self._held.give_back(self._taken_bytes)
            self.end()

    def end(self) -> None:
        """Nobody uses it any more."""


def write_whole(descriptor: int, contents: bytes, start: int) -> None:
    """Raises: OSError, also where there is room for a part only."""
    left = memoryview(contents)
    while left:
        written = os.pwrite(descriptor, left, start)
        left = left[written:]
        start += written
