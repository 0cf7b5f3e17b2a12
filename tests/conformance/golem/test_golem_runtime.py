"""What Golem's guests ask of workers, and reverts: live, in forced replay and after crashes.

What is expected is the behaviour of `api.rs` and `revert.rs` of Golem's executor tests at v1.2.5,
written afresh.
"""

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from trio.testing import trio_test

from executor.errors import GuestTrap, LimitError, PreviousFailed
from executor.executor import Executor
from executor.wasm.values import Variant
from executor.worker.reader import StoreReader
from tests.conformance.golem.components import WHY_SKIPPED, components_folder, golem_component
from tests.support.http_server import http_server

if components_folder() is None:
    pytest.skip(WHY_SKIPPED, allow_module_level=True)

RUNTIME = "runtime-service/w"


@asynccontextmanager
async def deployed(path: Path, name: str) -> AsyncIterator[Executor]:
    async with Executor.open(path) as shem:
        await shem.deploy(golem_component(name), name=name, allow_net=["localhost"])
        yield shem


async def rebuilt(shem: Executor, worker: str, mode: str) -> None:
    """What the mode does after each step: nothing, a replay beside the worker, or a crash."""
    if mode == "live":
        return
    report = await (shem.replay if mode == "replayed" else shem.crash)(worker)
    assert report.divergence is None


async def called(shem: Executor, worker: str, mode: str, function: str, *arguments: Any) -> Any:
    value = await shem.invoke(worker, function, arguments)
    await rebuilt(shem, worker, mode)
    return value


@trio_test
async def test_a_guest_reads_its_own_metadata(tmp_path: Path, mode: str) -> None:
    async with deployed(tmp_path, "runtime-service") as shem:
        found = await called(shem, RUNTIME, mode, "get-self-metadata")
        component = await shem.component("runtime-service")
        number = uuid.UUID(component.id).int
        assert found["worker-id"] == {
            "component-id": {"uuid": {"high-bits": number >> 64, "low-bits": number & (2**64 - 1)}},
            "worker-name": "w",
        }
        assert found["env"][0] == ("GOLEM_WORKER_NAME", "w")
        assert (found["args"], found["status"]) == ([], "running")
        assert (found["component-version"], found["retry-count"]) == (0, 0)


@trio_test
async def test_what_is_not_offered_yet_says_so(tmp_path: Path, mode: str) -> None:
    worker_id = {
        "component-id": {"uuid": {"high-bits": 1, "low-bits": 2}},
        "worker-name": "other",
    }
    async with deployed(tmp_path, "runtime-service") as shem:
        with pytest.raises(LimitError, match="update-worker is not offered yet"):
            await shem.invoke(RUNTIME, "update-worker", [worker_id, 1, "automatic"])
        await rebuilt(shem, RUNTIME, mode)


@trio_test
async def test_a_guest_that_forks_hears_that_it_cannot_and_what_it_did_before_stays(
    tmp_path: Path, mode: str
) -> None:
    with http_server(lambda _request: (200, b'"part 1"', {})) as server:
        worker = "golem-rust-tests/w"
        async with deployed(tmp_path, "golem-rust-tests") as shem:
            with pytest.raises(LimitError, match="fork is not offered yet"):
                await shem.invoke(
                    worker, "fork-test", ["a"], key="k", env={"PORT": str(server.port)}
                )
            await rebuilt(shem, worker, mode)
            assert (await shem.wait(worker, "k")).stdout.endswith('Received "part 1"\n')
        assert [request.path for request in server.requests] == ["/fork-test/step1/w/a"]


@trio_test
async def test_a_guest_reads_the_metadata_of_workers(tmp_path: Path, mode: str) -> None:
    async with deployed(tmp_path, "runtime-service") as shem:
        own = await called(shem, RUNTIME, mode, "get-self-metadata")
        component_id = own["worker-id"]["component-id"]
        await shem.invoke("runtime-service/other", "explicit-commit", [0], env={"A": "1"})
        other = await called(
            shem, RUNTIME, mode, "get-worker-metadata", own["worker-id"] | {"worker-name": "other"}
        )
        assert (other["worker-id"]["worker-name"], other["status"]) == ("other", "idle")
        assert ("A", "1") in other["env"]
        nobody = own["worker-id"] | {"worker-name": "nobody"}
        assert await called(shem, RUNTIME, mode, "get-worker-metadata", nobody) is None

        async def names(wanted: object) -> list[str]:
            found = await called(shem, RUNTIME, mode, "get-workers", component_id, wanted, True)
            return [worker["worker-id"]["worker-name"] for worker in found]

        def one(case: str, **fields: object) -> dict[str, object]:
            return {"filters": [{"filters": [Variant(case, fields)]}]}

        assert await names(None) == ["other", "w"]
        assert await names(one("name", comparator="equal", value="other")) == ["other"]
        assert await names(one("name", comparator="not-like", value="the")) == ["w"]
        assert await names(one("env", name="A", comparator="equal", value="1")) == ["other"]
        assert await names(one("status", comparator="equal", value="running")) == ["w"]
        assert await names(one("version", comparator="greater", value=0)) == []
        assert await names(one("created-at", comparator="greater", value=0)) == ["other", "w"]
        nothing = {"uuid": {"high-bits": 1, "low-bits": 2}}
        assert await called(shem, RUNTIME, mode, "get-workers", nothing, None, True) == []


@trio_test
async def test_components_are_resolved_by_name(tmp_path: Path, mode: str) -> None:
    target = "component-resolve-target"
    async with deployed(tmp_path, "component-resolve") as shem:
        counters = await shem.deploy(golem_component("counters"), name=target)
        await shem.invoke(f"{target}/counter-1", "inc-global-by", [1])
        found = await called(shem, "component-resolve/w", mode, "run")
        number = uuid.UUID(counters.id).int
        component_id = {"uuid": {"high-bits": number >> 64, "low-bits": number & (2**64 - 1)}}
        assert found == (
            component_id,
            {"component-id": component_id, "worker-name": "counter-1"},
            None,
        )


@trio_test
async def test_reverted_invocations_leave_no_trace(tmp_path: Path, mode: str) -> None:
    worker = "counters/revert_successful_invocations"
    async with deployed(tmp_path, "counters") as shem:
        for amount in (5, 1, 2):
            await called(shem, worker, mode, "inc-global-by", amount)
        assert await called(shem, worker, mode, "get-global-value") == 8
        await shem.revert(worker, last=3)
        await rebuilt(shem, worker, mode)
        assert await called(shem, worker, mode, "get-global-value") == 5
        await called(shem, worker, mode, "inc-global-by", 1)
        assert await called(shem, worker, mode, "get-global-value") == 6


@trio_test
async def test_a_failed_worker_is_well_again_before_its_failure(tmp_path: Path, mode: str) -> None:
    worker = "failing-component/revert_failed_worker"
    async with deployed(tmp_path, "failing-component") as shem:
        await called(shem, worker, mode, "add", 5)
        with pytest.raises(GuestTrap):
            await shem.invoke(worker, "add", [50], key="bad")
        with pytest.raises(PreviousFailed) as refusal:
            await shem.invoke(worker, "get")
        assert "value is too large" in refusal.value.stderr
        await rebuilt(shem, worker, mode)
        await shem.revert(worker, last=1)
        await rebuilt(shem, worker, mode)
        assert await called(shem, worker, mode, "get") == 5


@trio_test
async def test_a_cut_at_the_start_of_the_failed_invocation_fails_again(
    tmp_path: Path, mode: str
) -> None:
    worker = "failing-component/revert_to_invoke"
    async with deployed(tmp_path, "failing-component") as shem:
        await called(shem, worker, mode, "add", 5)
        with pytest.raises(GuestTrap):
            await shem.invoke(worker, "add", [50], key="bad")
        started = [
            record.index
            async for record in shem.oplog(worker)
            if type(record.entry).__name__ == "InvocationStarted"
        ][-1]
        await shem.revert(worker, to=started)
        again = await shem.wait(worker, "bad")
        assert again.status == "failed"
        assert "value is too large" in again.stderr
        await rebuilt(shem, worker, mode)
        await shem.revert(worker, last=1)
        assert await called(shem, worker, mode, "get") == 5
    with StoreReader(tmp_path) as reader:
        assert reader.worker(worker).status == "idle"
