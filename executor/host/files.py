"""What a guest holds of its files: descriptors, streams over them, listings under way.

Each holds its node open in the tree until the guest drops it. A descriptor for reading and one for
writing are told apart by its flags; a directory opened from a directory may always be changed, as
on Wasmtime, whatever its flags say.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from executor.host.state import HostState
from executor.host.streams import InputStream, IoError, OutputStream, StreamClosed, StreamFailed
from executor.services.files_nodes import FileError, Kind

FLAGS: Final = (
    "read",
    "write",
    "file-integrity-sync",
    "data-integrity-sync",
    "requested-write-sync",
    "mutate-directory",
)
"""The `descriptor-flags`, in order. The sync ones change nothing: what is written is there."""


class Descriptor(msgspec.Struct, frozen=True):
    """An open file or directory."""

    inode: int
    flags: tuple[str, ...]

    def check_flag(self, flag: str) -> None:
        """Raises FileError if it was not opened for that."""
        if flag not in self.flags:
            raise FileError("bad-descriptor")


def descriptor_flags(requested: Sequence[str], *, created: bool) -> tuple[str, ...]:
    """The flags a descriptor gets: it reads if it does not write, and writes what it has made."""
    flags = set(requested)
    if not flags & {"read", "write"}:
        flags.add("read")
    if created:
        flags.add("write")
    return tuple(flag for flag in FLAGS if flag in flags)


class Listing:
    """A `directory-entry-stream`: the directory as it was when the listing began."""

    def __init__(self, entries: list[tuple[str, Kind]]) -> None:
        self._entries = iter(entries)

    def read_entry(self) -> dict[str, str] | None:
        """The next entry, None at the end."""
        for name, kind in self._entries:
            return {"type": kind, "name": name}
        return None


class FileInput(InputStream):
    """Reads a file from an offset on; it is closed at the file's end, and not for good."""

    def __init__(self, inode: int, offset: int) -> None:
        self._inode = inode
        self._offset = offset

    def read(self, state: HostState, count: int) -> bytes:
        contents = state.files.read(self._inode, self._offset, count)
        if count and not contents:
            raise StreamClosed
        self._offset += len(contents)
        return contents

    def skip(self, state: HostState, count: int) -> int:
        skipped = min(count, max(0, state.files.size(self._inode) - self._offset))
        if count and not skipped:
            raise StreamClosed
        self._offset += skipped
        return skipped

    def drop(self, state: HostState) -> None:
        state.files.release(self._inode)


class FileOutput(OutputStream):
    """Writes a file from an offset on, or always at its end."""

    def __init__(self, inode: int, offset: int | None) -> None:
        self._inode = inode
        self._offset = offset
        """None for the file's end, wherever that is."""

    def write(self, state: HostState, contents: bytes) -> None:
        offset = state.files.size(self._inode) if self._offset is None else self._offset
        try:
            state.files.write(self._inode, offset, contents, state.session.guest_time_ns)
        except FileError as refusal:
            message = f"writing {len(contents)} bytes at {offset} failed: {refusal.code}"
            raise StreamFailed(IoError(message, refusal.code)) from refusal
        if self._offset is not None:
            self._offset += len(contents)

    def drop(self, state: HostState) -> None:
        state.files.release(self._inode)
