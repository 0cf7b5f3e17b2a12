"""Cuts of a worker's own oplog: rollback, jump, revert. Each hides a region and discards the
instance; the next one is rebuilt from what is left.

All functions are for the trio thread and read the committed oplog, so the instance has been left
and what it appended is committed.
"""

from collections.abc import Iterator
from typing import Final

from executor.errors import UsageError
from executor.replay.regions import HiddenRanges, Regions
from executor.replay.spans import Open, Spans
from executor.worker.entries import WorkerEntries
from executor.worker.worker import Worker
from oplog.entry import (
    Decision,
    Entry,
    Error,
    InvocationStarted,
    Jump,
    PendingInvocation,
    Region,
    Revert,
)

QUIET: Final = (Decision, Error, PendingInvocation)
"""What may follow a rollback without anything having run since."""


def committed_entries(entries: WorkerEntries, first: int) -> Iterator[tuple[int, Entry]]:
    """Every committed entry from `first` on, a page at a time."""
    while page := entries.page(first):
        yield from page
        first = page[-1][0] + 1


async def roll_back(worker: Worker) -> None:
    """Before an instance is made: closes what a crash, trap or interrupt left open in the current
    invocation, by one jump from the outermost begin. Durable on return.

    Raises: StoreError.
    """
    current = worker.status.current
    if current is None or not worker.status.marked:
        return
    spans = Spans()
    last: Entry | None = None
    for index, entry in committed_entries(worker.entries, current.started_index):
        spans.add(index, entry)
        if not isinstance(entry, QUIET):
            last = entry
    begin = spans.after(spans.last).begin
    if not begin or (isinstance(last, Jump) and last.region.first == begin + 1):
        return
    append_jump(worker, begin)
    await worker.commit()


def append_jump(worker: Worker, target: int) -> None:
    """Hides what follows `target`. Not durable."""
    at = worker.services.sources.wall_ns()
    with worker.writer.lock:
        region = Region(first=target + 1, last=worker.writer.last_index + 1)
        worker.append(Jump(at=at, region=region))


def jump_refusal(worker: Worker, target: int) -> str | None:
    """Why the current invocation cannot go on from entry `target`, or None if it can."""
    current = worker.status.current
    first = 0 if current is None else current.started_index
    if not first or not first <= target <= worker.writer.committed_index:
        return f"set-oplog-index: entry {target} is not in the current invocation"
    regions = Regions(worker.status.cuts)
    if target in regions.reverted or target in regions.jumped:
        return f"set-oplog-index: entry {target} is hidden: it was jumped over"
    spans = Spans(committed_entries(worker.entries, first))
    if spans.after(target).calls:
        return f"set-oplog-index: durable host calls are still in flight at entry {target}"
    return None


def revert(worker: Worker, *, to: int | None, last: int | None) -> int:
    """Orders a revert that keeps entries up to `to`, or all but the last `last` invocations.

    Answers the index of the last entry that is kept. Raises: UsageError naming the nearest legal
    cuts; then nothing is appended.
    """
    history = list(committed_entries(worker.entries, 1))
    regions = Regions(worker.status.cuts)
    spans = Spans(history)
    cut = before_last(worker, history, regions, last) if to is None else to
    refuse_cut(worker, spans, split_by(regions), cut)
    if cut == spans.last:
        return cut
    with worker.writer.lock:
        index = worker.writer.last_index + 1
        entry = Revert(
            at=worker.services.sources.wall_ns(), region=Region(first=cut + 1, last=index)
        )
        worker.append_revert(entry, [*history, (index, entry)])
    return cut


def before_last(
    worker: Worker, history: list[tuple[int, Entry]], regions: Regions, count: int | None
) -> int:
    """The cut before the last `count` visible invocations. Raises: UsageError."""
    started = [
        index
        for index, entry in history
        if isinstance(entry, InvocationStarted) and not regions.hides(index, entry)
    ]
    if count is None or not 1 <= count <= len(started):
        raise UsageError(
            f"the worker has {len(started)} invocations to revert",
            where=worker.name,
            hint="name the last entry to keep with --to, or fewer invocations with --last",
        )
    return started[-count] - 1


def split_by(regions: Regions) -> HiddenRanges:
    """The entries after which a cut would keep a part of a region; after its last one it keeps the
    whole.
    """
    return HiddenRanges(
        Region(first=region.first, last=region.last - 1)
        for region in regions.counted
        if region.first < region.last
    )


def refuse_cut(worker: Worker, spans: Spans, split: HiddenRanges, cut: int) -> None:
    """Raises: UsageError unless the oplog may be cut after entry `cut`."""
    if not 1 <= cut <= spans.last:
        raise UsageError(
            f"the oplog has entries 1 to {spans.last}, entry {cut} is not one of them",
            where=worker.name,
            hint="see `shem oplog`",
        )
    if is_legal(spans, split, cut):
        return
    why = "is hidden" if cut in split else open_text(spans.after(cut))
    below = next((i for i in range(cut - 1, 0, -1) if is_legal(spans, split, i)), None)
    above = next((i for i in range(cut + 1, spans.last) if is_legal(spans, split, i)), None)
    nearest = " or ".join(str(i) for i in (below, above) if i is not None)
    raise UsageError(
        f"the oplog cannot be cut after entry {cut}: it {why}",
        where=worker.name,
        hint=f"the nearest entries after which it can be cut: {nearest}",
    )


def is_legal(spans: Spans, split: HiddenRanges, cut: int) -> bool:
    return cut not in split and spans.after(cut).legal


def open_text(state: Open) -> str:
    if state.calls:
        return f"lies inside the call that begins at {min(state.calls)}"
    if state.regions:
        return f"lies inside the atomic region that begins at {state.regions[0]}"
    return f"lies inside the zone that persists nothing, which begins at {state.zone}"
