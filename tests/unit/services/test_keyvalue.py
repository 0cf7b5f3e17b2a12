"""Key-value buckets against a model, with names of every kind; writes that are repeated or meet."""

import random
import threading
from collections import Counter
from itertools import count

import pytest
import trio
import trio.lowlevel

from executor.services.environment import Caller, Refused, StoreLimits, name_key
from executor.services.writing import Written
from oplog.engine import TABLES, Batch, Row
from oplog.errors import OplogCorruptError
from oplog.memory_engine import MemoryEngine
from tests.support.stores import memory_stores, written_at_once

SEEDS = [1, 2, random.SystemRandom().randrange(1 << 32)]
CALLS = count(1)


def caller(worker=b"w" * 16, key=None):
    return Caller(worker_id=worker, worker="c/w", key=key or f"call-{next(CALLS)}")


def run(call, *arguments):
    return trio.run(call, *arguments)


def drawn_name(rng):
    kind = rng.randrange(5)
    if kind == 0:
        return rng.choice(["", "a", "b", "ab", "\0", "\0n", "u", "w" * 17, "default"])
    length = rng.choice([1, 3, 17, 100])
    alphabet = rng.choice(["a\0", "ab\U0001f71a", "nvbuw"])
    name = "".join(rng.choice(alphabet) for _ in range(length))
    if kind == 1:
        return "x" * 400 + name[:100]  # differs only where a row's key is cut
    return name


@pytest.mark.parametrize("seed", SEEDS)
def test_buckets_hold_what_a_dictionary_of_dictionaries_would(seed):
    print(f"seed {seed}")
    rng = random.Random(seed)
    engine = MemoryEngine()
    stores = memory_stores(engine)
    keyvalue = stores.keyvalue
    names = [drawn_name(rng) for _ in range(30)]
    buckets = [drawn_name(rng) for _ in range(4)]
    model = {}

    def held(bucket):
        return model.setdefault(bucket, {})

    async def steps():
        for _ in range(600):
            bucket, key = rng.choice(buckets), rng.choice(names)
            match rng.randrange(4):
                case 0:
                    values = {rng.choice(names): rng.randbytes(rng.randrange(9)) for _ in "123"}
                    await keyvalue.set_many(caller(), bucket, values)
                    held(bucket).update(values)
                case 1:
                    gone = [key, rng.choice(names)]
                    await keyvalue.delete_many(caller(), bucket, gone)
                    for one in gone:
                        held(bucket).pop(one, None)
                case 2:
                    seen = keyvalue.see(bucket, key)
                    assert seen.value == held(bucket).get(key)
                    stale = rng.random() < 0.3
                    version = b"another" if stale else seen.version
                    value = rng.randbytes(3)
                    assert await keyvalue.swap(caller(), bucket, key, value, version) is not stale
                    if not stale:
                        held(bucket)[key] = value
                case _:
                    check(bucket, key)

    def check(bucket, key):
        assert keyvalue.get(bucket, key) == held(bucket).get(key)
        assert keyvalue.exists(bucket, key) == (key in held(bucket))
        assert keyvalue.all_keys(bucket) == sorted(
            held(bucket), key=lambda name: name_key(name.encode())
        )
        listed, after = [], None
        while True:
            page = keyvalue.list_keys(bucket, after, 7)
            listed += page.keys
            if not page.more:
                break
            after = page.keys[-1]
        assert listed == keyvalue.all_keys(bucket)

    run(steps)
    for bucket in buckets:
        for key in names:
            check(bucket, key)
    sizes = sum(
        len(key.encode()) + len(value) for keys in model.values() for key, value in keys.items()
    )
    assert keyvalue.environment.used_bytes == sizes
    assert {table for table in TABLES if engine.read_rows(table)} <= {"keyvalue"}


def test_a_write_that_is_repeated_does_not_undo_what_others_wrote_since():
    keyvalue = memory_stores().keyvalue
    mine = caller(b"a" * 16, "once")
    run(keyvalue.set_many, mine, "b", {"k": b"1"})
    run(keyvalue.set_many, caller(b"b" * 16), "b", {"k": b"2"})
    run(keyvalue.set_many, mine, "b", {"k": b"1"})
    assert keyvalue.get("b", "k") == b"2"


def test_a_repeated_write_hears_what_it_heard():
    keyvalue = memory_stores().keyvalue

    def add(number):
        return (number or 0) + 5

    def increment(key):
        request = ["increment", 5]
        return run(keyvalue.change_number, caller(key=key), "b", "n", request, add)

    assert [increment("one"), increment("one"), increment("two")] == [5, 5, 10]
    swap = caller(key="three")
    assert run(keyvalue.swap, swap, "b", "n", b"x", b"stale") is False
    assert run(keyvalue.swap, swap, "b", "n", b"x", b"stale") is False


def test_another_write_under_the_same_key_is_another_write():
    """In an atomic region that runs again keys are given again, in their order."""
    keyvalue = memory_stores().keyvalue
    run(keyvalue.set_many, caller(key="k"), "b", {"a": b"1"})
    run(keyvalue.set_many, caller(key="k"), "b", {"a": b"2"})
    assert keyvalue.get("b", "a") == b"2"
    run(keyvalue.delete_many, caller(key="k"), "b", ["a"])
    assert keyvalue.get("b", "a") is None


def test_increments_of_many_workers_that_meet_are_all_counted():
    engine = MemoryEngine()
    at_once = written_at_once(engine)
    refused = []

    async def slow(batch, where):
        await trio.lowlevel.checkpoint()  # others read what is to be replaced
        written = await at_once(batch, where)
        refused.append(written is Written.CHANGED)
        return written

    keyvalue = memory_stores(engine, write=slow).keyvalue

    async def main():
        async with trio.open_nursery() as nursery:
            for number in range(20):
                by = caller(number.to_bytes(16))
                change = keyvalue.change_number
                nursery.start_soon(change, by, "b", "n", ["+"], lambda n: (n or 0) + 1)

    trio.run(main)
    assert keyvalue.get("b", "n") == b"20"
    assert any(refused)


def test_what_is_read_is_one_version_whole():
    """A value and its version are two rows; a write may come between."""
    engine = MemoryEngine()
    keyvalue = memory_stores(engine).keyvalue
    run(keyvalue.set_many, caller(), "b", {"k": b"1"})
    read_row = engine.read_row
    reads = []

    def between(table, key):
        found = read_row(table, key)
        reads.append(key[:1])
        if reads == [b"n"]:
            run(keyvalue.set_many, caller(), "b", {"k": b"2"})
        return found

    engine.read_row = between
    seen = keyvalue.see("b", "k")
    assert seen.value == b"2"
    assert run(keyvalue.swap, caller(), "b", "k", b"3", seen.version) is True


@pytest.mark.parametrize(
    "ask",
    [
        lambda kv: kv.get("b" * 1_025, "k"),
        lambda kv: kv.get("b", "k" * 1_025),
        lambda kv: kv.list_keys("b", "k" * 1_025),
        lambda kv: kv.get_many("b", ["k"] * 4),
        lambda kv: run(kv.set_many, caller(), "b", {str(n): b"" for n in range(4)}),
        lambda kv: run(kv.set_many, caller(), "b", {"1": bytes(20), "2": bytes(20)}),
        lambda kv: run(kv.delete_many, caller(), "b", ["k"] * 4),
    ],
)
def test_what_is_too_long_too_many_or_too_much_is_refused(ask):
    limits = StoreLimits(keys_max=3, batch_bytes_max=30)
    engine = MemoryEngine()
    keyvalue = memory_stores(engine, limits).keyvalue
    with pytest.raises(Refused, match="at most"):
        ask(keyvalue)
    assert engine.read_rows("keyvalue") == []


def test_too_many_keys_for_one_answer_are_refused():
    keyvalue = memory_stores(limits=StoreLimits(keys_max=3)).keyvalue
    for number in range(4):
        run(keyvalue.set_many, caller(), "b", {str(number): b""})
    with pytest.raises(Refused, match="more than 3 keys"):
        keyvalue.all_keys("b")


def test_a_damaged_row_is_named():
    engine = MemoryEngine()
    keyvalue = memory_stores(engine).keyvalue
    run(keyvalue.set_many, caller(), "b", {"k": b"1"})
    [(key, _)] = engine.read_rows("keyvalue", b"n")
    engine.write([Batch(rows=[Row("keyvalue", key, b"\xc1")])])
    with pytest.raises(OplogCorruptError, match="damaged"):
        keyvalue.see("b", "k")


class ReadOn(MemoryEngine):
    """Keeps how many rows each thread has read."""

    def __init__(self):
        super().__init__()
        self.reads = Counter()

    def read_row(self, table, key):
        self.reads[threading.get_ident()] += 1
        return super().read_row(table, key)


@pytest.mark.parametrize("kind", ["set", "delete", "delete objects"])
def test_the_rows_of_many_keys_are_not_read_on_the_trio_thread(kind):
    engine = ReadOn()
    stores = memory_stores(engine)
    keys = [f"key-{number}" for number in range(5_000)]

    async def steps():
        match kind:
            case "set":
                await stores.keyvalue.set_many(caller(), "b", dict.fromkeys(keys, b"1"))
            case "delete":
                await stores.keyvalue.delete_many(caller(), "b", keys)
            case _:
                await stores.blobs.create_container(caller(), "b")
                await stores.blobs.delete_objects(caller(), "b", keys)

    run(steps)
    here = engine.reads.pop(threading.get_ident())
    assert here < 20
    assert sum(engine.reads.values()) >= len(keys)
