"""How long does a worker with 100,000 recorded calls take to be rebuilt?"""

from collections.abc import Sequence
from pathlib import Path
from statistics import median

import trio

from benches.measure import Figure, directory
from benches.programs import RANDOM
from executor import Executor

RECORDED_CALLS = 100_000
ROUNDS = 5
GOAL_S = 1.0


def replay() -> Sequence[Figure]:
    with directory() as path:
        times = trio.run(rebuild_often, path)
    value = median(times)
    return [
        Figure(
            bench="replay_100k",
            value=value,
            unit="s",
            baseline=GOAL_S,
            ratio=value / GOAL_S,
            goal="<= 1.0 s",
            note=f"u64 from random; {value / RECORDED_CALLS * 1e6:.1f} us a call",
        )
    ]


async def rebuild_often(path: Path) -> list[float]:
    times: list[float] = []
    async with Executor.open(path / "store") as shem:
        await shem.deploy(RANDOM, name="calls")
        await shem.invoke("calls/one", "random", [RECORDED_CALLS])
        for _ in range(ROUNDS):
            rebuilt = await shem.replay("calls/one")
            assert rebuilt.divergence is None
            assert rebuilt.replayed > RECORDED_CALLS
            times.append(rebuilt.ms / 1_000)
    return times
