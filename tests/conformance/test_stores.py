"""Every engine behaves the same, and as the model of the step machine says."""

import random

import pytest

from oplog.codec import encode_entry
from oplog.engine import Batch, Row, RowChangedError
from oplog.entry import NoOp
from oplog.lmdb_engine import LmdbEngine
from oplog.memory_engine import MemoryEngine
from oplog.store import Store
from tests.support.step_machine import StepMachine

SEEDS = [1, 2, 3, random.SystemRandom().randrange(1 << 32)]


@pytest.mark.parametrize("seed", SEEDS)
def test_stores_take_the_same_steps_with_the_same_outcome(tmp_path, seed):
    print(f"seed {seed}")
    stores = [Store(MemoryEngine()), Store(LmdbEngine.open(tmp_path / "store"))]
    machine = StepMachine(stores, seed)
    machine.run(400)
    for store in stores:
        store.close()
    assert len(machine.steps_taken) >= 11, machine.steps_taken


@pytest.mark.parametrize("seed", SEEDS)
def test_what_was_durable_is_there_after_the_store_is_opened_again(tmp_path, seed):
    print(f"seed {seed}")
    memory = Store(MemoryEngine())
    store = Store(LmdbEngine.open(tmp_path / "store"))
    machine = StepMachine([memory, store], seed)
    for _ in range(4):
        machine.run(60)
        store.close()
        store = machine.sides[1].store = Store(LmdbEngine.open(tmp_path / "store"))
        for worker_id in list(machine.entries):
            machine.lose_buffer(worker_id)
            machine.open_writers(worker_id)
        machine.compare()
    memory.close()
    store.close()


@pytest.fixture(params=["memory", "lmdb"])
def engine(request, tmp_path):
    engine = MemoryEngine() if request.param == "memory" else LmdbEngine.open(tmp_path / "store")
    yield engine
    engine.close()


def test_one_write_answers_each_of_its_batches(engine):
    entry = encode_entry(NoOp(at=1))
    a, b, c = (bytes([n]) * 16 for n in range(3))
    results = engine.write(
        [
            Batch(entries=[(a, 1, entry)]),
            Batch(entries=[(b, 2, entry)]),
            Batch(entries=[(c, 1, entry), (c, 2, entry)]),
        ]
    )
    assert [type(result).__name__ for result in results] == [
        "NoneType",
        "BatchRefusedError",
        "NoneType",
    ]
    assert [engine.last_index(worker_id) for worker_id in (a, b, c)] == [1, 0, 2]


def test_pages_at_the_edges_of_an_oplog_are_empty_or_short(engine):
    entry = encode_entry(NoOp(at=1))
    a, b = b"\xff" * 16, b"\xfe" * 16
    engine.write([Batch(entries=[(w, i, entry) for w in (a, b) for i in (1, 2, 3)])])
    for worker_id in (a, b):
        assert engine.read_entries(worker_id, 3, 10) == [(3, entry)]
        assert engine.read_entries(worker_id, 4, 10) == []
        assert engine.read_entries(worker_id, 1, 0) == []
        assert engine.read_entries(worker_id, -5, 2) == [(1, entry), (2, entry)]
    assert engine.read_entries(b"\x00" * 16, 1, 10) == []


def test_a_closed_engine_refuses_every_call(engine):
    engine.close()
    engine.close()
    for call in (
        lambda: engine.write([Batch()]),
        lambda: engine.read_entries(bytes(16), 1, 1),
        lambda: engine.last_index(bytes(16)),
        lambda: engine.read_row("meta", b"k"),
        lambda: engine.read_rows("meta"),
        lambda: engine.read_payload(bytes(32)),
        engine.probe,
    ):
        with pytest.raises(Exception, match="closed"):
            call()


def test_a_probe_leaves_nothing_behind(engine):
    before = engine.read_rows("meta")
    engine.probe()
    assert engine.read_rows("meta") == before


def test_of_two_that_expect_the_same_row_in_one_write_the_first_wins(engine):
    engine.write([Batch(rows=[Row("promises", b"p", b"pending")])])
    expects = [Row("promises", b"p", b"pending")]
    results = engine.write(
        [Batch(rows=[Row("promises", b"p", b"%d" % n)], expects=expects) for n in range(3)]
    )
    assert [type(result) for result in results] == [type(None), *[RowChangedError] * 2]
    assert engine.read_row("promises", b"p") == b"0"
