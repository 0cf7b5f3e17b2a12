"""Golem's guests, and what is done to their workers: interrupted, crashed, cancelled, deleted.

What is expected is the behaviour of `api.rs` and `observability.rs` of Golem's executor tests at
v1.2.5, written afresh. Waiting guests sleep where Golem's poll a server.
"""

import gc
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from trio.testing import trio_test

from executor.errors import (
    AlreadyExists,
    Divergence,
    GuestTrap,
    InvocationCancelled,
    InvocationInterrupted,
    PreviousFailed,
    UnknownKey,
    WorkerDeleted,
    WorkerNotFound,
)
from executor.executor import Executor
from executor.wasm.values import Ok
from executor.worker.reader import StoreReader
from oplog.entry import Create, InvocationStarted, Log, PendingInvocation, Start
from tests.conformance.golem.components import WHY_SKIPPED, components_folder, golem_component
from tests.conformance.golem.guest import TIMEOUT_S, Guest, Mode, deployed

if components_folder() is None:
    pytest.skip(WHY_SKIPPED, allow_module_level=True)

PANIC = (
    "\nthread '<unnamed>' panicked at src/lib.rs:30:17:\nvalue is too large\nnote: run with"
    " `RUST_BACKTRACE=1` environment variable to display a backtrace\n"
)
SLEEPER = "clock-service/w"


@asynccontextmanager
async def running(path: Path, seconds: int) -> AsyncIterator[Executor]:
    """An executor whose sleeper sleeps under the key `sleep`; a long sleep suspends it."""
    async with Executor.open(path) as shem:
        await deployed(shem, "clock-service", "w", "live")
        await shem.submit(SLEEPER, "sleep", [seconds], key="sleep")
        await until(shem, SLEEPER, "running", "suspended")
        yield shem


async def until(shem: Executor, worker: str, *statuses: str) -> None:
    with trio.fail_after(TIMEOUT_S):
        while (await shem.worker(worker)).status not in statuses:  # noqa: ASYNC110
            await trio.sleep(0.02)


@trio_test
async def test_an_interrupted_invocation_tells_its_caller_and_stays_interrupted(
    tmp_path: Path,
) -> None:
    worker = "interruption/interruption-1"
    async with Executor.open(tmp_path) as shem:
        await deployed(shem, "interruption", "interruption-1", "live")
        accepted = await shem.submit(worker, "run")
        await until(shem, worker, "running")
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def wait() -> None:
                with pytest.raises(InvocationInterrupted):
                    await shem.wait(worker, accepted.key)

            assert (await shem.interrupt(worker)).done
        assert (await shem.worker(worker)).status == "interrupted"
        assert (await shem.crash(worker)).divergence is None
    with StoreReader(tmp_path) as reader:
        assert reader.worker(worker).status == "interrupted"
    async with Executor.open(tmp_path, recover="all") as shem:
        await trio.sleep(0.1)
        assert (await shem.worker(worker)).status == "interrupted"


@trio_test
async def test_a_crash_in_the_middle_is_not_seen_by_the_caller(tmp_path: Path) -> None:
    """A hundred sleeps of 100 ms; what is printed before them is printed once."""
    worker = "interruption/simulated-crash-1"
    async with Executor.open(tmp_path) as shem:
        await deployed(shem, "interruption", "simulated-crash-1", "live")
        accepted = await shem.submit(worker, "run")
        for _ in range(2):
            await trio.sleep(2)
            assert (await shem.crash(worker)).divergence is None
        done = await shem.wait(worker, accepted.key)
        assert (done.value, done.stdout) == ("done", "Starting interruption test\n")
        assert (await shem.replay(worker)).divergence is None


@trio_test
async def test_a_worker_tells_its_state_while_it_sleeps_and_after(tmp_path: Path) -> None:
    """Golem tells the sizes of its component and its memory too; here deployments have limits."""
    async with running(tmp_path, 2) as shem:
        asleep = await shem.worker(SLEEPER)
        assert asleep.status in {"running", "suspended"}
        assert (asleep.worker, asleep.revision, asleep.current_key) == (SLEEPER, 0, "sleep")
        await shem.wait(SLEEPER, "sleep")
        rested = await shem.worker(SLEEPER)
        assert (rested.status, rested.current_key, rested.retries) == ("idle", None, 0)
        assert (await shem.replay(SLEEPER)).divergence is None


@trio_test
async def test_a_closed_executor_is_kept_by_nobody(tmp_path: Path) -> None:
    """Neither by what it ran nor by what it was doing."""
    left = await opened_and_closed(tmp_path)
    gc.collect()
    assert [kept for kept in left if kept() is not None] == []


async def opened_and_closed(path: Path) -> list[weakref.ref[object]]:
    async with running(path, 60) as shem:
        await deployed(shem, "counters", "w", "live")
        await shem.invoke("counters/w", "inc-global-by", [1])
        services = shem._services
        return [weakref.ref(kept) for kept in (shem, shem._workers, services.store, services.lanes)]


@trio_test
async def test_the_queue_outlives_interruption_and_restart(tmp_path: Path) -> None:
    async with running(tmp_path, 2) as shem:
        for number in range(3):
            await shem.submit(SLEEPER, "sleep", [0], key=f"queued-{number}")
        await shem.interrupt(SLEEPER)
        assert len((await shem.worker(SLEEPER)).pending) == 3
    async with Executor.open(tmp_path) as shem:
        await shem.submit(SLEEPER, "sleep", [0], key="queued-3")  # resumes the worker
        assert (await shem.wait(SLEEPER, "queued-3")).value == Ok()
        keys = [
            record.entry.key
            async for record in shem.oplog(SLEEPER)
            if isinstance(record.entry, InvocationStarted)
        ]
        assert keys == ["sleep", *(f"queued-{number}" for number in range(4))]
        assert (await shem.replay(SLEEPER)).divergence is None


@trio_test
async def test_what_waits_can_be_cancelled_and_what_is_done_cannot(tmp_path: Path) -> None:
    async with running(tmp_path, 1) as shem:
        await shem.wait(SLEEPER, "sleep")
        await shem.submit(SLEEPER, "sleep", [1], key="second")
        for key in ("third", "fourth"):
            await shem.submit(SLEEPER, "sleep", [0], key=key)
        with pytest.raises(AlreadyExists):
            await shem.cancel(SLEEPER, "sleep")
        assert (await shem.cancel(SLEEPER, "third")).done
        with pytest.raises(UnknownKey):
            await shem.cancel(SLEEPER, "nothing")
        assert (await shem.wait(SLEEPER, "fourth")).value == Ok()
        cancelled = await shem.wait(SLEEPER, "third")
        assert cancelled.error is not None
        assert cancelled.error.kind == InvocationCancelled.kind
        assert (await shem.crash(SLEEPER)).divergence is None


@trio_test
async def test_deleting_a_worker_ends_what_it_does_and_drops_what_waits(tmp_path: Path) -> None:
    async with running(tmp_path, 60) as shem:
        for number in range(25):
            await shem.submit(SLEEPER, "sleep", [60], key=f"queued-{number}")
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def wait() -> None:
                with pytest.raises(WorkerDeleted):
                    await shem.wait(SLEEPER, "sleep")

            await trio.sleep(0.05)
            await shem.delete(SLEEPER)
        with pytest.raises(WorkerNotFound):
            await shem.worker(SLEEPER)
        assert await shem.invoke(SLEEPER, "sleep", [0], key="queued-7") == Ok()
        assert (await shem.worker(SLEEPER)).pending == ()


@trio_test
async def test_workers_are_listed_page_by_page(tmp_path: Path, mode: Mode) -> None:
    async with Executor.open(tmp_path) as shem:
        await deployed(shem, "option-service", "none", mode)
        names = [f"option-service/test-worker-{number}" for number in range(10)]
        for name in names:
            await Guest(shem, name, mode).call("echo", "Hello")
        page = await shem.workers("option-service")
        assert [worker.worker for worker in page.workers] == names
        assert page.cursor is None
        assert len((await shem.workers(status="idle")).workers) == 10
        assert (await shem.workers(status="running")).workers == ()
        first = await shem.workers("option-service", limit=5)
        rest = await shem.workers("option-service", limit=5, cursor=first.cursor)
        assert [worker.worker for worker in (*first.workers, *rest.workers)] == names
        for name in names:
            await shem.delete(name)
        assert (await shem.workers("option-service")).workers == ()


@trio_test
async def test_a_failure_is_told_with_what_was_written(tmp_path: Path, mode: Mode) -> None:
    async with Executor.open(tmp_path) as shem:
        guest = await deployed(shem, "failing-component", "failing-worker-1", mode)
        await guest.run("add", 5)
        with pytest.raises(GuestTrap):
            await shem.invoke(guest.worker, "add", [50], key="bad")
        assert (await shem.wait(guest.worker, "bad")).stderr == PANIC
        await guest.rebuild_to_failure()
        with pytest.raises(PreviousFailed) as refusal:
            await shem.invoke(guest.worker, "get")
        assert refusal.value.stderr == PANIC
        found = await shem.worker(guest.worker)
        assert (found.status, found.last_error) == ("failed", "trapped (unreachable)")
        [listed] = (await shem.workers("failing-component")).workers
        assert (listed.status, listed.last_error) == ("failed", "trapped (unreachable)")


@trio_test
async def test_a_name_is_free_again_and_gets_the_newest_revision(
    tmp_path: Path, mode: Mode
) -> None:
    async with Executor.open(tmp_path) as shem:
        guest = await deployed(shem, "c-1", "w", mode)
        assert await guest.run("run") == 100
        assert (await shem.deploy(golem_component("zig-3"), name="c-1")).revision == 1
        assert await guest.run("run") == 100
        await shem.delete(guest.worker)
        await guest.call("add", 3)
        assert await guest.call("get") == 3


@trio_test
async def test_what_is_durable_costs_entries_and_what_is_not_cannot_be_replayed(
    tmp_path: Path, mode: Mode
) -> None:
    async with Executor.open(tmp_path) as shem:
        guest = await deployed(shem, "durability-overhead", "w", mode)
        assert isinstance(await guest.call("run", 10, False, False), int)
        assert isinstance(await guest.call("run", 10, False, True), int)
        assert isinstance(
            await shem.invoke(guest.worker, "run", [10, True, False], key="zone"), int
        )
        if mode == "replayed":
            assert (await shem.replay(guest.worker)).divergence is not None
        if mode == "crashed":
            assert (await shem.crash(guest.worker)).divergence is not None
            with pytest.raises(Divergence):
                await shem.invoke(guest.worker, "run", [10, False, False])


@trio_test
async def test_an_oplog_begins_with_its_worker_and_holds_its_invocations(
    tmp_path: Path, mode: Mode
) -> None:
    async with Executor.open(tmp_path) as shem:
        guest = await deployed(shem, "runtime-service", "getoplog1", mode)
        for key in (None, "second", "third"):
            await guest.call("generate-idempotency-keys", key=key)
        entries = [record.entry async for record in shem.oplog(guest.worker)]
    assert isinstance(entries[0], Create)
    started = [entry for entry in entries if isinstance(entry, InvocationStarted)]
    assert [entry.function for entry in started] == ["golem:it/api.{generate-idempotency-keys}"] * 3


@trio_test
async def test_an_oplog_is_searched(tmp_path: Path, mode: Mode) -> None:
    """As Golem finds them; here what waited in the queue, and results, are searched too."""
    item = {"product-id": "G1000", "name": "Golem T-Shirt M", "price": 100.0, "quantity": 5}
    async with Executor.open(tmp_path) as shem:
        cart = await deployed(shem, "shopping-cart", "searchoplog1", mode)
        await cart.call("initialize-cart", "test-user-1")
        for product in ("G1000", "G1001", "G1002"):
            await cart.call("add-item", item | {"product-id": product})
        await cart.call("update-item-quantity", "G1002", 20)
        await cart.call("get-cart-contents")
        await cart.call("checkout")

        async def found(query: str, kind: type[object]) -> int:
            records = [record async for record in shem.oplog(cart.worker, search=query)]
            return sum(isinstance(record.entry, kind) for record in records)

        assert await found("G1002", InvocationStarted) == 2
        assert await found("G1002", Log) == 2
        assert await found("get-random-bytes", Start) >= 1
        either = "product-id:G1001 OR product-id:G1000"
        assert await found(either, InvocationStarted) == 2
        assert await found(either, PendingInvocation) == 2
        assert await found("G1007", object) == 0
