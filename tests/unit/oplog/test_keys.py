import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oplog.keys import INDEX_MAX, check_worker_id, entry_key, last_key, split_entry_key

worker_ids = st.binary(min_size=16, max_size=16)
indices = st.integers(1, INDEX_MAX)


@given(worker_ids, indices)
def test_a_key_gives_back_the_worker_and_the_index(worker_id, index):
    assert split_entry_key(entry_key(worker_id, index)) == (worker_id, index)


@given(st.tuples(worker_ids, indices), st.tuples(worker_ids, indices))
def test_keys_sort_by_worker_then_by_index(a, b):
    assert (entry_key(*a) < entry_key(*b)) == (a < b)


@given(worker_ids, indices)
def test_the_last_key_lies_behind_every_entry_of_its_worker_only(worker_id, index):
    assert entry_key(worker_id, index) < last_key(worker_id)
    if worker_id != b"\xff" * 16:
        successor = (int.from_bytes(worker_id, "big") + 1).to_bytes(16, "big")
        assert last_key(worker_id) < entry_key(successor, 1)


def test_ids_and_keys_of_another_length_are_refused():
    with pytest.raises(ValueError, match="16 bytes, not 15"):
        check_worker_id(os.urandom(15))
    with pytest.raises(ValueError, match="24 bytes, not 23"):
        split_entry_key(bytes(23))
