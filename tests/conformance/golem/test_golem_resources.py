"""Golem 1.2.5's guests that export resources, live, replayed and crashed after every call."""

from pathlib import Path

import pytest
from trio.testing import trio_test

from executor.executor import Executor
from tests.conformance.golem.components import WHY_SKIPPED, components_folder

if components_folder() is None:
    pytest.skip(WHY_SKIPPED, allow_module_level=True)

from tests.conformance.golem.test_golem_guests import CLOUD, MUD, SHIRT, Mode, deployed

COUNTERS = "rpc:counters-exports/api"
CART = "golem:it/api"


@pytest.fixture(params=["live", "replayed", "crashed"])
def mode(request: pytest.FixtureRequest) -> Mode:
    return request.param  # type: ignore[no-any-return]


@trio_test
async def test_a_counter_counts_until_it_is_dropped(tmp_path: Path, mode: Mode) -> None:
    async with Executor.open(tmp_path) as shem:
        guest = await deployed(shem, "counters", "counters-1", mode)
        made = await guest.invocation(f"{COUNTERS}.{{[constructor]counter}}", ["counter1"])
        assert (made.value, made.wave) == (1, "1")
        await guest.invocation(f"{COUNTERS}.{{[method]counter.inc-by}}", [1, 5])
        assert (await guest.invocation("counter.get-value", [1])).value == 5
        await guest.invocation(f"{COUNTERS}.{{[drop]counter}}", [1])
        dropped = await guest.invocation("get-all-dropped")
        assert dropped.value == [("counter1", 5)]


@trio_test
async def test_counters_stand_beside_each_other(tmp_path: Path, mode: Mode) -> None:
    async with Executor.open(tmp_path) as shem:
        guest = await deployed(shem, "counters", "counters-2", mode)
        for number, name in ((1, "one"), (2, "two"), (3, "three")):
            assert (await guest.invocation("counter.new", [name])).value == number
        for number in (1, 2, 3, 2):
            await guest.invocation("counter.inc-by", [number, 10 * number])
        await guest.invocation("counter.drop", [2])
        assert (await guest.invocation("counter.get-value", [3])).value == 30
        await guest.invocation("counter.drop", [1])
        dropped = await guest.invocation("get-all-dropped")
        assert sorted(dropped.value) == [("one", 10), ("two", 40)]
        await guest.invocation("inc-global-by", [3])
        assert (await guest.invocation("get-global-value")).value == 3


@trio_test
async def test_a_cart_is_a_resource(tmp_path: Path, mode: Mode) -> None:
    async with Executor.open(tmp_path) as shem:
        guest = await deployed(shem, "shopping-cart-resource", "cart-1", mode)

        async def cart(function: str, *arguments: object) -> object:
            return (await guest.invocation(f"{CART}.{{{function}}}", arguments)).value

        assert await cart("[constructor]cart", "test-user-1") == 1
        assert await cart("[constructor]cart", "test-user-2") == 2
        for item in (SHIRT, CLOUD, MUD):
            await cart("[method]cart.add-item", 1, item)
        await cart("[method]cart.update-item-quantity", 1, "G1002", 20)
        await cart("[method]cart.remove-item", 1, "G1001")
        left = [SHIRT, MUD | {"quantity": 20}]
        assert await cart("[method]cart.get-cart-contents", 1) == left
        await cart("[method]cart.add-item", 2, CLOUD)
        assert await cart("[method]cart.get-cart-contents", 2) == [CLOUD]
        assert await cart("[resource-drop]cart", 1) is None
