"""What of a log is visible: the reference's reading of regions, invocations and open brackets.

Pure functions over a list of entries, slow and plain on purpose: each asks the whole log.
Indices are 1-based, as everywhere.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

GUEST_DRIVEN = frozenset(
    {
        "start",
        "no-op",
        "begin-atomic-region",
        "end-atomic-region",
        "set-retry-policy",
        "set-persistence-level",
        "set-idempotence-mode",
        "invocation-finished",
    }
)
"""Entries that the guest itself causes; while one is unconsumed an instance is not live."""


POSITIONAL = GUEST_DRIVEN | {"create", "end", "invocation-started", "jump"}
LIFECYCLE = frozenset({"error", "interrupted", "exited", "suspend", "resumed", "decision"})
"""Hints that a revert hides and a jump does not."""


@dataclass(slots=True)
class Entry:
    """One entry: its kind and the fields that the rules determine."""

    kind: str
    fields: dict[str, object] = field(default_factory=dict)
    at: int = 0
    """Nanoseconds; copied from the store when the entry is found there."""

    def __getitem__(self, name: str) -> object:
        return self.fields[name]

    def index(self, name: str) -> int:
        """A field that is an index."""
        value = self.fields[name]
        assert isinstance(value, int)
        return value

    def text(self, name: str) -> str:
        """A field that is text."""
        value = self.fields[name]
        assert isinstance(value, str)
        return value


Log = Sequence[Entry]
Region = tuple[int, int]


def numbered(log: Log) -> Iterator[tuple[int, Entry]]:
    """Every entry with its index."""
    return enumerate(log, 1)


def regions(log: Log) -> tuple[list[Region], list[Region]]:
    """The regions that count: those of jumps, those of reverts; latest first.

    A jump inside a reverted region does not count: the log is as it was before it.
    """
    jumps: list[Region] = []
    reverts: list[Region] = []
    for index in range(len(log), 0, -1):
        entry = log[index - 1]
        if entry.kind not in ("jump", "revert") or within(index, reverts):
            continue
        region = (entry.index("first"), index)
        (jumps if entry.kind == "jump" else reverts).append(region)
    return jumps, reverts


def within(index: int, spans: Sequence[Region]) -> bool:
    """Whether a region of `spans` covers `index`."""
    return any(first <= index <= last for first, last in spans)


def covered(spans: Sequence[Region], count: int) -> bytearray:
    """For each of `count` entries, the first one first, whether a region covers it."""
    mask = bytearray(count)
    for first, last in spans:
        mask[first - 1 : last] = bytes([1]) * (last - first + 1)
    return mask


def visible(log: Log) -> list[tuple[int, Entry]]:
    """What counts for replay and status: all but what a region hides of its kinds."""
    jumps, reverts = regions(log)
    if not jumps and not reverts:
        return list(numbered(log))
    jumped, reverted = covered(jumps, len(log)), covered(reverts, len(log))
    return [
        (index, entry)
        for index, entry in numbered(log)
        if not (
            (reverted[index - 1] and (entry.kind in POSITIONAL or entry.kind in LIFECYCLE))
            or (jumped[index - 1] and entry.kind in POSITIONAL)
        )
    ]


def hidden(log: Log) -> list[int]:
    """What is shown as hidden: what does not count, and the log lines beside it."""
    seen = {index for index, _ in visible(log)} - concealed_lines(log)
    return [index for index, _ in numbered(log) if index not in seen]


def concealed_lines(log: Log) -> set[int]:
    """Log lines inside hidden regions."""
    jumps, reverts = regions(log)
    mask = covered([*jumps, *reverts], len(log))
    return {index for index, entry in numbered(log) if entry.kind == "log" and mask[index - 1]}


def visible_logs(log: Log) -> list[tuple[int, Entry]]:
    """Log hints that a replaying write may take: those outside hidden regions."""
    concealed = concealed_lines(log)
    return [(i, e) for i, e in numbered(log) if e.kind == "log" and i not in concealed]


def current(log: Log) -> tuple[int, Entry] | None:
    """The invocation that is started and not finished."""
    running = None
    for index, entry in visible(log):
        if entry.kind == "invocation-started":
            running = (index, entry)
        elif entry.kind == "invocation-finished":
            running = None
    return running


def outcomes(log: Log) -> dict[str, Entry]:
    """Finished invocations by key; a reverted one is forgotten."""
    done: dict[str, Entry] = {}
    started = None
    for _, entry in visible(log):
        if entry.kind == "invocation-started":
            started = entry
        elif entry.kind == "invocation-finished" and started is not None:
            done[started.text("key")] = entry
    return done


def pending(log: Log) -> list[tuple[int, Entry]]:
    """The queue. A start consumes its pending entry for good, also when it is hidden."""
    queue: list[tuple[int, Entry]] = []
    for index, entry in numbered(log):
        if entry.kind == "pending-invocation":
            queue.append((index, entry))
        elif entry.kind in ("invocation-started", "cancel-pending-invocation"):
            for place, (_, waiting) in enumerate(queue):
                if waiting["key"] == entry["key"]:
                    del queue[place]
                    break
    return queue


def cancelled(log: Log) -> set[str]:
    """Keys that were cancelled before they started: known for ever."""
    return {e.text("key") for e in log if e.kind == "cancel-pending-invocation"}


@dataclass(slots=True)
class Brackets:
    """What the current invocation has open."""

    calls: set[int]
    regions: list[int]
    zone: int

    @property
    def begin(self) -> int:
        """The outermost begin, 0 if there is none."""
        return min([*self.regions, *([self.zone] if self.zone else [])], default=0)


def open_brackets(log: Log) -> Brackets:
    """Calls without an end, atomic regions and scopes (a start without a request), and the zone,
    that are open at the end of `log`.
    """
    found = Brackets(set(), [], 0)
    running = current(log)
    if running is None:
        return found
    for index, entry in visible(log):
        if index < running[0]:
            continue
        match entry.kind:
            case "start" if entry["request"] is None:
                found.regions.append(index)
            case "start":
                found.calls.add(index)
            case "end":
                ended = entry.index("start_index")
                found.calls.discard(ended)
                if ended in found.regions:
                    found.regions = [begin for begin in found.regions if begin < ended]
            case "begin-atomic-region":
                found.regions.append(index)
            case "end-atomic-region":
                ended = entry.index("begin_index")
                found.regions = [begin for begin in found.regions if begin < ended]
            case "set-persistence-level":
                found.zone = index if entry["value"] == "persist-nothing" else 0
            case _:
                pass
    return found


def subtrees(log: Log) -> set[int]:
    """Scopes whose body was hidden by a jump that counts."""
    jumps, _ = regions(log)
    return {log[last - 1].fields["subtree"] for _, last in jumps} - {None}


def question(log: Log) -> int:
    """The start of the call that waits for an owner's word, 0 if none does."""
    asked = 0
    for _, entry in visible(log):
        if entry.kind == "decision":
            asked = entry.index("start_index") if entry["choice"] == "asked" else 0
        elif entry.kind == "invocation-finished":
            asked = 0
    return asked


def interrupted(log: Log) -> bool:
    """Whether the worker stands still until it is resumed; not if nothing is left to go on with."""
    still = False
    for index, entry in visible(log):
        if entry.kind in ("interrupted", "resumed"):
            still = entry.kind == "interrupted"
        elif still and entry.kind == "cancel-pending-invocation":
            still = has_work(log[:index])
    return still


def has_work(log: Log) -> bool:
    """Whether an invocation is under way, or waits."""
    return current(log) is not None or bool(pending(log))
