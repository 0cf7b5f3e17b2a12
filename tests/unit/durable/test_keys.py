"""Derived keys: the vectors that other engines of the kind agree on, and what never meets."""

from uuid import UUID

import pytest

from executor.durable.keys import call_key, derived_key


@pytest.mark.parametrize(
    ("given", "index", "key"),
    [
        ("base3", 2, "d9bb6779-6165-5426-b623-7e670149c02f"),
        ("base3", 11, "81b48957-3fe8-5407-b4c1-74ad5308efc1"),
        ("00000000-0000-0000-0000-000000000001", 2, "17fceb64-04aa-5843-bc29-467f28c491a9"),
    ],
)
def test_the_published_vectors(given, index, key):
    assert derived_key(given, index) == key
    assert UUID(key).version == 5


@pytest.mark.parametrize(
    "almost",
    [
        "00000000000000000000000000000001",
        "{00000000-0000-0000-0000-000000000001}",
        "urn:uuid:00000000-0000-0000-0000-000000000001",
        "00000000-0000-0000-0000-000000000001\n",
        "00000000-0000-0000-0000-00000000000g",
    ],
)
def test_only_a_hyphenated_uuid_is_a_namespace_itself(almost):
    assert derived_key(almost, 2) != "17fceb64-04aa-5843-bc29-467f28c491a9"


def test_the_case_of_a_uuid_makes_no_difference():
    lower = "c0ffee00-0000-4000-8000-00000000abcd"
    assert derived_key(lower, 7) == derived_key(lower.upper(), 7)


def test_calls_of_other_workers_invocations_or_indices_have_other_keys():
    one, other = bytes(16), bytes(15) + b"\1"
    keys = {
        call_key(worker, invocation, index)
        for worker in (one, other)
        for invocation in ("k", "é", "00000000-0000-0000-0000-000000000001")
        for index in (2, 3, 23)
    }
    assert len(keys) == 18
    assert call_key(one, "k", 2) == derived_key("00" * 16 + "/k", 2)
