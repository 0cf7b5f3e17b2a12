"""Programs of a guest that uses every rule, cut off after every entry of their oplogs.

The guest runs a program of steps, two characters each: see `tests.support.rules_guest`.
"""

import random

import pytest

from executor.errors import Divergence, Uncertain
from executor.worker.rows import read_worker_id
from oplog.entry import SetPersistenceLevel
from tests.support.executors import (
    LastingEngine,
    check_rows,
    copy_oplog,
    opened,
    run,
    worker_entries,
)
from tests.support.rules_guest import WORKER, RulesPeer, rules


def random_program(seed):
    """Steps whose total does not depend on what is run again."""
    chosen = random.Random(seed)
    plain = ["w1", "w2", "w3", "m0", "m1", "v.", "l.", "z. s."]
    steps = [
        chosen.choice(
            [*plain, f"b{n}", f"e{chosen.randrange(9)}", f"z. w4 i{n} s.", f"i{n}", f"k{n}"]
        )
        for n in range(chosen.randrange(4, 9))
    ]
    return " ".join(steps)


@pytest.mark.parametrize("seed", range(24))
def test_every_prefix_of_every_program_continues_to_the_same_end(seed):
    """But where a call in a finished zone cannot be answered: that is a divergence."""
    program = random_program(seed)
    print(f"seed {seed}: {program}")

    async def case():
        engine = LastingEngine()
        async with rules(engine, RulesPeer()) as shem:
            total = await shem.invoke(WORKER, "run", [program], key="k")
        recorded = worker_entries(engine, WORKER)
        levels = [i for i, entry in recorded if isinstance(entry, SetPersistenceLevel)]
        for count in range(2, len(recorded) + 1):
            target = LastingEngine()
            copy_oplog(engine, target, WORKER, count)
            async with opened(target, host=RulesPeer().functions(), recover="all") as shem:
                done = await finished(shem, count)
                if isinstance(done, Divergence):
                    assert "z. w4" in program
                    assert done.index in levels[1::2]
                    continue
                assert done.value == total
                replayed = await shem.replay(WORKER, to=count)
                assert replayed.divergence is None or "z. w4" in program
            assert worker_entries(target, WORKER)[:count] == recorded[:count]
            check_rows(target, read_worker_id(target, WORKER))

    run(case)


async def finished(shem, start):
    """The outcome, or a divergence; the worker's owner allows whatever is uncertain."""
    while True:
        try:
            return await shem.wait(WORKER, "k")
        except Divergence as divergence:
            return divergence
        except Uncertain:
            await shem.resolve(WORKER, start, "repeat")
