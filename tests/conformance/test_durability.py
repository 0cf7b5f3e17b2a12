"""Durable functions that a guest's library makes of its own blocks, by golem:durability."""

import pytest
from trio.testing import trio_test

from executor.wasm.values import Variant
from executor.worker.rows import read_worker_id
from oplog.entry import Jump, Start
from tests.support.durability_guest import CUSTOM
from tests.support.executors import (
    LastingEngine,
    check_rows,
    copy_oplog,
    deployed,
    opened,
    run,
    worker_entries,
)
from tests.support.python_guest import BEGIN, world
from tests.support.rules_guest import RulesPeer

WORKER = "charges/w"


def charges(peer, engine=None):
    return deployed(CUSTOM, "charges", engine, host=peer.functions()[:1])


@pytest.mark.parametrize("zone", [False, True], ids=["recorded body", "body in a zone"])
def test_a_completed_function_gives_its_recorded_answer_and_its_block_does_not_run(zone):
    async def case():
        engine, peer = LastingEngine(), RulesPeer()
        async with charges(peer, engine) as shem:
            assert await shem.invoke(WORKER, "charge", [1, zone]) == 3
            assert await shem.invoke(WORKER, "charge", [4, zone]) == 12
            assert peer.writes == [1, 2, 4, 5]
            rebuilt = await shem.replay(WORKER)
            assert rebuilt.divergence is None
            await shem.crash(WORKER)
            assert await shem.invoke(WORKER, "charge", [7, zone]) == 27
        assert peer.writes == [1, 2, 4, 5, 7, 8]
        assert len(set(peer.keys)) == 6
        starts = [e for _, e in worker_entries(engine, WORKER) if isinstance(e, Start)]
        assert [e.function for e in starts if e.parent_start] == ["demo:charges/charge"] * 3

    run(case)


@pytest.mark.parametrize("zone", [False, True], ids=["recorded body", "body in a zone"])
def test_wherever_it_is_lost_the_function_ends_once_and_its_writes_keep_their_keys(zone):
    async def case():
        engine, peer = LastingEngine(), RulesPeer()
        async with charges(peer, engine) as shem:
            await shem.invoke(WORKER, "charge", [1, zone], key="k1")
            await shem.invoke(WORKER, "charge", [4, zone], key="k2")
        recorded = worker_entries(engine, WORKER)
        scopes = [i for i, e in recorded if isinstance(e, Start) and not bytes(e.request)]
        keys = dict(zip(peer.writes, peer.keys, strict=True))
        body_ran_again = 0
        for count in range(2, len(recorded) + 1):
            target, again = LastingEngine(), RulesPeer()
            copy_oplog(engine, target, WORKER, count)
            async with opened(target, host=again.functions()[:1]) as shem:
                assert (await shem.replay(WORKER)).divergence is None, count
                assert (await shem.files(WORKER)).path == "/"
            async with opened(target, host=again.functions()[:1], recover="all") as shem:
                assert await shem.invoke(WORKER, "charge", [1, zone], key="k1") == 3
                assert await shem.invoke(WORKER, "charge", [4, zone], key="k2") == 12
                assert (await shem.replay(WORKER)).divergence is None
            assert worker_entries(target, WORKER)[:count] == recorded[:count]
            for step, key in zip(again.writes, again.keys, strict=True):
                if scopes[step > 2] <= count:
                    assert key == keys[step], "a block that runs again has the same keys"
            assert len(set(again.keys)) == len(again.keys)
            jumps = [e for _, e in worker_entries(target, WORKER) if isinstance(e, Jump)]
            assert all(jump.subtree == jump.region.first - 1 for jump in jumps)
            body_ran_again += len(jumps)
            check_rows(target, read_worker_id(target, WORKER))
        assert body_ran_again > 4

    run(case)


def test_with_idempotence_mode_off_a_block_that_was_lost_fails_and_does_not_run_again():
    async def case():
        engine, peer = LastingEngine(), RulesPeer()
        async with charges(peer, engine) as shem:
            await shem.invoke(WORKER, "mode", [False])
            await shem.invoke(WORKER, "charge", [1, True], key="k")
        recorded = worker_entries(engine, WORKER)
        [scope] = [i for i, e in recorded if isinstance(e, Start) and not bytes(e.request)]
        outcomes = []
        for count in range(scope, len(recorded) + 1):
            target, again = LastingEngine(), RulesPeer()
            copy_oplog(engine, target, WORKER, count)
            async with opened(target, host=again.functions()[:1], recover="all") as shem:
                outcome = await shem.wait(WORKER, "k")
            outcomes.append(outcome.value)
            if outcome.error is not None:
                assert "was interrupted and may have happened or not" in outcome.error.message
                assert again.writes == []
            else:
                assert again.writes == ([1, 2] if count == scope else [])
        assert outcomes[0] == outcomes[-1] == 3
        assert None in outcomes

    run(case)


@trio_test
async def test_the_end_of_a_function_ends_those_inside_it():
    """A library that was left by an exception does not end what it began last."""
    on = "golem:durability/durability"
    write = Variant("write-remote")

    def persist(guest, name):
        guest.call(f"{on}.persist-durable-function-invocation", name, b"asked", b"answer", write)

    def program(guest):
        outer = guest.call(f"{on}.begin-durable-function", write)
        if guest.call(f"{on}.current-durable-execution-state")["is-live"]:
            persist(guest, "inside")
            guest.call(f"{on}.begin-durable-function", write)
        else:
            guest.call(f"{on}.read-persisted-durable-function-invocation")
        guest.call(f"{on}.end-durable-function", write, outer, False)
        persist(guest, "behind")
        guest.tell(guest.call("wasi:random/random.get-random-u64"))

    async with world() as around:
        ran = await around.run(program)
        persisted = [e for e in ran.entries if isinstance(e, Start) and e.function == "behind"]
        assert [entry.parent_start for entry in persisted] == [None]
        assert (await around.run(program, ran.entries)).trace == ran.trace


@trio_test
async def test_what_comes_behind_a_completed_function_is_numbered_as_if_its_block_had_run():
    on = "golem:durability/durability"
    write = Variant("write-remote")
    block = "wasi:io/poll.[method]pollable.block"

    def wait(guest):
        """The handle's number is part of what is recorded."""
        pollable = guest.call("wasi:clocks/monotonic-clock.subscribe-duration", 0)
        guest.call(block, pollable)
        guest.drop("wasi:io/poll.pollable", pollable)

    def span(guest):
        """So is its id."""
        started = guest.call("golem:api/context.start-span", "work")
        guest.call("golem:api/context.[method]span.finish", started)

    def program(guest):
        scope = guest.call(f"{on}.begin-durable-function", write)
        if guest.call(f"{on}.current-durable-execution-state")["is-live"]:
            wait(guest)
            span(guest)
            guest.call(f"{on}.persist-durable-function-invocation", "f", b"", b"", write)
        else:
            guest.call(f"{on}.read-persisted-durable-function-invocation")
        guest.call(f"{on}.end-durable-function", write, scope, False)
        wait(guest)
        span(guest)

    async with world() as around:
        ran = await around.run(program)
        assert ran.lost is None
        for count in range(len(BEGIN), len(ran.entries) + 1):
            again = await around.run(program, ran.entries[:count])
            assert again.lost is None
            assert again.entries[:count] == ran.entries[:count]
