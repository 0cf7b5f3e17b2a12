"""What is open after each entry: calls, atomic regions, a zone in which nothing is recorded.

A *cut* after entry i is legal if nothing is open there: a jump or revert that kept half of a pair
would leave a call that nobody ends. A jump's own target may lie in a region, but not in a call.
The marker of a deferred call's delivery belongs to the pair in the invocation in which it lies:
else a revert would keep an answer and forget that it was seen. Whoever knows where markers lie says
so. A call that outlives its invocation holds up no cut between that and its marker's.

Pure, and incremental: what is open after a visible entry follows from the visible ones before it.
Whatever hid others when that entry was the last one hides them still, or was itself undone by a
revert that hides them. A cut may also lie right behind a jump or revert that counts.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from types import MappingProxyType
from typing import Final

import msgspec

from executor.replay.regions import HiddenRanges, Regions
from oplog.entry import (
    ABSENT,
    BeginAtomicRegion,
    Cancelled,
    CompletionDelivered,
    CompletionDiscarded,
    End,
    EndAtomicRegion,
    Entry,
    InvocationFinished,
    InvocationStarted,
    Region,
    SetPersistenceLevel,
    Start,
)

PERSIST_NOTHING: Final = "persist-nothing"


class Open(msgspec.Struct, frozen=True, kw_only=True):
    """What is open after one entry."""

    invocation: int = 0
    """Index of the `invocation-started`, 0 between invocations."""
    calls: frozenset[int] = frozenset()
    """Starts without a terminal, or whose marker is still to come in the invocation."""
    regions: tuple[int, ...] = ()
    """Begins of atomic regions and scopes, outermost first."""
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

Observed = Mapping[int, AbstractSet[int]]
"""The starts of calls with a visible marker, by the `invocation-started` before that."""


class Spans:
    """What is open, entry by entry, in an oplog or its part from one invocation on."""

    def __init__(self, regions: Regions, observed: Observed = MappingProxyType({})) -> None:
        """A call is open until its `end`, and in the invocation in which it is `observed` until its
        marker.
        """
        self._regions = regions
        self._observed = observed
        self._split = HiddenRanges(
            Region(region.first, region.last - 1) for region in regions.counted
        )
        """The entries after which a cut would keep a part of a hidden region; after its last one it
        keeps the whole."""
        self.now = NOTHING
        """What is open after the last visible entry."""

    def add(self, index: int, entry: Entry) -> bool:
        """Takes the next entry; whether it is one of those after which a cut may lie."""
        if index in self._split:
            if isinstance(entry, End) and not self._regions.hides(index, entry):
                self._step(index, entry)
            return False
        self._step(index, entry)
        return True

    def _step(self, index: int, entry: Entry) -> None:
        if isinstance(entry, End) and entry.start_index in self._seen_in(self.now.invocation):
            return
        self.now = step(self.now, index, entry)
        if isinstance(entry, InvocationStarted):
            before = frozenset(start for start in self._seen_in(index) if start < index)
            self.now = msgspec.structs.replace(self.now, calls=before)

    def _seen_in(self, invocation: int) -> AbstractSet[int]:
        return self._observed.get(invocation, frozenset())


def is_begin(entry: Entry) -> bool:
    """Whether something begins that happens as a whole: an atomic region, or a scope, which is a
    `start` without a request, and what follows up to its `end` its body.
    """
    if isinstance(entry, Start):
        return entry.request is ABSENT and entry.parent_start is None
    return isinstance(entry, BeginAtomicRegion)


def step(now: Open, index: int, entry: Entry) -> Open:
    """What is open after a visible entry; the same object if it opens and closes nothing."""
    replace = msgspec.structs.replace
    match entry:
        case InvocationStarted():
            return Open(invocation=index)
        case InvocationFinished():
            return NOTHING
        case BeginAtomicRegion() | Start() if is_begin(entry):
            return replace(now, regions=(*now.regions, index))
        case End() if entry.start_index in now.regions:
            outer = tuple(begin for begin in now.regions if begin < entry.start_index)
            return replace(now, regions=outer)
        case Start():
            return replace(now, calls=now.calls | {index})
        case End() | Cancelled() | CompletionDelivered() | CompletionDiscarded():
            return replace(now, calls=now.calls - {entry.start_index})
        case EndAtomicRegion():
            outer = tuple(begin for begin in now.regions if begin < entry.begin_index)
            return replace(now, regions=outer)
        case SetPersistenceLevel():
            return replace(now, zone=index if entry.level == PERSIST_NOTHING else 0)
        case _:
            return now
