"""What the embedder gives to a guest: host functions, the interfaces they form, and their answers.

A host function runs on the lane of the calling guest. One that `waits` may answer at once, or
return `PENDING` and answer later through its `Pending` from any thread; meanwhile the lane runs
other guests and no thread waits. This module knows nothing of Wasmtime.
"""

import threading
from collections.abc import Callable
from enum import Enum
from typing import Any, Final, Literal

import msgspec

from executor.wasm.types import FuncType, WitType


class Waiting(Enum):
    """The type of `PENDING`."""

    PENDING = "pending"


PENDING: Final[Literal[Waiting.PENDING]] = Waiting.PENDING
"""What a waiting host function returns when its answer comes later."""


class LeaveGuest(BaseException):  # it is no error: it says why a guest is left
    """Raised by a host function to leave the guest for good; the call's outcome is `Left`.

    It never travels through the guest: the boundary keeps it, and the guest ends in a trap.
    """

    def __init__(self, reason: object) -> None:
        super().__init__(reason)
        self.reason = reason


class HostFunction(msgspec.Struct, frozen=True, kw_only=True):
    """One function that a guest may import."""

    name: str
    """As in the component: `now`, `[method]input-stream.read`, `[constructor]fields`."""
    type: FuncType
    """Handles cross as ints: the number the host chose for its resource."""
    call: Callable[..., Any]
    """`call(state, *arguments)`, or `call(state, pending, *arguments)` if it waits."""
    waits: bool = False
    answer: WitType | None = None
    """The type of what a call of it is answered with, where the guest gets something else."""


class HostInterface(msgspec.Struct, frozen=True, kw_only=True):
    """One interface that a guest may import; a resource's identity is (interface, resource)."""

    name: str
    """`wasi:io/poll`, without a version; "" for functions that the world itself imports."""
    versions: str = ""
    """The semver track served, as `0.2`; several apart by `|`; "" serves any and none."""
    functions: tuple[HostFunction, ...] = ()
    resources: dict[str, Callable[[Any, int], None]] = {}
    """By name: `drop(state, number)`, called when the guest drops a handle it owns."""

    def serves(self, version: str) -> bool:
        """Whether an import of this version (`0.2.3`, or "" for none) is on a served track."""
        if not self.versions:
            return True
        return any(
            version == track or version.startswith(f"{track}.")
            for track in self.versions.split("|")
        )


class Pending:
    """The answer of one waiting host call: settled once, by whoever comes first.

    `set` and `fail` may be called on any thread and never block; what comes second, or after the
    guest was left, is ignored.
    """

    __slots__ = ("_lock", "_wake", "error", "settled", "value")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wake: Callable[[], None] | None = None
        self.settled = False
        self.value: Any = None
        self.error: BaseException | None = None

    def set(self, value: object) -> None:
        """Answer the guest's call; the value is converted on the guest's lane."""
        self._settle(value, None)

    def fail(self, error: BaseException) -> None:
        """Leave the guest: its outcome is `Raised(error)`, or `Left` for a `LeaveGuest`."""
        self._settle(None, error)

    def take(self) -> object:
        """What it was settled with. Raises: what `fail` was given."""
        if self.error is not None:
            raise self.error
        return self.value

    def arm(self, wake: Callable[[], None]) -> bool:
        """Have `wake` called when it is settled; True, without a call, if it is already."""
        with self._lock:
            if self.settled:
                return True
            self._wake = wake
            return False

    def abandon(self) -> None:
        """Nobody waits any more: an answer that comes later wakes nothing."""
        with self._lock:
            self.settled = True
            self._wake = None

    def _settle(self, value: object, error: BaseException | None) -> None:
        with self._lock:
            if self.settled:
                return
            self.value = value
            self.error = error
            self.settled = True
            wake, self._wake = self._wake, None
        if wake is not None:
            wake()
