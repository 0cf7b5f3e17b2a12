"""Lanes run what is posted in order, and computing guests share one."""

import threading
import time

from executor.wasm.instance import Left, Returned
from executor.wasm.lane import Lanes
from tests.support.guest_wat import BUSY
from tests.support.machine import Answer, host_function, host_interface, machine

TICK = host_interface(host_function("tick: func(x: u32) -> u32", lambda _state, x: x))


def test_what_is_posted_runs_in_order_on_the_lanes_own_daemon_thread():
    lanes = Lanes(lambda: None, 1)
    lane = lanes.assign()
    seen = []
    for number in range(100):
        lane.post(lambda number=number: seen.append((number, threading.current_thread())))
    lanes.close()
    assert seen == [(number, lane.thread) for number in range(100)]
    assert lane.thread.daemon
    assert not lane.thread.is_alive()


def test_what_an_instance_holds_of_a_lane_is_counted():
    lanes = Lanes(lambda: None, 2)
    given = [lanes.assign() for _ in range(4)]
    assert sum(lane.assigned_count for lane in lanes.lanes) == 4
    for lane in given:
        lanes.release(lane)
    assert [lane.assigned_count for lane in lanes.lanes] == [0, 0]
    lanes.close()


def test_guests_that_compute_share_their_lane_with_others():
    with machine() as made:
        linker = made.linker(BUSY, TICK)
        spinning, other = made.start(linker), made.start(linker)
        spins = made.begin(spinning, "spin", 1)
        time.sleep(0.02)
        for _ in range(5):
            assert made.call(other, "ticks", 3) == Returned(6)
        second = made.start(linker)
        counts = made.begin(second, "count", 20_000_000)
        assert isinstance(counts.wait(), Returned)
        assert not spins.arrived
        spinning.interrupt("enough")
        assert spins.wait() == Left("enough")


def test_the_epoch_stands_still_while_no_guest_has_to_give_way():
    epochs = []
    lanes = Lanes(lambda: epochs.append(1), 2)
    done = Answer()
    for lane in lanes.lanes:
        for _ in range(1_000):
            lane.post(lambda: None)
    lanes.lanes[0].post(done)
    done.wait()
    time.sleep(0.05)
    lanes.close()
    assert epochs == []


def test_deferred_work_is_done_though_the_queue_is_never_empty():
    lanes = Lanes(lambda: None, 1)
    (lane,) = lanes.lanes
    stop = threading.Event()
    answer = Answer()

    def turn():
        if not stop.is_set():
            lane.post(turn)

    lane.post(turn)
    lane.post(lambda: lane.defer(answer))
    try:
        answer.wait(5)
    finally:
        stop.set()
        lanes.close()


def test_deferred_work_waits_while_little_is_queued():
    lanes = Lanes(lambda: None, 1)
    (lane,) = lanes.lanes
    seen = []
    ready = threading.Event()
    lane.post(lambda: ready.wait(5))
    lane.post(lambda: lane.defer(lambda: seen.append("deferred")))
    lane.post(lambda: seen.append("posted"))
    ready.set()
    lanes.close()
    assert seen[0] == "posted"


def test_a_guest_that_computes_gives_way_to_deferred_work_alone():
    with machine() as made:
        spinning = made.start(made.linker(BUSY, TICK))
        (lane,) = made.lanes.lanes
        ready = threading.Event()
        answer = Answer()
        lane.post(lambda: ready.wait(5))
        lane.post(lambda: lane.defer(answer))
        spins = made.begin(spinning, "spin", 1)
        ready.set()
        try:
            answer.wait(5)
            assert not spins.arrived
        finally:
            spinning.interrupt("enough")
        assert spins.wait() == Left("enough")
