"""A store's directory: made once, and its entries made durable."""

import os
from pathlib import Path

from oplog.errors import OplogError


def make_directory(path: Path) -> None:
    """Make the directory if it is missing. Its parent must exist: where a disk is not mounted, a
    store made beside the mount point would look like a lost one.

    Raises: OplogError.
    """
    try:
        path.mkdir(exist_ok=True)
    except FileNotFoundError as error:
        raise OplogError(f"cannot make the store {path}: {path.parent} does not exist") from error
    except OSError as error:
        raise OplogError(f"cannot make the store {path}: {error.strerror}") from error


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
