"""Idempotency keys of remote calls, derived so that every attempt has the same one.

`derived(base, i)` is UUIDv5(ns, "oplog-index-<i>"), where ns is `base` itself if that is a
hyphenated UUID, and else UUIDv5 of `base` in a fixed namespace. The base of a call is
`<worker id as hex>/<invocation key>`: equal keys on two workers, or on a worker that was deleted
and created again, never meet at a peer.
"""

import re
from hashlib import sha1
from typing import Final
from uuid import UUID

NAMESPACE: Final = UUID("9C19B15A-C83D-46F7-9BC3-EAD7923733F4")
UUID_5_BITS: Final = 0x5000_8000_0000_0000_0000
UUID_FREE_BITS: Final = ~0xF000_C000_0000_0000_0000
"""Version and variant of RFC 9562, 5.5. Written out, since a call takes a key each."""
HYPHENATED_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\Z")


def derived_key(base: str, index: int) -> str:
    """The key of the call that `index` identifies, as a hyphenated UUID."""
    return key_in(namespace_of(base), index)


def key_in(namespace: bytes, index: int) -> str:
    """As `derived_key`, of a base whose namespace is known: every call of an invocation has one."""
    text = f"{uuid_5(namespace, b'oplog-index-%d' % index):032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def uuid_5(namespace: bytes, name: bytes) -> int:
    """A UUID of version 5 as a number."""
    digest = sha1(namespace + name, usedforsecurity=False).digest()
    return int.from_bytes(digest[:16], "big") & UUID_FREE_BITS | UUID_5_BITS


def namespace_of(base: str) -> bytes:
    if HYPHENATED_UUID.match(base):
        return UUID(base).bytes
    return uuid_5(NAMESPACE.bytes, base.encode()).to_bytes(16, "big")


def call_namespace(worker_id: bytes, invocation_key: str) -> bytes:
    """The namespace of the keys of all calls of one invocation."""
    return namespace_of(f"{worker_id.hex()}/{invocation_key}")


def call_key(worker_id: bytes, invocation_key: str, index: int) -> str:
    """The key of the durable call whose `start` is at `index`."""
    return key_in(call_namespace(worker_id, invocation_key), index)
