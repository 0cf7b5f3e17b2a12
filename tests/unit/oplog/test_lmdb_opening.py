import os
from contextlib import suppress

import pytest

from oplog.codec import encode_entry
from oplog.directory import DATA_NAME, LOCK_NAME
from oplog.engine import Batch
from oplog.entry import NoOp
from oplog.errors import (
    FencedError,
    OplogBusyError,
    OplogCorruptError,
    OplogError,
    OplogFormatError,
    OplogMissingError,
)
from oplog.lmdb_engine import FORMAT, NEW_NAME, LmdbEngine
from oplog.store import Store
from tests.support.children import run_python, start_python
from tests.support.engines import Heard, raw_environment

ENTRY = encode_entry(NoOp(at=1))
A, B = b"a" * 16, b"b" * 16


def test_each_opening_for_writing_takes_a_greater_epoch(path):
    epochs = []
    for _ in range(3):
        engine = LmdbEngine.open(path)
        epochs.append(engine.epoch)
        engine.close()
    assert epochs == [1, 2, 3]
    reader = LmdbEngine.open(path, readonly=True)
    assert reader.epoch == 3
    reader.close()


def test_a_store_of_another_format_is_refused_and_left_as_it_is(path):
    LmdbEngine.open(path).close()
    with raw_environment(path) as environment:
        meta = environment.open_db(b"meta")
        with environment.begin(write=True) as transaction:
            assert transaction.get(b"format", db=meta) == b"%d" % FORMAT
            transaction.put(b"format", b"7", db=meta)
    before = (path / "data.mdb").read_bytes()
    for readonly in (False, True):
        with pytest.raises(OplogFormatError, match=f"format 7, this Shem reads {FORMAT}: .*: use"):
            LmdbEngine.open(path, readonly=readonly)
    assert (path / "data.mdb").read_bytes() == before


def test_an_lmdb_file_of_somebody_else_is_refused_and_left_as_it_is(path):
    path.mkdir()
    with raw_environment(path) as environment, environment.begin(write=True) as transaction:
        transaction.put(b"their", b"content")
    before = (path / "data.mdb").read_bytes()
    for readonly in (False, True):
        with pytest.raises(OplogFormatError, match="not a store of Shem"):
            LmdbEngine.open(path, readonly=readonly)
    assert (path / "data.mdb").read_bytes() == before


@pytest.mark.parametrize("version", [None, b"\xb1"], ids=["lost", "flipped"])
def test_a_store_that_does_not_say_its_format_is_damaged_and_not_somebody_elses(path, version):
    LmdbEngine.open(path).close()
    with raw_environment(path) as environment:
        meta = environment.open_db(b"meta")
        with environment.begin(write=True) as transaction:
            if version is None:
                transaction.drop(meta)
            else:
                transaction.put(b"format", version, db=meta)
    for readonly in (False, True):
        with pytest.raises(
            OplogCorruptError, match=r"does not say of which format it is: .*: rest"
        ):
            LmdbEngine.open(path, readonly=readonly)


def test_a_file_that_is_not_lmdb_is_called_damaged(path):
    path.mkdir()
    (path / "data.mdb").write_bytes(b"not a database " * 1000)
    for readonly in (False, True):
        with pytest.raises(OplogCorruptError, match=r"data\.mdb is damaged at its beginning"):
            LmdbEngine.open(path, readonly=readonly)


def test_a_refused_opening_gives_the_lock_back(path):
    path.mkdir()
    (path / "data.mdb").write_bytes(b"not a database " * 1000)
    with pytest.raises(OplogCorruptError):
        LmdbEngine.open(path)
    (path / "data.mdb").unlink()
    LmdbEngine.open(path).close()


def test_a_creation_that_was_cut_short_is_completed_by_the_next_opening(path):
    path.mkdir()
    (path / NEW_NAME).write_bytes(b"half of it")
    (path / LOCK_NAME).write_text("1 (killed)")
    with pytest.raises(OplogError, match="there is no store"):
        LmdbEngine.open(path, readonly=True)
    LmdbEngine.open(path).close()
    assert not (path / NEW_NAME).exists()
    LmdbEngine.open(path, readonly=True).close()


def test_a_process_that_is_killed_while_it_makes_a_store_leaves_none_or_a_whole_one(path):
    code = """
        import os, signal, sys
        from pathlib import Path
        from oplog.lmdb_engine import LmdbEngine

        left = int(sys.argv[2])

        def look(event, arguments):
            global left
            if event in {"open", "os.rename", "os.remove", "os.mkdir", "fcntl.flock"}:
                left -= 1
                if not left:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(look)
        LmdbEngine.open(Path(sys.argv[1])).close()
        """
    for number in range(1, 100):
        folder = path.with_name(f"store-{number}")
        child = start_python(code, folder, number)
        child.communicate(timeout=60)
        if child.returncode == 0:
            break
        with suppress(OplogError):
            LmdbEngine.open(folder, readonly=True).close()
        engine = LmdbEngine.open(folder)
        assert engine.write([Batch(entries=[(A, 1, ENTRY)])]) == [None]
        engine.close()
    assert number > 5


def test_opening_for_reading_creates_nothing(path):
    with pytest.raises(OplogMissingError, match=f"there is no store: {path}"):
        LmdbEngine.open(path, readonly=True)
    assert not path.exists()
    path.mkdir()
    with pytest.raises(OplogError, match="there is no store"):
        LmdbEngine.open(path, readonly=True)
    assert list(path.iterdir()) == []


@pytest.mark.parametrize("readonly", [False, True])
@pytest.mark.parametrize("size", [None, 0])
@pytest.mark.parametrize("left", ["lock.mdb", "artifacts", "control.sock"])
def test_a_store_that_has_lost_what_it_stored_is_refused_and_left_as_it_is(
    path, readonly, size, left
):
    LmdbEngine.open(path).close()
    if size is None:
        (path / "data.mdb").unlink()
    else:
        os.truncate(path / "data.mdb", size)
    (path / "lock.mdb").rename(path / left)
    before = sorted(path.iterdir())
    with pytest.raises(OplogCorruptError, match=r"data\.mdb is missing or empty, .*: restore"):
        LmdbEngine.open(path, readonly=readonly)
    assert sorted(path.iterdir()) == before


def test_a_store_is_made_silently_in_a_directory_that_holds_something_else(path):
    path.mkdir()
    (path / "lost+found").mkdir()
    (path / "artifacts").mkdir()
    LmdbEngine.open(path).close()


def test_a_store_is_not_made_where_its_parent_is_missing(tmp_path):
    with pytest.raises(OplogError, match=f"see that {tmp_path / 'unmounted'} is a directory"):
        LmdbEngine.open(tmp_path / "unmounted" / "store")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("file", "there cannot be a store: it is no directory: .*file: name a directory"),
        ("/dev/null", "there cannot be a store: it is no directory: /dev/null: name a directory"),
        ("file/store", "the store cannot be made: Not a directory: .*file/store: see that .*file"),
        ("x" * 300, "the store cannot be made: File name too long: "),
        (
            "/proc/self",
            "executor.lock cannot be opened for writing: No such file or .*: /proc/self: name",
        ),
    ],
)
def test_a_place_where_no_store_can_be_is_named_with_what_to_do(tmp_path, name, says):
    """The directory of this process in /proc stands for any that is there and read-only."""
    (tmp_path / "file").write_text("")
    with pytest.raises(OplogError, match=says):
        LmdbEngine.open(tmp_path / name)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("file/store", "there is no store"),
        ("/dev/null", "there is no store"),
        ("x" * 300, "the store cannot be opened: File name too long: .*: name"),
        ("folder", "the store cannot be opened: Is a directory: .*folder: data.mdb must be a file"),
    ],
)
def test_a_place_that_cannot_be_read_as_a_store_is_named_with_what_to_do(tmp_path, name, says):
    (tmp_path / "file").write_text("")
    (tmp_path / "folder" / DATA_NAME).mkdir(parents=True)
    with pytest.raises(OplogError, match=says):
        LmdbEngine.open(tmp_path / name, readonly=True)


def test_a_second_process_is_refused_by_name_and_a_killed_one_is_replaced(path):
    child = start_python(
        """
        import sys
        from pathlib import Path
        from oplog.lmdb_engine import LmdbEngine
        engine = LmdbEngine.open(Path(sys.argv[1]))
        print(engine.epoch, flush=True)
        sys.stdin.read()
        """,
        path,
    )
    assert child.stdout.readline() == "1\n"
    with pytest.raises(OplogBusyError, match=f"in use by process {child.pid} "):
        LmdbEngine.open(path)
    child.kill()
    child.communicate()
    engine = LmdbEngine.open(path)
    assert engine.epoch == 2
    engine.close()


def test_a_damaged_table_of_readers_is_not_taken_for_damage_of_what_is_stored(path):
    child = start_python(
        """
        import sys
        from pathlib import Path
        from oplog.lmdb_engine import LmdbEngine
        engine = LmdbEngine.open(Path(sys.argv[1]))
        print("opened", flush=True)
        sys.stdin.read()
        """,
        path,
    )
    assert child.stdout.readline() == "opened\n"
    with (path / "lock.mdb").open("r+b") as table:
        table.write(b"no table")
    with pytest.raises(OplogCorruptError, match=r"lock\.mdb is damaged; .*: end every process"):
        LmdbEngine.open(path, readonly=True)
    child.kill()
    child.communicate()
    LmdbEngine.open(path, readonly=True).close()
    LmdbEngine.open(path).close()


def test_a_second_opening_in_one_process_is_refused(path):
    engine = LmdbEngine.open(path)
    for readonly in (False, True):
        with pytest.raises(OplogBusyError):
            LmdbEngine.open(path, readonly=readonly)
    engine.close()


def test_an_older_opening_is_fenced_and_writes_nothing(path):
    engine = LmdbEngine.open(path)
    assert engine.write([Batch(entries=[(A, 1, ENTRY)])]) == [None]
    (path / LOCK_NAME).unlink()
    run_python(
        """
        import sys
        from pathlib import Path
        from oplog.lmdb_engine import LmdbEngine
        LmdbEngine.open(Path(sys.argv[1])).close()
        """,
        path,
    )
    with pytest.raises(FencedError, match="epoch 2, this is 1"):
        engine.write([Batch(entries=[(A, 2, ENTRY)])])
    with pytest.raises(FencedError):
        engine.probe()
    assert engine.last_index(A) == 1
    engine.close()


def test_a_fenced_store_is_closed_for_everybody(path, caplog):
    store = Store(LmdbEngine.open(path))
    (path / LOCK_NAME).unlink()
    run_python(
        "import sys; from pathlib import Path; from oplog.lmdb_engine import LmdbEngine\n"
        "LmdbEngine.open(Path(sys.argv[1])).close()",
        path,
    )
    writer = store.writer(A, 0)
    writer.append(NoOp(at=1))
    heard = Heard()
    writer.commit(heard)
    assert isinstance(heard.wait(), FencedError)
    store.close()
    assert isinstance(store.closed_by, FencedError)


def test_an_engine_opened_for_reading_refuses_to_write(path):
    LmdbEngine.open(path).close()
    engine = LmdbEngine.open(path, readonly=True)
    for call in (lambda: engine.write([Batch(entries=[(A, 1, ENTRY)])]), engine.probe):
        with pytest.raises(OplogError, match="reading only"):
            call()
    engine.close()
