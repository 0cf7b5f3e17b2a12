"""Whatever is asked of an executor while it is being closed is answered or refused, and not kept
waiting: the block of `Executor.open` may end while other tasks still use it.
"""

import random

import pytest
import trio

from executor import Ok
from executor.errors import ShemError
from tests.support.executors import LastingEngine, deployed, opened, run
from tests.support.programs import echo

ROUNDS = 15
SEEDS = range(4)
WORKERS = 3
TASKS = 6


def asks(shem, rng):
    """One operation of every kind, of whichever worker."""
    worker = f"relay/{rng.randrange(WORKERS)}"
    key = f"k{rng.randrange(10_000)}"

    async def read():
        async for _ in shem.oplog(worker):
            pass

    return {
        "invoke": lambda: shem.invoke(worker, "relay", [key], key=key),
        "submit": lambda: shem.submit(worker, "relay", [key], key=key),
        "wait": lambda: shem.wait(worker, "first"),
        "run": lambda: shem.run(until_idle=rng.random() < 0.5),
        "crash": lambda: shem.crash(worker),
        "replay": lambda: shem.replay(worker),
        "files": lambda: shem.files(worker),
        "interrupt": lambda: shem.interrupt(worker),
        "resume": lambda: shem.resume(worker, until_ended=True),
        "revert": lambda: shem.revert(worker, last=1),
        "cancel": lambda: shem.cancel(worker, key),
        "delete": lambda: shem.delete(worker),
        "oplog": read,
        "worker": lambda: shem.worker(worker),
    }


async def busy(shem, rng):
    """Asks for one thing after another until it is refused because the executor is closed."""
    while True:
        ask = rng.choice(list(asks(shem, rng).values()))
        try:
            await ask()
        except ShemError as error:
            if "the executor is closed" in error.message:
                return
        await trio.lowlevel.checkpoint()


async def closed_while_it_is_used(seed):
    rng = random.Random(seed)
    engine = LastingEngine()
    async with deployed(engine=engine, host=[echo("write-remote")]) as shem:
        for number in range(WORKERS):
            await shem.invoke(f"relay/{number}", "relay", ["a"], key="first")
    for _ in range(ROUNDS):
        async with (
            trio.open_nursery() as nursery,
            opened(engine, host=[echo("write-remote")]) as shem,
        ):
            for _ in range(TASKS):
                nursery.start_soon(busy, shem, random.Random(rng.random()))
            await trio.sleep(rng.random() * 0.02)
    async with opened(engine, host=[echo("write-remote")], recover="all") as shem:
        assert await shem.invoke("relay/new", "relay", ["b"], key="last") == Ok("b")


@pytest.mark.parametrize("seed", SEEDS)
def test_nobody_waits_for_an_executor_that_was_closed(seed):
    print("seed", seed)
    run(closed_while_it_is_used, seed)
