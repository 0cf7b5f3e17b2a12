"""What a worker's file tree consists of: nodes by inode number, limits, and the errors of files.

Nodes refer to one another by number only, never by reference, so that the tree is one flat mapping
without cycles. Times are nanoseconds since the Unix epoch, given by the caller.
"""

from typing import Final, Literal, TypeAlias

import msgspec

FileErrorCode = Literal[
    "access",
    "bad-descriptor",
    "exist",
    "file-too-large",
    "invalid",
    "is-directory",
    "loop",
    "name-too-long",
    "no-entry",
    "not-directory",
    "not-empty",
    "not-permitted",
    "quota",
    "too-many-links",
]
"""Those `error-code`s of `wasi:filesystem/types` that a tree in memory has a use for."""

Kind = Literal["directory", "regular-file", "symbolic-link"]
"""Those of `descriptor-type`."""

ROOT: Final = 1
NAME_BYTES_MAX: Final = 255
PATH_BYTES_MAX: Final = 4096
LINKS_MAX: Final = 65_000
SYMLINKS_FOLLOWED_MAX: Final = 40
OFFSET_MAX: Final = (1 << 63) - 1
"""The last offset that a file may have, as in POSIX."""


class FileError(Exception):
    """An operation that the tree refuses; nothing has changed."""

    def __init__(self, code: FileErrorCode) -> None:
        super().__init__(code)
        self.code = code


class FileLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What one worker's files may come to; both refuse with `quota`.

    The defaults hold for every worker that has recorded no limit: they never change.
    """

    bytes_max: int = 256 * 1024 * 1024
    """Content of files and of symbolic links, those no longer named but still open included."""
    entries_max: int = 65_536
    """Names in all directories together."""


class Node(msgspec.Struct, kw_only=True):
    """What every node has."""

    inode: int
    links: int = 0
    """Names that lead here."""
    opens: int = 0
    """Descriptors and streams that the guest holds of it."""
    accessed_ns: int
    """When it was made, or what `set-times` said: reading does not change it."""
    modified_ns: int
    changed_ns: int


class FileNode(Node, kw_only=True):
    content: bytearray
    writable: bool = True


class DirectoryNode(Node, kw_only=True):
    entries: dict[str, int]
    """Inode by name."""
    parent: int
    """Inode of the directory that it is in, 0 for the root."""


class SymlinkNode(Node, kw_only=True):
    target: str


AnyNode: TypeAlias = FileNode | DirectoryNode | SymlinkNode


class FileStat(msgspec.Struct, frozen=True, kw_only=True):
    """The attributes of a node."""

    inode: int
    kind: Kind
    links: int
    size: int
    """Bytes of a file's content or of a symbolic link's target, 0 for a directory."""
    accessed_ns: int
    modified_ns: int
    changed_ns: int
    writable: bool = True
    """False for an initial file that the guest may only read."""
    target: str | None = None
    """What a symbolic link reads."""


def kind_of(node: AnyNode) -> Kind:
    match node:
        case FileNode():
            return "regular-file"
        case DirectoryNode():
            return "directory"
        case SymlinkNode():
            return "symbolic-link"


def size_of(node: AnyNode) -> int:
    match node:
        case FileNode():
            return len(node.content)
        case DirectoryNode():
            return 0
        case SymlinkNode():
            return len(node.target.encode())
