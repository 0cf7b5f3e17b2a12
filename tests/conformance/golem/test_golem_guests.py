"""Guests that were built for Golem 1.2.5 run here as they are, live and in forced replay.

What is expected is the behaviour of Golem's own executor tests at v1.2.5, written afresh.

Two answers differ from Golem's on purpose. Standard input is an empty stream here, where Golem
traps; and an option at the end of the arguments may be left out, as WAVE has it.
"""

import uuid
from pathlib import Path
from typing import Any

import pytest
from trio.testing import trio_test

from executor.errors import (
    BadArguments,
    ComponentRejected,
    KeyConflict,
    RequestError,
    UnknownFunction,
    WorkerNotFound,
)
from executor.executor import Executor
from executor.wasm.values import Ok, Variant
from tests.conformance.golem.components import WHY_SKIPPED, components_folder, golem_component
from tests.conformance.golem.guest import API, Guest, Mode, deployed

if components_folder() is None:
    pytest.skip(WHY_SKIPPED, allow_module_level=True)

SHIRT = {"product-id": "G1000", "name": "Golem T-Shirt M", "price": 100.0, "quantity": 5}
CLOUD = {
    "product-id": "G1001",
    "name": "Golem Cloud Subscription 1y",
    "price": 999999.0,
    "quantity": 1,
}
MUD = {"product-id": "G1002", "name": "Mud Golem", "price": 11.0, "quantity": 10}


@trio_test
async def test_a_cart_holds_what_was_put_into_it(tmp_path: Path, mode: Mode) -> None:
    async with Executor.open(tmp_path) as shem:
        cart = await deployed(shem, "shopping-cart", "shopping-cart-1", mode)
        assert await cart.call("initialize-cart", "test-user-1") is None
        for item in (SHIRT, CLOUD, MUD):
            assert await cart.call("add-item", item) is None
        await cart.call("update-item-quantity", "G1002", 20)
        assert await cart.call("get-cart-contents") == [SHIRT, CLOUD, MUD | {"quantity": 20}]
        await cart.call("remove-item", "G1001")
        assert await cart.call("get-cart-contents") == [SHIRT, MUD | {"quantity": 20}]


@trio_test
async def test_a_checkout_draws_lots_once(tmp_path: Path, mode: Mode) -> None:
    """The guest draws a random number: one checkout in ten finds no stock, and stays that way."""
    async with Executor.open(tmp_path) as shem:
        cart = await deployed(shem, "shopping-cart", "shopping-cart-1", mode)
        await cart.call("add-item", SHIRT)
        first = await cart.call("checkout", key="checkout")
        ordered = Variant("success", {"order-id": "238738674"})
        assert first in (ordered, Variant("error", "Inventory not available"))
        assert await cart.call("checkout", key="checkout") == first
        assert await cart.call("get-cart-contents") == ([] if first == ordered else [SHIRT])


@trio_test
async def test_a_guest_may_ask_for_a_commit(tmp_path: Path, mode: Mode) -> None:
    async with Executor.open(tmp_path) as shem:
        cart = await deployed(shem, "shopping-cart", "shopping-cart-1", mode)
        await cart.call("force-commit", 3)
        await cart.call("add-item", SHIRT)
        assert await cart.call("get-cart-contents") == [SHIRT]


@trio_test
async def test_the_same_key_adds_one_item_also_after_a_restart(tmp_path: Path, mode: Mode) -> None:
    key = str(uuid.uuid4())
    async with Executor.open(tmp_path) as shem:
        cart = await deployed(shem, "shopping-cart", "shopping-cart-2", mode)
        await cart.call("add-item", SHIRT, key=key)
        again = await cart.invocation(f"{API}.{{add-item}}", [SHIRT], key)
        assert again.key == key
        assert await cart.call("get-cart-contents") == [SHIRT]
    async with Executor.open(tmp_path) as shem:
        cart = Guest(shem, "shopping-cart/shopping-cart-2", mode)
        await cart.call("add-item", SHIRT, key=key)
        assert await cart.call("get-cart-contents") == [SHIRT]
        with pytest.raises(KeyConflict):
            await cart.call("add-item", CLOUD, key=key)


@trio_test
async def test_a_worker_comes_to_be_at_its_first_call_with_its_environment(
    tmp_path: Path, mode: Mode
) -> None:
    async with Executor.open(tmp_path) as shem:
        component = await shem.deploy(golem_component("environment-service"), name="environment")
        guest = Guest(shem, "environment/dynamic-worker-creation-1", mode)
        assert await guest.call("get-arguments") == Ok([])
        assert await guest.call("get-environment") == Ok(
            [
                ("GOLEM_WORKER_NAME", "dynamic-worker-creation-1"),
                ("GOLEM_COMPONENT_ID", component.id),
                ("GOLEM_COMPONENT_VERSION", "0"),
            ]
        )
        assert str(uuid.UUID(component.id)) == component.id


@trio_test
async def test_the_environment_of_the_component_comes_first(tmp_path: Path, mode: Mode) -> None:
    async with Executor.open(tmp_path) as shem:
        component = await shem.deploy(
            golem_component("environment-service"), name="environment", env={"FOO": "bar"}
        )
        guest = Guest(shem, "environment/one", mode)
        assert await guest.call("get-environment") == Ok(
            [
                ("FOO", "bar"),
                ("GOLEM_WORKER_NAME", "one"),
                ("GOLEM_COMPONENT_ID", component.id),
                ("GOLEM_COMPONENT_VERSION", "0"),
            ]
        )


@trio_test
async def test_a_variable_of_the_worker_takes_the_place_of_the_components(
    tmp_path: Path, mode: Mode
) -> None:
    async with Executor.open(tmp_path) as shem:
        await shem.deploy(
            golem_component("environment-service"), name="environment", env={"FOO": "bar"}
        )
        worker = "environment/one"
        await shem.invoke(worker, "get-arguments", env={"FOO": "baz", "TEST_ENV": "test-value"})
        environment = await Guest(shem, worker, mode).call("get-environment")
        variables = [pair for pair in environment.value if not pair[0].startswith("GOLEM_")]
        assert sorted(variables) == [("FOO", "baz"), ("TEST_ENV", "test-value")]


@trio_test
async def test_a_worker_sees_its_arguments_and_its_environment(tmp_path: Path, mode: Mode) -> None:
    async with Executor.open(tmp_path) as shem:
        component = await shem.deploy(golem_component("environment-service"), name="environment")
        guest = Guest(shem, "environment/environment-service-1", mode)
        new = {"args": ["test-arg"], "env": {"TEST_ENV": "test-value"}}
        await shem.invoke(guest.worker, "get-arguments", **new)  # type: ignore[arg-type]
        assert await guest.call("get-arguments") == Ok(["test-arg"])
        assert await guest.call("get-environment") == Ok(
            [
                ("TEST_ENV", "test-value"),
                ("GOLEM_WORKER_NAME", "environment-service-1"),
                ("GOLEM_COMPONENT_ID", component.id),
                ("GOLEM_COMPONENT_VERSION", "0"),
            ]
        )


@trio_test
async def test_options_come_and_go(tmp_path: Path, mode: Mode) -> None:
    async with Executor.open(tmp_path) as shem:
        guest = await deployed(shem, "option-service", "optional-service-1", mode)
        assert await guest.call("echo", "Hello") == "Hello"
        assert await guest.call("echo", None) is None
        todo = {"name": "todo", "description": "description"}
        assert await guest.call("todo", todo) == "todo"
        assert await guest.call("todo", {"name": "todo", "description": None}) == "todo"


@trio_test
async def test_flags_come_and_go(tmp_path: Path, mode: Mode) -> None:
    async with Executor.open(tmp_path) as shem:
        guest = await deployed(shem, "flags-service", "flags-service-1", mode)
        task = {"name": "t1", "permissions": ["read", "write"]}
        created = {"name": "t1", "permissions": ["read", "write", "exec"]}
        assert await guest.call("create-task", task) == created
        assert await guest.call("get-tasks") == [
            {"name": "t1", "permissions": ["read"]},
            {"name": "t2", "permissions": ["read", "exec", "close"]},
        ]


@trio_test
async def test_a_case_without_a_payload_is_a_result(tmp_path: Path, mode: Mode) -> None:
    async with Executor.open(tmp_path) as shem:
        guest = await deployed(shem, "variant-service", "variant-service-1", mode)
        assert await guest.call("bid") == Variant("success")


@trio_test
async def test_a_string_is_echoed(tmp_path: Path, mode: Mode) -> None:
    async with Executor.open(tmp_path) as shem:
        guest = await deployed(shem, "rust-echo", "rust-echo-1", mode)
        for text in ("", "hello", "grüße, 🜃", "x" * 100_000):
            assert await guest.call("echo", text) == text


@trio_test
async def test_standard_output_is_told_once(tmp_path: Path, mode: Mode) -> None:
    async with Executor.open(tmp_path) as shem:
        guest = await deployed(shem, "write-stdout", "write-stdout-1", mode)
        done = await guest.invocation("run")
        assert (done.value, done.wave) == (None, "")
        assert (done.stdout, done.stderr) == ("Sample text written to the output\n", "")


@trio_test
async def test_standard_error_is_told_once(tmp_path: Path, mode: Mode) -> None:
    async with Executor.open(tmp_path) as shem:
        guest = await deployed(shem, "write-stderr", "write-stderr-1", mode)
        done = await guest.invocation("run")
        assert (done.stdout, done.stderr) == ("", "Sample text written to the error output\n")


@trio_test
async def test_standard_input_is_empty(tmp_path: Path, mode: Mode) -> None:
    async with Executor.open(tmp_path) as shem:
        guest = await deployed(shem, "read-stdin", "read-stdin-1", mode)
        assert (await guest.invocation("run")).value == Ok("")


@trio_test
async def test_a_call_that_cannot_be_made_leaves_the_worker_unharmed(
    tmp_path: Path, mode: Mode
) -> None:
    async with Executor.open(tmp_path) as shem:
        guest = await deployed(shem, "option-service", "wrong-1", mode)
        refused: list[tuple[str, list[Any], type[RequestError]]] = [
            ("WRONG", [], UnknownFunction),
            ("todo", [], BadArguments),
            ("echo", ["Hello", "extra parameter"], BadArguments),
            ("echo", [7], BadArguments),
            ("todo", [{"name": "todo", "description": 7}], BadArguments),
        ]
        for function, arguments, error in refused:
            with pytest.raises(error):
                await guest.invocation(function, arguments)
        assert await guest.call("echo") is None
        assert await guest.call("echo", "Hello") == "Hello"


@trio_test
async def test_a_deleted_worker_is_gone_and_its_name_is_free(tmp_path: Path, mode: Mode) -> None:
    async with Executor.open(tmp_path) as shem:
        cart = await deployed(shem, "shopping-cart", "again", mode)
        await cart.call("add-item", SHIRT)
        assert [found.worker for found in (await shem.workers()).workers] == [cart.worker]
        await shem.delete(cart.worker)
        assert (await shem.workers()).workers == ()
        for gone in (shem.worker, shem.delete):
            with pytest.raises(WorkerNotFound):
                await gone(cart.worker)
        assert await cart.call("get-cart-contents") == []


@trio_test
async def test_an_old_worker_keeps_its_revision(tmp_path: Path, mode: Mode) -> None:
    async with Executor.open(tmp_path) as shem:
        await shem.deploy(golem_component("shopping-cart"), name="it")
        cart = Guest(shem, "it/old", mode)
        await cart.call("add-item", SHIRT)
        newer = await shem.deploy(golem_component("option-service"), name="it")
        assert newer.revision == 1
        assert await Guest(shem, "it/new", mode).call("echo", "Hello") == "Hello"
        assert await cart.call("get-cart-contents") == [SHIRT]
    async with Executor.open(tmp_path) as shem:
        cart = Guest(shem, "it/old", mode)
        await cart.call("add-item", MUD)
        assert await cart.call("get-cart-contents") == [SHIRT, MUD]


@trio_test
async def test_a_component_of_an_old_format_is_refused_with_a_sentence(tmp_path: Path) -> None:
    async with Executor.open(tmp_path) as shem:
        with pytest.raises(ComponentRejected) as refusal:
            await shem.deploy(golem_component("old-component"), name="old")
        assert refusal.value.kind == "component-rejected"
        assert len(await shem.components()) == 0
