"""A store whose file is shorter than it should be: refused in words, unless nothing is missing."""

import os
import random
import shutil
import signal
import struct
import subprocess
import sys

import pytest

from oplog import lmdb_engine
from oplog.codec import encode_entry
from oplog.engine import Batch, Row
from oplog.entry import Log
from oplog.errors import OplogCorruptError, OplogError
from oplog.lmdb_engine import LmdbEngine, _needed_bytes
from oplog.whole import DAMAGED
from tests.support.children import ROOT, run_python

PAGE = 4_096
WORKER = b"w" * 16

OPEN = """
import sys
from pathlib import Path
from oplog.errors import OplogError
from oplog.lmdb_engine import LmdbEngine
from oplog.engine import Batch, Row
from oplog.reader import Reader

try:
    engine = LmdbEngine.open(Path(sys.argv[1]), readonly=sys.argv[2] == "reading")
    if sys.argv[2] == "writing":
        row = Row(table="results", key=b"k", value=b"x" * 100_000)
        (refused,) = engine.write([Batch(rows=[row])])
        assert refused is None
    print(len(Reader(engine).read(b"w" * 16, 1, 10_000)), "entries")
except OplogError as error:
    print(type(error).__name__, error)
"""


def log(index, size=2_000):
    return (WORKER, index, encode_entry(Log(at=index, level="stdout", text="x" * size)))


@pytest.fixture
def store(tmp_path):
    path = tmp_path / "store"
    engine = LmdbEngine.open(path)
    for first in range(1, 101, 20):
        entries = [log(index) for index in range(first, first + 20)]
        assert engine.write([Batch(entries=entries)]) == [None]
    engine.close()
    return path


@pytest.mark.parametrize("use", ["reading", "writing"])
@pytest.mark.parametrize("pages", ["one", 1, 2, 3, 10, "half", "all but one", "all but a byte"])
def test_a_file_that_was_cut_is_refused_before_a_missing_page_is_read(store, use, pages):
    file = store / "data.mdb"
    whole = file.stat().st_size
    sizes = {
        "one": 1,
        "half": whole // 2 // PAGE * PAGE,
        "all but one": whole - PAGE,
        "all but a byte": whole - 1,
    }
    size = sizes.get(pages, 0) or pages * PAGE
    os.truncate(file, size)
    said = run_python(OPEN, store, use)
    assert said.startswith("OplogCorruptError data.mdb is ")
    assert ("damaged" if size < 2 * PAGE else f"it has {size:,} bytes, and {whole:,}") in said
    assert said.rstrip().endswith(f"{store}: restore data.mdb from a copy")
    assert file.stat().st_size == size, "it is left as it is"


@pytest.mark.parametrize("use", ["reading", "writing"])
def test_any_last_page_that_is_missing_is_noticed_by_readers_too(tmp_path, use):
    """Pages of the list of free pages are among them, which nobody reads who only reads."""
    path = tmp_path / "store"
    engine = LmdbEngine.open(path)
    cut = []
    for number, _ in enumerate(churn(engine)):
        if number % 6 == 0:
            copy = tmp_path / f"copy-{number}"
            shutil.copytree(path, copy)
            os.truncate(copy / "data.mdb", (copy / "data.mdb").stat().st_size - PAGE)
            cut.append(copy)
    engine.close()
    said = [run_python(OPEN, copy, use) for copy in cut]
    refused = [text for text in said if text.startswith("OplogCorruptError data.mdb is cut short")]
    assert len(refused) > len(cut) / 2
    assert all(text in refused or text.endswith("entries\n") for text in said)


@pytest.mark.parametrize(
    ("ended", "error", "says"),
    [
        (-signal.SIGBUS, OplogCorruptError, "data.mdb is cut short"),
        (-signal.SIGSEGV, OplogCorruptError, "data.mdb is cut short"),
        (-signal.SIGABRT, OplogCorruptError, "data.mdb is damaged: "),
        (DAMAGED, OplogCorruptError, "data.mdb is damaged: "),
        (-signal.SIGKILL, OplogError, "was killed by signal 9: .*: try again"),
        (-signal.SIGINT, OplogError, "was killed by signal 2"),
        (1, OplogError, "ended with exit code 1"),
    ],
)
def test_only_a_missing_page_means_that_a_file_was_cut(store, monkeypatch, ended, error, says):
    os.truncate(store / "data.mdb", (store / "data.mdb").stat().st_size - PAGE)
    monkeypatch.setattr("oplog.whole._read_in_child", lambda path: ended)
    for readonly in (True, False):
        with pytest.raises(OplogError, match=says) as caught:
            LmdbEngine.open(store, readonly=readonly)
        assert type(caught.value) is error


def check(store):
    return subprocess.run(
        (sys.executable, "-m", "oplog", str(store)),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_who_asks_hears_whether_every_page_can_be_read(store):
    """Flags of pages are what LMDB believes, or ends the process for."""
    assert check(store).stdout == f"{store}: every page can be read\n"
    file = store / "data.mdb"
    whole = file.read_bytes()
    leaves = [at for at in range(2 * PAGE, len(whole), PAGE) if is_leaf(whole, at)]
    assert leaves
    for bit in (0, 1):
        damaged = bytearray(whole)
        damaged[leaves[0] + 10] ^= 1 << bit
        file.write_bytes(damaged)
        refused = check(store)
        assert (refused.returncode, refused.stdout) == (5, "")
        assert refused.stderr.endswith(
            f"data.mdb is damaged: {store}: restore data.mdb from a copy\n"
        )
        assert file.read_bytes() == damaged
    file.write_bytes(whole)
    assert check(store).returncode == 0
    assert check(store / "nowhere").returncode == 5


def is_leaf(file, at):
    """Whether a page of this number is there, with the flags of a leaf."""
    return struct.unpack_from("=QHH", file, at) == (at // PAGE, 0, 2)


def test_a_file_is_as_long_as_it_should_be_after_every_commit(tmp_path):
    engine = LmdbEngine.open(tmp_path / "store")
    for _ in churn(engine):
        assert (tmp_path / "store" / "data.mdb").stat().st_size >= _needed_bytes(
            engine._environment
        )
    engine.close()


def test_pages_that_were_taken_and_given_back_may_be_missing(tmp_path, monkeypatch):
    """LMDB leaves such pages unwritten at the end of the file, until the engine makes room."""
    path = tmp_path / "store"
    engine = LmdbEngine.open(path)
    monkeypatch.setattr(lmdb_engine, "make_whole", lambda file, needed: 0)
    file = path / "data.mdb"
    if not any(file.stat().st_size < _needed_bytes(engine._environment) for _ in churn(engine)):
        pytest.skip("this LMDB wrote every page that it took")
    engine.close()
    monkeypatch.undo()
    copy = tmp_path / "copy"
    shutil.copytree(path, copy)
    started = []
    run = subprocess.run
    monkeypatch.setattr(
        "oplog.whole.subprocess.run",
        lambda *call, **more: started.append(call) or run(*call, **more),
    )
    LmdbEngine.open(path, readonly=True).close()
    assert len(started) == 1, "it was read through"
    LmdbEngine.open(path).close()
    assert len(started) == 2
    LmdbEngine.open(path).close()
    LmdbEngine.open(path, readonly=True).close()
    assert len(started) == 2, "the writer made it as long as it should be"
    os.truncate(copy / "data.mdb", 3 * PAGE)
    with pytest.raises(OplogCorruptError, match="cut short"):
        LmdbEngine.open(copy, readonly=True)


def churn(engine):
    """Commits of entries, rows and deletions; a turn after each."""
    chosen = random.Random(22)  # which leaves a page out after a few turns, with LMDB 0.9.36
    last = {}
    for _ in range(60):
        batches = []
        for number in chosen.sample(range(12), chosen.randrange(1, 4)):
            worker = bytes([number]) * 16
            keys = [worker + bytes([n]) for n in range(20)]
            if chosen.random() < 0.25 and last.get(worker):
                rows = [Row(table="results", key=key, value=None) for key in keys]
                batches.append(Batch(deletes=(worker,), rows=rows))
                last[worker] = 0
                continue
            first = last.get(worker, 0) + 1
            last[worker] = first + chosen.randrange(1, 60) - 1
            entries = [
                (worker, index, log(index, chosen.randrange(3_000))[2])
                for index in range(first, last[worker] + 1)
            ]
            rows = [
                Row(table="results", key=key, value=bytes(chosen.randrange(3_000)))
                for key in keys[: chosen.randrange(20)]
            ]
            batches.append(Batch(entries=entries, rows=rows))
        assert set(engine.write(batches)) == {None}
        yield
