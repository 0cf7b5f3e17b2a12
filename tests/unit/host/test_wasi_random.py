import pytest

from executor.errors import LimitError
from executor.host.wasi.random import RANDOM_BYTES_MAX


@pytest.mark.parametrize(
    "function",
    [
        "wasi:random/random.get-random-bytes",
        "wasi:random/insecure.get-insecure-random-bytes",
    ],
)
def test_as_many_bytes_are_drawn_as_were_asked_for_up_to_the_limit(guest, function):
    assert guest.call(function, 0) == b""
    assert len(guest.call(function, RANDOM_BYTES_MAX)) == RANDOM_BYTES_MAX
    assert guest.call(function, 16) != guest.call(function, 16)
    with pytest.raises(LimitError, match="65537 random bytes"):
        guest.call(function, RANDOM_BYTES_MAX + 1)


def test_numbers_and_seeds_are_drawn(guest):
    draws = {
        guest.call("wasi:random/random.get-random-u64"),
        guest.call("wasi:random/insecure.get-insecure-random-u64"),
        *guest.call("wasi:random/insecure-seed.insecure-seed"),
    }
    assert len(draws) == 4
