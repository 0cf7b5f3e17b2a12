"""How it is told that an invocation has no result, or none yet: with what an owner can do."""

from typing import Final

from executor.errors import (
    BadHandle,
    GuestError,
    GuestExit,
    GuestTrap,
    InvocationCancelled,
    InvocationError,
    LimitError,
    ShemError,
    UnknownKey,
    WorkerDeleted,
)
from executor.records import ErrorRecord
from executor.wasm.plain import decode_result
from executor.wasm.types import FuncType
from executor.worker.commits import store_errors
from oplog.codec import values_of
from oplog.entry import Outcome

ERRORS: Final[dict[str, type[ShemError]]] = {
    "guest-trap": GuestTrap,
    "guest-error": GuestError,
    "guest-exit": GuestExit,
    "limit": LimitError,
    "cancelled": InvocationCancelled,
    "bad-arguments": BadHandle,
}


def failure_record(worker: str, kind: str, message: str) -> ErrorRecord:
    match kind:
        case "cancelled":
            hint = "its key stays cancelled: ask again with another one"
        case "bad-arguments":
            hint = "the worker goes on: ask with a handle that it gave out, and another key"
        case _:
            hint = f"the worker takes nothing more: shem revert {worker} --last 1, or delete it"
    return ErrorRecord(kind=kind, message=message, where=worker, hint=hint)


def exit_record(worker: str, code: int) -> ErrorRecord:
    return failure_record(worker, "guest-exit", f"the guest exited with code {code}")


def error_of(record: ErrorRecord) -> ShemError:
    """What the library raises for it."""
    error = ERRORS.get(record.kind, InvocationError)
    return error(record.message, where=record.where, hint=record.hint)


def value_of(worker: str, index: int, outcome: Outcome, wit: FuncType) -> object:
    """What an invocation returned whose outcome is entry `index`; None if it left with exit(0).

    Raises: InvocationError for a failure or another exit, StoreError.
    """
    if outcome.failure is not None:
        failure = outcome.failure
        raise error_of(failure_record(worker, failure.kind, failure.message))
    if outcome.exit is not None:
        if outcome.exit == 0:
            return None
        raise error_of(exit_record(worker, outcome.exit))
    with store_errors(worker), values_of(index):
        return decode_result(wit, outcome.result)


def own_fault(worker: str, error: BaseException) -> ShemError:
    """The word for an error that is neither the guest's nor the caller's."""
    text = str(error).removeprefix(f"{worker}: ")
    return ShemError(
        f"{type(error).__name__}: {text}",
        where=worker,
        hint="a fault of Shem: the oplog is as it was, and the next process tries again",
    )


def deleted_worker(name: str, when: str = "") -> WorkerDeleted:
    return WorkerDeleted(
        f"the worker was deleted{when}",
        where=name,
        hint="a new invocation makes a new worker of that name",
    )


def unknown_key(worker: str, key: str, why: str = "") -> UnknownKey:
    return UnknownKey(
        f"no invocation with key {key!r}{why}",
        where=worker,
        hint=f"`shem worker {worker}` shows the keys that wait, `shem oplog {worker}` all of them",
    )
