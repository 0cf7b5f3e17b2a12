"""Everything the executor can refuse or report, as one tree.

ShemError                 `kind` is the word of the JSON error object, `hint` what to do
├── RequestError          the caller's fault
│   ├── UsageError        · ComponentNotFound · WorkerNotFound · UnknownFunction · UnknownKey
│   ├── UnknownFile       · UnknownPromise
│   ├── BadArguments      (column, expected) · KeyConflict · AlreadyExists · Busy
│   │   └── BadHandle     the one request that is refused only when it runs, and so is recorded
│   └── ComponentRejected (imports)
├── InvocationError       the guest's fault, recorded in the oplog
│   ├── GuestTrap · GuestError · GuestExit
│   └── PreviousFailed · WorkerDeleted · InvocationInterrupted · InvocationCancelled
├── ReplayPanic           the guest failed in a replay where the recorded run had not
├── Divergence            log and guest disagree (index, recorded, requested); never retried
├── LimitError            a limit: which, its value, how to raise it
└── StoreError            no room, or the store cannot be used (kind says which)
    └── HostBindingError  a host function of the embedder cannot be imported

InternalError             ours: an invariant broke; outside the tree, so that nobody handles it
"""

from typing import ClassVar


class ShemError(Exception):
    """A refusal with a sentence: what happened, where, and what to do about it."""

    kind: ClassVar[str] = "internal"

    def __init__(self, message: str, *, where: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.hint = hint


class RequestError(ShemError):
    """The caller's fault; nothing was recorded."""

    kind = "usage"


class UsageError(RequestError):
    kind = "usage"


class ComponentNotFound(RequestError):
    kind = "unknown-component"


class WorkerNotFound(RequestError):
    kind = "unknown-worker"


class UnknownFunction(RequestError):
    kind = "unknown-function"


class UnknownKey(RequestError):
    kind = "unknown-key"


class UnknownFile(RequestError):
    """A path leads to nothing among a worker's files."""

    kind = "unknown-file"


class UnknownPromise(RequestError):
    kind = "unknown-promise"


class BadArguments(RequestError):
    """An argument does not parse or has the wrong type; `column` is 1-based, 0 if none applies."""

    kind = "bad-arguments"

    def __init__(
        self, message: str, *, where: str = "", hint: str = "", column: int = 0, expected: str = ""
    ) -> None:
        super().__init__(message, where=where, hint=hint)
        self.column = column
        self.expected = expected


class BadHandle(BadArguments):
    """An argument is a handle that the worker does not hold for its callers, or of another
    resource. Only its instance knows; the guest was not called.
    """


class KeyConflict(RequestError):
    """The key was used before with another function or other arguments."""

    kind = "key-conflict"


class AlreadyExists(RequestError):
    kind = "exists"


class Busy(RequestError):
    kind = "busy"


class Uncertain(RequestError):
    kind = "uncertain"


class ComponentRejected(RequestError):
    """The bytes are not a component that this executor can run; `imports` lists every problem."""

    kind = "component-rejected"

    def __init__(
        self, message: str, *, where: str = "", hint: str = "", imports: tuple[str, ...] = ()
    ) -> None:
        super().__init__(message, where=where, hint=hint)
        self.imports = imports


class InvocationError(ShemError):
    """The invocation's recorded outcome is not a result."""

    kind = "guest-error"


class GuestTrap(InvocationError):
    kind = "guest-trap"


class GuestError(InvocationError):
    kind = "guest-error"


class GuestExit(InvocationError):
    kind = "guest-exit"


class PreviousFailed(InvocationError):
    """An earlier invocation failed or exited; `stderr` is what it had written there."""

    kind = "previous-failed"
    stderr: str = ""


class WorkerDeleted(InvocationError):
    kind = "deleted"


class InvocationInterrupted(InvocationError):
    kind = "interrupted"


class InvocationCancelled(InvocationError):
    kind = "cancelled"


class ReplayPanic(ShemError):
    """A guest failed while it was replayed, at a point that the recorded run had passed."""

    kind = "guest-trap"


class Divergence(ShemError):
    """A replay asked for something other than what is recorded at `index`."""

    kind = "divergence"

    def __init__(self, *, worker: str, index: int, recorded: str, requested: str) -> None:
        super().__init__(
            f"replay diverged at entry {index}: recorded {recorded}, requested {requested}",
            where=worker,
            hint="the component or a host answer changed since this was recorded;"
            " deploy the recorded revision again, or delete the worker",
        )
        self.worker = worker
        self.index = index
        self.recorded = recorded
        self.requested = requested


class LimitError(ShemError):
    kind = "limit"


class StoreError(ShemError):
    """The store refused; `kind` is set by the one module that translates the oplog's errors."""

    def __init__(
        self, message: str, *, kind: str = "store-error", where: str = "", hint: str = ""
    ) -> None:
        super().__init__(message, where=where, hint=hint)
        self.kind = kind  # type: ignore[misc]  # an instance narrows the class's word


class HostBindingError(StoreError):
    def __init__(self, message: str, *, where: str = "", hint: str = "") -> None:
        super().__init__(message, kind="host-binding", where=where, hint=hint)


class InternalError(Exception):
    """An invariant of the executor broke: the worker stops, its oplog stays as it is."""
