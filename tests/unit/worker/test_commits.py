"""The executor's words for what the store refuses, the same wherever it is met."""

from pathlib import Path

import pytest

from executor.cli.output import error_record, exit_code
from executor.worker.commits import refused_store, store_error
from executor.worker.reader import StoreReader
from oplog.errors import (
    FencedError,
    OplogBusyError,
    OplogCorruptError,
    OplogError,
    OplogFormatError,
    OplogFullError,
    OplogMissingError,
)
from oplog.lmdb_engine import LmdbEngine


@pytest.mark.parametrize(
    ("error", "kind", "code"),
    [
        (OplogFullError("e"), "disk-full", 5),
        (OplogBusyError("e"), "busy", 4),
        (OplogCorruptError("e"), "store-corrupt", 5),
        (OplogFormatError("e"), "store-format", 5),
        (FencedError("e"), "store-error", 5),
        (OplogMissingError("e"), "store-error", 5),
        (OplogError("e"), "store-error", 5),
    ],
)
def test_a_refusal_of_the_store_has_one_kind_and_one_hint(error, kind, code, monkeypatch):
    def refuse(path, *, readonly):
        raise error

    monkeypatch.setattr(LmdbEngine, "open", refuse)
    with pytest.raises(Exception, match="e") as reading:
        StoreReader("store")
    met = [
        store_error(error, "a/b"),
        refused_store(error, Path("store")),
        reading.value,
        error_record(error),
    ]
    assert [one.kind for one in met] == [kind] * 4
    assert len({one.hint for one in met}) == 1
    assert met[0].hint
    assert exit_code(kind) == code
