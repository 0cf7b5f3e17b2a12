"""Golem's guests for transactions and reverts, live, in forced replay and after crashes.

What is expected is the behaviour of `transactions.rs` and `revert.rs` of Golem's executor tests at
v1.2.5, written afresh. Their HTTP requests reach a server.
"""

import time
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import trio_test

from executor.errors import Divergence, GuestTrap, LimitError, PreviousFailed, Uncertain
from executor.executor import Executor
from executor.wasm.values import Variant
from executor.worker.reader import StoreReader
from tests.conformance.golem.components import WHY_SKIPPED, components_folder, golem_component
from tests.support.http_server import HttpServer, Request, http_server

if components_folder() is None:
    pytest.skip(WHY_SKIPPED, allow_module_level=True)

RUNTIME = "runtime-service/w"


class StepServer:
    """What the guests of `transactions.rs` talk to: it counts steps and notes side effects."""

    def __init__(self, fail_per_step: int, *, slow: bool) -> None:
        self.fail_per_step = fail_per_step
        self.slow = slow
        """The first side effect is answered late."""
        self.counts: dict[str, int] = {}
        self.events: list[str] = []
        self.http: HttpServer

    @property
    def env(self) -> dict[str, str]:
        """Where the guests look for it."""
        return {"PORT": str(self.http.port)}

    def answer(self, request: Request) -> tuple[int, bytes, dict[str, str]]:
        if request.path == "/side-effect":
            self.events.append(request.body.decode())
            if self.slow and len(self.events) == 1:
                time.sleep(0.5)
            return 200, b"OK", {}
        assert request.method == "GET"
        count = self.counts[request.path] = self.counts.get(request.path, 0) + 1
        return 200, b"true" if count <= self.fail_per_step else b"false", {}


@contextmanager
def stepping(fail_per_step: int, *, slow: bool = False) -> Iterator[StepServer]:
    """A server whose steps answer true so many times."""
    server = StepServer(fail_per_step, slow=slow)
    with http_server(server.answer) as server.http:
        yield server


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
async def test_a_guest_may_commit_its_oplog(tmp_path: Path, mode: str) -> None:
    async with deployed(tmp_path, "runtime-service") as shem:
        accepted = await shem.submit(RUNTIME, "explicit-commit", [0])
        done = await shem.wait(RUNTIME, accepted.key)
        await rebuilt(shem, RUNTIME, mode)
        first, last = done.stdout.splitlines()
        assert first.startswith("Starting commit with 0 replicas at ")
        assert last == "Finished commit"
        assert await called(shem, RUNTIME, mode, "explicit-commit", 255) is None


@trio_test
async def test_a_guest_may_set_its_retry_policy(tmp_path: Path, mode: str) -> None:
    """A panic outside of an atomic region is not tried again, whatever the policy."""
    async with deployed(tmp_path, "runtime-service") as shem:
        with trio.fail_after(20), pytest.raises(GuestTrap):
            await shem.invoke(RUNTIME, "fail-with-custom-max-retries", [2], key="k")
        await rebuilt(shem, RUNTIME, mode)
        output = (await shem.wait(RUNTIME, "k")).stdout
        assert "Initial retry policy: RetryPolicy { max-attempts: 3, min-delay: 100000000" in output
        assert "Overridden retry policy: RetryPolicy { max-attempts: 2, min-delay: 1000" in output
        with pytest.raises(PreviousFailed):
            await shem.invoke(RUNTIME, "explicit-commit", [0])


@trio_test
async def test_the_keys_that_a_guest_generates_follow_from_its_own(
    tmp_path: Path, mode: str
) -> None:
    async with deployed(tmp_path, "runtime-service") as shem:
        pairs = []
        for key in ("first", "second"):
            value = await shem.invoke(RUNTIME, "generate-idempotency-keys", key=key)
            await rebuilt(shem, RUNTIME, mode)
            assert await shem.invoke(RUNTIME, "generate-idempotency-keys", key=key) == value
            pairs.extend((one["high-bits"], one["low-bits"]) for one in value)
        assert len(set(pairs)) == 4


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
        for name, arguments in (("update-worker", [worker_id, 1, "automatic"]),):
            worker = f"runtime-service/{name}"
            with pytest.raises(LimitError, match=f"{name} is not offered yet"):
                await shem.invoke(worker, name, arguments)
            await rebuilt(shem, worker, mode)


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
async def test_a_guest_may_jump(tmp_path: Path, mode: str) -> None:
    """What was printed twice is what the jump ran twice."""
    with stepping(1) as server:
        async with deployed(tmp_path, "runtime-service") as shem:
            assert await shem.invoke(RUNTIME, "jump", key="k", env=server.env) == 5
            await rebuilt(shem, RUNTIME, mode)
            lines = (await shem.wait(RUNTIME, "k")).stdout.splitlines()
            assert [line for line in lines if "ing " not in line and "Received" not in line] == [
                "started: 0",
                "second: 2",
                "second: 2",
                "third: 3",
                "fourth: 4",
                "fourth: 4",
                "fifth: 5",
            ]


@trio_test
async def test_an_atomic_region_is_done_again_as_a_whole(tmp_path: Path, mode: str) -> None:
    with stepping(2) as server:
        async with deployed(tmp_path, "runtime-service") as shem:
            await shem.invoke(RUNTIME, "atomic-region", env=server.env)
            await rebuilt(shem, RUNTIME, mode)
    assert server.events == ["1", "2", "1", "2", "1", "2", "3", "4", "5", "5", "5", "6"]


@trio_test
async def test_what_was_done_where_nothing_persists_cannot_be_replayed(tmp_path: Path) -> None:
    """The panic behind the zone asks for a replay through it."""
    with stepping(2) as server:
        async with deployed(tmp_path, "runtime-service") as shem:
            with pytest.raises(Divergence):
                await shem.invoke(RUNTIME, "persist-nothing", env=server.env)
    assert server.events == ["1", "2", "3"]


@trio_test
async def test_a_request_under_way_at_a_panic_is_sent_again_with_its_key(
    tmp_path: Path, mode: str
) -> None:
    with stepping(1, slow=True) as server:
        async with deployed(tmp_path, "runtime-service") as shem:
            await shem.invoke(RUNTIME, "idempotence-flag", [True], env=server.env)
            await rebuilt(shem, RUNTIME, mode)
        assert server.events in (["1"], ["1", "1"])  # the panic may be faster than the request
        effects = [request for request in server.http.requests if request.method == "POST"]
        assert len({request.key for request in effects}) == 1


@trio_test
async def test_a_request_that_must_not_be_sent_twice_is_for_its_owner_to_decide(
    tmp_path: Path, mode: str
) -> None:
    """In Golem the invocation fails."""
    with stepping(1, slow=True) as server:
        async with deployed(tmp_path, "runtime-service") as shem:
            with pytest.raises(Uncertain):
                await shem.invoke(RUNTIME, "idempotence-flag", [False], env=server.env)
            await rebuilt(shem, RUNTIME, mode)
        assert server.events in ([], ["1"])


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
