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


LeaveReason: TypeAlias = Exited | CommitFailed | ReachedTarget | Closed
