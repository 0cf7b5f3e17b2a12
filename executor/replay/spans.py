"""What is open after each entry: calls, atomic regions, a zone in which nothing is recorded.

A *cut* after entry i is legal if nothing is open there: a jump or revert that kept half of a pair
would leave a call that nobody ends. A jump's own target may lie in a region, but not in a call.

Pure, and incremental: entries are added in order, with those that jumps and reverts hide, since a
later cut may bring them back. A jump or revert makes the state again what it was before its region.
"""

from bisect import bisect_right
from collections.abc import Iterable
from typing import Final

import msgspec

from oplog.entry import (
    BeginAtomicRegion,
    Cancelled,
    End,
    EndAtomicRegion,
    Entry,
    InvocationFinished,
    InvocationStarted,
    Jump,
    Revert,
    SetPersistenceLevel,
    Start,
)

PERSIST_NOTHING: Final = "persist-nothing"


class Open(msgspec.Struct, frozen=True, kw_only=True):
    """What is open after one entry."""

    invocation: int = 0
    """Index of the `invocation-started`, 0 between invocations."""
    calls: frozenset[int] = frozenset()
    """Starts without a terminal."""
    regions: tuple[int, ...] = ()
    """Begins of atomic regions, outermost first."""
    zone: int = 0
    """Where the guest asked for nothing to be recorded, 0 if it has not."""

    @property
    def begin(self) -> int:
        """The outermost open begin, of a region or zone; 0 if there is none."""
        begins = [*self.regions, self.zone] if self.zone else self.regions
        return min(begins, default=0)

    @property
    def legal(self) -> bool:
        return not (self.calls or self.regions or self.zone)


NOTHING: Final = Open()


class Spans:
    """Open spans after each entry of an oplog, or of its part from one invocation on."""

    def __init__(self, entries: Iterable[tuple[int, Entry]] = ()) -> None:
        self._indices: list[int] = []
        self._states: list[Open] = []
        self.last = 0
        for index, entry in entries:
            self.add(index, entry)

    def add(self, index: int, entry: Entry) -> None:
        self.last = index
        if isinstance(entry, Jump | Revert):
            if isinstance(entry, Revert) or entry.subtree is None:
                self._note(index, self.after(entry.region.first - 1))
            return
        now = self.after(index)
        after = step(now, index, entry)
        if after is not now:
            self._note(index, after)

    def _note(self, index: int, state: Open) -> None:
        self._indices.append(index)
        self._states.append(state)

    def after(self, index: int) -> Open:
        """What was open when entry `index` was the last one."""
        at = bisect_right(self._indices, index) - 1
        return NOTHING if at < 0 else self._states[at]


def step(now: Open, index: int, entry: Entry) -> Open:
    """What is open after a visible entry; the same object if it opens and closes nothing."""
    replace = msgspec.structs.replace
    match entry:
        case InvocationStarted():
            return Open(invocation=index)
        case InvocationFinished():
            return NOTHING
        case Start():
            return replace(now, calls=now.calls | {index})
        case End() | Cancelled():
            return replace(now, calls=now.calls - {entry.start_index})
        case BeginAtomicRegion():
            return replace(now, regions=(*now.regions, index))
        case EndAtomicRegion():
            outer = tuple(begin for begin in now.regions if begin < entry.begin_index)
            return replace(now, regions=outer)
        case SetPersistenceLevel():
            return replace(now, zone=index if entry.level == PERSIST_NOTHING else 0)
        case _:
            return now
