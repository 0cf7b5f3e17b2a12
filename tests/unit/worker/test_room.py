"""Whoever waits for room on a full disk waits for the same probe."""

import threading

import pytest
import trio
import trio.testing

from executor.worker import room
from executor.worker.room import RoomProbe
from oplog.errors import OplogError, OplogFullError

DELAY_MIN_S, DELAY_MAX_S = room.PROBE_DELAY_MIN_S, room.PROBE_DELAY_MAX_S


class Disk:
    """A probe that meets what the test says, one after the other, and then finds room."""

    def __init__(self, *meets):
        self.meets = list(meets)
        self.probes = 0
        self.threads = set()

    def probe(self):
        self.probes += 1
        self.threads.add(threading.current_thread())
        if self.meets:
            raise self.meets.pop(0)


@pytest.fixture(autouse=True)
def delays(monkeypatch):
    monkeypatch.setattr(room, "PROBE_DELAY_MIN_S", 0.002)
    monkeypatch.setattr(room, "PROBE_DELAY_MAX_S", 0.008)


async def wait_together(probe, count):
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            for _ in range(count):
                nursery.start_soon(probe.wait)


@trio.testing.trio_test
async def test_a_hundred_that_wait_ask_the_disk_as_often_as_one():
    disk = Disk(OplogFullError("no"), OplogFullError("no"), OplogFullError("no"))
    async with trio.open_nursery() as nursery:
        probe = RoomProbe(nursery, disk.probe)
        await wait_together(probe, 100)
        assert disk.probes == 4
        assert threading.current_thread() not in disk.threads


@trio.testing.trio_test
async def test_who_waits_later_has_the_disk_asked_anew():
    disk = Disk()
    async with trio.open_nursery() as nursery:
        probe = RoomProbe(nursery, disk.probe)
        await wait_together(probe, 2)
        disk.meets.append(OplogFullError("no"))
        await wait_together(probe, 2)
        assert disk.probes == 3


@trio.testing.trio_test
async def test_nobody_waits_for_room_in_a_store_that_refuses_for_another_reason():
    disk = Disk(OplogFullError("no"), OplogError("the store is closed"))
    async with trio.open_nursery() as nursery:
        probe = RoomProbe(nursery, disk.probe)
        await wait_together(probe, 3)
        assert disk.probes == 2


@trio.testing.trio_test
async def test_one_that_is_cancelled_leaves_the_others_waiting():
    disk = Disk(OplogFullError("no"))
    async with trio.open_nursery() as nursery:
        probe = RoomProbe(nursery, disk.probe)
        with trio.CancelScope() as scope:
            scope.cancel()
            await probe.wait()
        assert scope.cancelled_caught
        await wait_together(probe, 2)
        assert disk.probes == 2


@trio.testing.trio_test
async def test_a_disk_that_stays_full_is_asked_less_and_less_often_but_every_30_seconds(
    monkeypatch,
):
    slept = []
    sleep = trio.sleep

    async def sleep_at_once(seconds):
        slept.append(seconds)
        await sleep(0)

    monkeypatch.setattr(room, "PROBE_DELAY_MIN_S", DELAY_MIN_S)
    monkeypatch.setattr(room, "PROBE_DELAY_MAX_S", DELAY_MAX_S)
    monkeypatch.setattr(trio, "sleep", sleep_at_once)
    disk = Disk(*[OplogFullError("no")] * 6)
    async with trio.open_nursery() as nursery:
        await wait_together(RoomProbe(nursery, disk.probe), 1)
    assert slept == [1, 2, 4, 8, 16, 30, 30]
