import pytest

from oplog.codec import decode_entry, encode_entry, encode_value
from oplog.entry import (
    Cancelled,
    Decision,
    End,
    InvocationFinished,
    InvocationStarted,
    Log,
    Outcome,
    PendingInvocation,
    Raw,
    Start,
)
from oplog.payload import (
    INLINE_BYTES_MAX,
    REFERENCE_BYTES,
    REFERENCE_PREFIX,
    digest_of,
    reference_digest,
    references,
    split_payloads,
    stored_references,
)

LARGE = Raw(encode_value(b"x" * (INLINE_BYTES_MAX + 1)))
SMALL = Raw(encode_value("small"))

with_large_field = pytest.mark.parametrize(
    "entry",
    [
        Start(at=1, function="f", function_type="read-local", request=LARGE),
        End(at=1, start_index=1, response=LARGE),
        Cancelled(at=1, start_index=1, partial=LARGE),
        InvocationStarted(at=1, key="k", function="f", arguments=LARGE),
        PendingInvocation(at=1, key="k", function="f", arguments=LARGE),
        InvocationFinished(at=1, outcome=Outcome(result=LARGE)),
        Decision(at=1, start_index=1, choice="value", value=LARGE),
    ],
    ids=lambda entry: type(entry).__name__,
)


@with_large_field
def test_a_large_raw_field_is_replaced_by_a_reference_to_its_content(entry):
    short, payloads = split_payloads(entry)
    content = bytes(LARGE)
    assert payloads == [(digest_of(content), content)]
    assert references(encode_entry(short)) == [digest_of(content)]
    assert len(encode_entry(short)) < 200
    assert references(encode_entry(decode_entry(encode_entry(short)))) == [digest_of(content)]


@with_large_field
def test_splitting_an_entry_leaves_its_other_fields(entry):
    short, _ = split_payloads(entry)
    assert type(short) is type(entry)
    assert short.at == entry.at


def test_a_field_of_64_kib_stays_and_one_byte_more_goes():
    def with_request(size):
        return Start(at=1, function="f", function_type="t", request=Raw(b"\xc4" + bytes(size - 1)))

    assert INLINE_BYTES_MAX == 64 * 1024
    assert split_payloads(with_request(INLINE_BYTES_MAX))[1] == []
    assert len(split_payloads(with_request(INLINE_BYTES_MAX + 1))[1]) == 1


def test_an_entry_without_a_large_raw_field_is_given_back_itself():
    log = Log(at=1, level="stdout", text="x" * 100_000)
    end = End(at=1, start_index=1, response=SMALL)
    assert split_payloads(log) == (log, [])
    assert split_payloads(end)[0] is end


def test_bytes_of_a_guest_that_look_like_a_reference_are_none():
    mimic = encode_value([REFERENCE_PREFIX + bytes(32), (REFERENCE_PREFIX + bytes(32)).hex()])
    entry = End(at=1, start_index=1, response=Raw(mimic))
    assert REFERENCE_PREFIX in encode_entry(entry)
    assert references(encode_entry(entry)) == []
    exact = Raw(encode_value(b"\xc7\x20\x01" + bytes(30)))
    assert len(exact) == REFERENCE_BYTES
    assert reference_digest(exact) is None


def test_references_are_read_from_kinds_that_are_not_known_yet():
    reference = REFERENCE_PREFIX + b"d" * 32
    later = b"\x82\xa1t\xa2zz\xa7content" + reference
    assert references(later) == [b"d" * 32]


def test_a_damaged_stored_entry_refers_to_nothing():
    assert stored_references(b"\xc1" + REFERENCE_PREFIX) == []
