"""Blob containers against a model; garbage, and what is read while it is taken away."""

import random
from hashlib import blake2b
from itertools import count

import pytest
import trio

from executor.errors import StoreError
from executor.services.blob_garbage import PIECE_BYTES
from executor.services.blobs import Blobs
from executor.services.environment import MIB, Caller, Refused, StoreLimits, name_key
from executor.services.writing import Written
from oplog.engine import TABLES
from oplog.memory_engine import MemoryEngine
from tests.support.stores import memory_stores, written_at_once

SEEDS = [1, 2, random.SystemRandom().randrange(1 << 32)]
SIZES = [0, 1, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES]
CALLS = count(1)


class Bytes:
    """A source in memory."""

    def __init__(self, content):
        self.content = content
        self.size = len(content)
        self.digest = blake2b(content).digest()

    async def read(self, start, count):
        return self.content[start : start + count]


def caller(worker=b"w" * 16, key=None):
    return Caller(worker_id=worker, worker="c/w", key=key or f"call-{next(CALLS)}")


def run(call, *arguments):
    return trio.run(call, *arguments)


def content_of(blobs, container, name):
    found, pin = blobs.open(container, name)
    return blobs.read(pin.content, 0, found.size)


def rows(engine, kind):
    return engine.read_rows("blobs", prefix=kind, limit=100_000)


@pytest.fixture
def engine():
    return MemoryEngine()


@pytest.fixture
def blobs(engine):
    found = memory_stores(engine).blobs
    run(found.create_container, caller(), "c")
    return found


class Model:
    """What the containers hold, in dictionaries."""

    names = ("", "a", "ab", "\0", "gc", "x" * 500, "x" * 500 + "y", *"bcde")
    containers = ("", "c", "d", "\0n")

    def __init__(self, blobs, rng):
        self.blobs = blobs
        self.rng = rng
        self.held = {}

    async def steps(self, number):
        for _ in range(number):
            container, name = self.rng.choice(self.containers), self.rng.choice(self.names)
            other = self.rng.choice(self.containers), self.rng.choice(self.names)
            try:
                await self.step(container, name, other)
            except Refused:
                there = container in self.held and other[0] in self.held
                assert not there or name not in self.held[container]

    async def step(self, container, name, other):
        blobs, held = self.blobs, self.held
        match self.rng.randrange(9):
            case 0 | 1:
                await blobs.create_container(caller(), container)
                held.setdefault(container, {})
            case 2 | 3 | 4:
                content = self.rng.randbytes(self.rng.choice(SIZES))
                await blobs.write(caller(), container, name, Bytes(content))
                held[container][name] = content
            case 5:
                await blobs.delete_objects(caller(), container, [name, other[1], name])
                held[container].pop(name, None)
                held[container].pop(other[1], None)
            case 6:
                change = self.rng.choice([blobs.copy, blobs.move])
                await change(caller(), (container, name), other)
                content = held[container][name]
                if change == blobs.move:
                    del held[container][name]
                held[other[0]][other[1]] = content
            case 7:
                await self.rng.choice([blobs.clear, blobs.delete_container])(caller(), container)
                if blobs.find_container(container) is None:
                    held.pop(container, None)
                else:
                    held[container].clear()
            case _:
                await blobs.garbage.collect()

    def check(self):
        for container in self.containers:
            there = self.blobs.find_container(container) is not None
            assert there == (container in self.held)
            objects = self.held.get(container, {})
            if there:
                page = self.blobs.list_objects(container, None)
                assert page.names == sorted(objects, key=lambda name: name_key(name.encode()))
            for name, content in objects.items():
                assert content_of(self.blobs, container, name) == content

    @property
    def contents(self):
        return [content for objects in self.held.values() for content in objects.values()]

    @property
    def names_held(self):
        return [*self.held, *(name for objects in self.held.values() for name in objects)]


@pytest.mark.parametrize("seed", SEEDS)
def test_containers_hold_what_a_dictionary_of_dictionaries_would(engine, seed):
    print(f"seed {seed}")
    stores = memory_stores(engine)
    model = Model(stores.blobs, random.Random(seed))
    run(model.steps, 400)
    model.check()
    run(stores.blobs.garbage.collect)
    run(stores.blobs.garbage.collect)  # contents of the generations that went
    model.check()
    pieces = sum(-(-len(content) // PIECE_BYTES) for content in model.contents)
    assert len(rows(engine, b"p")) == pieces
    assert rows(engine, b"g") == []
    held = sum(map(len, model.contents)) + sum(len(name.encode()) for name in model.names_held)
    assert stores.keyvalue.environment.used_bytes == held
    assert {table for table in TABLES if engine.read_rows(table)} <= {"blobs", "keyvalue"}
    assert all(len(value) <= 1 << 16 for _, value in rows(engine, b""))


def test_a_large_object_is_written_a_mebibyte_at_a_time(engine):
    sizes = []
    at_once = written_at_once(engine)

    async def write(batch, where):
        sizes.append(sum(len(row.value or b"") for row in batch.rows))
        return await at_once(batch, where)

    blobs = memory_stores(engine, write=write).blobs
    run(blobs.create_container, caller(), "c")
    content = random.Random(1).randbytes(5 * MIB + 7)
    run(blobs.write, caller(), "c", "large", Bytes(content))
    assert content_of(blobs, "c", "large") == content
    assert max(sizes) <= MIB + 1_000
    assert (
        blobs.read(blobs.stored_object("c", "large").content, 2 * MIB - 3, 6)
        == content[2 * MIB - 3 : 2 * MIB + 3]
    )
    assert rows(engine, b"g") == []
    run(blobs.copy, caller(), ("c", "large"), ("c", "again"))
    assert content_of(blobs, "c", "again") == content
    assert max(sizes) <= MIB + 1_000


@pytest.mark.parametrize("lost_after", range(7))
def test_a_write_that_is_lost_leaves_the_old_object_and_no_garbage(engine, lost_after):
    """The process dies after so many of its transactions."""
    left = [10**9]
    at_once = written_at_once(engine)

    async def write(batch, where):
        if not left[0]:
            raise StoreError("the process is gone")
        left[0] -= 1
        return await at_once(batch, where)

    old, new = random.Random(1).randbytes(3 * MIB), random.Random(2).randbytes(4 * MIB)
    blobs = memory_stores(engine, write=write).blobs
    run(blobs.create_container, caller(), "c")
    run(blobs.write, caller(), "c", "o", Bytes(old))
    used = blobs._environment.used_bytes
    left[0] = lost_after
    call = caller(key="k")
    try:
        run(blobs.write, call, "c", "o", Bytes(new))
        lost = False
    except StoreError:
        lost = True
    assert lost == (lost_after < 5)
    after = memory_stores(engine).blobs
    assert content_of(after, "c", "o") == (old if lost else new)
    run(after.garbage.collect)
    assert len(rows(engine, b"p")) == -(-len(old if lost else new) // PIECE_BYTES)
    assert after._environment.used_bytes == used + (0 if lost else MIB)
    run(after.write, call, "c", "o", Bytes(new))
    run(after.garbage.collect)
    assert content_of(after, "c", "o") == new
    assert len(rows(engine, b"p")) == -(-len(new) // PIECE_BYTES)


def test_a_repeated_write_does_not_undo_what_others_wrote_since(blobs):
    mine = caller(b"a" * 16, "once")
    run(blobs.write, mine, "c", "o", Bytes(b"1"))
    run(blobs.write, caller(b"b" * 16), "c", "o", Bytes(b"2"))
    run(blobs.write, mine, "c", "o", Bytes(b"1"))
    assert content_of(blobs, "c", "o") == b"2"
    copied = caller(b"c" * 16, "copy")
    run(blobs.copy, copied, ("c", "o"), ("c", "p"))
    run(blobs.delete_objects, caller(b"d" * 16), "c", ["o", "p"])
    run(blobs.copy, copied, ("c", "o"), ("c", "p"))
    assert blobs.list_objects("c", None).names == []


def test_a_repeated_write_needs_no_room_again(engine):
    blobs = memory_stores(engine, StoreLimits(environment_bytes_max=3 * MIB)).blobs
    run(blobs.create_container, caller(), "c")
    mine = caller(key="once")
    run(blobs.write, mine, "c", "o", Bytes(bytes(2 * MIB)))
    run(blobs.move, caller(b"b" * 16), ("c", "o"), ("c", "p"))
    before = rows(engine, b"")
    run(blobs.write, mine, "c", "o", Bytes(bytes(2 * MIB)))
    assert rows(engine, b"") == before


def test_what_was_opened_is_read_to_its_end_and_goes_then(engine, blobs):
    content = bytes(range(256)) * 1_000
    run(blobs.write, caller(), "c", "o", Bytes(content))
    found, pin = blobs.open("c", "o")
    run(blobs.clear, caller(), "c")
    run(blobs.garbage.collect)
    run(blobs.garbage.collect)
    assert blobs.read(found.content, 0, found.size) == content
    del pin
    run(blobs.garbage.collect)
    assert blobs.read(found.content, 0, found.size) is None
    assert rows(engine, b"") == rows(engine, b"c")


def test_an_object_that_is_replaced_while_it_is_opened_is_opened_again(engine, blobs):
    run(blobs.write, caller(), "c", "o", Bytes(b"old"))
    read_row = engine.read_row
    seen = []

    def between(table, key):
        found = read_row(table, key)
        if key[:1] == b"o" and not seen:
            seen.append(key)
            run(blobs.write, caller(), "c", "o", Bytes(b"new"))
            run(blobs.garbage.collect)
        return found

    engine.read_row = between
    assert content_of(blobs, "c", "o") == b"new"


def test_an_object_that_is_finished_while_garbage_goes_is_not_taken_for_it(engine):
    """The marks of both were read together."""
    at_once = written_at_once(engine)
    going, finished = trio.Event(), trio.Event()

    async def write(batch, where):
        answer = await at_once(batch, where)
        if collecting and where == "blobs" and not going.is_set():
            going.set()
            await finished.wait()
        return answer

    class Slow(Bytes):
        async def read(self, start, count):
            if start + count >= self.size:
                writing.set()
                await going.wait()
            return await super().read(start, count)

    content = bytes(range(256)) * (2 * MIB // 256)
    collecting, writing = False, trio.Event()
    stores, ids = memory_stores(engine, write=write), count(1)
    blobs = Blobs(
        stores.keyvalue.environment,
        stores.blobs.garbage,
        lambda: next(ids).to_bytes(16, "big"),
        lambda: 1,
    )

    async def put():
        await blobs.write(caller(), "c", "new", Slow(content))
        finished.set()

    async def steps():
        nonlocal collecting
        await blobs.create_container(caller(), "c")
        await blobs.write(caller(), "c", "old", Bytes(content))
        old = blobs.stored_object("c", "old").content
        await blobs.delete_objects(caller(), "c", ["old"])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(put)
            await writing.wait()
            marks = [key for key, _ in rows(engine, b"gc")]
            assert marks[0] == b"gc" + old
            assert len(marks) == 2, "what is being written is marked"
            collecting = True
            await blobs.garbage.collect()
        assert content_of(blobs, "c", "new") == content
        assert rows(engine, b"g") == []

    run(steps)


def test_an_object_whose_last_write_nobody_waits_for_is_not_taken_for_garbage(engine):
    """The last transaction is on its way when its worker is left."""
    at_once = written_at_once(engine)
    queue = []
    queueing = False

    async def write(batch, where):
        if queueing and where != "blobs":
            queue.append(batch)
            await trio.sleep_forever()
        while queue:
            await at_once(queue.pop(0), where)
        return await at_once(batch, where)

    class Last(Bytes):
        async def read(self, start, count):
            nonlocal queueing
            queueing = start + count >= self.size
            return await super().read(start, count)

    content = bytes(range(256)) * (2 * MIB // 256)
    blobs = memory_stores(engine, write=write).blobs

    async def steps():
        await blobs.create_container(caller(), "c")
        with trio.move_on_after(0.1):
            await blobs.write(caller(), "c", "o", Last(content))
        assert len(queue) == 1
        await blobs.garbage.collect()
        assert content_of(blobs, "c", "o") == content

    run(steps)


def test_a_write_into_a_container_that_goes_meanwhile_is_refused(engine):
    at_once = written_at_once(engine)
    changed = []

    async def write(batch, where):
        if not changed and any(row.key[:1] == b"o" for row in batch.rows):
            changed.append(True)
            await blobs.delete_container(caller(b"x" * 16), "c")
        written = await at_once(batch, where)
        if changed:
            changed.append(written)
        return written

    blobs = memory_stores(engine, write=write).blobs
    run(blobs.create_container, caller(), "c")
    with pytest.raises(Refused, match="no container"):
        run(blobs.write, caller(), "c", "o", Bytes(b"1"))
    assert Written.CHANGED in changed
    assert blobs._environment.used_bytes == 0
    run(blobs.garbage.collect)
    assert rows(engine, b"") == []


def test_a_quota_is_seen_before_anything_is_written_and_kept_in_the_end(engine):
    writes = []
    at_once = written_at_once(engine)

    async def write(batch, where):
        writes.append(batch)
        return await at_once(batch, where)

    blobs = memory_stores(engine, StoreLimits(environment_bytes_max=3 * MIB), write).blobs
    run(blobs.create_container, caller(), "c")
    del writes[:]
    with pytest.raises(Refused, match="is full"):
        run(blobs.write, caller(), "c", "o", Bytes(bytes(4 * MIB)))
    assert writes == []

    async def together():
        async with trio.open_nursery() as nursery:
            for number in range(2):
                by = caller(bytes([number]) * 16)
                nursery.start_soon(tried, by, f"o{number}")

    refused = []

    async def tried(by, name):
        try:
            await blobs.write(by, "c", name, Bytes(bytes(2 * MIB)))
        except Refused:
            refused.append(name)

    trio.run(together)
    assert len(refused) == 1
    assert blobs._environment.used_bytes == 2 * MIB + 3
    run(blobs.garbage.collect)
    assert len(rows(engine, b"p")) == -(-2 * MIB // PIECE_BYTES)


@pytest.mark.parametrize(
    "ask",
    [
        lambda blobs: blobs.find_container("c" * 1_025),
        lambda blobs: blobs.container("none"),
        lambda blobs: blobs.stored_object("c", "none"),
        lambda blobs: blobs.stored_object("none", "none"),
        lambda blobs: blobs.find_object("c", "o" * 1_025),
        lambda blobs: run(blobs.write, caller(), "none", "o", Bytes(b"")),
        lambda blobs: run(blobs.clear, caller(), "none"),
        lambda blobs: run(blobs.copy, caller(), ("c", "none"), ("c", "o")),
        lambda blobs: run(blobs.move, caller(), ("c", "none"), ("c", "o")),
        lambda blobs: run(blobs.delete_objects, caller(), "none", ["o"]),
        lambda blobs: run(blobs.delete_objects, caller(), "c", ["o"] * 10_001),
    ],
)
def test_what_cannot_be_is_refused(blobs, ask):
    with pytest.raises(Refused):
        ask(blobs)


def test_a_copy_or_move_into_nowhere_is_refused_and_changes_nothing(engine, blobs):
    run(blobs.write, caller(), "c", "o", Bytes(b"1"))
    before = rows(engine, b"")
    for change in (blobs.copy, blobs.move):
        with pytest.raises(Refused, match="no container 'none'"):
            run(change, caller(), ("c", "o"), ("none", "o"))
    run(blobs.garbage.collect)
    assert rows(engine, b"") == before
    run(blobs.move, caller(), ("c", "o"), ("c", "o"))
    assert content_of(blobs, "c", "o") == b"1"


def test_a_container_that_is_made_again_is_the_one_that_is_there(blobs):
    made = blobs.container("c").created_at
    run(blobs.write, caller(), "c", "o", Bytes(b"1"))
    assert run(blobs.create_container, caller(), "c") == made
    assert content_of(blobs, "c", "o") == b"1"
