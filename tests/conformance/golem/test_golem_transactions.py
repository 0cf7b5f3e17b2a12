"""Golem's guests for transactions, live, in forced replay and after crashes.

What is expected is the behaviour of `transactions.rs` of Golem's executor tests at v1.2.5, written
afresh. Two guests do the same, one with the host's functions and one with Golem's library for Rust.

What differs: a write that is under way at a panic is awaited, up to five seconds, where Golem sends
it again or fails; one that may have happened then and must not be repeated is for its owner to
decide; what failed because a zone had recorded nothing is a divergence.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import trio
from trio.testing import trio_test

from executor.errors import Divergence, GuestTrap, PreviousFailed, Uncertain
from executor.executor import Executor
from executor.worker import loop
from tests.conformance.golem.components import WHY_SKIPPED, components_folder, golem_component
from tests.conformance.golem.guest import API, TIMEOUT_S, Guest, Mode
from tests.conformance.golem.servers import StepServer, stepping

if components_folder() is None:
    pytest.skip(WHY_SKIPPED, allow_module_level=True)

HOST = "runtime-service"
LIBRARY = "golem-rust-tests"
both = pytest.mark.parametrize("name", [HOST, LIBRARY])


@asynccontextmanager
async def guest_of(
    path: Path, name: str, mode: Mode, server: StepServer | None = None
) -> AsyncIterator[Guest]:
    async with Executor.open(path) as shem:
        await shem.deploy(golem_component(name), name=name, allow_net=["localhost"])
        yield Guest(shem, f"{name}/w", mode, server.env if server else None)


@both
@trio_test
async def test_a_guest_may_commit_its_oplog(tmp_path: Path, mode: Mode, name: str) -> None:
    async with guest_of(tmp_path, name, mode) as guest:
        for replicas in (0, 255):
            done = await guest.invocation("explicit-commit", [replicas])
            first, last = done.stdout.splitlines()
            assert first.startswith(f"Starting commit with {replicas} replicas at ")
            assert last == "Finished commit"


@both
@trio_test
async def test_a_guest_may_set_its_retry_policy(tmp_path: Path, mode: Mode, name: str) -> None:
    """A panic outside of an atomic region is not tried again, whatever the policy."""
    async with guest_of(tmp_path, name, mode) as guest:
        with trio.fail_after(TIMEOUT_S), pytest.raises(GuestTrap):
            await guest.shem.invoke(guest.worker, "fail-with-custom-max-retries", [2], key="k")
        await guest.rebuild_to_failure()
        if name == HOST:
            output = (await guest.shem.wait(guest.worker, "k")).stdout
            first, second = output.splitlines()
            policy = "retry policy: RetryPolicy { max-attempts:"
            assert first.startswith(f"Initial {policy} 3, min-delay: 100000000,")
            assert second.startswith(f"Overridden {policy} 2, min-delay: 1000000000,")
        with pytest.raises(PreviousFailed):
            await guest.shem.invoke(guest.worker, "fail-with-custom-max-retries", [1])


@trio_test
async def test_the_keys_that_a_guest_generates_follow_from_its_own(
    tmp_path: Path, mode: Mode
) -> None:
    """Golem asks this of workers that last for one call, which are not here."""
    async with guest_of(tmp_path, HOST, mode) as guest:
        pairs = []
        for key in ("first", "second", None):
            value = await guest.call("generate-idempotency-keys", key=key)
            if key is not None:
                assert await guest.call("generate-idempotency-keys", key=key) == value
            pairs.extend((one["high-bits"], one["low-bits"]) for one in value)
        assert len(set(pairs)) == 6


@trio_test
async def test_a_guest_may_jump(tmp_path: Path, mode: Mode) -> None:
    """What was printed twice is what the jump ran twice."""
    with stepping(1) as server:
        async with guest_of(tmp_path, HOST, mode, server) as guest:
            done = await guest.invocation(f"{API}.{{jump}}")
            assert done.value == 5
            lines = done.stdout.splitlines()
            assert [line for line in lines if "ing " not in line and "Received" not in line] == [
                "started: 0",
                "second: 2",
                "second: 2",
                "third: 3",
                "fourth: 4",
                "fourth: 4",
                "fifth: 5",
            ]


@both
@trio_test
async def test_an_atomic_region_is_done_again_as_a_whole(
    tmp_path: Path, mode: Mode, name: str
) -> None:
    with stepping(2) as server:
        async with guest_of(tmp_path, name, mode, server) as guest:
            await guest.call("atomic-region")
    assert server.events == ["1", "2", "1", "2", "1", "2", "3", "4", "5", "5", "5", "6"]


@both
@trio_test
async def test_what_was_done_where_nothing_persists_cannot_be_replayed(
    tmp_path: Path, name: str
) -> None:
    """The panic behind the zone asks for a replay through it."""
    with stepping(2) as server:
        async with guest_of(tmp_path, name, "live", server) as guest:
            with pytest.raises(Divergence):
                await guest.call("persist-nothing")
    assert server.events == ["1", "2", "3"]


@both
@trio_test
async def test_a_write_under_way_at_a_panic_is_awaited_and_not_sent_again(
    tmp_path: Path, mode: Mode, name: str
) -> None:
    """Also where it must not be sent again: then nobody is asked."""
    for idempotent in (True, False):
        with stepping(1, first_kept_s=0.3) as server:
            async with guest_of(tmp_path / str(idempotent), name, mode, server) as guest:
                done = await guest.invocation(f"{API}.{{idempotence-flag}}", [idempotent])
                assert done.stdout.endswith("Received response from remote side-effect: 200 OK\n")
        assert server.events == ["1"]


@both
@trio_test
async def test_a_request_that_a_panic_cut_off_is_sent_again_with_its_key(
    tmp_path: Path, mode: Mode, name: str
) -> None:
    with stepping(1, first_kept_s=TIMEOUT_S) as server, impatient():
        async with guest_of(tmp_path, name, mode, server) as guest:
            done = await guest.invocation(f"{API}.{{idempotence-flag}}", [True])
            assert done.stdout.endswith("Received response from remote side-effect: 200 OK\n")
    assert server.events == ["1", "1"]
    assert len({request.key for request in server.http.requests if request.method == "POST"}) == 1


@both
@trio_test
async def test_a_request_that_must_not_be_sent_twice_is_for_its_owner_to_decide(
    tmp_path: Path, mode: Mode, name: str
) -> None:
    with stepping(1, first_kept_s=TIMEOUT_S) as server, impatient():
        async with guest_of(tmp_path, name, mode, server) as guest:
            with pytest.raises(Uncertain):
                await guest.shem.invoke(
                    guest.worker, "idempotence-flag", [False], key="k", env=server.env
                )
            await guest.rebuild()
            assert (await guest.shem.worker(guest.worker)).status == "uncertain"
    assert server.events == ["1"]


def impatient() -> Any:
    """Writes that are under way when a guest is left have less time to end."""
    return patch.object(loop, "WRITES_AWAITED_MAX_S", 0.2)


@trio_test
async def test_a_transaction_that_fails_is_made_up_for_in_reverse(
    tmp_path: Path, mode: Mode
) -> None:
    """The guest traps with the error, behind the transaction."""
    with stepping({3: 1}, notes_steps=True) as server:
        async with guest_of(tmp_path, LIBRARY, mode, server) as guest:
            with pytest.raises(GuestTrap):
                await guest.shem.invoke(
                    guest.worker, "fallible-transaction-test", key="k", env=server.env
                )
            await guest.rebuild_to_failure()
            done = await guest.shem.wait(guest.worker, "k")
            failure = 'FailedAndRolledBackCompletely("fail after 3")'
            assert f"Transaction failed: {failure}" in done.stderr
    assert server.events == ["=> 1", "=> 2", "=> 3", "<= 3", "<= 2", "<= 1"]


@trio_test
async def test_a_transaction_that_cannot_fail_is_done_again(tmp_path: Path, mode: Mode) -> None:
    with stepping({3: 1}, notes_steps=True) as server:
        async with guest_of(tmp_path, LIBRARY, mode, server) as guest:
            assert await guest.call("infallible-transaction-test") == 11
    first = ["=> 1", "=> 2", "=> 3"]
    assert server.events == [*first, *first, "=> 4"]
