"""The checkpoint and the index rows of a worker are those of a fold over its whole oplog."""

import random
import threading

import pytest
import trio

from executor.durable.retry import TransientError
from executor.errors import GuestError
from executor.host.embedder import host_function
from executor.services.promises import VALUE_BYTES_MAX, PromiseId, PromiseRow, encode_row
from executor.worker.rows import (
    SORTABLE_NAME_BYTES_MAX,
    WorkerRows,
    delete_rows,
    read_queue,
    read_status,
    sortable_name,
)
from executor.worker.status import Status, request_digest
from oplog.codec import encode_entry, encode_value
from oplog.engine import TABLES, Batch, Row
from oplog.entry import (
    Create,
    End,
    Error,
    Exited,
    Failure,
    InvocationFinished,
    InvocationStarted,
    Jump,
    Log,
    Outcome,
    PendingInvocation,
    Raw,
    Region,
    Revert,
    Start,
)
from oplog.errors import OplogCorruptError
from oplog.memory_engine import MemoryEngine
from oplog.payload import split_payloads
from oplog.store import Store
from tests.support.executors import LastingEngine, check_rows, fold_reverted, opened
from tests.support.programs import RELAY, Bank

WORKER_ID = bytes(range(16))
AT = 1_700_000_000_000_000_000


class Life:
    """Random entries in an order that a worker can write."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.waiting = []
        self.current = ""
        self.open = 0
        self.over = False
        self.count = 0
        self.started = 0

    def entry(self, index):
        self.count += 1
        if index == 1:
            return Create(at=AT, name="shop/ann", component="shop", env={"A": "1"})
        kind = self.random.random()
        if kind < 0.2 or (not self.current and not self.waiting and not self.over):
            key = f"key-{self.count}"
            self.waiting.append(key)
            arguments = Raw(encode_value([self.count]))
            return PendingInvocation(at=AT, key=key, function="f", arguments=arguments)
        if self.over:
            return Log(at=AT, level="stdout", text="late")
        if not self.current:
            self.current = self.waiting.pop(0)
            self.started = index
            return InvocationStarted(at=AT, key=self.current, function="f")
        return self.within(index, kind)

    def within(self, index, kind):
        if self.open:
            if kind < 0.5:
                retry_at = AT + index if kind < 0.4 else None
                return Error(
                    at=AT, retry_from=self.open, kind="guest-error", details="no", retry_at=retry_at
                )
            start, self.open = self.open, 0
            return End(at=AT, start_index=start, response=Raw(b"\x01"))
        if kind < 0.5:
            self.open = index
            return Start(at=AT, function="h", function_type="read-remote", request=Raw(b"\x90"))
        if kind < 0.7:
            return Log(at=AT, level="stderr", text="line")
        if kind < 0.75:
            region = Region(max(self.started + 1, index - 2), index)
            return self.random.choice([Jump, Revert])(at=AT, region=region)
        self.current = ""
        self.over = kind > 0.96
        return InvocationFinished(at=AT, outcome=self.outcome(kind))

    def outcome(self, kind):
        if not self.over:
            return Outcome(result=Raw(b"\x07"))
        if kind > 0.98:
            return Outcome(exit=3)
        return Outcome(failure=Failure(kind="guest-trap", message="unreachable"))


FOLDED = (Start, End, Log)
"""What a session appends by itself; the rows hear of it by the writer's index only."""


class Written:
    """The rows as a worker uses them: some entries it folds, some it only counts."""

    def __init__(self, engine):
        self.store = Store(LastingEngine(engine))
        self.engine = engine
        self.history = []
        self.attach()

    def attach(self):
        status = read_status(self.engine, WORKER_ID) or Status(name="shop/ann")
        queue = read_queue(self.engine, WORKER_ID)
        self.rows = WorkerRows(WORKER_ID, status, queue)
        self.writer = self.store.writer(WORKER_ID, status.last_index, self.take)

    def take(self):
        self.rows.absorb(self.writer.last_index)
        return self.rows.take(self.writer.committed_index)

    def append(self, entry):
        with self.writer.lock:
            index = self.writer.append(entry)
            self.history.append((index, entry))
            if isinstance(entry, FOLDED):
                if isinstance(entry, Log) and self.rows.status.current is not None:
                    self.rows.status.current.logs = True
            elif isinstance(entry, Revert):
                self.rows.absorb(index - 1)
                self.rows.revert(fold_reverted(self.history))
            else:
                self.rows.absorb(index - 1)
                self.rows.apply(index, entry)

    def commit(self):
        done = threading.Event()
        errors = []
        self.writer.commit(lambda error: (errors.append(error), done.set()))
        assert done.wait(10)
        assert errors == [None]


@pytest.mark.parametrize("seed", range(40))
def test_after_every_commit_the_rows_are_those_of_the_whole_oplog(seed):
    print(f"seed {seed}")
    chosen = random.Random(seed)
    engine = MemoryEngine()
    written = Written(engine)
    life = Life(seed)
    for index in range(1, 120):
        written.append(life.entry(index))
        if index == 1 or chosen.random() < 0.4:
            written.commit()
            status = check_rows(engine, WORKER_ID)
            assert status.last_index == index
            if chosen.random() < 0.2:
                written.attach()  # as after the death of a process
    written.store.close()


@pytest.mark.parametrize("seed", range(20))
def test_no_row_of_a_deleted_worker_is_left(seed):
    print(f"seed {seed}")
    chosen = random.Random(seed)
    engine = MemoryEngine()
    written = Written(engine)
    life = Life(seed)
    for index in range(1, chosen.randrange(3, 80)):
        written.append(life.entry(index))
        if index == 1 or chosen.random() < 0.4:
            written.commit()
            if chosen.random() < 0.2:
                written.attach()
    written.commit()
    rows = delete_rows(engine, WORKER_ID, read_status(engine, WORKER_ID))
    assert engine.write([Batch(rows=rows, deletes=(WORKER_ID,))]) == [None]
    assert {table: engine.read_rows(table) for table in TABLES if engine.read_rows(table)} == {}
    written.store.close()


def test_a_worker_with_large_promises_is_deleted_without_reading_them_all_together():
    engine = MemoryEngine()
    value = bytes(VALUE_BYTES_MAX)
    row = encode_row(PromiseRow(created_at=1, completed_at=2, value=value))
    keys = [PromiseId(WORKER_ID, index).row_key for index in range(1, 100)]
    assert engine.write([Batch(rows=[Row("promises", key, row) for key in keys])]) == [None]
    pages = []
    read_rows = engine.read_rows

    def read(*arguments, **more):
        pages.append(read_rows(*arguments, **more))
        return pages[-1]

    engine.read_rows = read
    gone = delete_rows(engine, WORKER_ID, Status(name="c/w"))
    assert [row.key for row in gone if row.table == "promises"] == keys
    assert max(sum(len(value) for _, value in page) for page in pages) < 40 * VALUE_BYTES_MAX


def test_large_arguments_behind_the_checkpoint_are_folded_as_they_were_accepted():
    engine = MemoryEngine()
    written = Written(engine)
    written.append(Create(at=AT, name="shop/ann", component="shop"))
    written.commit()
    arguments = Raw(encode_value(["x" * 100_000]))
    started = InvocationStarted(at=AT, key="k", function="f", arguments=arguments)
    short, payloads = split_payloads(started)
    assert len(encode_entry(short)) < 1_000
    batch = Batch(entries=[(WORKER_ID, 2, encode_entry(short))], payloads=payloads)
    assert engine.write([batch]) == [None]
    status = read_status(engine, WORKER_ID)
    assert (status.last_index, status.current.key) == (2, "k")
    assert status.current.digest == request_digest("f", arguments)
    written.store.close()


def test_a_damaged_entry_behind_the_checkpoint_is_named():
    engine = MemoryEngine()
    written = Written(engine)
    written.append(Create(at=AT, name="shop/ann", component="shop"))
    written.commit()
    assert engine.write([Batch(entries=[(WORKER_ID, 2, b"\x81\xa1t")])]) == [None]
    with pytest.raises(OplogCorruptError, match=f"worker {WORKER_ID.hex()}: entry 2 is damaged"):
        read_status(engine, WORKER_ID)
    written.store.close()


def test_a_long_run_without_a_fold_still_moves_the_checkpoint():
    engine = MemoryEngine()
    written = Written(engine)
    written.append(Create(at=AT, name="shop/ann", component="shop"))
    written.append(PendingInvocation(at=AT, key="k", function="f"))
    written.append(InvocationStarted(at=AT, key="k", function="f"))
    for _ in range(2_500):
        start = Start(at=AT, function="h", function_type="read-local", request=Raw(b"\x90"))
        written.append(start)
        written.append(End(at=AT, start_index=written.writer.last_index, response=Raw(b"\x01")))
        if written.writer.last_index % 40 == 0:
            written.commit()
    written.commit()
    status = check_rows(engine, WORKER_ID)
    assert (status.last_index, status.state) == (5_003, "running")
    written.store.close()


def test_rows_of_a_real_run_with_retries_are_right_after_every_commit():
    failures = [TransientError("busy"), TransientError("busy"), None, ValueError("never")]

    @host_function("demo:relay/peer", "call: func(text: string) -> result<string, string>")
    async def call(call, text):
        failure = failures.pop(0)
        if failure is not None:
            raise failure
        return Bank()._call(call, text)

    engine = LastingEngine()

    async def retried():
        with trio.fail_after(30):
            async with opened(engine, host=[call]) as shem:
                await shem.deploy(RELAY, name="relay")
                await shem.invoke("relay/w", "relay", ["a"], key="k1")
                for key in ("k2", "k3"):
                    await shem.submit("relay/w", "relay", ["b"], key=key, run=False)
                with pytest.raises(GuestError, match="ValueError: never"):
                    await shem.invoke("relay/w", "relay", ["b"], key="k2")

    trio.run(retried)
    copy = MemoryEngine()
    states = []
    for group in engine.groups:
        for batch in group:
            assert copy.write([batch]) == [None]
            workers = {worker_id for worker_id, _, _ in batch.entries}
            states += [check_rows(copy, worker_id).state for worker_id in workers]
    assert {"running", "retrying", "failed"} <= set(states)
    assert states[-1] == "failed"


def test_a_long_name_is_cut_where_it_no_longer_orders_and_stays_its_own():
    short = "a" * SORTABLE_NAME_BYTES_MAX
    names = [short, short + "b", short + "c", "é" * 256]
    keys = [sortable_name(name) for name in names]
    assert len(set(keys)) == len(names)
    assert keys[0] == short.encode()
    assert all(len(key) <= SORTABLE_NAME_BYTES_MAX + 16 for key in keys)
    assert sorted(["b", "a", "a/b"], key=sortable_name) == ["a", "a/b", "b"]


def test_the_exit_hint_alone_does_not_end_a_worker():
    engine = MemoryEngine()
    written = Written(engine)
    written.append(Create(at=AT, name="shop/ann", component="shop"))
    written.append(PendingInvocation(at=AT, key="k", function="f"))
    written.append(InvocationStarted(at=AT, key="k", function="f"))
    written.append(Exited(at=AT, code=3))
    written.commit()
    assert check_rows(engine, WORKER_ID).state == "running"
    written.append(InvocationFinished(at=AT, outcome=Outcome(exit=3)))
    written.commit()
    assert check_rows(engine, WORKER_ID).state == "exited"
    written.store.close()
