"""What a call leaves behind goes with it: nothing waits for the collector of cycles, whose rounds
would hold up everything else, and whose absence would be a leak.
"""

import gc

import trio

from executor.cli.collector import settle_collector
from tests.support import guests
from tests.support.executors import LastingEngine, opened, run
from tests.support.programs import Bank

CALLS = 200
WORKERS = 64
PYTHONS_OWN = (700, 10, 10)
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


async def rounds_of_many():
    """How often the collector looked while many workers were under way."""
    bank = Bank()
    async with opened(LastingEngine(), host=bank.functions()) as shem:
        await shem.deploy(guests.CHARGER, name="charger")

        async def all_at_once():
            async with trio.open_nursery() as nursery:
                for number in range(WORKERS):
                    nursery.start_soon(shem.invoke, f"charger/{number}", "charge-many", [5])

        await all_at_once()
        gc.collect()
        before = gc.get_stats()[0]["collections"]
        await all_at_once()
        return gc.get_stats()[0]["collections"] - before


def test_the_collector_does_not_look_at_what_guests_under_way_have_in_use():
    threshold = gc.get_threshold()
    gc.set_threshold(*PYTHONS_OWN)
    try:
        by_default = run(rounds_of_many)
        settle_collector()
        assert run(rounds_of_many) * 5 <= by_default
        assert by_default
    finally:
        gc.set_threshold(*threshold)
        gc.unfreeze()
