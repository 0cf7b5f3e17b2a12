"""What every bench shares: figures, short alternating rounds, and the store that they run on.

Absolute times drift on a machine that others use too. So whatever is compared runs in many short
rounds, one of ours and one of the baseline in turn, and the figure is the median of the rounds'
ratios.
"""

import shutil
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import msgspec

from benches.programs import STEPS
from executor import Executor, host_function
from oplog.store import Store


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One answer: a row of the table and a JSON line."""

    bench: str
    value: float
    unit: str
    baseline: float
    """What `value` is compared with, in the same unit unless the note says otherwise."""
    ratio: float
    """Ours over the baseline; of throughputs a multiple."""
    note: str
    goal: str
    """What is aimed at; in the table only."""


class Rounds(msgspec.Struct, frozen=True):
    """The medians of alternating rounds."""

    ours: float
    baseline: float
    ratio: float


def medians(pairs: Sequence[tuple[float, float]]) -> Rounds:
    """`pairs` holds (ours, baseline), one a round."""
    return Rounds(
        ours=statistics.median(ours for ours, _ in pairs),
        baseline=statistics.median(baseline for _, baseline in pairs),
        ratio=statistics.median(ours / baseline for ours, baseline in pairs),
    )


def seconds(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


async def seconds_async(call: Callable[[], Awaitable[object]]) -> float:
    began = time.perf_counter()
    await call()
    return time.perf_counter() - began


@contextmanager
def directory() -> Iterator[Path]:
    """An empty directory on the disk, gone afterwards."""
    path = Path(tempfile.mkdtemp(prefix="shem-bench-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@host_function("bench:steps/api", "tick: func(x: u32) -> u32", type="write-remote")
async def tick(_call: object, x: int) -> int:
    """A remote write whose peer answers at once: what is left is the executor's own cost."""
    return x + 1


@asynccontextmanager
async def steps_executor(path: Path, store: Store | None = None) -> AsyncIterator[Executor]:
    """An executor with the component `steps` and a receiver that answers at once."""
    async with Executor.open(path / "store", host=[tick], store=store) as shem:
        await shem.deploy(STEPS, name="steps")
        yield shem
