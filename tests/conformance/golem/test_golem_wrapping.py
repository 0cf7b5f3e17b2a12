"""Whatever toolchain made a guest of Golem's, nothing about it is unknown, and it is deployed where
all that it imports is offered.
"""

from pathlib import Path

import pytest
from trio.testing import trio_test

from executor.errors import ComponentRejected
from executor.executor import Executor
from executor.wasm.binary import COMPONENT, MAGIC, read_prologue
from executor.wasm.wrapping import wrap
from tests.conformance.golem.components import WHY_SKIPPED, components_folder

FOLDER = components_folder()
if FOLDER is None:
    pytest.skip(WHY_SKIPPED, allow_module_level=True)


def test_the_bytes_of_every_guest_go_through_the_shim() -> None:
    assert FOLDER is not None
    wrapped = 0
    for path in sorted(FOLDER.glob("*.wasm")):
        component = path.read_bytes()
        if not component.startswith(MAGIC + COMPONENT):
            continue
        prologue = read_prologue(component)
        if any(of.name.startswith("wasi:io/streams@") for of in prologue.imports):
            assert wrap(component, prologue, ()) is not None, path.name
            wrapped += 1
    assert wrapped >= 50


CALLS = "golem:rpc/types@0.2.0.{wasm-rpc}: this resource is not offered"
REFUSED = {
    "app_and_library_app": "it:app-and-library-library/library-api",
    "auction_registry": "auction:auction-client/auction-client",
    "auction_registry_composed": CALLS,
    "caller": "rpc:counters-client/counters-client",
    "caller_composed": CALLS,
    "golem_ictest": "golem:ictest-client/golem-ictest-client",
    "it_scheduled_invocation_client": "golem:rpc/types@0.2.0.{cancellation-token}",
    "it_scheduled_invocation_client_stubless": "golem:rpc/types@0.2.0.{cancellation-token}",
    "old-component": "a component of a format before the final one",
    "parent_component": "golem:it-client/child-component-client",
    "parent_component_composed": CALLS,
    "rdbms-service": "golem:rdbms/postgres@0.0.1",
    "scheduled_invocation_client": "golem:rpc/types@0.2.0.{cancellation-token}",
    "scheduled_invocation_stubless_client": "golem:rpc/types@0.2.0.{cancellation-token}",
}
"""They call other workers, or a database; one is older than the format."""


@trio_test
async def test_every_guest_is_deployed_but_those_that_ask_for_more(tmp_path: Path) -> None:
    assert FOLDER is not None
    refused: dict[str, str] = {}
    async with Executor.open(tmp_path) as shem:
        guests = [path for path in sorted(FOLDER.glob("*.wasm")) if path.stat().st_size]
        for path in guests:
            try:
                deployed = await shem.deploy(path.read_bytes(), name=path.stem)
                assert deployed.exports, path.name
            except ComponentRejected as refusal:
                refused[path.stem] = refusal.message
    assert refused.keys() == REFUSED.keys()
    for name, why in REFUSED.items():
        assert why in refused[name]
    assert len(guests) - len(refused) >= 60
