"""Golem's promise guest, live, in forced replay and after crashes.

What is expected is the behaviour of `promise` in `api.rs` of Golem's executor tests at v1.2.5,
written afresh. There a worker is suspended as soon as it waits; here after a second.
"""

from pathlib import Path

import pytest
import trio
from trio.testing import trio_test

from executor.executor import Executor
from tests.conformance.golem.components import WHY_SKIPPED, components_folder
from tests.conformance.golem.guest import API, TIMEOUT_S, Mode, deployed

if components_folder() is None:
    pytest.skip(WHY_SKIPPED, allow_module_level=True)


async def until_status(shem: Executor, worker: str, status: str) -> None:
    with trio.fail_after(TIMEOUT_S):
        while (await shem.worker(worker)).status != status:  # noqa: ASYNC110  # as from outside
            await trio.sleep(0.02)


@trio_test
async def test_a_promise_is_polled_awaited_and_completed_from_outside(
    tmp_path: Path, mode: Mode
) -> None:
    async with Executor.open(tmp_path) as shem:
        guest = await deployed(shem, "promise", "promise-1", mode)
        promise = await guest.call("create")
        assert await guest.call("poll", promise) is None
        await shem.submit(guest.worker, f"{API}.{{await}}", [promise], key="wait")
        await until_status(shem, guest.worker, "suspended")
        await guest.rebuild()
        assert await shem.complete_promise(guest.worker, promise["oplog-idx"], bytes([42]))
        assert (await shem.wait(guest.worker, "wait", timeout_s=TIMEOUT_S)).value == b"*"
        assert await guest.call("poll", promise) == b"*"


@trio_test
async def test_a_worker_that_waits_for_a_promise_outlives_the_executor(tmp_path: Path) -> None:
    async with Executor.open(tmp_path) as shem:
        guest = await deployed(shem, "promise", "promise-1", "live")
        promise = await guest.call("create")
        await shem.submit(guest.worker, f"{API}.{{await}}", [promise], key="wait")
        await until_status(shem, guest.worker, "suspended")
    async with Executor.open(tmp_path, recover="all") as shem:
        assert (await shem.worker(guest.worker)).status == "suspended"
        assert await shem.complete_promise(guest.worker, promise["oplog-idx"], b"done")
        await until_status(shem, guest.worker, "idle")
        again = await shem.submit(guest.worker, f"{API}.{{await}}", [promise], key="wait")
        assert again.deduplicated
        assert (await shem.wait(guest.worker, "wait")).value == b"done"
        assert (await shem.replay(guest.worker)).divergence is None
