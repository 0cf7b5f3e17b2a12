"""wasi:random: every draw is recorded, and bounded."""

from typing import Final

from executor.durable.definition import Recorded
from executor.durable.function_type import READ_LOCAL
from executor.errors import LimitError
from executor.host.interface import host_interface
from executor.host.state import HostState

RANDOM_BYTES_MAX: Final = 64 * 1024
"""What one call may draw: it is recorded whole."""


def draw_bytes(state: HostState, count: int) -> bytes:
    if count > RANDOM_BYTES_MAX:
        raise LimitError(
            f"the guest asked for {count} random bytes in one call;"
            f" the limit is {RANDOM_BYTES_MAX}",
            where="wasi:random",
            hint="the guest has to draw them in several calls",
        )
    return state.sources.random_bytes(count)


def draw_u64(state: HostState) -> int:
    return int.from_bytes(state.sources.random_bytes(8), "little")


def draw_seed(state: HostState) -> tuple[int, int]:
    return draw_u64(state), draw_u64(state)


RANDOM = host_interface(
    """
    interface wasi:random/random {
        get-random-bytes: func(len: u64) -> list<u8>;
        get-random-u64: func() -> u64;
    }
    """,
    "0.2",
    [
        Recorded(name="get-random-bytes", function_type=READ_LOCAL, action=draw_bytes),
        Recorded(name="get-random-u64", function_type=READ_LOCAL, action=draw_u64),
    ],
)

INSECURE = host_interface(
    """
    interface wasi:random/insecure {
        get-insecure-random-bytes: func(len: u64) -> list<u8>;
        get-insecure-random-u64: func() -> u64;
    }
    """,
    "0.2",
    [
        Recorded(name="get-insecure-random-bytes", function_type=READ_LOCAL, action=draw_bytes),
        Recorded(name="get-insecure-random-u64", function_type=READ_LOCAL, action=draw_u64),
    ],
)

INSECURE_SEED = host_interface(
    """
    interface wasi:random/insecure-seed {
        insecure-seed: func() -> tuple<u64, u64>;
    }
    """,
    "0.2",
    [Recorded(name="insecure-seed", function_type=READ_LOCAL, action=draw_seed)],
)

TABLES: Final = (RANDOM, INSECURE, INSECURE_SEED)
