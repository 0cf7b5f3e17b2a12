import textwrap

import lmdb
import pytest

from oplog.codec import encode_entry
from oplog.engine import Batch, Row
from oplog.entry import Log, NoOp
from oplog.errors import OplogFullError
from oplog.lmdb_engine import LmdbEngine
from oplog.store import Store
from tests.support.children import run_python
from tests.support.engines import Heard
from tests.support.small_disk import fill, resize, small_disk

ENTRY = encode_entry(NoOp(at=1))
A, B = b"a" * 16, b"b" * 16


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store"


def log_of(size):
    return encode_entry(Log(at=1, level="stdout", text="x" * size))


def raw_environment(path):
    """The file as LMDB sees it, past the engine."""
    return lmdb.open(str(path), max_dbs=64, map_size=1 << 30)


def test_a_full_map_fails_only_what_does_not_fit(path):
    engine = LmdbEngine.open(path, map_bytes=1 << 20)
    large = Batch(entries=[(A, 1, log_of(2 << 20))], rows=[Row("workers", A, b"1")])
    small = Batch(entries=[(B, 1, ENTRY)], rows=[Row("workers", B, b"1")])
    failed, written = engine.write([large, small])
    assert isinstance(failed, OplogFullError)
    assert written is None
    assert engine.read_rows("workers") == [(B, b"1")]
    assert [engine.last_index(worker_id) for worker_id in (A, B)] == [0, 1]
    with pytest.raises(OplogFullError):
        engine.probe()
    engine.close()


def test_a_map_filled_to_the_brim_keeps_what_it_took_and_takes_more_after_a_delete(path):
    store = Store(LmdbEngine.open(path, map_bytes=2 << 20))
    writer = store.writer(A, 0)
    acknowledged = 0
    while True:
        heard = Heard()
        writer.append(Log(at=1, level="stdout", text="x" * 10_000))
        writer.commit(heard)
        if heard.wait() is not None:
            break
        acknowledged += 1
    assert isinstance(heard.calls[0], OplogFullError)
    assert acknowledged > 50
    assert store.engine.last_index(A) == acknowledged == writer.committed_index
    deleted = Heard()
    store.submit(Batch(deletes=[A]), deleted)
    if deleted.wait() is None:
        store.engine.probe()
    store.close()


FULL_DISK = """
    import os, resource, signal, sys
    from pathlib import Path
    from oplog.codec import encode_entry
    from oplog.engine import Batch
    from oplog.entry import Log, NoOp
    from oplog.errors import OplogFullError
    from oplog.lmdb_engine import LmdbEngine
    from oplog.store import Store
    from tests.support.engines import Heard

    def limit(size):
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    path, slack = Path(sys.argv[1]), int(sys.argv[2])
    store = Store(LmdbEngine.open(path))
    rich, poor = store.writer(b"a" * 16, 0), store.writer(b"b" * 16, 0)
    for _ in range(50):
        heard = Heard()
        rich.append(NoOp(at=1))
        rich.commit(heard)
        assert heard.wait() is None
    limit((path / "data.mdb").stat().st_size + slack)
    large = encode_entry(Log(at=1, level="stdout", text="x" * 3_000_000))
    failed, written = store.engine.write([
        Batch(entries=[(b"c" * 16, 1, large)]), Batch(entries=[(b"d" * 16, 1, b"\\x80")])
    ])
    assert isinstance(failed, OplogFullError), failed
    assert written is None, written
    acknowledged = 0
    while True:
        heard = Heard()
        poor.append(Log(at=1, level="stdout", text="x" * 20_000))
        poor.commit(heard)
        error = heard.wait()
        if error is not None:
            break
        acknowledged += 1
    assert isinstance(error, OplogFullError), error
    try:
        store.engine.probe()
    except OplogFullError:
        pass
    else:
        raise AssertionError("the probe found room")
    assert store.closed_by is None
    assert store.engine.last_index(b"b" * 16) == acknowledged == poor.committed_index
    limit(resource.RLIM_INFINITY)
    store.engine.probe()
    poor.clear_failure()
    heard = Heard()
    poor.append(NoOp(at=2))
    poor.commit(heard)
    assert heard.wait() is None
    store.close()
    print(acknowledged)
"""


@pytest.mark.parametrize("slack", [40_000, 65_536, 99_999, 300_000])
def test_a_full_disk_fails_the_batch_and_the_store_goes_on_when_there_is_room(path, slack):
    acknowledged = int(run_python(FULL_DISK, path, slack))
    engine = LmdbEngine.open(path, readonly=True)
    assert engine.last_index(A) == 50
    assert engine.last_index(B) == acknowledged + 1
    assert engine.last_index(b"c" * 16) == 0
    assert engine.last_index(b"d" * 16) == 1
    engine.close()


def test_a_file_system_without_space_is_full_and_not_broken(tmp_path):
    with small_disk(tmp_path / "disk", "1m") as disk:
        engine = LmdbEngine.open(disk)
        index, error = 0, None
        while error is None:
            index += 1
            (error,) = engine.write([Batch(entries=[(A, index, log_of(10_000))])])
        assert isinstance(error, OplogFullError)
        with pytest.raises(OplogFullError):
            engine.probe()
        assert engine.last_index(A) == index - 1 > 10
        resize(disk, "4m")
        engine.probe()
        assert engine.write([Batch(entries=[(A, index, ENTRY)])]) == [None]
        engine.close()


OPEN = """
    import sys
    from pathlib import Path
    from oplog.errors import OplogFullError
    from oplog.lmdb_engine import LmdbEngine

    try:
        LmdbEngine.open(Path(sys.argv[1]), readonly=sys.argv[2] == "True").close()
        print("opened")
    except OplogFullError as error:
        print("full", error.where)
"""


def opened(path, *, readonly=False):
    """How an opening ends, in a process of its own: LMDB writes its table of readers by mapping it,
    so a page that the disk has no room for is a SIGBUS.
    """
    return run_python(OPEN, path, readonly).split()


@pytest.mark.parametrize("size", ["4k", "16k", "64k", "72k", "76k", "80k", "88k", "96k"])
def test_a_store_for_which_there_is_no_room_is_not_made(tmp_path, size):
    """From no room for its directory, over room for one of its files, to room for all of them."""
    with small_disk(tmp_path / "disk", size) as disk:
        path = disk / "store"
        first = opened(path)
        assert first in (["full", str(path)], ["opened"])
        assert opened(path) == first, "nothing is taken for a damaged store"
        resize(disk, "1m")
        assert opened(path) == ["opened"]
        assert opened(path, readonly=True) == ["opened"]
        assert first == ["full", str(path)] or size not in {"4k", "16k", "64k"}


@pytest.mark.parametrize("readonly", [False, True])
@pytest.mark.parametrize("lost", [True, False], ids=["lost", "sparse"])
def test_a_full_disk_without_the_table_of_readers_is_full_for_readers_too(tmp_path, readonly, lost):
    with small_disk(tmp_path / "disk", "256k") as disk:
        path = disk / "store"
        LmdbEngine.open(path).close()
        table = path / "lock.mdb"
        size = table.stat().st_size
        table.unlink()
        if not lost:
            with table.open("wb") as file:
                file.truncate(size)
        fill(disk / "ballast")
        assert opened(path, readonly=readonly) == ["full", str(path)]
        (disk / "ballast").unlink()
        assert opened(path, readonly=readonly) == ["opened"]


@pytest.mark.parametrize("size", [0, 100, 4_096, 20_000, 65_000])
def test_a_process_that_may_write_no_large_file_makes_no_store(path, size):
    limited = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({size}, {size}))"
    code = textwrap.dedent(OPEN)
    assert run_python(f"{limited}\n{code}", path, False).split() == ["full", str(path)]
    assert opened(path) == ["opened"]
