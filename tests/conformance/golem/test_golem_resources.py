"""Golem's guests whose exports are resources, and its guest that logs: live, replayed, crashed.

What is expected is the behaviour of `api.rs` of Golem's executor tests at v1.2.5, written afresh.
Its call syntax `counter("c1").inc-by`, which makes a resource of that name where there is none, is
not here: a resource is held by its number.
"""

from pathlib import Path

import pytest
from trio.testing import trio_test

from executor.executor import Executor
from executor.wasm.values import Variant
from oplog.entry import Log
from tests.conformance.golem.components import WHY_SKIPPED, components_folder
from tests.conformance.golem.guest import API, Mode, deployed

if components_folder() is None:
    pytest.skip(WHY_SKIPPED, allow_module_level=True)

COUNTERS = "rpc:counters-exports/api"
SHIRT = {"product-id": "G1000", "name": "Golem T-Shirt M", "price": 100.0, "quantity": 5}
MUD = {"product-id": "G1002", "name": "Mud Golem", "price": 11.0, "quantity": 10}


@trio_test
async def test_a_counter_is_made_counts_and_is_dropped(tmp_path: Path, mode: Mode) -> None:
    async with Executor.open(tmp_path) as shem:
        guest = await deployed(shem, "counters", "counters-1", mode)
        counter = await guest.run(f"{COUNTERS}.{{[constructor]counter}}", "counter1")
        await guest.run("counter.inc-by", counter, 5)
        assert await guest.run("counter.get-value", counter) == 5
        await guest.run("counter.drop", counter)
        assert await guest.run("get-all-dropped") == [("counter1", 5)]


@trio_test
async def test_counters_are_told_apart_also_after_a_restart(tmp_path: Path, mode: Mode) -> None:
    async with Executor.open(tmp_path) as shem:
        guest = await deployed(shem, "counters", "counters-2", mode)
        one, two = [await guest.run("counter.new", name) for name in ("counter1", "counter2")]
        for counter, amount in ((one, 5), (two, 1), (two, 2)):
            await guest.run("counter.inc-by", counter, amount)
    async with Executor.open(tmp_path) as shem:
        guest = await deployed(shem, "counters", "counters-2", mode)
        assert await guest.run("counter.get-value", one) == 5
        assert await guest.run("counter.get-value", two) == 3
        for counter in (one, two):
            await guest.run("counter.drop", counter)
        assert await guest.run("get-all-dropped") == [("counter1", 5), ("counter2", 3)]


@trio_test
async def test_the_counters_own_functions(tmp_path: Path, mode: Mode) -> None:
    async with Executor.open(tmp_path) as shem:
        guest = await deployed(shem, "counters", "w", mode)
        await shem.invoke(guest.worker, "get-global-value", args=["a"], env={"A": "b"})
        for amount in (3, 4):
            await guest.run("inc-global-by", amount)
        assert await guest.run("get-global-value") == 7
        leaf = Variant("leaf")
        assert await guest.run("bug-wasm-rpc-i32", leaf) == leaf
        counter = await guest.run("counter.new", "c")
        assert await guest.run("counter.get-args", counter) == ["a"]
        assert ("A", "b") in await guest.run("counter.get-env", counter)


@pytest.mark.parametrize("name", ["shopping-cart-resource", "shopping-cart-resource-versioned"])
@trio_test
async def test_a_cart_that_is_a_resource(tmp_path: Path, mode: Mode, name: str) -> None:
    folder = components_folder()
    assert folder is not None
    if not (folder / f"{name}.wasm").exists():
        pytest.skip(f"the folder holds no {name}.wasm")
    async with Executor.open(tmp_path) as shem:
        guest = await deployed(shem, name, "cart-1", mode)
        cart = await guest.run(f"{API}.{{[constructor]cart}}", "test-user-1")
        await guest.run("cart.add-item", cart, SHIRT)
        await guest.run("cart.add-item", cart, MUD)
        await guest.run("cart.update-item-quantity", cart, "G1002", 20)
        mine = [SHIRT, MUD | {"quantity": 20}]
        assert await guest.run("cart.get-cart-contents", cart) == mine
        other = await guest.run("cart.new", "test-user-2")
        await guest.run("cart.add-item", other, SHIRT | {"product-id": "G1007"})
        assert await guest.run("cart.get-cart-contents", cart) == mine
        await guest.run("cart.drop", other)
        outcome = await guest.run("cart.checkout", cart)
        ordered = Variant("success", {"order-id": "238738674"})
        assert outcome in (ordered, Variant("error", "Inventory not available"))


@pytest.mark.parametrize("name", ["logging", "logging-transformed"])
@trio_test
async def test_messages_of_every_level_are_logged_once(
    tmp_path: Path, mode: Mode, name: str
) -> None:
    """A hundred messages over eight ways to tell them, and a sleep at every tenth. The second guest
    adds to the context of each.
    """
    async with Executor.open(tmp_path) as shem:
        guest = await deployed(shem, name, "w", mode)
        await guest.call("init")
        done = await guest.invocation(f"{API}.{{some-random-entries}}")
        lines = [line.split(".")[0] for line in done.stdout.splitlines()]
        assert lines == [str(number) for number in range(0, 100, 8)]
        errors = [line.split(".")[0] for line in done.stderr.splitlines() if ". message" in line]
        assert errors == [str(number) for number in range(1, 100, 8)]
        told = [
            (record.entry.context.partition(",")[0], record.entry.level)
            async for record in shem.oplog(guest.worker)
            if isinstance(record.entry, Log) and record.entry.level not in {"stdout", "stderr"}
        ]
        levels = ["critical", "error", "debug", "info", "warn", "trace"]
        assert told == [
            (str(number), levels[number % 8 - 2]) for number in range(100) if number % 8 > 1
        ]
