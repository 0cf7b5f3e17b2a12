"""Whatever a host function raises leaves the guest as a value, and nothing else happens."""

import threading
import time

import pytest
import trio

from executor.wasm.host_function import PENDING, LeaveGuest
from executor.wasm.instance import Left, Raised, Returned
from tests.support.guest_wat import ASYNC_LIFTED, BUSY
from tests.support.machine import Answer, host_function, host_interface, machine

GUESTS = 16


class Odd(BaseException):
    """Not an `Exception`, as a cancellation is not."""


def cancelled():
    try:
        trio.Cancelled()
    except TypeError:
        return trio.Cancelled._create(source="deadline", reason=None, source_task=None)
    raise AssertionError("trio.Cancelled can be made now")


ERRORS = [
    ValueError("plain"),
    Odd("odd"),
    KeyboardInterrupt(),
    SystemExit(3),
    MemoryError(),
    StopIteration(1),
    RecursionError("deep"),
    GeneratorExit(),
]


def tick(call, *, waits=False):
    return host_interface(host_function("tick: func(x: u32) -> u32", call, waits=waits))


def raising(error):
    def call(*_):
        raise error

    return call


@pytest.mark.parametrize("waits", [False, True])
def test_any_exception_in_16_guests_at_once_reaches_its_own_caller(waits):
    with machine(lanes_count=4) as made:
        errors = [cancelled(), *ERRORS]
        together = threading.Barrier(4)

        def call(state, *_):
            if state < 4:
                together.wait(10)
            raise errors[state % len(errors)]

        linker = made.linker(BUSY, tick(call, waits=waits))
        instances = [made.start(linker, number) for number in range(GUESTS)]
        outcomes = [made.begin(instance, "ticks", 1) for instance in instances]
        for number, outcome in enumerate(outcomes):
            assert outcome.wait() == Raised(errors[number % len(errors)])
        # The lanes are as they were.
        good = made.linker(BUSY, tick(lambda _state, x: x))
        others = [made.start(good, number) for number in range(GUESTS)]
        assert [made.call(other, "ticks", 3) for other in others] == [Returned(6)] * GUESTS


def test_an_exception_keeps_its_traceback_into_the_host_function():
    with machine() as made:
        instance = made.start(made.linker(BUSY, tick(raising(ValueError("why")))))
        outcome = made.call(instance, "ticks", 1)
    frames = []
    trace = outcome.error.__traceback__
    while trace is not None:
        frames.append(trace.tb_frame.f_code.co_name)
        trace = trace.tb_next
    assert frames[-1] == "call"


@pytest.mark.parametrize("waits", [False, True])
def test_leaving_the_guest_is_an_outcome_with_its_reason(waits):
    with machine() as made:
        linker = made.linker(BUSY, tick(raising(LeaveGuest(("exit", 3))), waits=waits))
        assert made.call(made.start(linker), "ticks", 1) == Left(("exit", 3))


def test_a_waiting_function_that_answers_at_once_never_leaves_the_lane():
    posts = []
    with machine() as made:
        linker = made.linker(BUSY, tick(lambda _state, _pending, x: x, waits=True))
        instance = made.start(linker)
        post = instance._lane.post
        instance._lane.post = lambda work: (posts.append(work), post(work))
        assert made.call(instance, "ticks", 1_000) == Returned(500_500)
    assert len([work for work in posts if work == instance._poll]) == 0


def test_a_waiting_function_may_answer_before_it_returns():
    def call(_state, pending, x):
        pending.set(x)
        pending.set(99)
        return PENDING

    with machine() as made:
        instance = made.start(made.linker(BUSY, tick(call, waits=True)))
        assert made.call(instance, "ticks", 4) == Returned(10)


def test_a_waiting_function_that_failed_before_it_returns_is_raised():
    def call(_state, pending, _x):
        pending.fail(Odd("early"))
        return PENDING

    with machine() as made:
        instance = made.start(made.linker(BUSY, tick(call, waits=True)))
        outcome = made.call(instance, "ticks", 4)
    assert isinstance(outcome.error, Odd)


def later(answer):
    """A waiting function that is answered by another thread."""

    def call(_state, pending, x):
        threading.Thread(target=answer, args=(pending, x)).start()
        return PENDING

    return call


def test_the_first_answer_wins_and_later_ones_are_ignored():
    def answer(pending, x):
        pending.set(x)
        pending.set(x + 1)
        pending.fail(ValueError("late"))

    with machine() as made:
        instance = made.start(made.linker(BUSY, tick(later(answer), waits=True)))
        assert made.call(instance, "ticks", 20) == Returned(210)
        assert made.call(instance, "ticks", 20) == Returned(210)


@pytest.mark.parametrize("error", [cancelled(), *ERRORS], ids=lambda error: type(error).__name__)
def test_a_failure_after_a_wait_reaches_the_caller(error):
    with machine() as made:
        linker = made.linker(BUSY, tick(later(lambda pending, _x: pending.fail(error)), waits=True))
        assert made.call(made.start(linker), "ticks", 2) == Raised(error)


def test_leaving_after_a_wait_is_an_outcome_with_its_reason():
    def answer(pending, _x):
        pending.fail(LeaveGuest("exit"))

    with machine() as made:
        instance = made.start(made.linker(BUSY, tick(later(answer), waits=True)))
        assert made.call(instance, "ticks", 2) == Left("exit")


def test_a_wrong_answer_after_a_wait_is_raised_with_its_path():
    with machine() as made:
        linker = made.linker(BUSY, tick(later(lambda pending, _x: pending.set("x")), waits=True))
        outcome = made.call(made.start(linker), "ticks", 2)
    assert isinstance(outcome, Raised)
    assert str(outcome.error) == (
        "t:host/api.tick answered with a wrong value: $: expected u32, got 'x' (str)"
    )


def test_a_function_without_a_result_must_not_answer():
    text = """(component
      (import "t:host/api" (instance $api (export "note" (func))))
      (core func $note (canon lower (func $api "note")))
      (core module $m (import "h" "note" (func $note)) (func (export "run") (call $note)))
      (core instance $i (instantiate $m (with "h" (instance (export "note" (func $note))))))
      (func (export "run") (canon lift (core func $i "run"))))"""
    notes = []
    with machine() as made:
        good = host_interface(host_function("note: func()", notes.append))
        assert made.call(made.start(made.linker(text, good), "state"), "run") == Returned(None)
        wrong = host_interface(host_function("note: func()", lambda _state: 5))
        outcome = made.call(made.start(made.linker(text, wrong)), "run")
    assert notes == ["state"]
    assert "expected no result, got 5" in str(outcome.error)


def test_a_waiting_guest_costs_no_thread_and_others_run_meanwhile():
    held = []

    def call(_state, pending, x):
        held.append((pending, x))
        return PENDING

    with machine() as made:
        linker = made.linker(BUSY, tick(call, waits=True))
        waiting = [made.start(linker) for _ in range(200)]
        threads = threading.active_count()
        outcomes = [made.begin(instance, "ticks", 1) for instance in waiting]
        other = made.start(made.linker(BUSY, tick(lambda _state, x: x)))
        assert made.call(other, "ticks", 4) == Returned(10)
        assert threading.active_count() == threads
        assert not any(outcome.arrived for outcome in outcomes)
        for pending, x in held:
            pending.set(x + 6)
        assert {outcome.wait().value for outcome in outcomes} == {7}


def test_an_async_lifted_export_runs_and_may_wait():
    def answer(pending, x):
        time.sleep(0.005)
        pending.set(x + 1)

    with machine() as made:
        instance = made.start(made.linker(ASYNC_LIFTED, tick(later(answer), waits=True)))
        assert made.call(instance, "run", 4) == Returned(5)
        assert made.call(instance, "run", 6) == Returned(7)


def test_a_failing_callback_is_reported_and_the_lane_goes_on(monkeypatch):
    reported = Answer()
    monkeypatch.setattr(threading, "excepthook", reported)

    def fail(_outcome):
        raise ValueError("in done")

    with machine() as made:
        instance = made.start(made.linker(BUSY, tick(lambda _state, x: x)))
        instance.call(instance._linker.component.exports[2], [1], fail)
        assert str(reported.wait().exc_value) == "in done"
        assert made.call(instance, "ticks", 2) == Returned(3)
