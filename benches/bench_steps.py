"""What does a step cost, a remote write among many of one invocation; and how many fit a second?

One commit a step is the least: the `end` of a write shares the commit of the next one's `start`.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import msgspec
import trio

from benches.measure import Figure, Rounds, directory, medians, seconds_async, steps_executor
from benches.raw_store import RawStore, RecordingEngine, puts_of
from executor import Executor
from oplog.store import Store

STEPS_AN_INVOCATION = 100
ROUNDS = 15
WORKERS = 64
STEPS_A_WORKER = 10
STEPS_GOAL = 20_000
CONCURRENT_ROUNDS = 40
RAW_COMMITS = 20
US = 1e6


def sequential() -> Sequence[Figure]:
    with directory() as path:
        rounds, transactions = trio.run(against_raw_commits, path)
    return [
        Figure(
            bench="steps_sequential",
            value=rounds.ours,
            unit="us a step",
            baseline=rounds.baseline,
            ratio=rounds.ratio,
            goal="<= 1.5",
            note=f"{STEPS_AN_INVOCATION} remote writes an invocation, {US / rounds.ours:,.0f}/s,"
            f" {transactions:.2f} transactions each; against one raw LMDB commit of these bytes",
        )
    ]


async def against_raw_commits(path: Path) -> tuple[Rounds, float]:
    """Per step in us, and how many transactions it took."""
    engine = RecordingEngine.open(path / "store")
    pairs: list[tuple[float, float]] = []
    transactions = 0
    with RawStore(path / "raw") as raw:
        async with steps_executor(path, store=Store(engine)) as shem:
            await shem.invoke("steps/one", "ticks", [STEPS_AN_INVOCATION])
            engine.take()
            for _ in range(ROUNDS):
                ours = await seconds_async(
                    lambda: shem.invoke("steps/one", "ticks", [STEPS_AN_INVOCATION])
                )
                written = [puts_of(batches) for batches in engine.take()]
                transactions += len(written)
                commit = raw.commit_s(written) / len(written)
                pairs.append((ours / STEPS_AN_INVOCATION * US, commit * US))
    return medians(pairs), transactions / (ROUNDS * STEPS_AN_INVOCATION)


def concurrent() -> Sequence[Figure]:
    with directory() as path:
        found = trio.run(steps_a_second, path)
    rate = median(found.rates)
    return [
        Figure(
            bench="steps_64",
            value=rate,
            unit="steps/s",
            baseline=STEPS_GOAL,
            ratio=rate / STEPS_GOAL,
            goal=f">= {STEPS_GOAL:,}",
            note=f"{WORKERS} workers x {STEPS_A_WORKER} steps, best round {max(found.rates):,.0f},"
            f" {found.processor_us:.0f} us of processor a step, {found.group:.0f} steps a"
            f" transaction, whose raw commit takes {found.commit_us:.0f} us; against the goal",
        )
    ]


class Concurrent(msgspec.Struct, frozen=True, kw_only=True):
    rates: list[float]
    """Steps a second of each round."""
    group: float
    """Steps a transaction."""
    commit_us: float
    """A raw commit of what one transaction wrote."""
    processor_us: float
    """Time of all threads on a processor, a step."""


async def steps_a_second(path: Path) -> Concurrent:
    engine = RecordingEngine.open(path / "store")
    rates: list[float] = []
    processor: list[float] = []
    commits: list[float] = []
    transactions = 0
    with RawStore(path / "raw") as raw:
        async with steps_executor(path, store=Store(engine)) as shem:
            await everybody(shem)
            engine.take()
            for _ in range(CONCURRENT_ROUNDS):
                began, processor_began = time.perf_counter(), time.process_time()
                await everybody(shem)
                rates.append(WORKERS * STEPS_A_WORKER / (time.perf_counter() - began))
                used = time.process_time() - processor_began
                processor.append(used / (WORKERS * STEPS_A_WORKER) * US)
                written = [puts_of(batches) for batches in engine.take()]
                transactions += len(written)
                some = written[:RAW_COMMITS]
                commits.append(raw.commit_s(some) / len(some) * US)
    steps = WORKERS * STEPS_A_WORKER * CONCURRENT_ROUNDS
    return Concurrent(
        rates=rates,
        group=steps / transactions,
        commit_us=median(commits),
        processor_us=median(processor),
    )


async def everybody(shem: Executor) -> None:
    async with trio.open_nursery() as nursery:
        for number in range(WORKERS):
            nursery.start_soon(shem.invoke, f"steps/w{number}", "ticks", [STEPS_A_WORKER])
