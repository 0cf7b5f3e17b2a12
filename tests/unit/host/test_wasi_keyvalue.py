"""`wasi:keyvalue`, version by version; every guest is replayed when its test ends."""

import threading

import pytest

from executor.services.environment import VALUE_BYTES_MAX, StoreLimits
from executor.wasm.values import Variant
from oplog.memory_engine import MemoryEngine
from tests.support.stores import memory_stores

TYPES = "wasi:keyvalue/types"
EVENTUAL = "wasi:keyvalue/eventual"
BATCH = "wasi:keyvalue/eventual-batch"
ATOMIC = "wasi:keyvalue/atomic"
IN = "wasi:io/streams.[method]input-stream"
OUT = "wasi:io/streams.[method]output-stream"
STORES = ["wasi:keyvalue/store", "wasi:keyvalue/store2"]
BUCKET = "[method]bucket"


def bucket_of(guest, name="b"):
    return guest.ok(f"{TYPES}.[static]bucket.open-bucket", name)


def outgoing(guest, content):
    value = guest.call(f"{TYPES}.[static]outgoing-value.new-outgoing-value")
    method = "outgoing-value-write-body-sync"
    guest.ok(f"{TYPES}.[method]outgoing-value.{method}", value, content)
    return value


def consumed(guest, value):
    return guest.ok(f"{TYPES}.[method]incoming-value.incoming-value-consume-sync", value)


def traced(guest, error):
    return guest.call("wasi:keyvalue/wasi-keyvalue-error.[method]error.trace", error)


# -- 0.1.0 -----------------------------------------------------------------------------------------


def test_a_value_is_written_and_read_at_once_or_by_streams(guest):
    bucket = bucket_of(guest)
    value = outgoing(guest, b"one ")
    stream = guest.ok(f"{TYPES}.[method]outgoing-value.outgoing-value-write-body-async", value)
    guest.ok(f"{OUT}.blocking-write-and-flush", stream, b"two")
    guest.drop("wasi:io/streams", "output-stream", stream)
    guest.ok(f"{EVENTUAL}.set", bucket, "key", value)
    assert guest.ok(f"{EVENTUAL}.exists", bucket, "key") is True
    got = guest.ok(f"{EVENTUAL}.get", bucket, "key")
    size = f"{TYPES}.[method]incoming-value.incoming-value-size"
    assert guest.ok(size, got) == 7
    stream = guest.ok(f"{TYPES}.[method]incoming-value.incoming-value-consume-async", got)
    assert guest.ok(f"{IN}.read", stream, 3) == b"one"
    assert guest.ok(f"{IN}.skip", stream, 1) == 1
    assert guest.ok(size, got) == 3
    assert consumed(guest, got) == b"two"
    assert guest.err(f"{IN}.read", stream, 1) == Variant("closed")
    guest.drop("wasi:io/streams", "input-stream", stream)
    guest.drop(TYPES, "incoming-value", got)
    guest.ok(f"{EVENTUAL}.delete", bucket, "key")
    assert guest.ok(f"{EVENTUAL}.get", bucket, "key") is None


def test_a_value_of_more_than_a_mebibyte_is_refused_where_it_is_made(guest):
    value = outgoing(guest, bytes(VALUE_BYTES_MAX))
    method = f"{TYPES}.[method]outgoing-value.outgoing-value-write-body-sync"
    assert str(VALUE_BYTES_MAX) in traced(guest, guest.err(method, value, b"x"))
    stream = guest.ok(f"{TYPES}.[method]outgoing-value.outgoing-value-write-body-async", value)
    failed = guest.err(f"{OUT}.write", stream, b"x")
    assert failed.case == "last-operation-failed"
    guest.ok(f"{EVENTUAL}.set", bucket_of(guest), "key", value)


def test_many_values_are_set_got_listed_and_deleted_together(guest):
    bucket = bucket_of(guest)
    pairs = [(f"k{number}", outgoing(guest, b"%d" % number)) for number in range(3)]
    guest.ok(f"{BATCH}.set-many", bucket, pairs)
    assert guest.ok(f"{BATCH}.keys", bucket) == ["k0", "k1", "k2"]
    guest.ok(f"{BATCH}.delete-many", bucket, ["k1", "none"])
    found = guest.ok(f"{BATCH}.get-many", bucket, ["k0", "k1", "k2"])
    assert [None if value is None else consumed(guest, value) for value in found] == [
        b"0",
        None,
        b"2",
    ]
    assert guest.ok(f"{BATCH}.keys", bucket_of(guest, "other")) == []


def test_many_keys_are_not_read_on_the_guests_lane(make_guest):
    """Each function of the versions that reads many: few in place, many in a thread."""
    threads = {}

    class ReadOn(MemoryEngine):
        def read_row(self, table, key):
            threads.setdefault(key[:1], set()).add(threading.get_ident())
            return super().read_row(table, key)

        def read_rows(self, *arguments, limit=1_000, **more):
            threads.setdefault(limit > 1_000, set()).add(threading.get_ident())
            return super().read_rows(*arguments, limit=limit, **more)

    guest = make_guest(stores=memory_stores(ReadOn()))
    here = {threading.get_ident()}
    bucket = bucket_of(guest)
    for count in (3, 300):
        names = [f"k{number:03}" for number in range(count)]
        guest.ok(f"{BATCH}.set-many", bucket, [(name, outgoing(guest, b"1")) for name in names])
        threads.clear()
        assert guest.ok(f"{BATCH}.keys", bucket) == names
        assert (threads[True] == here) == (count == 3)
        found = guest.ok(f"{BATCH}.get-many", bucket, names)
        assert [consumed(guest, value) for value in found] == [b"1"] * count
        assert (threads[b"v"] == here) == (count == 3)


def test_numbers_are_incremented_and_compared(guest):
    bucket = bucket_of(guest)
    assert guest.ok(f"{ATOMIC}.increment", bucket, "n", 2) == 2
    assert guest.ok(f"{ATOMIC}.increment", bucket, "n", 2**64 - 3) == 2**64 - 1
    assert "its type does not have" in traced(
        guest, guest.err(f"{ATOMIC}.increment", bucket, "n", 1)
    )
    assert guest.ok(f"{ATOMIC}.compare-and-swap", bucket, "n", 1, 5) is False
    assert guest.ok(f"{ATOMIC}.compare-and-swap", bucket, "n", 2**64 - 1, 5) is True
    assert guest.ok(f"{ATOMIC}.compare-and-swap", bucket, "none", 0, 5) is False
    assert consumed(guest, guest.ok(f"{EVENTUAL}.get", bucket, "n")) == b"5"
    for text in (b"", b"-", b"1.5", b"0x1", b"9" * 30):
        guest.ok(f"{EVENTUAL}.set", bucket, "text", outgoing(guest, text))
        assert "no number" in traced(guest, guest.err(f"{ATOMIC}.increment", bucket, "text", 1))


def test_a_full_environment_says_so_and_changes_nothing(make_guest):
    guest = make_guest(stores=memory_stores(limits=StoreLimits(environment_bytes_max=10)))
    bucket = bucket_of(guest)
    guest.ok(f"{EVENTUAL}.set", bucket, "k", outgoing(guest, bytes(9)))
    said = traced(guest, guest.err(f"{EVENTUAL}.set", bucket, "l", outgoing(guest, b"")))
    assert "may hold 10 bytes, holds 10" in said
    guest.ok(f"{EVENTUAL}.set", bucket, "k", outgoing(guest, bytes(8)))
    guest.ok(f"{EVENTUAL}.set", bucket, "l", outgoing(guest, b""))
    assert guest.ok(f"{BATCH}.keys", bucket) == ["k", "l"]


# -- the drafts of 0.2.0 ---------------------------------------------------------------------------


@pytest.mark.parametrize("store", STORES)
def test_a_bucket_of_a_store_has_methods(guest, store):
    bucket = guest.ok(f"{store}.open", "b")
    assert guest.ok(f"{store}.{BUCKET}.get", bucket, "k") is None
    guest.ok(f"{store}.{BUCKET}.set", bucket, "k", b"\x00\xff")
    assert guest.ok(f"{store}.{BUCKET}.get", bucket, "k") == b"\x00\xff"
    assert guest.ok(f"{store}.{BUCKET}.exists", bucket, "k") is True
    guest.ok(f"{store}.{BUCKET}.delete", bucket, "k")
    assert guest.ok(f"{store}.{BUCKET}.exists", bucket, "k") is False
    failed = guest.err(f"{store}.{BUCKET}.set", bucket, "k" * 1_025, b"")
    assert failed.case == "other"
    assert "at most 1024 bytes, not 1025" in failed.payload


@pytest.mark.parametrize("store", STORES)
def test_keys_are_listed_a_page_at_a_time(guest, store):
    bucket = guest.ok(f"{store}.open", "b")
    batch = store.replace("store", "batch")
    keys = [f"{number:04}" for number in range(2_500)]
    guest.ok(f"{batch}.set-many", bucket, [(key, b"") for key in keys])
    found = []
    cursor = None
    while True:
        page = guest.ok(f"{store}.{BUCKET}.list-keys", bucket, cursor)
        found.append(page["keys"])
        cursor = page["cursor"]
        if cursor is None:
            break
    assert [len(page) for page in found] == [1_000, 1_000, 500]
    assert [key for page in found for key in page] == keys


def test_a_number_that_is_no_cursor_is_refused(guest):
    bucket = guest.ok(f"{STORES[0]}.open", "b")
    assert "is no cursor" in guest.err(f"{STORES[0]}.{BUCKET}.list-keys", bucket, 1).payload


@pytest.mark.parametrize("store", STORES)
def test_a_batch_is_read_with_its_keys(guest, store):
    bucket = guest.ok(f"{store}.open", "b")
    batch = store.replace("store", "batch")
    guest.ok(f"{batch}.set-many", bucket, [("a", b"1"), ("b", b"2"), ("a", b"3")])
    assert guest.ok(f"{batch}.get-many", bucket, ["b", "c", "a"]) == [
        ("b", b"2"),
        None,
        ("a", b"3"),
    ]
    guest.ok(f"{batch}.delete-many", bucket, ["a"])
    assert guest.ok(f"{batch}.get-many", bucket, ["a"]) == [None]


def test_values_that_are_too_large_together_are_refused(guest):
    store, batch = STORES[1], "wasi:keyvalue/batch2"
    bucket = guest.ok(f"{store}.open", "b")
    for key in "abc":
        guest.ok(f"{store}.{BUCKET}.set", bucket, key, bytes(VALUE_BYTES_MAX))
    assert "ask for fewer keys" in guest.err(f"{batch}.get-many", bucket, list("abc")).payload
    assert "no more" not in guest.ok(f"{batch}.get-many", bucket, list("ab"))


@pytest.mark.parametrize(("atomics", "least"), [("", 0), ("2", -(2**63))])
def test_an_increment_stays_within_its_type(guest, atomics, least):
    bucket = guest.ok(f"{STORES[0]}{atomics}.open", "b")
    increment = f"wasi:keyvalue/atomics{atomics}.increment"
    most = 2**64 - 1 if least == 0 else 2**63 - 1
    assert guest.ok(increment, bucket, "n", most) == most
    assert guest.err(increment, bucket, "n", 1).case == "other"
    if least:
        assert guest.ok(increment, bucket, "m", least) == least
        assert guest.err(increment, bucket, "m", -1).case == "other"


def test_a_swap_that_comes_too_late_hears_what_there_is_now(guest):
    store, atomics = STORES[1], "wasi:keyvalue/atomics2"
    bucket = guest.ok(f"{store}.open", "b")

    def seen():
        return guest.ok(f"{atomics}.[static]cas.new", bucket, "k")

    first, second = seen(), seen()
    assert guest.ok(f"{atomics}.[method]cas.current", first) is None
    guest.ok(f"{atomics}.swap", first, b"1")
    failed = guest.err(f"{atomics}.swap", second, b"2")
    assert failed.case == "cas-failed"
    again = failed.payload
    assert guest.ok(f"{atomics}.[method]cas.current", again) == b"1"
    guest.ok(f"{atomics}.swap", again, b"2")
    stale = seen()
    guest.ok(f"{store}.{BUCKET}.set", bucket, "k", b"2")  # the same value is another version
    assert guest.err(f"{atomics}.swap", stale, b"3").case == "cas-failed"
    too_large = guest.err(f"{atomics}.swap", seen(), bytes(VALUE_BYTES_MAX + 1))
    assert too_large.case == "store-error"
    gone = seen()
    guest.ok(f"{store}.{BUCKET}.delete", bucket, "k")
    assert guest.err(f"{atomics}.swap", gone, b"3").case == "cas-failed"
