"""Remote writes that must not be repeated: what recovery does, and what their owner may say."""

from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from executor import WaveArguments
from executor.errors import BadArguments, GuestError, PreviousFailed, Uncertain, UsageError
from executor.worker.rows import read_worker_id
from oplog.entry import Decision, End, Interrupted, InvocationFinished, Jump, Start
from tests.support.engines import HeldStart, Hold
from tests.support.executors import (
    LastingEngine,
    check_rows,
    copy_oplog,
    kinds,
    opened,
    run,
    until,
    until_state,
    worker_entries,
)
from tests.support.rules_guest import WORKER, RulesPeer, index_of, rules, taken_up


async def interrupted(program, write=1):
    """The oplog of a worker whose process died behind the `start` of its nth write."""
    engine = LastingEngine()
    async with rules(engine, RulesPeer()) as shem:
        await shem.invoke(WORKER, "run", [program], key="k")
    start = index_of(engine, Start, write)
    target = LastingEngine()
    copy_oplog(engine, target, WORKER, start)
    return target, start


def choices(engine):
    return [e.choice for _, e in worker_entries(engine, WORKER) if isinstance(e, Decision)]


async def asked(shem, start):
    """Waits until the worker asks."""
    with pytest.raises(Uncertain, match=f"begun at entry {start}") as refusal:
        await shem.wait(WORKER, "k")
    assert refusal.value.kind == "uncertain"
    assert f"shem resolve {WORKER} {start}" in refusal.value.hint
    assert (await shem.worker(WORKER)).status == "uncertain"


def test_with_idempotence_off_an_incomplete_write_makes_the_worker_ask():
    async def case():
        engine, start = await interrupted("m0 w1 w2")
        peer = RulesPeer()
        async with opened(engine, host=peer.functions(), recover="all") as shem:
            await asked(shem, start)
            assert (await shem.workers(status="uncertain")).workers[0].worker == WORKER
            assert (await shem.replay(WORKER)).divergence is None
            assert (await shem.crash(WORKER)).divergence is None
            queued = await shem.submit(WORKER, "run", ["w3"], key="later")
            with pytest.raises(Uncertain):
                await shem.wait(WORKER, queued.key)
            with pytest.raises(Uncertain):
                await shem.invoke(WORKER, "run", ["w4"], key="last")
            assert (await shem.worker(WORKER)).pending == ("later", "last")
        async with opened(engine, host=peer.functions(), recover="all") as shem:
            await asked(shem, start)
        assert peer.writes == []
        assert choices(engine) == ["asked"]
        check_rows(engine, read_worker_id(engine, WORKER))

    run(case)


def test_with_idempotence_on_it_is_repeated_under_its_key():
    async def case():
        engine, start = await interrupted("m0 m1 w1 w2")
        peer = RulesPeer()
        target, done = await taken_up(engine, start, peer, "k")
        assert (done.value, peer.writes) == (12, [1, 2])
        assert choices(target) == []

    run(case)


def test_what_a_region_held_runs_again_in_both_modes():
    async def case():
        engine, start = await interrupted("m0 b0 w1 e0 w2")
        peer = RulesPeer()
        target, done = await taken_up(engine, start, peer, "k")
        assert (done.value, peer.writes) == (12, [1, 2])
        assert (choices(target), kinds(target, WORKER).count(Jump)) == ([], 1)

    run(case)


def test_repeat_performs_it_once_more_under_the_same_start_and_key():
    async def case():
        engine, start = await interrupted("m0 w1 w2")
        peer = RulesPeer()
        async with opened(engine, host=peer.functions(), recover="all") as shem:
            await asked(shem, start)
            done = await shem.resolve(WORKER, start, "repeat")
            assert (done.done, done.status) == (True, "running")
            assert (await shem.wait(WORKER, "k")).value == 12
            assert (await shem.replay(WORKER)).divergence is None
        assert peer.writes == [1, 2]
        assert choices(engine) == ["asked", "repeat", "begun"]
        assert End in kinds(engine, WORKER)
        check_rows(engine, read_worker_id(engine, WORKER))

    run(case)


def test_a_word_whose_owner_does_not_wait_for_it_is_said_all_the_same():
    async def case():
        engine, start = await interrupted("m0 w1 w2")
        peer = RulesPeer()
        async with opened(engine, host=peer.functions(), recover="all") as shem:
            await asked(shem, start)
            hold = Hold()
            engine.on_write = hold
            async with trio.open_nursery() as nursery:
                nursery.start_soon(shem.resolve, WORKER, start, "repeat")
                await trio.to_thread.run_sync(hold.entered.wait, 30)
                nursery.cancel_scope.cancel()
                engine.on_write = lambda _: None
                hold.go.set()
            await until_state(engine, WORKER, "idle")
        assert peer.writes == [1, 2]
        assert choices(engine) == ["asked", "repeat", "begun"]

    run(case)


def test_repeat_holds_for_one_attempt():
    async def case():
        engine, start = await interrupted("m0 w1")
        peer = RulesPeer()
        seen = []

        async def die(_call, _step):
            seen.append([e.choice for _, e in worker_entries(engine, WORKER)[start:]])
            await trio.sleep_forever()

        peer.before = die
        async with opened(engine, host=peer.functions(), recover="all") as shem:
            await asked(shem, start)
            await shem.resolve(WORKER, start, "repeat")
            await until(lambda: seen)
            await shem.crash(WORKER)
            await asked(shem, start)
            peer.before = None
            await shem.resolve(WORKER, start, "repeat")
            assert (await shem.wait(WORKER, "k")).value == 1
        assert seen == [["asked", "repeat", "begun"]], "begun is committed before the effect"
        assert choices(engine) == ["asked", "repeat", "begun"] * 2

    run(case)


@pytest.mark.parametrize("value", [7, WaveArguments(("7",))])
def test_a_value_is_the_answer_and_nothing_is_performed(value):
    async def case():
        engine, start = await interrupted("m0 w1 w2")
        peer = RulesPeer()
        async with opened(engine, host=peer.functions(), recover="all") as shem:
            await asked(shem, start)
            await shem.resolve(WORKER, start, "value", value)
            assert (await shem.wait(WORKER, "k")).value == 72
            assert (await shem.replay(WORKER)).divergence is None
            assert await shem.invoke(WORKER, "run", ["w3"]) == 723
        assert peer.writes == [2, 3]
        decision = index_of(engine, Decision, 2)
        following = worker_entries(engine, WORKER)[decision][1]
        assert (type(following), following.start_index) == (End, start)

    run(case)


def test_fail_is_a_failure_of_the_invocation():
    async def case():
        engine, start = await interrupted("m0 w1 w2")
        peer = RulesPeer()
        async with opened(engine, host=peer.functions(), recover="all") as shem:
            await asked(shem, start)
            done = await shem.resolve(WORKER, start, "fail")
            assert done.status == "failed"
            outcome = await shem.wait(WORKER, "k")
            assert outcome.status == "failed"
            assert f"begun at entry {start}, was declared failed" in outcome.error.message
            with pytest.raises(GuestError):
                await shem.invoke(WORKER, "run", ["m0 w1 w2"], key="k")
            with pytest.raises(PreviousFailed):
                await shem.invoke(WORKER, "total")
            report = await shem.replay(WORKER)
            assert (report.divergence, bool(report.stopped_at)) == (None, True)
        assert peer.writes == []
        assert kinds(engine, WORKER)[-2:] == [Decision, InvocationFinished]

    run(case)


def test_a_word_on_anything_else_is_refused_and_records_nothing():
    async def case():
        engine, start = await interrupted("m0 w1")
        async with opened(engine, host=RulesPeer().functions(), recover="all") as shem:
            await asked(shem, start)
            count = len(worker_entries(engine, WORKER))
            with pytest.raises(UsageError, match="is not the uncertain call"):
                await shem.resolve(WORKER, start + 1, "repeat")
            for value in ("one", -1, WaveArguments(('"7"',)), WaveArguments(())):
                with pytest.raises(BadArguments):
                    await shem.resolve(WORKER, start, "value", value)
            assert len(worker_entries(engine, WORKER)) == count
            await shem.resolve(WORKER, start, "value", 1)
            await shem.wait(WORKER, "k")
            with pytest.raises(UsageError, match="the worker is idle"):
                await shem.resolve(WORKER, start, "repeat")

    run(case)


def test_with_idempotence_off_the_guest_sees_an_answer_only_once_it_is_committed():
    async def case():
        engine = LastingEngine()
        peer = RulesPeer()
        seen = []

        async def note(_call, step):
            seen.append(kinds(engine, WORKER).count(End))

        peer.before = note
        async with rules(engine, peer) as shem:
            await shem.invoke(WORKER, "run", ["m0 w1 r1 w2 r2"])
        assert seen == [0, 2]

    run(case)


@asynccontextmanager
async def unbegun(leave):
    """A worker that was left by `leave(shem)` while its first write's start was not durable."""
    hold = HeldStart()
    engine = LastingEngine(on_write=hold)
    peer = RulesPeer()
    async with rules(engine, peer) as shem, trio.open_nursery() as nursery:
        await shem.submit(WORKER, "run", ["m0 w1 w2"], key="k")
        await until(hold.entered.is_set)
        nursery.start_soon(leave, shem)
        await wait_all_tasks_blocked(0.01)
        hold.go.set()
        yield shem, engine, peer


def test_nobody_is_asked_about_a_write_that_had_not_begun_when_its_worker_was_interrupted():
    async def interrupt(shem):
        assert (await shem.interrupt(WORKER)).done

    async def case():
        async with unbegun(interrupt) as (shem, engine, peer):
            await until(lambda: kinds(engine, WORKER)[-1] is Interrupted)
            assert (choices(engine), peer.writes) == (["unbegun"], [])
            assert (await shem.replay(WORKER)).divergence is None
            await shem.resume(WORKER)
            assert (await shem.wait(WORKER, "k")).value == 12
            assert (choices(engine), peer.writes) == (["unbegun", "begun"], [1, 2])
            check_rows(engine, read_worker_id(engine, WORKER))

    run(case)


def test_a_crash_says_nothing_of_a_write_that_had_not_begun():
    async def crash(shem):
        await shem.crash(WORKER)

    async def case():
        async with unbegun(crash) as (shem, engine, peer):
            with pytest.raises(Uncertain):
                await shem.wait(WORKER, "k")
            assert (choices(engine), peer.writes) == (["asked"], [])

    run(case)
