"""What does a guest cost that waits in a host call?

`python -m benches.bench_waiting STORE` prints what it measured, in a process of its own.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import trio

from benches.measure import Figure, directory
from benches.programs import STEPS
from executor import Executor, host_function

GUESTS = 5_000
WARM_GUESTS = 100
GOAL_KIB = 64.0
PAGE_KIB = os.sysconf("SC_PAGE_SIZE") / 1024
ROOT = Path(__file__).parents[1]


def waiting() -> Sequence[Figure]:
    with directory() as path:
        child = subprocess.run(
            [sys.executable, "-m", "benches.bench_waiting", str(path / "store")],
            cwd=ROOT,
            check=True,
            capture_output=True,
            text=True,
        )
    value = float(child.stdout)
    return [
        Figure(
            bench="waiting_5000",
            value=value,
            unit="KiB RSS each",
            baseline=GOAL_KIB,
            ratio=value / GOAL_KIB,
            goal="<= 64 KiB",
            note=f"{GUESTS:,} workers, each in a remote write without an answer; no thread waits",
        )
    ]


async def measure(path: Path) -> None:
    arrived = [0]
    never = trio.Event()
    everybody = trio.Event()

    @host_function("bench:steps/api", "tick: func(x: u32) -> u32", type="write-remote")
    async def tick(_call: object, x: int) -> int:
        arrived[0] += 1
        if arrived[0] in (WARM_GUESTS, GUESTS + WARM_GUESTS):
            everybody.set()
        await never.wait()
        return x

    async with Executor.open(path, host=[tick]) as shem:
        await shem.deploy(STEPS, name="steps")
        async with trio.open_nursery() as nursery:
            for number in range(WARM_GUESTS):
                nursery.start_soon(shem.invoke, f"steps/warm{number}", "ticks", [1])
            await everybody.wait()
            everybody = trio.Event()
            before = resident_kib()
            for number in range(GUESTS):
                nursery.start_soon(shem.invoke, f"steps/w{number}", "ticks", [1])
            await everybody.wait()
            print((resident_kib() - before) / GUESTS, flush=True)
            os._exit(0)  # nobody waits for 5,000 guests to be deleted one by one


def resident_kib() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_KIB


if __name__ == "__main__":
    trio.run(measure, Path(sys.argv[1]))
