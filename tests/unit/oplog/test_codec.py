import contextlib
import json
import math
import random
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oplog.codec import (
    UNREADABLE,
    decode_entry,
    decode_value,
    encode_entry,
    encode_value,
    read_value,
    values_of,
)
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


def changed(draw, raw):
    """The bytes with a few of them, or bits, changed, gone or added."""
    found = bytearray(raw)
    for _ in range(draw.randrange(1, 4)):
        at = draw.randrange(len(found) + 1)
        match draw.randrange(4):
            case 0:
                found[at:at] = draw.randbytes(draw.randrange(1, 9))
            case 1:
                del found[at:]
            case 2 if at < len(found):
                found[at] = draw.randrange(256)
            case _ if at < len(found):
                found[at] ^= 1 << draw.randrange(8)
            case _:
                pass
    return bytes(found)


def test_nothing_leaves_a_reader_of_bytes_but_what_is_told_as_damage():
    seed = random.randrange(1 << 32)
    print("seed", seed)
    draw = random.Random(seed)
    written = [
        *(bytes.fromhex(raw) for raw in GOLDEN.values()),
        *map(encode_value, ([{"a": 1.5}, b"x" * 40], {"ok": ["é" * 9, None, True]}, -(2**63))),
        *(head * depth for head in (b"\x91", b"\x81", b"\x81\xa0") for depth in (3, 5_000)),
        b"\x81\x91\x01\x02",
        b"\xd7\xff" + b"\xff" * 8,
        b"\xd6\xff\0\0\0\0",
        b"\xdd\xff\xff\xff\xff\x01",
    ]
    for number in range(30_000):
        raw = changed(draw, draw.choice(written))
        for read in (read_value, decode_entry):
            with contextlib.suppress(OplogCorruptError, *UNREADABLE):
                read(raw)
        with contextlib.suppress(OplogCorruptError):
            decode_value(raw, number)


@pytest.mark.parametrize(
    "fault",
    [TypeError, ValueError, KeyError, IndexError, AttributeError, UnicodeError, AssertionError],
)
def test_a_fault_of_ours_beside_a_value_is_not_told_as_its_damage(fault):
    with pytest.raises(fault) as raised, values_of(3):
        raise fault("ours")
    assert type(raised.value) is fault


@pytest.mark.parametrize(
    "damage",
    [msgspec.DecodeError("x"), msgspec.ValidationError("x"), RecursionError("x")],
    ids=lambda error: type(error).__name__,
)
def test_what_a_reader_of_bytes_raises_names_the_entry(damage):
    with (
        pytest.raises(OplogCorruptError, match="entry 3 is damaged: a value cannot be read: x"),
        values_of(3),
    ):
        raise damage
