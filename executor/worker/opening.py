"""Opening the store that an executor runs."""

from pathlib import Path

from executor.errors import Busy, StoreError
from oplog.errors import OplogBusyError, OplogCorruptError, OplogError, OplogFormatError
from oplog.lmdb_engine import LmdbEngine
from oplog.store import Store


def open_store(path: Path) -> Store:
    """Opens or creates the store at `path` and takes its epoch. Blocks.

    Raises: Busy if another process runs it, StoreError for anything else.
    """
    try:
        return Store(LmdbEngine.open(path))
    except OplogError as error:
        raise refused_store(error, path) from error


def refused_store(error: OplogError, path: Path) -> Busy | StoreError:
    where = str(path)
    match error:
        case OplogBusyError():
            return Busy(str(error), where=where, hint="use that process, or wait until it ends")
        case OplogFormatError():
            return StoreError(str(error), kind="store-format", where=where)
        case OplogCorruptError():
            return StoreError(str(error), kind="store-corrupt", where=where)
        case _:
            return StoreError(str(error), where=where)
