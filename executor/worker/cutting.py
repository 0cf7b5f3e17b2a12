"""Cuts of a worker's own oplog: rollback, jump, revert. Each hides a region and discards the
instance; the next one is rebuilt from what is left.

Functions that are `async` are for the trio thread; the committed oplog is read on worker threads, a
page at a time. The instance has been left, and what it appended is committed.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final

import trio

from executor.errors import UsageError
from executor.replay.regions import Regions
from executor.replay.spans import Observed, Open, Spans
from executor.services.promises import deletions
from executor.worker.commits import store_error
from executor.worker.entries import PAGE_ENTRIES, WorkerEntries
from executor.worker.outcomes import deleted_worker
from executor.worker.status import Cuts, RevertedFold, Status, with_cut
from executor.worker.worker import Worker
from oplog.engine import Row
from oplog.entry import (
    CompletionDelivered,
    CompletionDiscarded,
    Decision,
    Entry,
    Error,
    InvocationFinished,
    InvocationStarted,
    Jump,
    PendingInvocation,
    Region,
    Revert,
    Start,
)
from oplog.errors import OplogCorruptError, OplogError

QUIET: Final = (Decision, Error, PendingInvocation)
"""What may follow a rollback without anything having run since."""


def committed_entries(entries: WorkerEntries, first: int, last: int) -> Iterator[tuple[int, Entry]]:
    """The committed entries from `first` to `last`, a page at a time. Blocks.

    Raises: OplogCorruptError if they end before `last`.
    """
    while first <= last:
        page = entries.page(first, min(last - first + 1, PAGE_ENTRIES))
        if not page:
            raise OplogCorruptError(f"entries {first} to {last} are missing: they were committed")
        yield from page
        first = page[-1][0] + 1


async def roll_back(worker: Worker) -> None:
    """Before an instance is made: closes what a crash, trap or interrupt left open in the current
    invocation, by one jump from the outermost begin. Durable on return.

    Raises: StoreError, OplogCorruptError.
    """
    begin = await open_now(worker)
    if begin:
        await jump(worker, begin, subtree=await scope_of(worker, begin))


async def open_now(worker: Worker) -> int:
    """From where the current invocation would run again, by what is committed; 0 if nothing is
    open. Raises: OplogCorruptError.
    """
    current = worker.status.current
    if current is None or not worker.status.marked:
        return 0
    return await trio.to_thread.run_sync(
        open_begin,
        worker.entries,
        Regions(worker.status.cuts),
        current.started_index,
        worker.writer.committed_index,
    )


def open_begin(entries: WorkerEntries, regions: Regions, first: int, last: int) -> int:
    """The outermost begin that is open at the end; 0 if none is, or if it has just been jumped to,
    or is a scope whose body has not begun. Blocks.
    """
    spans = Spans(regions)
    ran: Entry | None = None
    ran_at = 0
    for index, entry in committed_entries(entries, first, last):
        spans.add(index, entry)
        if not isinstance(entry, QUIET):
            ran, ran_at = entry, index
    begin = spans.now.begin
    if isinstance(ran, Jump) and ran.region.first == begin + 1:
        return 0
    return 0 if ran_at == begin and isinstance(ran, Start) else begin


async def jump(worker: Worker, target: int, *, subtree: int | None = None) -> None:
    """Hides what follows `target`, the body of the scope `subtree` if it is one, and takes the
    promises away that were made there. Durable on return. Raises: StoreError.
    """
    services = worker.services
    gone = await promises_behind(worker, target)
    with worker.writer.lock:
        region = Region(first=target + 1, last=worker.writer.last_index + 1)
        worker.append(Jump(at=services.sources.wall_ns(), region=region, subtree=subtree))
        worker.writer.attach(gone)
    await worker.commit()
    services.stores.promises.announce(gone)


async def promises_behind(worker: Worker, cut: int) -> list[Row]:
    """The rows that take away the promises that were made behind a cut. Nothing runs the worker, so
    it makes no more of them.
    """
    engine = worker.services.store.engine
    return await trio.to_thread.run_sync(deletions, engine, worker.id, cut + 1)


async def jump_back(worker: Worker, target: int) -> str | None:
    """Has the current invocation go on from entry `target`, from the beginning of a scope if that
    lies in its body; or says why it cannot. Durable on return. Raises: StoreError.
    """
    current = worker.status.current
    first = 0 if current is None else current.started_index
    if not first or not first <= target <= worker.writer.committed_index:
        return f"set-oplog-index: entry {target} is not in the current invocation"
    regions = Regions(worker.status.cuts)
    if target in regions.reverted or target in regions.jumped:
        return f"set-oplog-index: entry {target} is hidden: it was jumped over"
    found = await trio.to_thread.run_sync(open_at, worker.entries, regions, first, target)
    if found.calls:
        return f"set-oplog-index: durable host calls are still in flight at entry {target}"
    scope = await scope_of(worker, found.begin)
    await jump(worker, scope or target, subtree=scope)
    return None


def open_at(entries: WorkerEntries, regions: Regions, first: int, last: int) -> Open:
    """What is open after entry `last` of the invocation that began at `first`. Blocks."""
    spans = Spans(regions)
    for index, entry in committed_entries(entries, first, last):
        spans.add(index, entry)
    return spans.now


async def scope_of(worker: Worker, begin: int) -> int | None:
    """The begin itself if it is that of a scope."""
    if not begin:
        return None
    opened = await trio.to_thread.run_sync(worker.entries.one, begin)
    return begin if isinstance(opened, Start) else None


# -- revert ----------------------------------------------------------------------------------------


async def revert(worker: Worker, *, to: int | None, last: int | None) -> bool:
    """A revert that keeps entries up to `to`, or all but the last `last` invocations; False if
    nothing lies behind the cut. Everything is committed and nothing runs the worker meanwhile;
    what is accepted meanwhile stays accepted. Durable on return.

    Raises: UsageError naming the nearest legal cuts, WorkerDeleted, StoreError.
    """
    try:
        tail = worker.writer.committed_index
        cut = to if to is not None else await cut_before(worker, tail, last)
        return await cut_after(worker, cut, tail)
    except OplogError as error:
        refuse_deleted(worker)
        raise store_error(error, worker.name) from error


async def cut_after(worker: Worker, cut: int, tail: int) -> bool:
    """As `revert`, at a given cut."""
    if not 1 <= cut <= tail:
        raise UsageError(
            f"the oplog has entries 1 to {tail}, entry {cut} is not one of them",
            where=worker.name,
            hint="see `shem oplog`",
        )
    survey = Survey(worker.entries, worker.status.cuts, cut)
    while True:
        if survey.cuts != worker.status.cuts:  # somebody else has cut it back
            survey = Survey(worker.entries, worker.status.cuts, cut)
        await trio.to_thread.run_sync(survey.read, worker.writer.committed_index)
        if not survey.legal:
            raise await trio.to_thread.run_sync(refused_cut, worker, cut, tail)
        if cut == tail:
            return False
        gone = await promises_behind(worker, cut)
        reverted = append_revert(worker, survey, gone)
        await worker.commit_to_end()
        if reverted:
            worker.services.stores.promises.announce(gone)
            return True


def refuse_deleted(worker: Worker) -> None:
    """Raises: WorkerDeleted."""
    if worker.deleted:
        raise deleted_worker(worker.name, " meanwhile")


def append_revert(worker: Worker, survey: "Survey", gone: Sequence[Row]) -> bool:
    """Orders the revert if the survey has come to the last entry and knows of all cuts, with the
    rows that take away promises. Raises: WorkerDeleted.
    """
    writer = worker.writer
    with writer.lock:
        refuse_deleted(worker)
        index = writer.last_index + 1
        if survey.last != writer.last_index or survey.cuts != worker.status.cuts:
            return False
        entry = Revert(
            at=worker.services.sources.wall_ns(), region=Region(first=survey.cut + 1, last=index)
        )
        worker.append_revert(entry, survey.finished(index, entry))
        writer.attach(gone)
    return True


async def cut_before(worker: Worker, tail: int, count: int | None) -> int:
    """The cut before the last `count` visible invocations. Raises: UsageError."""
    regions = Regions(worker.status.cuts)
    started, found = await trio.to_thread.run_sync(
        last_started, worker.entries, regions, tail, count or 0
    )
    if count is None or not 1 <= count <= found:
        raise UsageError(
            f"the worker has {found} invocations to revert",
            where=worker.name,
            hint="name the last entry to keep with --to, or fewer invocations with --last",
        )
    return started[0] - 1


def last_started(
    entries: WorkerEntries, regions: Regions, tail: int, count: int
) -> tuple[deque[int], int]:
    """Where the last `count` visible invocations start, and how many there are in all. Blocks."""
    started: deque[int] = deque(maxlen=min(max(count, 0), tail))
    found = 0
    for index, entry in committed_entries(entries, 1, tail):
        if isinstance(entry, InvocationStarted) and not regions.hides(index, entry):
            started.append(index)
            found += 1
    return started, found


class Survey:
    """What a worker's whole oplog says of one cut, read a page at a time: whether it is legal, and
    the status that a revert to it leaves.
    """

    UNENDING: Final = 2**63
    """Stands for the index of the revert, which is known last."""

    def __init__(self, entries: WorkerEntries, cuts: Cuts, cut: int) -> None:
        self.cut = cut
        self.cuts = cuts
        """The jumps and reverts that it goes by."""
        self.last = 0
        self._entries = entries
        self._spans = Spans(Regions(cuts))
        whole = Revert(at=0, region=Region(first=cut + 1, last=self.UNENDING))
        self._fold = RevertedFold(with_cut(cuts, self.UNENDING, whole))
        self.legal = False
        """Whether the oplog may be cut there, by what was read."""
        self._behind = False
        """Whether the entry that was read last lies behind the cut, in the same invocation."""

    def read(self, last: int) -> None:
        """Goes on up to entry `last`. Blocks; any thread, one at a time."""
        for index, entry in committed_entries(self._entries, self.last + 1, last):
            self.last = index
            self._fold.add(index, entry)
            if not self._spans.add(index, entry):
                continue
            now = self._spans.now
            if index == self.cut:
                self.legal = now.legal
                self._behind = now.invocation > 0
            elif self._behind and isinstance(entry, CompletionDelivered | CompletionDiscarded):
                self.legal = self.legal and entry.start_index > self.cut
            elif isinstance(entry, InvocationFinished):
                self._behind = False

    def finished(self, index: int, entry: Revert) -> Status:
        """The status after the revert, which is entry `index`."""
        self._fold.add(index, entry)
        return self._fold.finished(with_cut(self.cuts, index, entry))


def refused_cut(worker: Worker, cut: int, tail: int) -> UsageError:
    """Why the oplog of `tail` entries cannot be cut there, and where it can. Blocks."""
    regions = Regions(worker.status.cuts)
    entries = worker.entries
    spans = Spans(regions, observed_calls(entries, regions, tail))
    why = "is hidden"
    below = above = 0
    for index, entry in committed_entries(entries, 1, tail):
        if not spans.add(index, entry):
            continue
        if index == cut:
            why = open_text(spans.now)
        elif spans.now.legal and index < cut:
            below = index
        elif spans.now.legal and index < tail:
            above = index
            break
    nearest = [str(index) for index in (below, above) if index]
    return UsageError(
        f"the oplog cannot be cut after entry {cut}: it {why}",
        where=worker.name,
        hint=f"the nearest entries after which it can be cut: {' or '.join(nearest)}",
    )


def observed_calls(entries: WorkerEntries, regions: Regions, last: int) -> Observed:
    """The calls whose answer the guest has seen, or dropped unseen. Blocks."""
    found: dict[int, set[int]] = {}
    invocation = 0
    for index, entry in committed_entries(entries, 1, last):
        if regions.hides(index, entry):
            continue
        if isinstance(entry, InvocationStarted):
            invocation = index
        elif isinstance(entry, CompletionDelivered | CompletionDiscarded):
            found.setdefault(invocation, set()).add(entry.start_index)
    return found


def open_text(state: Open) -> str:
    if state.calls:
        return f"lies inside the call that begins at {min(state.calls)}"
    if state.regions:
        return f"lies inside the atomic region or scope that begins at {state.regions[0]}"
    return f"lies inside the zone that persists nothing, which begins at {state.zone}"
