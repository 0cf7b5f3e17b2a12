"""Entries as they were committed, decoded a page at a time.

Any thread; blocks for as long as the disk does. Sees committed entries only, and no transaction
stays open between pages, so a slow reader holds up nobody.
"""

from typing import Final

from oplog.codec import decode_entry
from oplog.engine import Engine
from oplog.entry import Entry, Raw
from oplog.errors import OplogCorruptError
from oplog.payload import reference_digest

STEP_ENTRIES: Final = 256
"""So many are read at a time: together at most 16 MiB."""
PAGE_BYTES: Final = 4 << 20
"""So much of entries ends a page."""


def resolve(engine: Engine, raw: Raw) -> Raw:
    """What a raw field holds: the content of a reference, or `raw` itself.

    Raises: OplogCorruptError if the content is gone or damaged.
    """
    digest = reference_digest(raw)
    return raw if digest is None else Raw(engine.read_payload(digest))


def decode_named(worker_id: bytes, index: int, encoded: bytes) -> Entry:
    """The entry. Raises: OplogCorruptError naming the worker and the index."""
    try:
        return decode_entry(encoded)
    except OplogCorruptError as error:
        raise OplogCorruptError(
            f"worker {worker_id.hex()}: entry {index} is damaged: {error}"
        ) from error


class Reader:
    """Reads any worker's oplog through one engine, which it does not own."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def read(self, worker_id: bytes, first: int, limit: int) -> list[tuple[int, Entry]]:
        """Up to `limit` consecutive entries from index `first` on: fewer where they are large, none
        only behind the last one.

        Raises: OplogCorruptError naming the worker and the index that does not decode.
        """
        found: list[tuple[int, Entry]] = []
        room = PAGE_BYTES
        while room > 0 and len(found) < limit:
            step = min(limit - len(found), STEP_ENTRIES)
            entries = self._engine.read_entries(worker_id, first + len(found), step)
            found += [
                (index, decode_named(worker_id, index, encoded)) for index, encoded in entries
            ]
            if len(entries) < step:
                break
            room -= sum(len(encoded) for _, encoded in entries)
        return found

    def resolve(self, raw: Raw) -> Raw:
        """As `resolve`."""
        return resolve(self._engine, raw)
