"""A worker has one instance at a time: the next one is made when the last one is lost, whole."""

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from oplog.entry import InvocationFinished
from tests.support.executors import (
    LastingEngine,
    SlowClosing,
    deployed,
    kinds,
    run_apart,
    until,
)
from tests.support.programs import Gate

WORKER = "relay/w"
SOON_S = 30


@pytest.mark.parametrize("go_on", [True, False], ids=["goes on", "is left"])
def test_what_is_accepted_while_an_instance_is_lost_runs_when_it_is_lost(go_on):
    """Else the next instance is built from an oplog to which the last one still appends."""

    async def case():
        engine = LastingEngine()
        gate = Gate("read-remote")
        closing = SlowClosing()
        async with deployed(engine=engine, host=[gate.call]) as shem:
            await shem.submit(WORKER, "relay", ["a"], key="first")
            await gate.entered.wait()
            gate.entered = trio.Event()
            with trio.fail_after(SOON_S), closing.installed():
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(lambda: shem.crash(WORKER, go_on=go_on))
                    await closing.begun.wait()
                    await shem.submit(WORKER, "relay", ["b"], key="second")
                    await wait_all_tasks_blocked(0.01)
                    assert sum(lane.assigned_count for lane in shem._services.lanes.lanes) == 1
                    assert not gate.entered.is_set()
                    closing.go.set()
                gate.go.set()
                await until(lambda: kinds(engine, WORKER).count(InvocationFinished) == 2)
            assert (await shem.replay(WORKER)).divergence is None

    run_apart(case)
