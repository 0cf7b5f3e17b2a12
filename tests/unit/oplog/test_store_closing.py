import os
import threading
import time

import pytest

from oplog.engine import Batch
from oplog.entry import NoOp
from oplog.errors import OplogError
from oplog.memory_engine import MemoryEngine
from oplog.store import Store, Writer
from tests.support.engines import Heard, Hold, committed, log_of

ENTRY = NoOp(at=1)
MIB = 1 << 20


def test_closing_commits_what_was_asked_for_and_closes_the_engine(engine):
    hold = engine.on_write = Hold()
    store = Store(engine)
    writers = [store.writer(os.urandom(16), 0) for _ in range(3)]
    heard = [Heard() for _ in writers]
    for writer, one in zip(writers, heard, strict=True):
        writer.append(ENTRY)
        writer.commit(one)
    closer = threading.Thread(target=store.close)
    closer.start()
    hold.go.set()
    closer.join(30)
    assert [one.wait() for one in heard] == [None] * 3
    assert engine.closed
    assert store.closed_by is None
    store.close()
    for call in (
        lambda: writers[0].append(ENTRY),
        lambda: writers[0].commit(Heard()),
        lambda: store.submit(Batch(), Heard()),
        lambda: store.writer(os.urandom(16), 0),
    ):
        with pytest.raises(OplogError, match="closed"):
            call()


def test_closing_from_a_callback_neither_waits_for_itself_nor_loses_anything(engine):
    store = Store(engine)
    writer = store.writer(os.urandom(16), 0)
    after = Heard()
    writer.append(ENTRY)
    writer.commit(lambda _: store.close())
    writer.commit(after)
    assert after.wait() is None
    store.close()
    assert engine.closed


def test_many_threads_may_close_at_once(engine):
    store = Store(engine)
    threads = [threading.Thread(target=store.close) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert engine.closed


def test_every_callback_of_a_store_that_is_closed_amid_work_is_called_once():
    store = Store(MemoryEngine())
    accepted = []

    def work():
        try:
            writer = store.writer(os.urandom(16), 0)
        except OplogError:
            return
        while True:
            heard = Heard()
            try:
                writer.append(ENTRY)
                writer.commit(heard)
            except OplogError:
                return
            accepted.append(heard)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    time.sleep(0.05)
    store.close()
    for thread in threads:
        thread.join(30)
    assert accepted
    assert {one.wait() for one in accepted} == {None}


def test_a_writer_class_of_the_caller_sees_each_append():
    class Counting(Writer):
        appended = 0

        def append(self, entry):
            index = super().append(entry)
            Counting.appended += 1
            return index

    store = Store(MemoryEngine())
    store.writer_class = Counting
    writer = store.writer(os.urandom(16), 0)
    writer.append(ENTRY)
    writer.append(log_of(99_999))
    assert committed(writer) is None
    assert Counting.appended == 2
    store.close()
