"""The one place where recorded entries are consumed.

A cursor starts from an index and a target (the committed tail when recovery began) and reads pages
of at most 1,024 entries. It sorts what it reads:

- *guest-driven* entries wait, in order, until the replaying guest causes each of them again;
- an `end` waits under the index of its start;
- a log hint waits, in order, under its level, outside hidden regions (their text is not compared);
- the index of a frame of a host's stream waits, in order, under its call;
- every other hint, and whatever a region hides, is passed over.

Logs and frames are hints that a guest writes. Those that lie before what the guest has caused again
by now are passed over: they were written by one that was lost behind something that is not
recorded, and the one after it went another way.

*Drained* means that no guest-driven entry is left up to the target; an `end` does not count. An
answer is looked up ahead of the guest only as far as needed, so memory follows the work in hand.

A jump inside the visible history is guest-driven only where it is not yet hidden: a jump hides
itself, so a cursor never meets one.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from executor.replay.regions import Regions
from oplog.entry import (
    BeginAtomicRegion,
    Cancelled,
    CompletionDelivered,
    CompletionDiscarded,
    End,
    EndAtomicRegion,
    Entry,
    HostStreamFrame,
    InvocationFinished,
    InvocationStarted,
    Log,
    NoOp,
    SetIdempotenceMode,
    SetPersistenceLevel,
    SetRetryPolicy,
    SpanAttribute,
    SpanFinished,
    SpanStarted,
    Start,
)
from oplog.errors import OplogCorruptError

PAGE_ENTRIES_MAX: Final = 1_024

GUEST_DRIVEN: Final[frozenset[type]] = frozenset(
    {
        Start,
        Cancelled,
        NoOp,
        BeginAtomicRegion,
        EndAtomicRegion,
        SetRetryPolicy,
        SetPersistenceLevel,
        SetIdempotenceMode,
        SpanStarted,
        SpanFinished,
        SpanAttribute,
        CompletionDelivered,
        CompletionDiscarded,
        InvocationStarted,
        InvocationFinished,
    }
)
"""What the guest itself causes, invocation-started included: the loop consumes that one."""

ReadPage = Callable[[int, int], Sequence[tuple[int, Entry]]]
"""`read(first, limit)`: entries with their indices, consecutive from `first`."""


class Cursor:
    """Consumes one oplog from `first` to `target`. Used by one thread at a time."""

    __slots__ = (
        "_ends",
        "_frames",
        "_guest",
        "_logs",
        "_next_index",
        "_read",
        "consumed",
        "regions",
        "taken",
        "target",
    )

    def __init__(self, read: ReadPage, *, first: int, target: int, regions: Regions) -> None:
        self._read = read
        self._next_index = first
        self.regions = regions
        self._guest: deque[tuple[int, Entry]] = deque()
        self._ends: dict[int, tuple[int, End | Cancelled]] = {}
        self._logs: dict[str, deque[tuple[int, Log]]] = {}
        self._frames: dict[int, deque[int]] = {}
        self.target = target
        self.consumed = 0
        """Guest-driven entries and terminals consumed so far."""
        self.taken = 0
        """The index of the last guest-driven entry consumed, or the one up to which all is passed
        over: no log or frame before it is taken any more."""

    def peek(self) -> tuple[int, Entry] | None:
        """The next guest-driven entry, or None if the cursor is drained."""
        guest = self._guest
        while not guest:
            if not self._read_page():
                return None
        return guest[0]

    def take(self) -> None:
        """Consumes what `peek` answered."""
        self.taken = self._guest.popleft()[0]
        self.consumed += 1

    def take_terminal(self, start_index: int) -> End | Cancelled | None:
        """The `end` or `cancelled` of a claimed start, None if there is none up to the target."""
        ends = self._ends
        while start_index not in ends:
            if not self._read_page():
                return None
        self.consumed += 1
        return ends.pop(start_index)[1]

    def end_index(self, start_index: int) -> int:
        """Where the terminal of a claimed start lies, which is not consumed; 0 if there is none."""
        while start_index not in self._ends:
            if not self._read_page():
                return 0
        return self._ends[start_index][0]

    def skip_before(self, index: int) -> None:
        """Passes over what a part of the guest caused that does not run again: all guest-driven
        entries up to `index`, with their terminals, and what was written among them.
        """
        while (found := self.peek()) is not None and found[0] < index:
            self.take()
            self._ends.pop(found[0], None)
        self.taken = max(self.taken, index - 1)

    def take_log(self, level: str) -> Log | None:
        """The next unconsumed log hint of `level`, or None if none is left up to the target."""
        logs = self._logs.setdefault(level, deque())
        while True:
            while logs:
                index, log = logs.popleft()
                if index > self.taken:
                    return log
            if not self._read_page():
                return None

    def take_same_log(self, entry: Log) -> bool:
        """Whether the next unconsumed log hint says what `entry` does; it is then consumed, else
        none of them is there any more. Once the cursor is drained.
        """
        said = self.take_log(entry.level)
        if said is not None and (said.text, said.octets, said.context) == (
            entry.text,
            entry.octets,
            entry.context,
        ):
            return True
        self._logs.clear()
        return False

    def take_frame(self, parent_start: int) -> int | None:
        """The index of the next unconsumed frame of a call's stream; None if none is left up to the
        target. Who needs what the frame holds reads it again: there may be more of it than memory.
        """
        frames = self._frames.setdefault(parent_start, deque())
        while True:
            while frames:
                index = frames.popleft()
                if index > self.taken:
                    return index
            if not self._read_page():
                return None

    def extend(self, target: int) -> None:
        """Moves the target to a later committed tail."""
        self.target = max(self.target, target)

    def _read_page(self) -> bool:
        """Reads and sorts one page; False at the target.

        Raises: OplogCorruptError if the target is not reached and nothing follows: an oplog with a
        hole must not pass for one that is replayed whole.
        """
        remaining = self.target - self._next_index + 1
        if remaining <= 0:
            return False
        page = self._read(self._next_index, min(remaining, PAGE_ENTRIES_MAX))
        if not page:
            raise OplogCorruptError(
                f"entries {self._next_index} to {self.target} are missing: they were committed"
            )
        last = page[-1][0]
        regions = self.regions if self.regions.touches(self._next_index, last) else None
        guest = self._guest
        ends = self._ends
        for found in page:
            index, entry = found
            kind = type(entry)
            if regions is not None and (
                regions.conceals(index, entry) if kind is Log else regions.hides(index, entry)
            ):
                continue
            if isinstance(entry, End):
                ends[entry.start_index] = index, entry
            elif kind in GUEST_DRIVEN:
                guest.append(found)
                if isinstance(entry, Cancelled):
                    ends[entry.start_index] = index, entry
            elif isinstance(entry, Log):
                self._logs.setdefault(entry.level, deque()).append((index, entry))
            elif isinstance(entry, HostStreamFrame):
                self._frames.setdefault(entry.parent_start, deque()).append(index)
        self._next_index = last + 1
        return True
