"""`wasi:blobstore`; every guest is replayed when its test ends."""

import pytest
import trio

from executor.services.blob_garbage import PIECE_BYTES
from executor.services.environment import MIB
from executor.wasm.values import Variant
from tests.support.stores import memory_stores

TYPES = "wasi:blobstore/types"
STORE = "wasi:blobstore/blobstore"
CONTAINER = "wasi:blobstore/container.[method]container"
NAMES = "wasi:blobstore/container.[method]stream-object-names"
IN = "wasi:io/streams.[method]input-stream"
OUT = "wasi:io/streams.[method]output-stream"
CHUNK = 64 * 1_024


@pytest.fixture
def container(guest):
    return guest.ok(f"{STORE}.create-container", "c")


def outgoing(guest, content):
    value = guest.call(f"{TYPES}.[static]outgoing-value.new-outgoing-value")
    stream = guest.ok(f"{TYPES}.[method]outgoing-value.outgoing-value-write-body", value)
    for start in range(0, len(content), CHUNK):
        guest.ok(f"{OUT}.write", stream, content[start : start + CHUNK])
    guest.drop("wasi:io/streams", "output-stream", stream)
    return value


def put(guest, container, name, content):
    guest.ok(f"{CONTAINER}.write-data", container, name, outgoing(guest, content))


def opened(guest, container, name, start=0, end=2**64 - 1):
    return guest.ok(f"{CONTAINER}.get-data", container, name, start, end)


def at_once(guest, value):
    return guest.ok(f"{TYPES}.[method]incoming-value.incoming-value-consume-sync", value)


def streamed(guest, value, count=CHUNK):
    stream = guest.ok(f"{TYPES}.[method]incoming-value.incoming-value-consume-async", value)
    content = b""
    while True:
        read = guest.call(f"{IN}.blocking-read", stream, count)
        if read.value == Variant("closed"):
            return content
        assert 0 < len(read.value) <= count
        content += read.value


def size(guest, value):
    return guest.call(f"{TYPES}.[method]incoming-value.size", value)


@pytest.mark.parametrize("length", [0, 1, PIECE_BYTES, CHUNK, 3 * MIB + 5])
def test_an_object_is_read_as_it_was_written(guest, container, length):
    content = bytes(n % 251 for n in range(length))
    put(guest, container, "o", content)
    value = opened(guest, container, "o")
    assert size(guest, value) == length
    assert streamed(guest, value) == content
    assert size(guest, value) == 0
    found = guest.ok(f"{CONTAINER}.object-info", container, "o")
    assert (found["name"], found["container"], found["size"]) == ("o", "c", length)
    assert guest.ok(f"{CONTAINER}.has-object", container, "o") is True


def test_a_range_is_read_with_both_its_ends(guest, container):
    put(guest, container, "o", bytes(range(100)))
    assert at_once(guest, opened(guest, container, "o", 10, 19)) == bytes(range(10, 20))
    assert at_once(guest, opened(guest, container, "o", 99, 2**64 - 1)) == b"\x63"
    assert at_once(guest, opened(guest, container, "o", 100, 100)) == b""
    value = opened(guest, container, "o", 0, 9)
    stream = guest.ok(f"{TYPES}.[method]incoming-value.incoming-value-consume-async", value)
    assert guest.ok(f"{IN}.read", stream, 4) == bytes(range(4))
    assert guest.ok(f"{IN}.skip", stream, 2) == 2
    assert guest.ok(f"{IN}.read", stream, 0) == b""
    assert at_once(guest, value) == bytes(range(6, 10))
    for start, end in ((101, 102), (5, 4)):
        said = guest.err(f"{CONTAINER}.get-data", container, "o", start, end)
        assert "is no range of an object of 100 bytes" in said


def test_a_large_object_is_not_read_in_one_piece(guest, container):
    put(guest, container, "o", bytes(MIB + 1))
    value = opened(guest, container, "o")
    method = f"{TYPES}.[method]incoming-value.incoming-value-consume-sync"
    assert "incoming-value-consume-async" in guest.err(method, value)
    assert len(streamed(guest, value)) == MIB + 1


def test_what_is_replaced_while_it_is_read_is_read_to_its_end(make_guest):
    stores = memory_stores()
    guest = make_guest(stores=stores)
    container = guest.ok(f"{STORE}.create-container", "c")
    put(guest, container, "o", b"old" * 50_000)
    value = opened(guest, container, "o")
    stream = guest.ok(f"{TYPES}.[method]incoming-value.incoming-value-consume-async", value)
    assert guest.ok(f"{IN}.read", stream, 3) == b"old"
    put(guest, container, "o", b"new")
    trio.run(stores.blobs.garbage.collect)
    assert streamed(guest, value) == b"old" * 49_999
    assert at_once(guest, opened(guest, container, "o")) == b"new"


def test_what_is_gone_when_it_is_read_fails_the_stream(make_guest):
    stores = memory_stores()
    guest = make_guest(stores=stores)
    container = guest.ok(f"{STORE}.create-container", "c")
    put(guest, container, "o", b"old")
    value = opened(guest, container, "o")
    stores.blobs.garbage._pins.clear()  # as if the process had died meanwhile
    guest.ok(f"{CONTAINER}.delete-object", container, "o")
    trio.run(stores.blobs.garbage.collect)
    stream = guest.ok(f"{TYPES}.[method]incoming-value.incoming-value-consume-async", value)
    failed = guest.err(f"{IN}.read", stream, 3)
    said = guest.call("wasi:io/error.[method]error.to-debug-string", failed.payload)
    assert "written again, or deleted" in said
    assert guest.err(f"{IN}.read", stream, 3) == Variant("closed")
    method = f"{TYPES}.[method]incoming-value.incoming-value-consume-sync"
    assert "written again, or deleted" in guest.err(method, value)


def test_names_are_listed_and_skipped_a_part_at_a_time(guest, container):
    names = [f"{number:02}" for number in range(10)]
    for name in names:
        put(guest, container, name, b"")
    stream = guest.ok(f"{CONTAINER}.list-objects", container)
    assert guest.ok(f"{NAMES}.read-stream-object-names", stream, 3) == (names[:3], False)
    assert guest.ok(f"{NAMES}.skip-stream-object-names", stream, 5) == (5, False)
    assert guest.ok(f"{NAMES}.read-stream-object-names", stream, 0) == ([], False)
    assert guest.ok(f"{NAMES}.read-stream-object-names", stream, 9) == (names[8:], True)
    assert guest.ok(f"{NAMES}.read-stream-object-names", stream, 9) == ([], True)
    assert guest.ok(f"{NAMES}.skip-stream-object-names", stream, 9) == (0, True)


def test_objects_are_deleted_copied_and_moved(guest, container):
    other = guest.ok(f"{STORE}.create-container", "d")
    put(guest, container, "o", b"1")

    def at(where, name):
        return {"container": where, "object": name}

    guest.ok(f"{STORE}.copy-object", at("c", "o"), at("d", "copy"))
    guest.ok(f"{STORE}.move-object", at("c", "o"), at("d", "moved"))
    assert guest.ok(f"{CONTAINER}.has-object", container, "o") is False
    assert at_once(guest, opened(guest, other, "copy")) == b"1"
    assert at_once(guest, opened(guest, other, "moved")) == b"1"
    assert "no container" in guest.err(f"{STORE}.copy-object", at("d", "copy"), at("e", "o"))
    assert "no object" in guest.err(f"{STORE}.move-object", at("c", "o"), at("d", "o"))
    guest.ok(f"{CONTAINER}.delete-objects", other, ["copy", "none"])
    guest.ok(f"{CONTAINER}.delete-object", other, "none")
    assert guest.ok(f"{CONTAINER}.has-object", other, "copy") is False
    guest.ok(f"{CONTAINER}.clear", other)
    assert guest.ok(f"{CONTAINER}.has-object", other, "moved") is False


def test_a_container_has_a_name_and_a_time_until_it_is_deleted(guest, container):
    assert guest.ok(f"{CONTAINER}.name", container) == "c"
    made = guest.ok(f"{CONTAINER}.info", container)
    assert made == {"name": "c", "created-at": 1_700_000_000_000}
    again = guest.ok(f"{STORE}.get-container", "c")
    assert guest.ok(f"{CONTAINER}.info", again) == made
    assert guest.ok(f"{STORE}.container-exists", "c") is True
    guest.ok(f"{STORE}.delete-container", "c")
    guest.ok(f"{STORE}.delete-container", "c")
    assert guest.ok(f"{STORE}.container-exists", "c") is False
    assert "no container" in guest.err(f"{STORE}.get-container", "c")
    for method, more in (("list-objects", []), ("has-object", ["o"]), ("clear", [])):
        assert "no container" in guest.err(f"{CONTAINER}.{method}", container, *more)
