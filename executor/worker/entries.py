"""Committed entries with their large values in place."""

from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from oplog.codec import damaged_value, decode_value
from oplog.entry import (
    ABSENT,
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
from oplog.errors import OplogCorruptError
from oplog.payload import REFERENCE_BYTES
from oplog.reader import Reader

PAGE_ENTRIES: Final = 1_024
PAGE_VALUE_BYTES: Final = 8 * 1024 * 1024
"""So many bytes of large values end a page."""


def resolved(entry: Entry, resolve: Callable[[Raw], Raw]) -> Entry:
    """The entry with every reference to a large value replaced by the value."""
    match entry:
        case End():
            if len(entry.response) == REFERENCE_BYTES:
                return replace(entry, response=resolve(entry.response))
        case Start():
            if len(entry.request) == REFERENCE_BYTES:
                return replace(entry, request=resolve(entry.request))
        case Cancelled():
            if len(entry.partial) == REFERENCE_BYTES:
                return replace(entry, partial=resolve(entry.partial))
        case Decision():
            if len(entry.value) == REFERENCE_BYTES:
                return replace(entry, value=resolve(entry.value))
        case HostStreamFrame():
            if len(entry.payload) == REFERENCE_BYTES:
                return replace(entry, payload=resolve(entry.payload))
        case InvocationStarted() | PendingInvocation():
            if len(entry.arguments) == REFERENCE_BYTES:
                return replace(entry, arguments=resolve(entry.arguments))
        case InvocationFinished():
            result = entry.outcome.result
            if result is not ABSENT and len(result) == REFERENCE_BYTES:
                return replace(entry, outcome=replace(entry.outcome, result=resolve(result)))
        case _:
            pass
    return entry


class WorkerEntries:
    """One worker's committed entries."""

    def __init__(self, reader: Reader, worker_id: bytes) -> None:
        self._reader = reader
        self._worker_id = worker_id

    def page(self, first: int, limit: int = PAGE_ENTRIES) -> list[tuple[int, Entry]]:
        """Up to `limit` entries from index `first`: fewer where large values fill the page, none
        only behind the last. Raises: OplogCorruptError.
        """
        return self._page(first, limit, frames=True)

    def _page(self, first: int, limit: int, *, frames: bool) -> list[tuple[int, Entry]]:
        room = PAGE_VALUE_BYTES

        def resolve(raw: Raw) -> Raw:
            nonlocal room
            value = self._reader.resolve(raw)
            room -= len(value)
            return value

        page: list[tuple[int, Entry]] = []
        found = self._reader.read(self._worker_id, first, limit)
        try:
            for index, entry in found:
                whole = frames or not isinstance(entry, HostStreamFrame)
                page.append((index, resolved(entry, resolve) if whole else entry))
                if room <= 0:
                    break
        except OplogCorruptError as error:
            raise damaged_value(index, error) from error
        return page

    def replayed(self, first: int, limit: int) -> list[tuple[int, Entry]]:
        """As `page`, for a replay: of a frame it has to know only that it is there."""
        return self._page(first, limit, frames=False)

    def frame(self, index: int) -> bytes:
        """What the frame at `index`, which is committed, holds."""
        [(_, frame)] = self._reader.read(self._worker_id, index, 1)
        assert isinstance(frame, HostStreamFrame)
        content = decode_value(self._reader.resolve(frame.payload), index)
        assert isinstance(content, bytes)
        return content

    def one(self, index: int) -> Entry | None:
        """The entry at `index`, or None if it is not committed."""
        page = self.page(index, 1)
        return page[0][1] if page else None
