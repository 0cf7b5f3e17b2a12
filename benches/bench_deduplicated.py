"""What does the same key again cost, whose outcome is recorded?"""

from collections.abc import Sequence
from pathlib import Path

import trio

from benches.measure import (
    Figure,
    Rounds,
    directory,
    medians,
    seconds,
    seconds_async,
    steps_executor,
)
from benches.raw_store import RawStore
from executor import Executor

KEYS = 200
ROUNDS = 15
US = 1e6


def deduplicated() -> Sequence[Figure]:
    with directory() as path:
        rounds = trio.run(against_raw_reads, path)
    return [
        Figure(
            bench="deduplicated",
            value=rounds.ours,
            unit="us",
            baseline=rounds.baseline,
            ratio=rounds.ratio,
            goal="reported",
            note=f"invoke with one of {KEYS} known keys; against one raw LMDB read",
        )
    ]


async def against_raw_reads(path: Path) -> Rounds:
    pairs: list[tuple[float, float]] = []
    keys = [f"key-{number}" for number in range(KEYS)]
    with RawStore(path / "raw") as raw:
        raw.commit_s([[("results", key.encode(), bytes(100)) for key in keys]])
        async with steps_executor(path) as shem:
            await invoke_each(shem, keys)
            for _ in range(ROUNDS):
                ours = await seconds_async(lambda: invoke_each(shem, keys))
                base = seconds(lambda: [raw.read("results", key.encode()) for key in keys])
                pairs.append((ours / KEYS * US, base / KEYS * US))
    return medians(pairs)


async def invoke_each(shem: Executor, keys: Sequence[str]) -> None:
    for key in keys:
        await shem.invoke("steps/one", "ticks", [0], key=key)
