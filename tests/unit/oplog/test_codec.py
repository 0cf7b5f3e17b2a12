import contextlib
import json
import math
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oplog.codec import decode_entry, decode_value, encode_entry, encode_value
from oplog.entry import ABSENT, KIND_OF, TAGS, End, Entry, InvocationFinished, Raw, Start
from oplog.errors import OplogCorruptError
from tests.unit.oplog.samples import AT, SAMPLES

GOLDEN = json.loads((Path(__file__).parent / "golden" / "entries.json").read_text())

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
    | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=4)
    ),
    max_leaves=20,
)


@pytest.mark.parametrize("name", SAMPLES)
def test_an_entry_has_the_bytes_it_always_had(name):
    assert encode_entry(SAMPLES[name]).hex() == GOLDEN[name]


@pytest.mark.parametrize("name", GOLDEN)
def test_bytes_written_by_any_version_are_still_read(name):
    assert encode_entry(decode_entry(bytes.fromhex(GOLDEN[name]))).hex() == GOLDEN[name]


@pytest.mark.parametrize("name", SAMPLES)
def test_the_tag_in_the_bytes_is_the_one_reserved_for_the_kind(name):
    kind = name.split(",")[0]
    assert KIND_OF[type(SAMPLES[name])] == kind
    assert decode_value(encode_entry(SAMPLES[name]))["t"] == TAGS[kind]


def test_golden_bytes_cover_every_struct_of_an_entry():
    assert {type(entry) for entry in SAMPLES.values()} == set(Entry.__args__)
    assert set(GOLDEN) == set(SAMPLES)


def test_no_two_kinds_share_a_tag():
    assert len(set(TAGS.values())) == len(TAGS)


def test_an_absent_raw_field_is_the_sentinel_itself():
    entry = decode_entry(encode_entry(Start(at=AT, function="f", function_type="read-local")))
    assert entry.request is ABSENT
    finished = decode_entry(bytes.fromhex(GOLDEN["invocation-finished"]))
    assert isinstance(finished, InvocationFinished)
    assert finished.outcome.result is ABSENT


def test_a_field_that_a_later_version_added_is_skipped():
    later = encode_value({"t": "e", "at": AT, "start_index": 4, "added_later": [1, 2]})
    assert decode_entry(later) == End(at=AT, start_index=4)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\x80",
        b"\xc1",
        b"\x93\x01\x02\x03",
        encode_value({"t": "no such tag", "at": 1}),
        encode_value({"t": "e", "at": "noon", "start_index": 1}),
        encode_value({"t": "e", "at": 1}),
        encode_value({"t": "l", "at": 1, "level": "x", "text": "y"}).replace(b"y", b"\xff"),
        bytes.fromhex(GOLDEN["start, full"])[:-1],
        bytes.fromhex(GOLDEN["start, full"]) + b"\xc0",
    ],
    ids=lambda raw: raw.hex()[:24] or "empty",
)
def test_anything_else_than_one_entry_is_refused_as_corrupt(raw):
    with pytest.raises(OplogCorruptError):
        decode_entry(raw)


def test_every_truncation_of_every_entry_is_refused_as_corrupt():
    for raw in map(bytes.fromhex, GOLDEN.values()):
        for length in range(len(raw)):
            with pytest.raises(OplogCorruptError):
                decode_entry(raw[:length])


@given(st.binary(max_size=200))
def test_random_bytes_decode_to_an_entry_or_are_corrupt(raw):
    with contextlib.suppress(OplogCorruptError):
        decode_entry(raw)


@given(values, st.integers(0, 2**63 - 1), st.none() | st.integers(1, 2**63 - 1))
def test_an_entry_survives_the_round_trip(value, at, parent):
    request = Raw(encode_value([value]))
    entry = Start(
        at=at, function="f", function_type="read-local", request=request, parent_start=parent
    )
    again = decode_entry(encode_entry(entry))
    assert isinstance(again, Start)
    assert (again.at, again.parent_start) == (at, parent)
    assert bytes(again.request) == bytes(request)


@given(values)
def test_a_value_survives_the_round_trip_with_the_same_bytes(value):
    encoded = encode_value(value)
    assert decode_value(encoded) == value
    assert decode_value(Raw(encoded)) == value
    assert encode_value(decode_value(encoded)) == encoded


@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), st.integers(0, 9)))
def test_the_order_in_which_a_map_was_made_does_not_show_in_its_bytes(value):
    assert encode_value(dict(reversed(value.items()))) == encode_value(value)


def test_values_that_python_calls_equal_have_different_bytes():
    assert len({encode_value(v) for v in (1, 1.0, True)}) == 3
    assert encode_value(0.0) != encode_value(-0.0)
    assert encode_value("a") != encode_value(b"a")
    assert encode_value((1, 2)) == encode_value([1, 2])
    assert math.isnan(decode_value(encode_value(math.nan)))


@pytest.mark.parametrize(
    "raw", [b"", b"\xc1", b"\x91", b"\xa1\xff", b"\xc0\xc0", b"\x91" * 100_000]
)
def test_anything_else_than_one_value_is_refused_as_corrupt(raw):
    with pytest.raises(OplogCorruptError):
        decode_value(raw)


def test_a_reference_is_not_a_value():
    reference = msgspec.msgpack.encode(msgspec.msgpack.Ext(1, bytes(32)))
    with pytest.raises(OplogCorruptError, match="resolve it"):
        decode_value(reference)
