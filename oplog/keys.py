"""The key of an entry: the worker's id, then the index. Pure.

    0        16       24
    | id     | index  |      id: 16 random bytes; index: big-endian, from 1

Big-endian indices sort as numbers do, so a worker's entries lie beside each other in order, and the
largest key below the id and eight bytes ff is its last entry. A worker that is deleted and made
again has another id, so a key is never used for two different entries.
"""

from typing import Final

WORKER_ID_BYTES: Final = 16
INDEX_BYTES: Final = 8
INDEX_MAX: Final = (1 << 63) - 1


def entry_key(worker_id: bytes, index: int) -> bytes:
    return worker_id + index.to_bytes(INDEX_BYTES, "big")


def last_key(worker_id: bytes) -> bytes:
    """A key that sorts behind every entry of the worker and before every other worker's."""
    return worker_id + b"\xff" * INDEX_BYTES


def split_entry_key(key: bytes) -> tuple[bytes, int]:
    """The worker's id and the index."""
    if len(key) != WORKER_ID_BYTES + INDEX_BYTES:
        raise ValueError(f"the key of an entry has 24 bytes, not {len(key)}")
    return key[:WORKER_ID_BYTES], int.from_bytes(key[WORKER_ID_BYTES:], "big")


def check_worker_id(worker_id: bytes) -> None:
    """Raises: ValueError unless it can be a worker's id."""
    if len(worker_id) != WORKER_ID_BYTES:
        raise ValueError(f"a worker's id has {WORKER_ID_BYTES} bytes, not {len(worker_id)}")
