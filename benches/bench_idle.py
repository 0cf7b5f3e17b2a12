"""Does a store with 100,000 idle workers answer as quickly as one with 100?

One worker is real. The others are its oplog once more, under their own names and ids, with the rows
that the fold makes of it: byte for byte what as many invocations would have left, written many to
a transaction.
"""

import os
import random
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final

import trio
from msgspec.structs import replace

from benches.measure import Figure, Rounds, directory, medians, seconds_async, steps_executor
from executor import Executor
from executor.worker.opening import open_store
from executor.worker.rows import WorkerRows, read_worker_id
from executor.worker.status import Status
from oplog.codec import encode_entry
from oplog.engine import Batch, Engine
from oplog.entry import Create, Entry, Failure, InvocationFinished, Outcome
from oplog.reader import Reader

FEW, MANY = 100, 100_000
FAILED = 3
"""In either store, so that a filter finds as many."""
PAGE = 50
BATCH_WORKERS = 2_000
ROUNDS = 15
ASKED_A_ROUND = 20
KEY: Final = "key-1"
MODEL: Final = "steps/model"
US = 1e6

Ask = Callable[[Executor, Sequence[str]], Awaitable[None]]
"""Asks an executor one question for each of the names, which are some of its workers."""


async def ask_page(shem: Executor, names: Sequence[str]) -> None:
    for _ in names:
        assert len((await shem.workers("steps", limit=PAGE)).workers) == PAGE


async def ask_page_after(shem: Executor, names: Sequence[str]) -> None:
    for name in names:
        found = await shem.workers("steps", limit=PAGE, cursor=name.encode().hex())
        assert len(found.workers) == PAGE


async def ask_idle(shem: Executor, names: Sequence[str]) -> None:
    for _ in names:
        assert len((await shem.workers(status="idle", limit=PAGE)).workers) == PAGE


async def ask_failed(shem: Executor, names: Sequence[str]) -> None:
    for _ in names:
        assert len((await shem.workers(status="failed")).workers) == FAILED


async def ask_key(shem: Executor, names: Sequence[str]) -> None:
    for name in names:
        assert (await shem.invocation(name, KEY)).value == 0


QUESTIONS: Final[dict[str, Ask]] = {
    "a page": ask_page,
    "a page within": ask_page_after,
    "a page of idle ones": ask_idle,
    "the failed ones": ask_failed,
    "a key": ask_key,
}


def idle() -> Sequence[Figure]:
    with directory() as path:
        results = trio.run(compare, path)
    worst = max(results.values(), key=lambda rounds: rounds.ratio)
    each = ", ".join(
        f"{question} {rounds.ratio:.2f} ({rounds.ours:.0f}/{rounds.baseline:.0f} us)"
        for question, rounds in results.items()
    )
    return [
        Figure(
            bench="idle_100k",
            value=worst.ours,
            unit="us",
            baseline=worst.baseline,
            ratio=worst.ratio,
            goal="<= 1.5",
            note=f"worst of: {each}; {MANY:,} idle workers against {FEW}",
        )
    ]


async def compare(path: Path) -> dict[str, Rounds]:
    for count in (FEW, MANY):
        (path / str(count)).mkdir()
        async with steps_executor(path / str(count)) as shem:
            await shem.invoke(MODEL, "ticks", [0], key=KEY)
        multiply(path / str(count) / "store", count)
    results: dict[str, Rounds] = {}
    async with steps_executor(path / str(FEW)) as few, steps_executor(path / str(MANY)) as many:
        for question, ask in QUESTIONS.items():
            pairs = []
            for _ in range(ROUNDS):
                pair = [await ask_round(ask, shem, of) for shem, of in ((many, MANY), (few, FEW))]
                pairs.append((pair[0], pair[1]))
            results[question] = medians(pairs)
    return results


async def ask_round(ask: Ask, shem: Executor, count: int) -> float:
    """Microseconds a question, of workers all over the store."""
    names = [worker(random.randrange(FAILED, count - PAGE)) for _ in range(ASKED_A_ROUND)]
    return await seconds_async(lambda: ask(shem, names)) / ASKED_A_ROUND * US


def worker(number: int) -> str:
    return f"steps/w{number:06}"


def multiply(path: Path, count: int) -> None:
    """Gives the model's oplog to so many workers; the first few of them failed."""
    store = open_store(path)
    try:
        entries = entries_of(store.engine)
        for first in range(0, count, BATCH_WORKERS):
            numbers = range(first, min(count, first + BATCH_WORKERS))
            written = store.engine.write([copy(number, entries) for number in numbers])
            assert not any(written)
    finally:
        store.close()


def entries_of(engine: Engine) -> list[Entry]:
    worker_id = read_worker_id(engine, MODEL)
    assert worker_id is not None
    return [entry for _, entry in Reader(engine).read(worker_id, 1, 1_000)]


def copy(number: int, entries: Sequence[Entry]) -> Batch:
    """The oplog of the worker with this number, and its rows."""
    worker_id = os.urandom(16)
    rows = WorkerRows(worker_id, Status(), ())
    encoded = []
    for index, entry in enumerate((of_worker(number, entry) for entry in entries), 1):
        rows.apply(index, entry)
        encoded.append((worker_id, index, encode_entry(entry)))
    return Batch(entries=encoded, rows=rows.take(0))


def of_worker(number: int, entry: Entry) -> Entry:
    match entry:
        case Create():
            return replace(entry, name=worker(number))
        case InvocationFinished() if number < FAILED:
            return replace(entry, outcome=FAILURE)
        case _:
            return entry


FAILURE: Final = Outcome(failure=Failure(kind="guest-trap", message="trapped (unreachable)"))
