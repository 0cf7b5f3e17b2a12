"""Which entries of an oplog are hidden, by jumps and reverts.

A region is first..last, where last is the index of the jump or revert itself and first is the
entry after the one that stays. Regions are computed latest first, and one whose own entry lies in
a reverted region does not count: a revert gives back what a jump inside it had hidden.

A jump hides positional entries and delivery hints, but not the `end` of a call that began before
its region: the call is still there, and what it came to has not changed. A revert hides also
errors, decisions and the lifecycle.
Pending and cancelled invocations, updates and logs are never hidden here (a hidden log is a matter
of display), and an invocation that has started has consumed its pending entry for good.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Final

from oplog.entry import (
    HINTS,
    CompletionDelivered,
    CompletionDiscarded,
    Decision,
    End,
    Entry,
    Error,
    Exited,
    HostStreamFrame,
    Interrupted,
    Jump,
    Log,
    Region,
    Resumed,
    Revert,
    Suspend,
)

DELIVERY_HINTS: Final[frozenset[type]] = frozenset(
    {CompletionDelivered, CompletionDiscarded, HostStreamFrame}
)
REVERTED_HINTS: Final[frozenset[type]] = DELIVERY_HINTS | {
    Decision,
    Error,
    Exited,
    Interrupted,
    Resumed,
    Suspend,
}


class HiddenRanges:
    """Sorted, disjoint index ranges with a quick membership test."""

    __slots__ = ("firsts", "lasts")

    def __init__(self, regions: Iterable[Region]) -> None:
        merged: list[list[int]] = []
        for region in sorted(regions, key=lambda region: region.first):
            if merged and region.first <= merged[-1][1] + 1:
                merged[-1][1] = max(merged[-1][1], region.last)
            else:
                merged.append([region.first, region.last])
        self.firsts = [first for first, _ in merged]
        self.lasts = [last for _, last in merged]

    def __contains__(self, index: int) -> bool:
        at = bisect_right(self.firsts, index) - 1
        return at >= 0 and index <= self.lasts[at]

    def first_of(self, index: int) -> int:
        """Where the range of a hidden index begins."""
        return self.firsts[bisect_right(self.firsts, index) - 1]

    def touches(self, first: int, last: int) -> bool:
        """Whether any hidden index lies in first..last."""
        at = bisect_right(self.firsts, last) - 1
        return at >= 0 and self.lasts[at] >= first

    def __bool__(self) -> bool:
        return bool(self.firsts)


class Regions:
    """The hidden regions of one oplog. Immutable."""

    __slots__ = ("counted", "jumped", "reverted", "subtrees")

    def __init__(self, cuts: Sequence[tuple[int, Jump | Revert]] = ()) -> None:
        """`cuts`: every jump and revert of the oplog with its index, in order."""
        reverted: list[Region] = []
        jumped: list[Region] = []
        subtrees: set[int] = set()
        ranges = HiddenRanges(())
        for index, cut in reversed(cuts):
            if index in ranges:
                continue
            if isinstance(cut, Revert):
                reverted.append(cut.region)
                ranges = HiddenRanges(reverted)
            else:
                jumped.append(cut.region)
                if cut.subtree is not None:
                    subtrees.add(cut.subtree)
        self.reverted = ranges
        self.jumped = HiddenRanges(jumped)
        self.counted = (*reverted, *jumped)
        """The regions themselves, those of reverts first."""
        self.subtrees = frozenset(subtrees)
        """The starts of scopes whose body was hidden, and is to run again."""

    def hides(self, index: int, entry: Entry) -> bool:
        """Whether replay and the status fold pass over `entry`."""
        kind = type(entry)
        if kind is Revert:
            return False
        if index in self.reverted and (kind not in HINTS or kind in REVERTED_HINTS):
            return True
        if index not in self.jumped:
            return False
        if isinstance(entry, End) and entry.start_index not in self.subtrees:
            return entry.start_index >= self.jumped.first_of(index)
        return kind not in HINTS or kind in DELIVERY_HINTS

    def conceals(self, index: int, entry: Entry) -> bool:
        """Whether a reader is shown `entry` as hidden: as `hides`, and logs of hidden regions."""
        if type(entry) is Log:
            return index in self.reverted or index in self.jumped
        return self.hides(index, entry)

    def touches(self, first: int, last: int) -> bool:
        return self.reverted.touches(first, last) or self.jumped.touches(first, last)
