"""What the values that a guest holds may take of the host."""

import os
import random
from functools import partial

import pytest
import trio

from executor.errors import LimitError, StoreError
from executor.host import held
from executor.host.held import Held
from executor.host.wasi.blobstore_values import Outgoing
from executor.services.environment import VALUE_BYTES_MAX
from tests.support.stores import memory_stores

TYPES = "wasi:keyvalue/types"
BLOBS = "wasi:blobstore/types"
OUT = "wasi:io/streams.[method]output-stream"


def outgoing(guest, content):
    value = guest.call(f"{TYPES}.[static]outgoing-value.new-outgoing-value")
    guest.ok(f"{TYPES}.[method]outgoing-value.outgoing-value-write-body-sync", value, content)
    return value


def test_a_guest_cannot_hold_values_without_end(make_guest):
    guest = make_guest()
    values = [outgoing(guest, bytes(VALUE_BYTES_MAX)) for _ in range(63)]
    assert 63 << 20 < guest.state.held.memory_bytes <= held.MEMORY_BYTES_MAX
    kept = guest.call(f"{TYPES}.[static]outgoing-value.new-outgoing-value")
    method = f"{TYPES}.[method]outgoing-value.outgoing-value-write-body-sync"
    with pytest.raises(LimitError, match="hold"):
        guest.call(method, kept, bytes(VALUE_BYTES_MAX))
    guest.calls = guest.calls[: len(guest.values)]  # a call that fails is not replayed
    guest.drop(TYPES, "outgoing-value", values[0])
    guest.ok(method, kept, bytes(VALUE_BYTES_MAX))


def test_what_is_dropped_is_given_back_once_its_streams_are_as_well(guest):
    bucket = guest.ok(f"{TYPES}.[static]bucket.open-bucket", "b")
    value = outgoing(guest, bytes(1_000))
    guest.ok("wasi:keyvalue/eventual.set", bucket, "k", value)
    got = guest.ok("wasi:keyvalue/eventual.get", bucket, "k")
    consume = f"{TYPES}.[method]incoming-value.incoming-value-consume-async"
    stream = guest.ok(consume, got)
    guest.drop(TYPES, "outgoing-value", value)
    guest.drop(TYPES, "incoming-value", got)
    guest.drop(TYPES, "bucket", bucket)
    assert guest.state.held.memory_bytes > 1_000
    guest.drop("wasi:io/streams", "input-stream", stream)
    assert guest.state.held.memory_bytes == 0


def test_cursors_and_comparisons_are_given_back(guest):
    store, atomics = "wasi:keyvalue/store", "wasi:keyvalue/atomics2"
    bucket = guest.ok(f"{store}.open", "b")
    pairs = [(f"{number:04}", b"") for number in range(1_001)]
    guest.ok("wasi:keyvalue/batch.set-many", bucket, pairs)
    before = guest.state.held.memory_bytes
    for _ in range(3):  # the same page has the same cursor
        assert guest.ok(f"{store}.[method]bucket.list-keys", bucket, None)["cursor"] == 1
    assert before < guest.state.held.memory_bytes < before + 200
    cas = guest.ok(f"{atomics}.[static]cas.new", bucket, "0000")
    guest.ok(f"{atomics}.swap", cas, b"1")
    left = guest.ok(f"{atomics}.[static]cas.new", bucket, "0000")
    guest.drop(atomics, "cas", left)
    guest.drop(store, "bucket", bucket)
    assert guest.state.held.memory_bytes == 0


def test_values_that_are_written_in_turn_are_each_read_as_they_were_written():
    seed = random.SystemRandom().randrange(1 << 32)
    print("seed", seed)
    rng = random.Random(seed)
    kept = Held()
    values = [Outgoing(kept) for _ in range(3)]
    written = [bytearray() for _ in values]
    for _ in range(300):
        number = rng.randrange(3)
        piece = rng.randbytes(rng.randrange(1, 50))
        values[number].append(piece)
        written[number] += piece
    for value, content in zip(values, written, strict=True):
        assert value.size == len(content)
        for _ in range(50):
            start = rng.randrange(len(content))
            count = rng.randrange(len(content) - start + 1)
            assert trio.run(value.read, start, count) == content[start : start + count]
        assert trio.run(value.read, 0, len(content)) == content
    for value in values:
        value.leave()
    assert (kept.memory_bytes, kept.file_bytes) == (0, 0)


def test_a_value_written_piece_by_piece_takes_no_memory_for_each():
    kept = Held()
    value = Outgoing(kept)
    for _ in range(1_000):
        value.append(b"x" * 100)
    assert kept.memory_bytes < 1_000


def test_the_file_is_bounded_and_used_again(monkeypatch):
    monkeypatch.setattr(held, "FILE_BYTES_MAX", 1_000)
    kept = Held()
    one, other = Outgoing(kept), Outgoing(kept)
    one.append(bytes(600))
    with pytest.raises(LimitError, match="writes"):
        other.append(bytes(600))
    one.leave()
    other.leave()
    again = Outgoing(kept)
    again.append(bytes(1_000))
    assert trio.run(partial(again.read, 0, 1_000)) == bytes(1_000)


def test_a_machine_without_room_is_named(monkeypatch):
    def refuse():
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(held, "TemporaryFile", refuse)
    with pytest.raises(StoreError, match="No space left"):
        Outgoing(Held()).append(b"x")


def test_a_value_for_a_part_of_which_there_is_room_is_not_taken_for_whole(monkeypatch):
    """A full disk writes what it can, and says so only when it is asked for the rest."""
    room = [700, 0]
    whole = os.pwrite

    def write(descriptor, contents, start):
        if room[0] == 0:
            raise OSError(28, "No space left on device")
        return whole(descriptor, contents[: room.pop(0)], start)

    monkeypatch.setattr(os, "pwrite", write)
    with pytest.raises(StoreError, match="No space left"):
        Outgoing(Held()).append(bytes(1_000))
    room[:] = [700, 700]
    kept = Held()
    value = Outgoing(kept)
    value.append(b"x" * 1_000)
    assert trio.run(partial(value.read, 0, 1_000)) == b"x" * 1_000


def test_an_object_of_nothing_is_written(make_guest):
    guest = make_guest(stores=memory_stores())
    container = guest.ok("wasi:blobstore/blobstore.create-container", "c")
    value = guest.call(f"{BLOBS}.[static]outgoing-value.new-outgoing-value")
    stream = guest.ok(f"{BLOBS}.[method]outgoing-value.outgoing-value-write-body", value)
    guest.ok(f"{OUT}.write", stream, b"")
    guest.ok("wasi:blobstore/container.[method]container.write-data", container, "o", value)
    guest.drop("wasi:io/streams", "output-stream", stream)
    guest.drop(BLOBS, "outgoing-value", value)
    assert guest.state.held.memory_bytes == 0
