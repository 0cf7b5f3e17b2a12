"""What does a worker cost that sleeps without an instance, and how soon is it awake?

`python -m benches.bench_sleepers STORE COUNT` prints what it measured of many, in a process of its
own. Time there is the machine's, set forward when all of them are to be due at once.
"""

import gc
import math
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
import trio

from benches.measure import Figure, directory, medians
from executor import Executor
from executor.sources import SystemSources
from tests.support.guests import SLEEPER

SLEEPERS: Final = 10_000
WARM: Final = 2_000
"""Others before them, for which memory grows to what so many that are under way take."""
AT_ONCE: Final = 256
"""Workers that are under way at a time."""
HOUR_NS: Final = 3_600 * 10**9
GOAL_KIB: Final = 2.0
LOOK_S: Final = 0.01
PAGE_ROWS: Final = 1_000
ROUNDS: Final = 40
NAP_NS: Final = 60_000_000
MS: Final = 1e3
ROOT = Path(__file__).parents[1]


class Forward(SystemSources):
    """The machine's clocks, and how far they were set forward."""

    def __init__(self) -> None:
        self._ahead_ns = 0
        self._moved = trio.Event()

    def wall_ns(self) -> int:  # type: ignore[override]  # of a static method
        return time.time_ns() + self._ahead_ns

    def monotonic_ns(self) -> int:  # type: ignore[override]
        return time.monotonic_ns() + self._ahead_ns

    async def sleep_until(self, monotonic_ns: int) -> None:
        await trio.lowlevel.checkpoint()
        while (left_ns := monotonic_ns - self.monotonic_ns()) > 0:
            with trio.move_on_after(left_ns / 1e9):
                await self._moved.wait()

    def set_forward(self, by_ns: int) -> None:
        self._ahead_ns += by_ns
        moved, self._moved = self._moved, trio.Event()
        moved.set()


class Measured(msgspec.Struct, frozen=True):
    kib_each: float
    asleep_s: float
    """From the first invocation until the last worker slept."""
    awake_s: float
    """From when all were due until each had its outcome."""


def sleepers(count: int = SLEEPERS) -> Sequence[Figure]:
    with directory() as path:
        child = subprocess.run(
            [sys.executable, "-m", "benches.bench_sleepers", str(path / "store"), str(count)],
            cwd=ROOT,
            check=True,
            capture_output=True,
            text=True,
        )
    found = msgspec.json.decode(child.stdout, type=Measured)
    return [
        Figure(
            bench="sleepers_10000",
            value=found.kib_each,
            unit="KiB each",
            baseline=GOAL_KIB,
            ratio=found.kib_each / GOAL_KIB,
            goal="<= 2 KiB",
            note=f"memory that is no file's, for each of {count:,} suspended workers",
        ),
        Figure(
            bench="timers_10000",
            value=found.awake_s,
            unit="s",
            baseline=found.asleep_s,
            ratio=found.awake_s / found.asleep_s,
            goal="reported",
            note=f"{count:,} sleepers, due at once, until all have their outcome; against their"
            " creation and falling asleep",
        ),
    ]


async def measure(path: Path, count: int) -> Measured:
    sources = Forward()
    async with Executor.open(path, sources=sources) as shem:
        await shem.deploy(SLEEPER, name="sleeper")
        await fall_asleep(shem, "warm", WARM)
        gc.collect()
        before = own_kib()
        began = time.perf_counter()
        await fall_asleep(shem, "w", count, WARM)
        asleep_s = time.perf_counter() - began
        gc.collect()
        kib_each = (own_kib() - before) / count
        await shem._workers.take_up_all()  # whoever is due is woken, named or not
        began = time.perf_counter()
        sources.set_forward(2 * HOUR_NS)
        await until_asleep(shem, 0)
        await shem.run(until_idle=True)
        return Measured(kib_each, asleep_s, time.perf_counter() - began)


async def fall_asleep(shem: Executor, name: str, count: int, already: int = 0) -> None:
    """So many new workers, of which a few are under way at a time."""
    for first in range(0, count, AT_ONCE):
        last = min(first + AT_ONCE, count)
        async with trio.open_nursery() as nursery:
            for number in range(first, last):
                nursery.start_soon(ask, shem, f"sleeper/{name}{number}")
        await until_asleep(shem, already + last)


async def ask(shem: Executor, worker: str) -> None:
    await shem.submit(worker, "sleep", [HOUR_NS], key="k")


async def until_asleep(shem: Executor, count: int) -> None:
    """Until so many rows stand in the store that wake a worker."""
    engine = shem._services.store.engine
    while True:
        found = 0
        after = None
        while page := engine.read_rows("wakeups", after=after, limit=PAGE_ROWS):
            found += len(page)
            after = page[-1][0]
        if found == count:
            return
        await trio.sleep(LOOK_S)


def own_kib() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))


# -- one -------------------------------------------------------------------------------------------


def latency() -> Sequence[Figure]:
    """A worker that gave up its instance for a nap, against one that kept it."""
    with directory() as path:
        rounds = medians(trio.run(naps, path))
    return [
        Figure(
            bench="wake_latency",
            value=rounds.ours * MS,
            unit="ms",
            baseline=rounds.baseline * MS,
            ratio=rounds.ratio,
            goal="reported",
            note="from when a sleeper is due until its caller has the outcome; against a sleeper"
            " that keeps its instance",
        )
    ]


async def naps(path: Path) -> list[tuple[float, float]]:
    async with (
        Executor.open(path / "suspended", suspend_after_s=0.0) as suspended,
        Executor.open(path / "kept", suspend_after_s=math.inf) as kept,
    ):
        for shem in (suspended, kept):
            await shem.deploy(SLEEPER, name="sleeper")
            await late_s(shem)
        return [(await late_s(suspended), await late_s(kept)) for _ in range(ROUNDS)]


async def late_s(shem: Executor) -> float:
    began = time.perf_counter()
    await shem.invoke("sleeper/w", "sleep", [NAP_NS])
    return time.perf_counter() - began - NAP_NS / 1e9


if __name__ == "__main__":
    print(msgspec.json.encode(trio.run(measure, Path(sys.argv[1]), int(sys.argv[2]))).decode())
    sys.stdout.flush()
    os._exit(0)  # nobody waits for what is idle to be unloaded one by one
