"""Rebuilding a worker beside the living one, to see whether its oplog still answers.

The rebuilt instance never goes live: it stops where the recorded history, or the given index, ends.
Nothing is appended.
"""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import trio

from executor.durable.reasons import ReachedTarget
from executor.errors import Divergence
from executor.host.state import HostState
from executor.records import DivergenceRecord, Rebuild
from executor.wasm.instance import Left, Raised
from executor.wasm.traps import Trapped
from executor.worker.commits import store_error, store_errors
from executor.worker.cutting import open_now, refuse_deleted
from executor.worker.making import make_resident, rebuild
from executor.worker.resident import Replayed, Resident
from executor.worker.worker import Worker
from oplog.errors import OplogError


@asynccontextmanager
async def rebuilt(
    worker: Worker,
    *,
    to: int | None = None,
    on_target: Callable[[HostState], None] | None = None,
) -> AsyncIterator[tuple[Resident, Replayed]]:
    """The worker's instance with its history up to entry `to`, or all of it, replayed. What stands
    open at the end of all, and holds what replay cannot answer, is no divergence: the next instance
    runs it again, from its begin.

    Raises: WorkerDeleted if it was deleted meanwhile, whatever that has looked like.
    """
    try:
        async with rebuilt_once(worker, to=to, on_target=on_target) as (resident, end):
            begin = await open_before(worker, end) if to is None else 0
            if not begin:
                yield resident, end
        if begin:
            async with rebuilt_once(worker, to=begin, on_target=on_target) as (resident, end):
                yield resident, end
    except Exception:
        refuse_deleted(worker)
        raise
    refuse_deleted(worker)


@asynccontextmanager
async def rebuilt_once(
    worker: Worker, *, to: int | None, on_target: Callable[[HostState], None] | None
) -> AsyncIterator[tuple[Resident, Replayed]]:
    resident = await make_resident(worker, may_go_live=False, to=to, on_target=on_target)
    try:
        yield resident, await rebuild(resident)
    finally:
        with trio.CancelScope(shield=True):
            await resident.close(writes_awaited_s=0)


async def open_before(worker: Worker, end: Replayed) -> int:
    """The begin of what was open where a replay diverged, 0 if it did not, or nothing was."""
    match end.outcome:
        case Raised(Divergence() as divergence):
            with store_errors(worker.name):
                begin = await open_now(worker)
            return begin if begin < divergence.index else 0
        case _:
            return 0


async def rebuild_beside(worker: Worker, *, to: int | None) -> Rebuild:
    """Replays up to entry `to`, or everything. Raises: StoreError, ReplayPanic, WorkerDeleted."""
    began = time.perf_counter()
    async with rebuilt(worker, to=to) as (resident, end):
        pass
    return Rebuild(
        worker=worker.name,
        entries=worker.writer.committed_index,
        replayed=resident.session.cursor.consumed,
        ms=(time.perf_counter() - began) * 1_000,
        divergence=read_divergence(end, worker.name),
        stopped_at=stop_text(end),
    )


def read_divergence(end: Replayed, worker: str) -> DivergenceRecord | None:
    """The divergence that ended a replay, if one did. Raises whatever else went wrong."""
    match end.outcome:
        case None | Left(ReachedTarget()):
            return None
        case Raised(Divergence() as divergence):
            return DivergenceRecord(
                index=divergence.index,
                recorded=divergence.recorded,
                requested=divergence.requested,
            )
        case Raised(OplogError() as error):
            raise store_error(error, worker) from error
        case Raised(error):
            raise error
        case Trapped() as trap:
            return DivergenceRecord(
                index=0, recorded="a working instance", requested=f"trap: {trap.message}"
            )
        case other:
            return DivergenceRecord(
                index=0, recorded="the end of the history", requested=f"{other}"
            )


def raise_divergence(end: Replayed, worker: str) -> None:
    """Raises whatever kept a replay from its end: a divergence, or as `read_divergence`."""
    found = read_divergence(end, worker)
    if found is not None:
        raise Divergence(
            worker=worker,
            index=found.index,
            recorded=found.recorded,
            requested=found.requested,
        )


def stop_text(end: Replayed) -> str | None:
    if end.stopped is None:
        return None
    if end.stopped.failure is not None:
        return f"failed: {end.stopped.failure.message}"
    return f"exited with code {end.stopped.exit}"
