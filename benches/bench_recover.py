"""How long from opening the store of a killed process to the answer that it owed?

`python -m benches.bench_recover STORE` is the process that is killed, by itself, at the last step.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import trio

from benches.measure import Figure, directory, tick
from benches.programs import STEPS
from executor import Executor, host_function

STEP_COUNT = 5_000
ROUNDS = 7
GOAL_MS = 100.0
KEY = "the-killed-one"
ROOT = Path(__file__).parents[1]


@host_function("bench:steps/api", "tick: func(x: u32) -> u32", type="write-remote")
async def tick_until_killed(_call: object, x: int) -> int:
    """The guest counts down: 1 is its last step."""
    if x == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return x + 1


def recover() -> Sequence[Figure]:
    with directory() as path:
        killed = path / "killed"
        child = subprocess.run(
            [sys.executable, "-m", "benches.bench_recover", str(killed)], cwd=ROOT, check=False
        )
        assert child.returncode == -signal.SIGKILL, child.returncode
        times: list[float] = []
        for number in range(ROUNDS + 1):
            copy = path / f"copy-{number}"
            shutil.copytree(killed, copy)
            times.append(trio.run(answer_ms, copy))
            shutil.rmtree(copy)
    value = median(times[1:])
    return [
        Figure(
            bench="recover_5000",
            value=value,
            unit="ms",
            baseline=GOAL_MS,
            ratio=value / GOAL_MS,
            goal="<= 100 ms",
            note=f"killed with SIGKILL in step {STEP_COUNT:,}; from open() to the result",
        )
    ]


async def answer_ms(path: Path) -> float:
    began = time.perf_counter()
    async with Executor.open(path, host=[tick]) as shem:
        result = await shem.invoke("steps/one", "ticks", [STEP_COUNT], key=KEY)
        took = time.perf_counter() - began
    assert result == sum(range(2, STEP_COUNT + 2))
    return took * 1_000


async def be_killed(path: Path) -> None:
    async with Executor.open(path, host=[tick_until_killed]) as shem:
        await shem.deploy(STEPS, name="steps")
        await shem.invoke("steps/one", "ticks", [STEP_COUNT], key=KEY)


if __name__ == "__main__":
    trio.run(be_killed, Path(sys.argv[1]))
