"""A component that exports resources: its handles are numbers, and a number can be dropped."""

import gc
import random
import resource
import time

import pytest
import wasmtime

from executor.errors import BadHandle, ComponentRejected
from executor.wasm.binary import (
    Section,
    UnknownShape,
    defines_resources,
    read_prologue,
    section,
)
from executor.wasm.engine import Engine
from executor.wasm.host_function import PENDING
from executor.wasm.instance import Raised, Returned, Trapped
from executor.wasm.values import Err, Ok
from tests.support.guest_wat import BUSY
from tests.support.machine import host_function, host_interface, machine
from tests.support.resource_guest import RESOURCES

DROP = "[resource-drop]counter"
NEW = "[constructor]counter"
GET = "[method]counter.get"
MERGE = "[static]counter.merge"


def drawing(call, **options):
    draw = host_function("get-random-u64: func() -> u64", call, **options)
    return host_interface(draw, name="wasi:random/random", versions="0.2")


@pytest.fixture
def guest():
    """A call of the one instance; its value, or how it was left."""
    with machine() as made:
        instance = made.start(made.linker(RESOURCES, drawing(lambda _state: 4)))

        def call(name, *arguments):
            outcome = made.call(instance, name, *arguments)
            return outcome.value if isinstance(outcome, Returned) else outcome

        call.instance = instance
        yield call


def dropped(guest):
    """How many destructors ran, and the sum of what they dropped."""
    return divmod(guest("dropped"), 1_000_000)


def refusal(outcome):
    assert isinstance(outcome, Raised), outcome
    assert isinstance(outcome.error, BadHandle), outcome.error
    return outcome.error.message


def test_each_resource_has_a_function_that_drops_it():
    with machine() as made:
        texts = made.component(RESOURCES).export_texts
    assert "[resource-drop]counter: func(self: own<counter>)" in texts
    assert "[resource-drop]label: func(self: own<label>)" in texts
    assert sum("resource-drop" in line for line in texts) == 2


def test_dropping_a_handle_runs_the_guests_destructor_once(guest):
    assert guest(NEW, 7) == 1
    assert guest(GET, 1) == 7
    assert guest(DROP, 1) is None
    assert dropped(guest) == (1, 7)
    assert "dropped or given away" in refusal(guest(DROP, 1))
    assert dropped(guest) == (1, 7)


def test_a_destructor_may_call_a_waiting_host_function():
    with machine() as made:
        waiting = []

        def draw(_state, pending):
            waiting.append(pending)
            return PENDING

        instance = made.start(made.linker(RESOURCES, drawing(draw, waits=True)))
        assert made.call(instance, NEW, 777).value == 1
        dropping = made.begin(instance, DROP, 1)
        while not waiting:
            time.sleep(0.001)
        assert not dropping.arrived
        waiting[0].set(4)
        assert dropping.wait() == Returned(None)
        assert made.call(instance, "dropped") == Returned(1_000_777)


def test_a_destructor_that_traps_ends_the_instance(guest):
    guest(NEW, 666)
    assert isinstance(guest(DROP, 1), Trapped)


def test_handles_are_found_in_every_kind_of_value(guest):
    assert guest("many", 3) == [1, 2, 3]
    assert guest("hold", "h", 5) == {"name": "h", "held": 4}
    assert guest("maybe", 0) is None
    assert guest("maybe", 6) == 5
    assert guest("attempt", 0) == Err(6)
    assert guest("attempt", 8) == Ok(7)
    assert guest("total", [1, 2, 3, 4, 5, 6, 7]) == 10 + 11 + 12 + 5 + 6 + 0 + 8
    assert guest("peek", 5) == 6
    assert guest("peek", None) == 0
    assert guest("eat", [3, 1]) == 22
    assert dropped(guest) == (2, 22)
    assert "counter with handle 1" in refusal(guest(GET, 1))
    assert guest(GET, 2) == 11


def test_an_owned_argument_is_given_away_and_a_borrowed_one_is_kept(guest):
    guest(NEW, 3)
    guest(NEW, 4)
    assert guest("[static]counter.add", 1, 2) == 3
    assert guest(GET, 2) == 4
    assert guest(MERGE, 2, 3) == 4
    refusal(guest(GET, 2))


@pytest.mark.parametrize(
    ("function", "arguments", "sentence"),
    [
        (GET, (9,), "there is no counter with handle 9: it was never issued"),
        (GET, (0,), "there is no counter with handle 0: it was never issued"),
        (GET, (2,), "handle 2 is of a label, not of a counter"),
        (DROP, (2,), "handle 2 is of a label, not of a counter"),
        (MERGE, (1, 1), "handle 1 is given away twice in one call"),
        ("[method]counter.absorb", (1, 1), "handle 1 is lent and given away in one call"),
        ("eat", ([1, 3, 1],), "handle 1 is given away twice in one call"),
        ("[static]counter.add", (1, 1), "handle 1 is given away twice in one call"),
        ("total", ([1, 5],), "there is no counter with handle 5"),
    ],
)
def test_a_handle_that_cannot_be_used_is_refused_and_nothing_is_lost(
    guest, function, arguments, sentence
):
    guest(NEW, 1)
    guest("[constructor]label", 2)
    guest(NEW, 3)
    assert sentence in refusal(guest(function, *arguments))
    assert guest("total", [1, 3]) == 4
    assert guest(MERGE, 1, 3) == 4
    assert dropped(guest) == (2, 4)


def test_a_handle_may_be_lent_twice_in_one_call(guest):
    guest(NEW, 4)
    assert guest("total", [1, 1, 1]) == 12


@pytest.mark.parametrize("seed", [random.randrange(1 << 32)])
def test_random_calls_agree_with_a_model(guest, seed):
    print("seed", seed)
    rnd = random.Random(seed)
    held, last, gone = {}, 0, []
    for _ in range(600):
        pick = rnd.randint(1, last + 1)
        match rnd.choice(("new", "get", "drop", "merge", "many", "eat")):
            case "new":
                last += 1
                held[last] = rnd.randint(1, 500)
                assert guest(NEW, held[last]) == last
            case "many":
                assert guest("many", 2) == [last + 1, last + 2]
                held |= {last + 1: 10, last + 2: 11}
                last += 2
            case "get" if pick in held:
                assert guest(GET, pick) == held[pick]
            case "drop" if pick in held:
                assert guest(DROP, pick) is None
                gone.append(held.pop(pick))
            case "eat" if held:
                eaten = rnd.sample(sorted(held), rnd.randint(1, min(4, len(held))))
                assert guest("eat", eaten) == sum(held[number] for number in eaten)
                gone += [held.pop(number) for number in eaten]
            case "merge" if pick in held and len(held) > 1:
                other = rnd.choice([number for number in held if number != pick])
                last += 1
                assert guest(MERGE, pick, other) == last
                gone += [held.pop(pick), held.pop(other)]
                held[last] = gone[-1] + gone[-2]
            case "get" | "drop":
                refusal(guest(GET, pick))
    assert dropped(guest) == (len(gone), sum(gone) % 1_000_000)
    assert len(guest.instance._crossing.guest_handles) == len(held)


def test_making_and_dropping_leaks_nothing(guest):
    def rounds(count):
        for _ in range(count):
            made = guest("many", 600)
            guest("total", made[:9])
            refusal(guest(MERGE, made[0], made[0]))
            guest(DROP, made.pop())
            guest("eat", made)
        gc.collect()
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    before = rounds(10)
    assert rounds(70) - before < 1_024, "KiB"


def test_a_component_without_need_is_not_wrapped():
    with machine() as made:
        component = made.component(BUSY)
    assert not component.wrapped
    assert not component.raw_imports


def test_names_of_the_executor_cannot_be_imported():
    wat = b'(component (import "shem:bytes/wasi-io-streams@0.2.0" (instance (export "x" (func)))))'
    with pytest.raises(ComponentRejected, match="executor's own"):
        Engine.open().compile(wat)


def test_a_component_cut_anywhere_is_of_no_known_shape_or_is_read():
    """What is no whole component is Wasmtime's to refuse: reading it never fails otherwise."""
    binary = bytes(wasmtime.wat2wasm(RESOURCES))
    assert defines_resources(binary)
    for end in range(8, len(binary)):
        for read in (read_prologue, defines_resources):
            try:
                read(binary[:end])
            except UnknownShape:
                continue


@pytest.mark.parametrize("seed", [random.randrange(1 << 32)])
def test_damaged_bytes_are_of_no_known_shape_or_are_read(seed):
    print("seed", seed)
    rnd = random.Random(seed)
    binary = bytes(wasmtime.wat2wasm(RESOURCES))
    for _ in range(3_000):
        damaged = bytearray(binary)
        for _ in range(rnd.randint(1, 3)):
            damaged[rnd.randrange(8, len(damaged))] = rnd.randrange(256)
        for read in (read_prologue, defines_resources):
            try:
                read(bytes(damaged))
            except UnknownShape:
                continue


def test_a_component_nested_too_deep_is_of_no_known_shape():
    binary = bytes(wasmtime.wat2wasm("(component)"))
    deep = binary
    for _ in range(200):
        deep = binary + section(Section.COMPONENT, deep)
    with pytest.raises(UnknownShape, match="nested"):
        defines_resources(deep)
    nested = b"\x42\x01\x01" * 5_000 + b"\x42\x00"
    with pytest.raises(UnknownShape, match="nested"):
        defines_resources(binary + section(Section.TYPE, b"\x01" + nested))
