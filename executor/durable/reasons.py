"""Why an invocation left the guest without returning, as values."""

from typing import TypeAlias

import msgspec

from oplog.errors import OplogError


class Exited(msgspec.Struct, frozen=True):
    """The guest asked to end, as `wasi:cli/exit` offers it."""

    code: int
    """0 is success; 0 to 255."""


class CommitFailed(msgspec.Struct, frozen=True):
    """What the guest had done before could not be made durable."""

    error: OplogError


class ReachedTarget(msgspec.Struct, frozen=True):
    """The replay came to where it was to stop, without going live."""


class Closed(msgspec.Struct, frozen=True):
    """The instance's generation was closed from outside."""


class Jumped(msgspec.Struct, frozen=True):
    """The guest asked to go on from an earlier entry of its oplog."""

    target: int
    """The last entry that is kept."""


class Unsure(msgspec.Struct, frozen=True):
    """A remote write may have happened or not, and the guest said that it must not be repeated."""

    start_index: int


class Suspended(msgspec.Struct, frozen=True):
    """What the guest waits for may take long, and needs no instance meanwhile."""

    wake_at: int | None
    """Wall time in ns; None if time alone does not end the wait."""
    promises: tuple[str, ...] = ()
    """Names of the promises that end it."""


LeaveReason: TypeAlias = (
    Exited | CommitFailed | ReachedTarget | Closed | Jumped | Unsure | Suspended
)


class Leave(msgspec.Struct, frozen=True):
    """An effect answers this instead of a value: the guest that waits for it is to be left."""

    reason: LeaveReason
