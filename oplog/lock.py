"""One process runs a store: an advisory lock on a file of its directory.

The lock is the operating system's (`flock`), so it is gone the moment its process is, however that
ended; the text in the file only says who holds it and may be that of a dead process. The file is
never unlinked: two processes could then hold locks on two files of the same name.
"""

import fcntl
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from oplog.directory import LOCK_NAME
from oplog.errors import OplogBusyError
from oplog.room import refusal

HOLDER_LOOKS_MAX: Final = 20
HOLDER_LOOK_S: Final = 0.01


class StoreLockedError(OplogBusyError):
    """Another process runs the store."""

    def __init__(self, process: str, directory: Path) -> None:
        super().__init__(f"the store is in use by process {process}", where=str(directory))
        self.process = process
        """The holder: its process id and command, as far as they are known."""


class StoreLock:
    """Holds the lock from `take` to `release`, or to the end of the process."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._descriptor: int | None = descriptor

    @classmethod
    def take(cls, directory: Path) -> Self:
        """Does not wait.

        Raises: StoreLockedError naming the holder; OplogFullError, OplogError if the file cannot be
        made or the file system has no locks.
        """
        path = directory / LOCK_NAME
        while True:
            try:
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            except OSError as error:
                what = f"{path.name} cannot be opened for writing"
                hint = "name a directory in which files can be made"
                raise refusal(what, error, directory, hint) from error
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _is_same_file(path, descriptor):
                    _write_holder(descriptor)
                    return cls(path, descriptor)
            except BlockingIOError as error:
                holder = _read_holder(descriptor)
                os.close(descriptor)
                raise StoreLockedError(holder, directory) from error
            except OSError as error:
                os.close(descriptor)
                hint = "use a file system that has locks"
                raise refusal(f"{path.name} cannot be locked", error, directory, hint) from error
            os.close(descriptor)

    def release(self) -> None:
        """Takes the holder's name away with the lock: its process may live on. Idempotent."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            with suppress(OSError):
                os.ftruncate(descriptor, 0)
            os.close(descriptor)


def _is_same_file(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _write_holder(descriptor: int) -> None:
    command = " ".join([Path(sys.argv[0]).name or "python", *sys.argv[1:]])
    text = f"{os.getpid()} ({command})\n".encode(errors="replace")[:1024]
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, text, 0)
    except OSError:
        # A full disk: the lock holds all the same, only its holder stays unnamed.
        return


def _read_holder(descriptor: int) -> str:
    """Who holds the lock. A holder names itself a moment after it has the lock, so what stands
    there may be missing, or the name of a process that is gone: it is looked at again for a while.
    """
    for _ in range(HOLDER_LOOKS_MAX):
        text = os.pread(descriptor, 1024, 0).decode(errors="replace").strip()
        if _is_alive(text.partition(" ")[0]):
            return text
        time.sleep(HOLDER_LOOK_S)
    return "(unknown)"


def _is_alive(pid: str) -> bool:
    if not pid.isdecimal():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
