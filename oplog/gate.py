"""Readers inside, and a door that closes behind the last of them."""

import threading
from types import TracebackType

from oplog.errors import OplogError


class Gate:
    """Counts the readers inside, so that closing waits for them: LMDB's memory goes with it."""

    def __init__(self, closed: str) -> None:
        self._condition = threading.Condition()
        self._inside = 0
        self._closed: str | None = None
        self._closed_message = closed

    def __enter__(self) -> None:
        with self._condition:
            if self._closed is not None:
                raise OplogError(self._closed)
            self._inside += 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with self._condition:
            self._inside -= 1
            if self._closed is not None:
                self._condition.notify_all()

    def close(self) -> bool:
        """Let nobody in any more and wait until nobody is inside; False if it was closed before."""
        with self._condition:
            if self._closed is not None:
                return False
            self._closed = self._closed_message
            self._condition.wait_for(lambda: self._inside == 0)
            return True
