"""The derived keys of the calls of one session: one namespace an invocation, and the counters of
open regions and zones (`durable/modes.py`).

A write-remote call that is claimed in a region takes its key although nothing is performed: the
next one of the region has another.
"""

from executor.durable.function_type import WRITE_REMOTE
from executor.durable.keys import call_namespace
from executor.durable.modes import Modes


class CallKeys:
    """Used on the worker's lane."""

    __slots__ = ("_claimed", "_modes", "_namespace", "_worker_id", "invocation_key")

    def __init__(self, worker_id: bytes, modes: Modes) -> None:
        self._worker_id = worker_id
        self._modes = modes
        self.invocation_key = ""
        self._namespace = b""
        """Empty until a call of the invocation asks for its key."""
        self._claimed = (0, "")
        """Of the last call that was claimed in a region: its start, and its key."""

    def enter_invocation(self, key: str) -> None:
        self.invocation_key = key
        self._namespace = b""

    @property
    def namespace(self) -> bytes:
        if not self._namespace:
            self._namespace = call_namespace(self._worker_id, self.invocation_key)
        return self._namespace

    def claim(self, index: int, function_type: str) -> None:
        """The call whose start is at `index` was found in the oplog."""
        if self._modes.begin and function_type == WRITE_REMOTE:
            self._claimed = index, self._modes.key(self.namespace, index)

    def of(self, index: int, function_type: str) -> str:
        """The key of the call whose start is at `index`. Once a call, when it begins."""
        claimed_index, claimed_key = self._claimed
        if claimed_key and claimed_index == index:
            return claimed_key
        if function_type == WRITE_REMOTE:
            return self._modes.key(self.namespace, index)
        return self._modes.read_key(self.namespace, index)
