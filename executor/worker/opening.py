"""Opening the store that an executor runs."""

from pathlib import Path

from executor.errors import Busy, StoreError
from executor.worker.commits import refusal_words
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


def refused_store(error: OplogError, path: Path) -> Busy | StoreError:
    kind, hint = refusal_words(error)
    if kind == "busy":
        return Busy(str(error), where=str(path), hint=hint)
    return StoreError(str(error), kind=kind, where=str(path), hint=hint)
