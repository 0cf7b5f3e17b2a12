"""Handles of the host's resources and of the guest's own."""

import pytest

from executor.errors import BadHandle
from executor.wasm.instance import Raised, Returned, Trapped
from executor.wasm.types import BorrowType, OwnType
from tests.support.guest_wat import GUEST_RESOURCE, HANDLES
from tests.support.machine import host_function, host_interface, machine

STORE = {"store": OwnType("store")}
CALLS = 20_000


class Stores:
    """The host's side: numbers of its own choosing, as a worker would keep them."""

    def __init__(self):
        self.contents = {}
        self.dropped = []
        self.last = 4_000_000_000

    def new(self, content):
        self.last += 1
        self.contents[self.last] = content
        return self.last

    def drop(self, number):
        self.dropped.append(number)
        del self.contents[number]


def stores_interface(**changed):
    calls = {
        "new": Stores.new,
        "get": lambda state, number: state.contents[number],
        "sum": lambda state, numbers: sum(state.contents[number] for number in numbers),
        "consume": lambda state, number: state.contents.pop(number),
        "drop": Stores.drop,
    } | changed
    return host_interface(
        host_function("[constructor]store: func(n: u32) -> store", calls["new"], uses=STORE),
        host_function(
            "[method]store.get: func(self: borrow<store>) -> u32", calls["get"], uses=STORE
        ),
        host_function("sum: func(all: list<borrow<store>>) -> u32", calls["sum"], uses=STORE),
        host_function("consume: func(s: store) -> u32", calls["consume"], uses=STORE),
        resources={"store": calls["drop"]},
    )


@pytest.fixture
def host():
    with machine() as made:
        stores = Stores()

        def start(**changed):
            return made.start(made.linker(HANDLES, stores_interface(**changed)), stores)

        yield made, stores, start


def test_a_handle_crosses_as_the_number_that_the_host_chose(host):
    made, stores, start = host
    instance = start()
    assert made.call(instance, "gets", 3) == Returned(21)
    assert made.call(instance, "consumes", 9) == Returned(9)
    assert made.call(instance, "sums", 41) == Returned(42)
    assert stores.dropped == [4_000_000_001]


def test_many_handles_are_made_lent_and_dropped(host):
    made, stores, start = host
    instance = start()
    assert made.call(instance, "news", CALLS) == Returned(0)
    assert made.call(instance, "gets", CALLS) == Returned(7 * CALLS)
    assert len(stores.dropped) == CALLS + 1
    assert stores.contents == {}


def test_what_a_guest_leaks_stays_with_the_host(host):
    made, stores, start = host
    instance = start()
    assert made.call(instance, "leak", 5) == Returned(0)
    instance.close()
    assert list(stores.contents.values()) == [5]
    assert stores.dropped == []


@pytest.mark.parametrize("export", ["bad", "double"])
def test_a_handle_that_is_not_there_is_a_trap_that_says_so(host, export):
    made, _, start = host
    outcome = made.call(start(), export, 99)
    assert isinstance(outcome, Trapped)
    assert "handle index" in outcome.message


def test_a_failing_method_with_a_borrow_leaves_the_reason(host):
    made, _, start = host

    def fail(_state, _number):
        raise LookupError("no such store")

    outcome = made.call(start(get=fail), "gets", 1)
    assert isinstance(outcome, Raised)
    assert str(outcome.error) == "no such store"


def test_a_failing_drop_leaves_the_reason(host):
    made, _, start = host

    def fail(_state, number):
        raise LookupError(f"cannot drop {number}")

    outcome = made.call(start(drop=fail), "news", 1)
    assert isinstance(outcome, Raised)
    assert str(outcome.error) == "cannot drop 4000000001"


def test_a_handle_must_be_a_number_of_32_bits(host):
    made, _, start = host
    for wrong in (-1, 1 << 32, "1", None):
        outcome = made.call(start(new=lambda _state, _n, wrong=wrong: wrong), "news", 1)
        assert isinstance(outcome, Raised)
        assert "expected own<t:host/api.store>" in str(outcome.error)


def test_a_guests_own_resource_is_a_number_counted_from_one():
    with machine() as made:
        linker = made.linker(GUEST_RESOURCE)
        types = {export.name: export.type for export in linker.component.exports}
        assert types["ctor"].result == OwnType("counter")
        assert types["get"].params == (("self", BorrowType("counter")),)
        instance = made.start(linker)
        assert made.call(instance, "ctor", 7) == Returned(1)
        assert made.call(instance, "ctor", 8) == Returned(2)
        assert made.call(instance, "get", 1) == Returned(107)
        assert made.call(instance, "take", 1) == Returned(7)
        for export in ("get", "take"):
            outcome = made.call(instance, export, 1)
            assert isinstance(outcome, Raised)
            assert isinstance(outcome.error, BadHandle)
            assert "no counter with handle 1" in outcome.error.message
        assert made.call(instance, "ctor", 9) == Returned(3)
        assert made.call(instance, "get", 2) == Returned(108)
