"""Opening the store that an executor runs."""

from pathlib import Path

from executor.worker.commits import refused_store
from oplog.errors import OplogError
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
