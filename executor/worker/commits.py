"""Waiting in trio for what the committer writes, and the executor's words for its refusals."""

import trio

from executor.errors import StoreError
from oplog.engine import Batch
from oplog.errors import OplogBusyError, OplogError, OplogFullError
from oplog.store import Store


async def submit(store: Store, batch: Batch, where: str) -> None:
    """Writes one unit; durable on return. Raises: StoreError."""
    done = trio.Event()
    token = trio.lowlevel.current_trio_token()
    errors: list[OplogError] = []

    def written(error: OplogError | None) -> None:
        if error is not None:
            errors.append(error)
        token.run_sync_soon(done.set)

    try:
        store.submit(batch, written)
    except OplogError as error:
        raise store_error(error, where) from error
    await done.wait()
    if errors:
        raise store_error(errors[0], where) from errors[0]


def store_error(error: OplogError, where: str) -> StoreError:
    """The executor's word for a refusal of the store."""
    if isinstance(error, OplogFullError):
        return StoreError(
            f"no room to commit: {error}",
            kind="disk-full",
            where=where,
            hint="make space; what was accepted continues then",
        )
    if isinstance(error, OplogBusyError):
        return StoreError(str(error), kind="busy", where=where)
    return StoreError(str(error), where=where)
