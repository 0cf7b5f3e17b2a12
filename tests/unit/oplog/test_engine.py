import os

import pytest

from oplog.engine import OWN_KEYS, TABLES, Batch, Row, check_batch, first_entries

A, B = os.urandom(16), os.urandom(16)


def test_an_ordinary_batch_of_several_workers_passes():
    check_batch(
        Batch(
            entries=[(A, 3, b"a"), (B, 1, b"b"), (A, 4, b"c"), (B, 2, b"d")],
            rows=[Row(table, b"k", b"v") for table in TABLES] + [Row("workers", b"k", None)],
            deletes=[os.urandom(16)],
        )
    )


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (Batch(entries=[(A, 0, b"a")]), "0 is no index"),
        (Batch(entries=[(A, 1, b"a"), (A, 3, b"b")]), "entry 3 follows 1"),
        (Batch(entries=[(A, 2, b"a"), (B, 1, b"x"), (A, 2, b"b")]), "entry 2 follows 2"),
        (Batch(entries=[(b"short", 1, b"a")]), "16 bytes, not 5"),
        (Batch(rows=[Row("nowhere", b"k", b"v")]), "no table 'nowhere'"),
        (Batch(rows=[Row("results", b"", b"v")]), "a key of 0 bytes"),
        (Batch(rows=[Row("results", b"k" * 512, b"v")]), "a key of 512 bytes"),
        (Batch(entries=[(A, 1, b"a")], deletes=[A]), "deleted and written"),
        (Batch(deletes=[b"short"]), "16 bytes, not 5"),
        *((Batch(rows=[Row("meta", key, b"9")]), "the engine's own") for key in sorted(OWN_KEYS)),
    ],
)
def test_a_batch_that_no_engine_could_write_is_refused(batch, message):
    with pytest.raises(ValueError, match=message):
        check_batch(batch)


def test_first_entries_names_each_worker_once():
    assert first_entries(Batch()) == []
    assert first_entries(Batch(entries=[(A, 5, b""), (A, 6, b"")])) == [(A, 5)]
    mixed = [(A, 5, b""), (B, 1, b""), (A, 6, b""), (B, 2, b"")]
    assert first_entries(Batch(entries=mixed)) == [(A, 5), (B, 1)]
