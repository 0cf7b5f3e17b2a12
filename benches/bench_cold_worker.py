"""How long until a Python worker that nobody has loaded is there again?

A worker with one short recorded invocation is rebuilt: the artifact of the 18 MB component is
mapped from the disk (or is loaded already), linked, instantiated, and the invocation replayed.
"""

from collections.abc import Sequence
from pathlib import Path
from statistics import median

import trio

from benches.measure import Figure, directory
from executor import Executor, Ok, host_function
from tests.support import guests

ROUNDS = 15
WORKER = "orders/one"
DISK_GOAL_MS = 6.0
LOADED_GOAL_MS = 3.0


@host_function(
    "demo:orders/bank",
    "charge: func(who: string, cents: u64) -> result<string, string>",
    type="write-remote",
)
async def charge(_call: object, who: str, _cents: int) -> Ok:
    return Ok(who)


def cold() -> Sequence[Figure]:
    with directory() as path:
        trio.run(prepare, path)
        disk: list[float] = []
        loaded: list[float] = []
        for _ in range(ROUNDS):
            first, second = trio.run(rebuild_twice, path)
            disk.append(first)
            loaded.append(second)
    return [
        figure("cold_python_worker", median(disk), DISK_GOAL_MS, "from the disk"),
        figure("cold_python_worker_loaded", median(loaded), LOADED_GOAL_MS, "component loaded"),
    ]


def figure(bench: str, value: float, goal: float, note: str) -> Figure:
    return Figure(
        bench=bench,
        value=value,
        unit="ms",
        baseline=goal,
        ratio=value / goal,
        goal=f"<= {goal:.0f} ms",
        note=f"{note}; with the replay of one short invocation",
    )


async def prepare(path: Path) -> None:
    async with Executor.open(path, host=[charge]) as shem:
        await shem.deploy(guests.order_component(), name="orders")
        await shem.invoke(WORKER, "orders", [])


async def rebuild_twice(path: Path) -> tuple[float, float]:
    """Milliseconds of the first rebuild of an executor, which loads the component, and the next."""
    async with Executor.open(path, host=[charge]) as shem:
        first = await shem.replay(WORKER)
        second = await shem.replay(WORKER)
        assert first.divergence is None
        assert second.divergence is None
        return first.ms, second.ms
