import os
import random
import threading

import pytest

from oplog.codec import encode_entry
from oplog.engine import TABLES, Batch, BatchRefusedError, Row
from oplog.entry import End, NoOp, Raw
from oplog.errors import (
    OplogBusyError,
    OplogCorruptError,
    OplogError,
)
from oplog.lmdb_engine import LmdbEngine
from oplog.payload import digest_of, split_payloads
from oplog.reader import Reader
from oplog.store import Store
from tests.support.children import start_python
from tests.support.engines import Heard, log_of, raw_environment

ENTRY = encode_entry(NoOp(at=1))
A, B = b"a" * 16, b"b" * 16


# Reading beside a writer.


def test_another_process_reads_whole_prefixes_while_this_one_writes(path):
    store = Store(LmdbEngine.open(path))
    writer = store.writer(A, 0, lambda: [Row("workers", A, b"%d" % writer.last_index)])
    first = Heard()
    writer.append(NoOp(at=1))
    writer.commit(first)
    first.wait()
    child = start_python(
        """
        import sys
        from pathlib import Path
        from oplog.lmdb_engine import LmdbEngine
        from oplog.reader import Reader
        engine = LmdbEngine.open(Path(sys.argv[1]), readonly=True)
        seen = set()
        print("open", flush=True)
        while 3000 not in seen:
            before = int(engine.read_row("workers", b"a" * 16))
            page = Reader(engine).read(b"a" * 16, 1, 5000)
            assert [entry.at for _, entry in page] == list(range(1, len(page) + 1))
            assert before <= len(page) <= int(engine.read_row("workers", b"a" * 16))
            seen.add(len(page))
        print(len(seen))
        """,
        path,
    )
    assert child.stdout.readline() == "open\n"
    for at in range(2, 3001):
        writer.append(NoOp(at=at))
        if at % 10 == 0:
            heard = Heard()
            writer.commit(heard)
            assert heard.wait() is None
    out, err = child.communicate(timeout=60)
    assert child.returncode == 0, err
    assert int(out) > 1
    store.close()


def test_a_reader_opens_a_store_that_nobody_runs_even_after_a_kill(path):
    child = start_python(
        """
        import os, signal, sys
        from pathlib import Path
        from oplog.engine import Batch
        from oplog.lmdb_engine import LmdbEngine
        engine = LmdbEngine.open(Path(sys.argv[1]))
        assert engine.write([Batch(entries=[(b"a" * 16, 1, b"\\x80")])]) == [None]
        os.kill(os.getpid(), signal.SIGKILL)
        """,
        path,
    )
    child.communicate()
    engine = LmdbEngine.open(path, readonly=True)
    assert engine.read_entries(A, 1, 9) == [(1, b"\x80")]
    engine.close()


READING = """
    import sys
    import lmdb

    environment = lmdb.open(sys.argv[1], max_dbs=64, map_size=1 << 30)
    held = []
    try:
        while len(held) < int(sys.argv[2]):
            held.append(environment.begin())
    except lmdb.ReadersFullError:
        pass
    print(len(held), flush=True)
    sys.stdin.read()
"""


def test_a_reader_that_was_killed_while_it_read_does_not_make_the_store_grow_for_good(path):
    engine = LmdbEngine.open(path)

    def rewrite(times):
        for _ in range(times):
            content = os.urandom(1 << 20)
            assert engine.write([Batch(rows=[Row("promises", b"large", content)])]) == [None]
        return (path / "data.mdb").stat().st_size

    rewrite(5)
    reading = start_python(READING, path, 1)
    try:
        assert reading.stdout.readline() == "1\n"
        before = rewrite(3)
    finally:
        reading.kill()
        reading.communicate()
    assert rewrite(40) < before + (10 << 20)
    engine.close()


def test_when_every_place_for_readers_is_taken_it_is_said_and_afterwards_one_can_read(path):
    engine = LmdbEngine.open(path)
    reading = start_python(READING, path, 10_000)
    try:
        assert int(reading.stdout.readline()) > 1_000
        with pytest.raises(OplogBusyError, match="too many readers"):
            engine.read_row("promises", b"k")
        assert engine.write([Batch(rows=[Row("promises", b"k", b"v")])]) == [None]
    finally:
        reading.kill()
        reading.communicate()
    assert engine.write([Batch(rows=[Row("promises", b"more", bytes(1 << 20))])]) == [None]
    assert engine.read_row("promises", b"k") == b"v"
    engine.close()


def test_closing_waits_for_the_reads_of_other_threads(path):
    engine = LmdbEngine.open(path)
    engine.write([Batch(entries=[(A, i, encode_entry(log_of(2000))) for i in range(1, 3001)])])
    errors = []

    def read():
        try:
            while True:
                assert len(engine.read_entries(A, 1, 3000)) == 3000
        except OplogError as error:
            errors.append(str(error))

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    engine.close()
    for thread in threads:
        thread.join(30)
    assert errors == [f"the store at {path} is closed"] * 3


# Damage.


def test_a_damaged_entry_is_named_by_worker_and_index(path):
    engine = LmdbEngine.open(path)
    engine.write([Batch(entries=[(A, 1, ENTRY), (A, 2, b"\x81\xa1t"), (A, 3, ENTRY)])])
    assert len(Reader(engine).read(A, 1, 1)) == 1
    with pytest.raises(OplogCorruptError, match=f"worker {A.hex()}: entry 2 is damaged"):
        Reader(engine).read(A, 1, 10)
    engine.close()


def test_a_missing_entry_is_noticed(path):
    engine = LmdbEngine.open(path)
    engine.write([Batch(entries=[(w, i, ENTRY) for w in (A, B) for i in range(1, 6)])])
    engine.close()
    with raw_environment(path) as environment, environment.begin(write=True) as transaction:
        oplog = environment.open_db(b"oplog", txn=transaction)
        assert transaction.delete(A + (3).to_bytes(8, "big"), db=oplog)
    engine = LmdbEngine.open(path)
    with pytest.raises(OplogCorruptError, match=f"worker {A.hex()}: an entry is missing"):
        engine.read_entries(A, 1, 10)
    with pytest.raises(OplogCorruptError, match="missing between 3 and 5"):
        engine.read_entries(A, 3, 10)
    assert len(engine.read_entries(B, 1, 10)) == 5
    engine.close()


def test_a_key_that_is_damaged_is_told_and_nothing_else_fails(path):
    engine = LmdbEngine.open(path)
    assert engine.write([Batch(entries=[(A, 1, ENTRY)])]) == [None]
    engine.close()
    with raw_environment(path) as environment:
        oplog = environment.open_db(b"oplog")
        with environment.begin(write=True) as transaction:
            transaction.put(B + b"short", ENTRY, db=oplog)
    engine = LmdbEngine.open(path)
    assert engine.last_index(A) == 1
    with pytest.raises(
        OplogCorruptError, match=f"the oplog of worker {B.hex()} is damaged: the key"
    ):
        engine.last_index(B)
    engine.close()


def test_a_damaged_payload_is_not_handed_out(path):
    content = bytes(70_000)
    short, payloads = split_payloads(End(at=1, start_index=1, response=Raw(content)))
    engine = LmdbEngine.open(path)
    batch = Batch(entries=[(A, 1, encode_entry(short))], payloads=payloads)
    assert engine.write([batch]) == [None]
    assert engine.read_payload(digest_of(content)) == content
    engine.close()
    with raw_environment(path) as environment, environment.begin(write=True) as transaction:
        payloads_db = environment.open_db(b"payloads", txn=transaction)
        transaction.put(digest_of(content), content[:-1] + b"\x01", db=payloads_db)
    engine = LmdbEngine.open(path)
    with pytest.raises(OplogCorruptError, match="is damaged"):
        engine.read_payload(digest_of(content))
    with pytest.raises(OplogCorruptError, match="not in the store"):
        engine.read_payload(bytes(32))
    engine.close()


# Payloads.


def counts(path):
    with raw_environment(path) as environment, environment.begin() as transaction:
        database = environment.open_db(b"payload_counts", txn=transaction, create=False)
        return {
            key: int.from_bytes(value, "big") for key, value in transaction.cursor(database)
        }, transaction.stat(environment.open_db(b"payloads", txn=transaction, create=False))[
            "entries"
        ]


def test_a_payload_lives_as_long_as_an_entry_refers_to_it(path):
    content = bytes(70_000)
    short, payloads = split_payloads(End(at=1, start_index=1, response=Raw(content)))
    entry, digest = encode_entry(short), digest_of(content)
    engine = LmdbEngine.open(path)
    steps = [
        (Batch(entries=[(A, 1, entry), (A, 2, entry)], payloads=payloads), 2),
        (Batch(entries=[(B, 1, entry)]), 3),
        (Batch(deletes=[A]), 1),
        (Batch(deletes=[B]), 0),
        (Batch(entries=[(A, 1, entry)], payloads=payloads), 1),
        (Batch(entries=[(B, 1, entry)], payloads=payloads, deletes=[A]), 1),
    ]
    for batch, count in steps:
        assert engine.write([batch]) == [None]
        engine.close()
        assert counts(path) == (({digest: count}, 1) if count else ({}, 0))
        engine = LmdbEngine.open(path)
    engine.close()


def test_an_entry_whose_payload_is_not_there_is_refused(path):
    short, _ = split_payloads(End(at=1, start_index=1, response=Raw(bytes(70_000))))
    engine = LmdbEngine.open(path)
    (error,) = engine.write([Batch(entries=[(A, 1, encode_entry(short))])])
    assert isinstance(error, BatchRefusedError)
    assert engine.last_index(A) == 0
    engine.close()


def test_a_worker_with_a_damaged_entry_can_be_deleted(path):
    engine = LmdbEngine.open(path)
    engine.write([Batch(entries=[(A, 1, ENTRY), (A, 2, ENTRY)])])
    engine.close()
    with raw_environment(path) as environment, environment.begin(write=True) as transaction:
        oplog = environment.open_db(b"oplog", txn=transaction)
        transaction.put(A + (2).to_bytes(8, "big"), b"\xc1\xc7\x20\x01", db=oplog)
    engine = LmdbEngine.open(path)
    assert engine.write([Batch(deletes=[A])]) == [None]
    assert engine.last_index(A) == 0
    engine.close()


# Kills.

WRITE_UNTIL_KILLED = """
    import os, sys, threading
    from pathlib import Path
    from oplog.engine import Row
    from oplog.entry import Log, NoOp
    from oplog.lmdb_engine import LmdbEngine
    from oplog.store import Store
    store = Store(LmdbEngine.open(Path(sys.argv[1])))

    def work(number):
        worker_id = bytes([number]) * 16
        writer = store.writer(
            worker_id, store.engine.last_index(worker_id),
            lambda: [Row("workers", worker_id, b"%d" % writer.last_index)],
        )
        def acknowledge(index, error):
            assert error is None
            os.write(1, b"%d %d\\n" % (number, index))
        while True:
            for size in (1, 3, 500, 80_000, 2):
                index = writer.append(Log(at=writer.last_index + 1, level="l", text="x" * size))
                if size != 3:
                    writer.commit(lambda error, index=index: acknowledge(index, error))
            threading.Event().wait(0.0005 * number)

    for number in range(1, 5):
        threading.Thread(target=work, args=(number,), daemon=True).start()
    threading.Event().wait()
"""


def test_after_sigkill_at_any_instant_every_acknowledged_entry_is_there(path):
    seed = int.from_bytes(os.urandom(4), "big")
    print(f"seed {seed}")
    delays = random.Random(seed)
    acknowledged = dict.fromkeys(range(1, 5), 0)
    for _ in range(5):
        child = start_python(WRITE_UNTIL_KILLED, path)
        first = child.stdout.readline()  # a loaded machine starts it late
        threading.Timer(0.1 + delays.random() * 0.4, child.kill).start()
        out = first + child.stdout.read()
        _, err = child.communicate()
        assert child.returncode == -9, err
        for line in out.split("\n")[:-1]:
            number, index = map(int, line.split())
            acknowledged[number] = max(acknowledged[number], index)
        engine = LmdbEngine.open(path, readonly=True)
        for number, index in acknowledged.items():
            worker_id = bytes([number]) * 16
            last = engine.last_index(worker_id)
            assert last >= index
            assert int(engine.read_row("workers", worker_id) or b"0") == last
            read = 0
            while page := Reader(engine).read(worker_id, read + 1, 512):
                assert [entry.at for _, entry in page] == [index for index, _ in page]
                read += len(page)
            assert read == last
        engine.close()
    assert min(acknowledged.values()) > 10


def test_tables_are_the_databases_of_the_file(path):
    LmdbEngine.open(path).close()
    with raw_environment(path) as environment, environment.begin() as transaction:
        names = {key.decode() for key, _ in transaction.cursor()}
    assert names == {*TABLES, "oplog", "payloads", "payload_counts"}
