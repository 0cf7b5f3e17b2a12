"""A store's directory: what is made in it, in which order, and what is missing from it.

`executor.lock` is made first. `data.mdb` gets its name when it is whole, and only then come LMDB's
table of readers and what is kept beside it, so a directory that holds those without `data.mdb` has
lost it. The table is never sparse: it is mapped, and to write a page for which the disk has no room
kills the process.
"""

import os
from pathlib import Path
from typing import Final

from oplog.errors import OplogCorruptError, OplogError, OplogFullError
from oplog.room import NO_ROOM, is_full, refusal

DATA_NAME: Final = "data.mdb"
READERS_NAME: Final = "lock.mdb"
LOCK_NAME: Final = "executor.lock"
BESIDE_NAMES: Final = ("control.sock", "artifacts")
READERS_BYTES: Final = (1 << 16) + (1 << 7)
"""LMDB's table for 1,024 readers."""
ALLOCATED_BYTES: Final = 512
"""The unit of `st_blocks`."""


def make_directory(path: Path) -> None:
    """Make the directory if it is missing. Its parent must exist: where a disk is not mounted, a
    store made beside the mount point would look like a lost one.

    Raises: OplogError, OplogFullError.
    """
    try:
        path.mkdir()
    except FileExistsError:
        if not path.is_dir():
            raise OplogError(
                "there cannot be a store: it is no directory",
                where=str(path),
                hint="name a directory, or one that is to be made",
            ) from None
    except OSError as error:
        hint = f"see that {path.parent} is a directory and can be written to"
        raise refusal("the store cannot be made", error, path, hint) from error


def holds_store(path: Path) -> bool:
    """Whether a store is in the directory; False if none ever was.

    Raises: OplogCorruptError if its `data.mdb` is gone or empty, OplogError if nobody may look.
    """
    try:
        size = (path / DATA_NAME).stat().st_size
    except (FileNotFoundError, NotADirectoryError):
        if not _held_store(path):
            return False
        size = 0
    except OSError as error:
        hint = "name a directory that can be read"
        raise refusal("the store cannot be opened", error, path, hint) from error
    if size:
        return True
    raise OplogCorruptError(
        f"{DATA_NAME} is missing or empty, and all that was stored was in it",
        where=str(path),
        hint=f"restore {DATA_NAME} from a copy; a new store needs an empty directory",
    )


def _held_store(path: Path) -> bool:
    """By what else is there. Somebody may have put artifacts into the directory of a new store."""
    beside = any(os.path.lexists(path / name) for name in BESIDE_NAMES)
    return (path / READERS_NAME).exists() or (beside and (path / LOCK_NAME).exists())


def make_readers_table(path: Path) -> None:
    """Have LMDB's table of readers on the disk, all of it. It is the same for who only reads.

    Raises: OplogFullError.
    """
    try:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        descriptor = os.open(path / READERS_NAME, flags, 0o644)
        try:
            found = os.fstat(descriptor)
            size = max(found.st_size, READERS_BYTES)
            if found.st_blocks * ALLOCATED_BYTES < size:
                os.posix_fallocate(descriptor, 0, size)
        finally:
            os.close(descriptor)
    except OSError as error:
        if is_full(error.errno):
            raise OplogFullError(NO_ROOM, where=str(path)) from error
        # Whatever else it is LMDB meets as well, or does without the table on a read-only disk.


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable; what was written to new files else has no name."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        # A parent that may not be read: its names are as durable as its file system makes them.
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
