"""What does an invocation with one remote write cost, beside two commits of LMDB?

Two commits are the least: the `start` of a write is durable before its effect, the outcome before
its answer.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import trio

from benches.measure import Figure, Rounds, directory, medians, seconds_async, steps_executor
from benches.raw_store import RawStore, RecordingEngine, puts_of
from executor import Executor
from oplog.store import Store

INVOCATIONS_A_ROUND = 25
ROUNDS = 21
COMMITS_AN_INVOCATION = 2
WORKERS = 64
INVOCATIONS_A_WORKER = 8
US = 1e6


def sequential() -> Sequence[Figure]:
    with directory() as path:
        rounds, transactions = trio.run(against_raw_commits, path)
    return [
        Figure(
            bench="invocations_sequential",
            value=rounds.ours,
            unit="us",
            baseline=rounds.baseline,
            ratio=rounds.ratio,
            goal="<= 2.0",
            note=f"one worker, one remote write each, {US / rounds.ours:,.0f}/s,"
            f" {transactions:.2f} transactions each; against two raw LMDB commits of these bytes",
        )
    ]


async def against_raw_commits(path: Path) -> tuple[Rounds, float]:
    """Per invocation in us, and how many transactions it took."""
    engine = RecordingEngine.open(path / "store")
    pairs: list[tuple[float, float]] = []
    transactions = 0
    with RawStore(path / "raw") as raw:
        async with steps_executor(path, store=Store(engine)) as shem:
            await invoke_many(shem, "steps/one", INVOCATIONS_A_ROUND)
            engine.take()
            for _ in range(ROUNDS):
                ours = await seconds_async(
                    lambda: invoke_many(shem, "steps/one", INVOCATIONS_A_ROUND)
                )
                written = [puts_of(batches) for batches in engine.take()]
                transactions += len(written)
                commit = raw.commit_s(written) / len(written)
                pairs.append((ours / INVOCATIONS_A_ROUND * US, commit * COMMITS_AN_INVOCATION * US))
    return medians(pairs), transactions / (ROUNDS * INVOCATIONS_A_ROUND)


async def invoke_many(shem: Executor, worker: str, count: int) -> None:
    for _ in range(count):
        await shem.invoke(worker, "ticks", [1])


def concurrent() -> Sequence[Figure]:
    with directory() as path:
        pairs = trio.run(against_sequential, path)
    ours = median(many for many, _ in pairs)
    alone = median(one for _, one in pairs)
    return [
        Figure(
            bench="invocations_64",
            value=ours,
            unit="invocations/s",
            baseline=alone,
            ratio=median(many / one for many, one in pairs),
            goal=">= 5",
            note=f"{WORKERS} workers, one remote write each; against one worker's sequence",
        )
    ]


async def against_sequential(path: Path) -> list[tuple[float, float]]:
    """Invocations a second, of 64 workers and of one, a round."""
    pairs: list[tuple[float, float]] = []
    async with steps_executor(path) as shem:
        await everybody(shem, 1)
        await invoke_many(shem, "steps/one", 1)
        for _ in range(ROUNDS):
            alone = await seconds_async(lambda: invoke_many(shem, "steps/one", INVOCATIONS_A_ROUND))
            began = time.perf_counter()
            await everybody(shem, INVOCATIONS_A_WORKER)
            together = time.perf_counter() - began
            pairs.append((WORKERS * INVOCATIONS_A_WORKER / together, INVOCATIONS_A_ROUND / alone))
    return pairs


async def everybody(shem: Executor, count: int) -> None:
    async with trio.open_nursery() as nursery:
        for number in range(WORKERS):
            nursery.start_soon(invoke_many, shem, f"steps/w{number}", count)
