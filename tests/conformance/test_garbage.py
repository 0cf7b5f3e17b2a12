"""What a call leaves behind goes with it: nothing waits for the collector of cycles, whose rounds
would hold up everything else, and whose absence would be a leak.
"""

import gc

from tests.support import guests
from tests.support.executors import LastingEngine, opened, run
from tests.support.programs import Bank

CALLS = 200
OF_THE_RUN_MAX = CALLS // 2
"""Objects that are of the run, and not of its calls."""


def cyclic_garbage():
    """How many objects only the collector frees, by type."""
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        gc.collect()
        return [type(found).__qualname__ for found in gc.garbage]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()


async def after(times, invocations):
    bank = Bank()
    async with opened(LastingEngine(), host=bank.functions()) as shem:
        await shem.deploy(guests.CHARGER, name="charger")
        await shem.invoke("charger/a", "charge-many", [1])
        gc.collect()
        gc.disable()
        try:
            for _ in range(invocations):
                await shem.invoke("charger/a", "charge-many", [times])
            assert len(bank.asked) == 1 + times * invocations
            return cyclic_garbage()
        finally:
            gc.enable()


def test_a_remote_write_leaves_no_cycle():
    assert len(run(after, CALLS, 1)) < OF_THE_RUN_MAX


def test_an_invocation_leaves_no_cycle():
    assert len(run(after, 1, CALLS)) < OF_THE_RUN_MAX
