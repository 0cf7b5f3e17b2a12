"""Waiting in trio for what the committer writes, and the executor's words for its refusals."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import trio

from executor.durable.inbox import setting
from executor.errors import Busy, StoreError
from executor.services.writing import Written
from oplog.engine import Batch, CountExceededError, RowChangedError
from oplog.errors import (
    FencedError,
    OplogBusyError,
    OplogCorruptError,
    OplogError,
    OplogFormatError,
    OplogFullError,
    OplogMissingError,
)
from oplog.store import Store


async def submit(store: Store, batch: Batch, where: str) -> None:
    """Writes one unit; durable on return. Raises: StoreError."""
    done = trio.Event()
    wake = setting(done)
    errors: list[OplogError] = []

    def written(error: OplogError | None) -> None:
        if error is not None:
            errors.append(error)
        wake()

    try:
        store.submit(batch, written)
    except OplogError as error:
        raise store_error(error, where) from error
    await done.wait()
    if errors:
        raise store_error(errors[0], where) from errors[0]


async def submit_if_true(store: Store, batch: Batch, where: str) -> Written:
    """As `submit`; what the batch says of the rows that are there may be found wrong."""
    try:
        await submit(store, batch, where)
    except StoreError as error:
        match error.__cause__:
            case RowChangedError():
                return Written.CHANGED
            case CountExceededError():
                return Written.EXCEEDED
            case _:
                raise
    return Written.DONE


def store_error(error: OplogError, where: str) -> StoreError:
    """The executor's word for a refusal of the store, met at `where`, which is a worker mostly."""
    kind, hint = refusal_words(error)
    text = f"{error.message} at {error.where}" if error.where else error.message
    return StoreError(text, kind=kind, where=where, hint=hint)


def refused_store(error: OplogError, path: Path) -> Busy | StoreError:
    """The executor's word for a store that cannot be opened."""
    kind, hint = refusal_words(error)
    where = error.where or str(path)
    if kind == "busy":
        return Busy(error.message, where=where, hint=hint)
    return StoreError(error.message, kind=kind, where=where, hint=hint)


@contextmanager
def store_errors(where: str) -> Iterator[None]:
    """What the store refuses inside the block is raised in the executor's words."""
    try:
        yield
    except OplogError as error:
        raise store_error(error, where) from error


def refusal_words(error: OplogError) -> tuple[str, str]:
    """The kind of a refusal of the store, and what to do about it."""
    match error:
        case OplogMissingError():
            kind, hint = "store-error", "deploy a component first, or name another directory"
        case OplogFullError():
            kind, hint = "disk-full", "make space; what was accepted continues then"
        case OplogBusyError():
            kind = "busy"
            hint = (
                "wait until that process ends, or stop it; commands that only read work beside it"
            )
        case OplogCorruptError():
            kind, hint = "store-corrupt", "restore the store from a copy"
        case OplogFormatError():
            kind, hint = "store-format", "use the version of Shem that wrote it"
        case FencedError():
            kind, hint = "store-error", "another process runs the store by now: ask again"
        case _:
            kind = "store-error"
            hint = "see that its directory can be read and written; --data DIR names another store"
    return kind, error.hint or hint
