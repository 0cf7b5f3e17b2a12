"""An instance's life: calls, traps, limits, interruption, back-pressure, and its end."""

import random
import threading
import time

import pytest

from executor.errors import InternalError
from executor.wasm import instance as instance_module
from executor.wasm.host_function import PENDING
from executor.wasm.instance import Left, Raised, Returned, Trapped
from tests.support.guest_wat import BUSY
from tests.support.machine import Answer, host_function, host_interface, machine

MIB = 1 << 20


def tick(call=lambda _state, x: x, *, waits=False):
    return host_interface(host_function("tick: func(x: u32) -> u32", call, waits=waits))


def hold(pendings):
    def call(_state, pending, _x):
        pendings.append(pending)
        return PENDING

    return call


def wait_until(condition, timeout_s=10):
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.001)


@pytest.fixture
def made():
    with machine() as one:
        yield one


def test_a_call_returns_its_value_and_the_instance_keeps_its_memory(made):
    instance = made.start(made.linker(BUSY, tick()))
    assert made.call(instance, "ticks", 4) == Returned(10)
    assert made.call(instance, "grow", 1) == Returned(1)
    assert made.call(instance, "grow", 1) == Returned(2)


@pytest.mark.parametrize(
    ("export", "message"),
    [
        ("oob", "trapped (out of bounds memory access)"),
        ("div", "trapped (integer divide by zero)"),
        ("deep", "trapped (call stack exhausted)"),
    ],
)
def test_a_trap_says_why_and_where_and_ends_the_instance(made, export, message):
    instance = made.start(made.linker(BUSY, tick()))
    outcome = made.call(instance, export, 0)
    assert isinstance(outcome, Trapped)
    assert outcome.message == message
    assert "wasm function" in outcome.backtrace or export in outcome.backtrace
    after = made.call(instance, "ticks", 1)
    assert isinstance(after, Raised)
    assert isinstance(after.error, InternalError)


def test_deep_recursion_traps_on_every_lane_and_again():
    with machine(lanes_count=2) as made:
        linker = made.linker(BUSY, tick())
        for _ in range(6):
            outcome = made.call(made.start(linker), "deep", 0)
            assert outcome.message == "trapped (call stack exhausted)"


def test_memory_beyond_the_limit_is_refused_to_the_guest_and_named_in_its_trap(made):
    linker = made.linker(BUSY, tick())
    instance = made.start(linker, memory_bytes_max=16 * MIB)
    assert made.call(instance, "grow", 100) == Returned(1)
    assert made.call(instance, "grow", 1_000) == Returned(2**32 - 1)
    outcome = made.call(instance, "alloc", 1)
    assert outcome == Trapped("trapped (unreachable); its limit is 16 MiB", outcome.backtrace)
    # Without a limit of ours the address space is the limit.
    assert made.call(made.start(linker), "grow", 1_000) == Returned(1)


def test_a_table_beyond_the_limit_is_refused_to_the_guest(made):
    text = """(component
      (core module $m (table 10 funcref)
        (func (export "grow") (param i32) (result i32)
          (table.grow (ref.null func) (local.get 0))))
      (core instance $i (instantiate $m))
      (func (export "grow") (param "n" u32) (result u32) (canon lift (core func $i "grow"))))"""
    linker = made.linker(text)
    for limits in ({"table_elements_max": 20}, {"table_elements_max": 20, "memory_bytes_max": MIB}):
        instance = made.start(linker, **limits)
        assert made.call(instance, "grow", 11) == Returned(2**32 - 1)
        assert made.call(instance, "grow", 10) == Returned(10)
    assert made.call(made.start(linker), "grow", 1_000) == Returned(10)


def test_a_memory_that_begins_above_the_limit_is_not_instantiated(made):
    text = "(component (core module $m (memory 100)) (core instance (instantiate $m)))"
    instance = made.prepare(made.linker(text), memory_bytes_max=MIB)
    started = Answer()
    instance.start(started)
    assert "its limit is 1 MiB" in started.wait().message


def test_a_trap_in_the_start_function_is_the_outcome_of_starting(made):
    text = """(component
      (core module $m (func $s unreachable) (start $s)) (core instance (instantiate $m)))"""
    started = Answer()
    made.prepare(made.linker(text)).start(started)
    assert started.wait().message == "trapped (unreachable)"


def test_wrong_arguments_are_refused_and_leave_the_instance_as_it_was(made):
    instance = made.start(made.linker(BUSY, tick()))
    for arguments, why in [
        ((), "ticks takes 1 arguments, got 0"),
        ((1, 2), "ticks takes 1 arguments, got 2"),
        (("x",), "ticks: argument n: $: expected u32, got 'x' (str)"),
    ]:
        outcome = made.call(instance, "ticks", *arguments)
        assert isinstance(outcome.error, TypeError)
        assert str(outcome.error) == why
    assert made.call(instance, "ticks", 2) == Returned(3)


def test_an_interrupt_leaves_a_computing_guest_and_others_go_on():
    with machine(lanes_count=2) as made:
        linker = made.linker(BUSY, tick())
        spinning, counting = made.start(linker), made.start(linker)
        spins = made.begin(spinning, "spin", 1)
        counts = made.begin(counting, "count", 50_000_000)
        time.sleep(0.02)
        spinning.interrupt("enough")
        assert spins.wait() == Left("enough")
        assert isinstance(counts.wait(), Returned)


def test_an_interrupt_leaves_a_waiting_guest_at_once_and_its_answer_reaches_nobody(made):
    pendings = []
    linker = made.linker(BUSY, tick(hold(pendings), waits=True))
    instance = made.start(linker)
    outcome = made.begin(instance, "ticks", 1)
    wait_until(lambda: pendings)
    instance.interrupt("enough")
    assert outcome.wait() == Left("enough")
    pendings[0].set(5)
    other = made.start(linker)
    again = made.begin(other, "ticks", 1)
    wait_until(lambda: len(pendings) == 2)
    pendings[1].set(6)
    assert again.wait() == Returned(6)


def test_an_interrupt_reaches_a_call_that_is_still_queued(made):
    linker = made.linker(BUSY, tick())
    blocked, release = threading.Event(), threading.Event()
    instance = made.start(linker)
    made.lanes.lanes[0].post(lambda: (blocked.set(), release.wait(10)))
    blocked.wait(10)
    outcome = made.begin(instance, "spin", 1)
    instance.interrupt("enough")
    release.set()
    assert outcome.wait() == Left("enough")


def test_an_interrupt_without_a_call_is_forgotten(made):
    instance = made.start(made.linker(BUSY, tick()))
    instance.interrupt("nothing to leave")
    assert made.call(instance, "ticks", 2) == Returned(3)


def test_a_paused_guest_gives_way_and_runs_on_when_resumed(made):
    calls = []
    holder = []

    def call(_state, x):
        calls.append(x)
        if len(calls) == 10:
            holder[0].pause()
        return x

    linker = made.linker(BUSY, tick(call))
    instance = made.start(linker)
    holder.append(instance)
    outcome = made.begin(instance, "ticks", 1_000)
    wait_until(lambda: len(calls) >= 10)
    assert made.call(made.start(made.linker(BUSY, tick())), "ticks", 2) == Returned(3)
    made_so_far = len(calls)
    assert made_so_far <= 12
    time.sleep(0.03)
    assert len(calls) == made_so_far
    instance.resume()
    assert outcome.wait() == Returned(500_500)


def test_a_paused_guest_can_be_interrupted(made):
    instance = made.start(made.linker(BUSY, tick()))
    outcome = made.begin(instance, "spin", 1)
    time.sleep(0.01)
    instance.pause()
    time.sleep(0.01)
    instance.interrupt("enough")
    assert outcome.wait() == Left("enough")


@pytest.mark.parametrize("export", ["spin", "ticks"])
def test_closing_ends_a_call_without_an_outcome(made, export):
    pendings = []
    instance = made.start(made.linker(BUSY, tick(hold(pendings), waits=True)))
    outcome = made.begin(instance, export, 1)
    time.sleep(0.02)
    closed = Answer()
    instance.close(closed)
    closed.wait()
    for pending in pendings:
        pending.set(1)
    assert made.call(made.start(made.linker(BUSY, tick())), "ticks", 2) == Returned(3)
    assert not outcome.arrived
    after = made.call(instance, "ticks", 1)
    assert isinstance(after.error, InternalError)


def test_closing_twice_and_before_the_start_is_harmless(made):
    instance = made.prepare(made.linker(BUSY, tick()))
    for _ in range(2):
        closed = Answer()
        instance.close(closed)
        closed.wait()


def test_one_call_at_a_time(made):
    pendings = []
    instance = made.start(made.linker(BUSY, tick(hold(pendings), waits=True)))
    first = made.begin(instance, "ticks", 1)
    second = made.call(instance, "ticks", 1)
    assert isinstance(second.error, InternalError)
    pendings[0].set(3)
    assert first.wait() == Returned(3)


def test_an_outcome_may_begin_the_next_call_from_its_callback(made):
    instance = made.start(made.linker(BUSY, tick()))
    function = next(of for of in instance._linker.component.exports if of.name == "ticks")
    last = Answer()

    def again(left):
        def done(outcome):
            assert outcome == Returned(3)
            if left:
                instance.call(function, [2], again(left - 1))
            else:
                last(outcome)

        return done

    instance.call(function, [2], again(2_000))
    assert last.wait() == Returned(3)


@pytest.mark.parametrize("seed", [11, 12])
def test_guests_dropped_under_random_wakes_give_no_wrong_sum_and_no_fault(seed):
    """Two lanes, effects on other threads, drops, interrupts and host errors at random."""
    print("seed", seed)
    rnd = random.Random(seed)
    tallies = {"returned": 0, "raised": 0, "left": 0, "closed": 0}

    def call(_state, pending, x):
        luck = rnd.random()
        if luck < 0.01:
            raise LookupError("host error")
        if luck < 0.3:
            return x + 1
        effects.append((pending, x))
        return PENDING

    effects = []
    over = threading.Event()

    def answer():
        local = random.Random(rnd.random())
        while not over.is_set():
            if not effects:
                time.sleep(0.0002)
                continue
            try:
                pending, x = effects.pop(local.randrange(len(effects)))
            except (IndexError, ValueError):
                continue
            if local.random() < 0.02:
                pending.fail(LookupError("late host error"))
            pending.set(x + 1)
            if local.random() < 0.2:
                pending.set(99)

    threads = [threading.Thread(target=answer) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        with machine(lanes_count=2) as made:
            linker = made.linker(BUSY, tick(call, waits=True))
            for _ in range(20):
                run_one_round(made, linker, rnd, tallies)
    finally:
        over.set()
        for thread in threads:
            thread.join()
    print(tallies)
    assert all(tallies.values())


def run_one_round(made, linker, rnd, tallies):
    running = []
    for _ in range(20):
        instance = made.start(linker)
        count = rnd.choice((1, 5, 20))
        running.append((instance, count, made.begin(instance, "ticks", count)))
    for instance, count, outcome in running:
        luck = rnd.random()
        if luck < 0.2:
            instance.close()
            tallies["closed"] += 1
            continue
        if luck < 0.4:
            instance.interrupt("dropped")
        elif luck < 0.6:
            instance.pause()
            instance.resume()
        match outcome.wait():
            case Returned(value):
                assert value == count * (count + 1) // 2 + count
                tallies["returned"] += 1
            case Raised(error):
                assert isinstance(error, LookupError)
                tallies["raised"] += 1
            case Left("dropped"):
                tallies["left"] += 1
            case other:
                raise AssertionError(other)
        instance.close()
    made.instances.clear()


def test_a_result_that_cannot_be_taken_is_told_and_holds_up_nobody(made, monkeypatch):
    instance = made.start(made.linker(BUSY, tick()))

    def take(*_):
        raise MemoryError("too much")

    with monkeypatch.context() as patched:
        patched.setattr(instance_module._Call, "take_result", take)
        outcome = made.call(instance, "ticks", 4)
    assert isinstance(outcome, Raised)
    assert isinstance(outcome.error, MemoryError)
    assert made.call(made.start(made.linker(BUSY, tick())), "ticks", 4) == Returned(10)
