"""The first two pages of a store's file: what is damaged in them is found before LMDB is let in."""

import shutil

import pytest

from oplog.codec import encode_entry
from oplog.engine import Batch
from oplog.entry import NoOp
from oplog.errors import OplogCorruptError
from oplog.header import META, newer_meta
from oplog.lmdb_engine import LmdbEngine
from tests.support.children import run_python

PAGE = 4_096
FIXED = {
    "number and flags": range(12),
    "magic": range(16, 20),
    "version": range(20, 24),
    "page size": range(40, 44),
    "flags of the free pages": range(44, 46),
    "depth of the free pages": range(47, 48),
    "root of the free pages": range(82, 88),
    "padding and flags of the main database": range(88, 94),
    "root of the main database": range(130, 136),
    "last page": range(140, 144),
    "transaction": range(145, 152),
}
NOT_READ = {("flags of the free pages", 45, 6)}
"""LMDB's bit that says how the file was first opened."""

OPEN = """
import sys
from pathlib import Path
from oplog.errors import OplogCorruptError
from oplog.lmdb_engine import LmdbEngine

try:
    LmdbEngine.open(Path(sys.argv[1]), readonly=sys.argv[2] == "reading").close()
except OplogCorruptError as error:
    print(error)
"""


@pytest.fixture
def store(tmp_path):
    """Each of its first pages is of a transaction that wrote something."""
    engine = LmdbEngine.open(tmp_path / "store")
    for index in range(1, 4):
        batch = Batch(entries=[(b"w" * 16, index, encode_entry(NoOp(at=1)))])
        assert engine.write([batch]) == [None]
    engine.close()
    return tmp_path / "store"


@pytest.mark.parametrize("page", [0, 1])
@pytest.mark.parametrize("field", FIXED)
def test_a_bit_that_flipped_in_the_header_is_found(store, field, page):
    header = (store / "data.mdb").read_bytes()[: PAGE + META.size]
    assert newer_meta(header) is not None
    for at in FIXED[field]:
        for bit in range(8):
            flipped = bytearray(header)
            flipped[page * PAGE + at] ^= 1 << bit
            assert newer_meta(bytes(flipped)) is None or (field, at, bit) in NOT_READ, (at, bit)


def test_the_transaction_before_the_last_is_not_taken_for_the_last(store):
    """The smallest step back that keeps to the order of the two pages."""
    header = (store / "data.mdb").read_bytes()[: PAGE + META.size]
    newer = newer_meta(header)
    at = newer.number * PAGE + META.size - 8
    stale = bytearray(header)
    stale[at : at + 8] = (newer.transaction - 2).to_bytes(8, "little")
    assert newer_meta(bytes(stale)) is None


@pytest.mark.parametrize("size", [0, 15, META.size, PAGE, PAGE + META.size - 1])
def test_a_header_that_ends_too_early_is_damaged(store, size):
    assert newer_meta((store / "data.mdb").read_bytes()[:size]) is None


@pytest.mark.parametrize("use", ["reading", "writing"])
@pytest.mark.parametrize("at", [20, 43, 44, 92, 137, 139, 143])
def test_a_damaged_header_is_a_sentence_and_never_the_end_of_the_process(store, tmp_path, at, use):
    """LMDB says `data format v254` of one of these, and ends in an assertion over another."""
    header = (store / "data.mdb").read_bytes()[: PAGE + META.size]
    newer = newer_meta(header)
    copy = tmp_path / "copy"
    shutil.copytree(store, copy)
    with (copy / "data.mdb").open("r+b") as file:
        file.seek(newer.number * PAGE + at)
        file.write(bytes([header[newer.number * PAGE + at] ^ 0xFF]))
    before = (copy / "data.mdb").read_bytes()
    said = run_python(OPEN, copy, use)
    assert said.startswith("data.mdb is damaged")
    assert said.endswith(f"{copy}: restore data.mdb from a copy\n")
    assert (copy / "data.mdb").read_bytes() == before


def test_a_header_that_is_being_written_is_read_again(store, monkeypatch):
    looks = iter([None, None])
    monkeypatch.setattr("oplog.header.newer_meta", lambda header: next(looks, newer_meta(header)))
    LmdbEngine.open(store, readonly=True).close()
    assert next(looks, "used up") == "used up"
    monkeypatch.setattr("oplog.header.newer_meta", lambda header: None)
    with pytest.raises(OplogCorruptError):
        LmdbEngine.open(store, readonly=True)
