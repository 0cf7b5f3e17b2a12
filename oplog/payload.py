"""Large values live beside the oplog, by their content. Pure.

An entry whose bytes are more than `INLINE_BYTES_MAX` keeps, in place of each raw field that is
itself larger than that, a *reference*: the MessagePack extension 1 over the 32-byte BLAKE2b digest
of the field's bytes, 35 bytes in all. A value of a guest never holds an extension, so a reference
cannot be mistaken for one. An engine counts references by reading them out of the entries it
writes and deletes, so that no count can disagree with the oplog.
"""

import hashlib
from collections.abc import Sequence
from typing import Final

import msgspec

from oplog.entry import (
    Cancelled,
    Decision,
    End,
    Entry,
    HostStreamFrame,
    InvocationFinished,
    InvocationStarted,
    PendingInvocation,
    Raw,
    Start,
)

INLINE_BYTES_MAX: Final = 64 * 1024
DIGEST_BYTES: Final = 32
REFERENCE_PREFIX: Final = b"\xc7\x20\x01"
"""ext 8, 32 bytes, code 1."""
_REFERENCE_OCTET: Final = REFERENCE_PREFIX[0]
REFERENCE_BYTES: Final = len(REFERENCE_PREFIX) + DIGEST_BYTES

Payload = tuple[bytes, bytes]
"""Digest and content."""

_decode_map = msgspec.msgpack.Decoder(dict[str, Raw]).decode


def digest_of(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=DIGEST_BYTES).digest()


def reference_digest(raw: bytes | Raw) -> bytes | None:
    """The digest that a reference holds; None if `raw` is a value itself."""
    if len(raw) != REFERENCE_BYTES:
        return None
    content = bytes(raw)
    return content[len(REFERENCE_PREFIX) :] if content.startswith(REFERENCE_PREFIX) else None


def split_payloads(entry: Entry) -> tuple[Entry, list[Payload]]:
    """The entry with references in place of its large raw fields, and what they refer to."""
    payloads: list[Payload] = []

    def shorten(raw: Raw) -> Raw:
        if len(raw) <= INLINE_BYTES_MAX:
            return raw
        content = bytes(raw)
        digest = digest_of(content)
        payloads.append((digest, content))
        return Raw(REFERENCE_PREFIX + digest)

    replace = msgspec.structs.replace
    short: Entry
    match entry:
        case Start():
            short = replace(entry, request=shorten(entry.request))
        case End():
            short = replace(entry, response=shorten(entry.response))
        case Cancelled():
            short = replace(entry, partial=shorten(entry.partial))
        case InvocationStarted() | PendingInvocation():
            short = replace(entry, arguments=shorten(entry.arguments))
        case InvocationFinished():
            result = shorten(entry.outcome.result)
            short = replace(entry, outcome=replace(entry.outcome, result=result))
        case HostStreamFrame():
            short = replace(entry, payload=shorten(entry.payload))
        case Decision():
            short = replace(entry, value=shorten(entry.value))
        case _:
            return entry, payloads
    return (short, payloads) if payloads else (entry, payloads)


def references(encoded: bytes) -> list[bytes]:
    """The digests that an encoded entry refers to, one for each reference.

    Needs no knowledge of the entry's kind, so it also reads kinds that a later version added.

    Raises: msgspec.MsgspecError if the bytes hold the mark of a reference and are no map.
    """
    if REFERENCE_PREFIX not in encoded:
        return []
    digests: list[bytes] = []
    fields = _decode_map(encoded)
    outcome = fields.pop("outcome", None)
    values = list(fields.values())
    if outcome is not None:
        values.extend(_decode_map(outcome).values())
    for raw in values:
        digest = reference_digest(raw)
        if digest is not None:
            digests.append(digest)
    return digests


def all_references(entries: Sequence[tuple[bytes, int, bytes]]) -> list[bytes]:
    """The digests that the entries of a batch refer to, one for each reference.

    Looks for one octet first, which most entries do not have: every entry comes through here.
    """
    suspects = [encoded for _, _, encoded in entries if _REFERENCE_OCTET in encoded]
    return [digest for encoded in suspects for digest in references(encoded)]


def stored_references(encoded: bytes) -> list[bytes]:
    """As `references`, of an entry that is in the store.

    A damaged one refers to nothing, so that its worker can still be deleted.
    """
    try:
        return references(encoded)
    except msgspec.MsgspecError:
        return []
