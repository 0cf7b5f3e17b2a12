"""Many of Golem's guests at a time: they sleep, are suspended, and take much memory.

What is expected is the behaviour of `scalability.rs` of Golem's executor tests at v1.2.5, written
afresh. There are 100 workers, or as many as `SHEM_GOLEM_WORKERS` says. How long they take is not
asked for, but that they sleep at the same time.
"""

import os
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
import trio
from trio.testing import trio_test

from executor.executor import Executor
from oplog.entry import Suspend
from tests.conformance.golem.components import WHY_SKIPPED, components_folder
from tests.conformance.golem.guest import deployed

if components_folder() is None:
    pytest.skip(WHY_SKIPPED, allow_module_level=True)

COUNT = int(os.environ.get("SHEM_GOLEM_WORKERS", "100"))
WORKERS = [f"clocks/sleeping-worker-{number}" for number in range(COUNT)]
HALF_A_GIB = 512 * 1024 * 1024


async def each(
    shem: Executor, workers: Sequence[str], function: str, arguments: Sequence[object] = ()
) -> list[object]:
    """What the function of each worker comes to; all run at a time."""
    values: dict[str, object] = {}

    async def run(worker: str) -> None:
        values[worker] = await shem.invoke(worker, function, arguments)

    async with trio.open_nursery() as nursery:
        for worker in workers:
            nursery.start_soon(run, worker)
    return [values[worker] for worker in workers]


@trio_test
async def test_many_workers_sleep_at_a_time(tmp_path: Path) -> None:
    """Two seconds each."""
    async with Executor.open(tmp_path) as shem:
        await deployed(shem, "clocks", "warmup", "live")
        await shem.invoke("clocks/warmup", "sleep-for", [0.0])
        begun = time.monotonic()
        answers = await each(shem, WORKERS, "run")
        assert time.monotonic() - begun < COUNT * 2 / 2
        for _wall, elapsed, _local in answers:  # type: ignore[misc]
            assert elapsed >= 2
        for worker in WORKERS[:: COUNT // 4]:
            assert (await shem.replay(worker)).divergence is None


@trio_test
async def test_many_workers_sleep_long_enough_to_be_suspended(tmp_path: Path) -> None:
    """Every one is only rows while it sleeps, and wakes by itself."""
    async with Executor.open(tmp_path, suspend_after_s=1.0) as shem:
        await deployed(shem, "clocks", "warmup", "live")
        for elapsed in await each(shem, WORKERS, "sleep-for", [5.0]):
            assert isinstance(elapsed, float)
            assert elapsed >= 5
        for worker in WORKERS:
            entries = [record.entry async for record in shem.oplog(worker)]
            assert sum(isinstance(entry, Suspend) for entry in entries) == 1
        for worker in WORKERS[:: COUNT // 4]:
            assert (await shem.replay(worker)).divergence is None


@pytest.mark.parametrize(
    ("name", "count", "value"),
    [("large-initial-memory", 10, HALF_A_GIB), ("large-dynamic-memory", 3, 0)],
)
@trio_test
async def test_workers_with_much_memory_all_end(
    tmp_path: Path, name: str, count: int, value: int
) -> None:
    """In Golem there is room for one at a time, and they wait for each other; here for all."""
    async with Executor.open(tmp_path) as shem:
        await deployed(shem, name, "w", "live")
        workers = [f"{name}/{number}" for number in range(count)]
        assert await each(shem, workers, "run") == [value] * count
        assert (await shem.replay(workers[-1])).divergence is None
