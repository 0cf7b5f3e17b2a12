"""The store's Unix socket: a file `control.sock` in its directory, for its owner alone (mode 0600).

The path of such a socket has at most 107 bytes and a store's directory may have more, so it is
bound and reached through a descriptor of the directory, under `/proc/self/fd`.

Whoever holds the store's lock owns the name: it replaces what a killed process has left there, and
removes its own before it gives the lock up. So who was connected and lost the connection can tell
what became of the other process: the socket is there and refuses if it was killed, and is gone, or
another one, if it ended in order.
"""

import os
import select
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Self

SOCKET_NAME: Final = "control.sock"
SOCKET_MODE: Final = 0o600
BACKLOG: Final = 128
BREAKS_WITHIN_S: Final = 0.5
"""A connection to a process that was killed breaks by then."""


@contextmanager
def short_path(directory: Path) -> Iterator[str]:
    """A path of the directory's socket that is short enough, while it is entered.

    Raises: OSError if the directory is not there.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}/{SOCKET_NAME}"
    finally:
        os.close(descriptor)


class Door:
    """The listening socket of the process that holds the store's lock."""

    def __init__(self, path: Path, listening: socket.socket) -> None:
        self._path = path
        self._listening = listening

    @classmethod
    def open(cls, directory: Path) -> Self:
        """Binds and listens; a stale socket is replaced. The caller holds the store's lock.

        Raises: OSError.
        """
        path = directory / SOCKET_NAME
        path.unlink(missing_ok=True)
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            os.fchmod(listening.fileno(), SOCKET_MODE)  # the mode that its name is made with
            with short_path(directory) as short:
                listening.bind(short)
            path.chmod(SOCKET_MODE)
            listening.listen(BACKLOG)
        except OSError:
            listening.close()
            raise
        return cls(path, listening)

    def remove(self) -> None:
        """Takes the name away; the caller still holds the store's lock. Who waits at the socket is
        turned away when it is closed. Idempotent.
        """
        self._path.unlink(missing_ok=True)

    def hand_over(self) -> int:
        """A descriptor of the same socket, for the one who accepts. When that one closes it, who
        comes still waits here, until `close`.
        """
        return os.dup(self._listening.fileno())

    def close(self) -> None:
        self._listening.close()


def was_killed(directory: Path) -> bool:
    """Whether a process that listened here is gone without having removed its socket. Blocks for
    a moment only.
    """
    while True:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.setblocking(False)
            try:
                with short_path(directory) as short:
                    probe.connect(short)
            except ConnectionRefusedError:
                return True
            except OSError:
                return False
            # Of a killed process the system closes one socket after another, and this one it may
            # close last: then the connection breaks at once.
            ended, _, _ = select.select([probe], [], [], BREAKS_WITHIN_S)
            if not ended:
                return False
