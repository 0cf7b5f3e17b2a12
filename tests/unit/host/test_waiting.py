"""Waiting for many pollables at a time: work for each of them, and none while nothing happens."""

import pytest
import trio
from trio.testing import trio_test, wait_all_tasks_blocked

from executor.durable.signal import Signal
from executor.host.pollables import Watched
from executor.host.waiting import wait_ready
from executor.services.files import FileTree
from executor.services.files_nodes import FileLimits
from executor.sources import SystemSources
from tests.support.host_calls import CREATED_NS, Guest


class Looked(Watched):
    """Counts how often it is looked at."""

    def __init__(self):
        self.done = False
        self.looks = 0
        super().__init__(Signal(), self._look)

    def _look(self):
        self.looks += 1
        return self.done


def state_of_a_guest():
    files = FileTree(FileLimits(), created_ns=CREATED_NS)
    return Guest(sources=SystemSources(), files=files).state


@pytest.mark.parametrize("count", [10, 5_000])
@trio_test
async def test_each_of_many_is_looked_at_before_the_wait_and_when_something_has_happened(count):
    watched = [Looked() for _ in range(count)]
    ready = []

    async def wait():
        ready.extend(await wait_ready(state_of_a_guest(), watched))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await wait_all_tasks_blocked()
        for _ in range(3):
            await trio.sleep(0.01)  # nothing happens, and nobody looks
        assert {one.looks for one in watched} == {1}
        watched[0].signal.fire()  # for nothing
        await wait_all_tasks_blocked()
        assert {one.looks for one in watched} == {2}
        for one in watched[-2:]:
            one.done = True
            one.signal.fire()
    assert ready == [count - 2, count - 1]
    assert {one.looks for one in watched} == {3}
    assert not any(one.signal._waiting for one in watched)
