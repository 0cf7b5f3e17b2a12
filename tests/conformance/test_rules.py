"""What a guest may ask of its own durability: indices, jumps, regions, zones, modes, keys.

The guest runs a program of steps, two characters each: see `tests.support.rules_guest`.
"""

import pytest
import trio

from executor import Transient
from executor.durable.keys import call_key
from executor.errors import Divergence, GuestError, GuestTrap, LimitError
from executor.worker.rows import read_worker_id
from oplog.entry import (
    BeginAtomicRegion,
    EndAtomicRegion,
    Error,
    InvocationFinished,
    InvocationStarted,
    Jump,
    NoOp,
    PendingInvocation,
    Region,
    SetIdempotenceMode,
    SetPersistenceLevel,
    SetRetryPolicy,
    Start,
)
from tests.support.executors import (
    LastingEngine,
    check_rows,
    kinds,
    run,
    worker_entries,
)
from tests.support.rules_guest import WORKER, RulesPeer, index_of, ran, rules, taken_up


async def replays(shem):
    """A replay beside the worker, and a crash of it, find nothing and append nothing."""
    before = [record.entry async for record in shem.oplog(WORKER)]
    for rebuild in (shem.replay, shem.crash):
        report = await rebuild(WORKER)
        assert (report.divergence, report.stopped_at) == (None, None)
    assert [record.entry async for record in shem.oplog(WORKER)] == before


def keys_of(engine, *indices):
    """The derived keys by these indices, in the invocation with key `k`."""
    worker_id = read_worker_id(engine, WORKER)
    return [call_key(worker_id, "k", index) for index in indices]


def of_kind(engine, kind):
    return [(i, entry) for i, entry in worker_entries(engine, WORKER) if isinstance(entry, kind)]


# -- indices and jumps ---------------------------------------------------------------------------


def test_an_index_is_a_no_op_and_a_jump_goes_back_to_it():
    async def case():
        engine, peer = LastingEngine(), RulesPeer(r1=[1])
        async with rules(engine, peer) as shem:
            assert await shem.invoke(WORKER, "run", ["w1 i0 w2 r1 j0 w3"]) == 123
            await replays(shem)
            assert await shem.invoke(WORKER, "run", ["w4"]) == 1234
        assert peer.writes == [1, 2, 2, 3, 4]
        ((at, jump),) = of_kind(engine, Jump)
        assert jump.region == Region(first=index_of(engine, NoOp) + 1, last=at)
        check_rows(engine, read_worker_id(engine, WORKER))

    run(case)


def test_every_prefix_of_a_jump_continues_to_the_same_end():
    async def case():
        engine = LastingEngine()
        async with rules(engine, RulesPeer(r1=[1])) as shem:
            await shem.invoke(WORKER, "run", ["w1 i0 w2 r1 j0 w3 r2 w4"], key="k")
        recorded = worker_entries(engine, WORKER)
        jump = index_of(engine, Jump)
        for count in range(2, len(recorded) + 1):
            peer = RulesPeer(r1=[1] if count < jump - 1 else [])
            target, done = await taken_up(engine, count, peer, "k")
            assert done.value == 1234, count
            assert len(of_kind(target, Jump)) == 1, count
            assert worker_entries(target, WORKER)[:count] == recorded[:count]
            check_rows(target, read_worker_id(target, WORKER))

    run(case)


def test_a_jump_may_go_back_to_the_start_of_its_invocation():
    async def case():
        peer = RulesPeer(r1=[1])
        engine = LastingEngine()
        assert await ran("w1 r1 J3 w2", peer, engine) == 12
        assert peer.writes == [1, 1, 2]
        assert index_of(engine, InvocationStarted) == 3

    run(case)


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("w1 l. J4", "durable host calls are still in flight at entry 4"),
        ("w1 l. J2", "entry 2 is not in the current invocation"),
        ("w1 l. J0", "entry 0 is not in the current invocation"),
        ("l. J9", "entry 9 is not in the current invocation"),
        ("i0 w1 r1 j0 l. J6", "entry 6 is hidden"),
    ],
)
def test_a_jump_that_cannot_be_fails_its_invocation_in_words(program, words):
    async def case():
        engine = LastingEngine()
        async with rules(engine, RulesPeer(r1=[1])) as shem:
            with pytest.raises(GuestError, match=words):
                await shem.invoke(WORKER, "run", [program])
            assert (await shem.replay(WORKER)).divergence is None
        assert kinds(engine, WORKER)[-1] is InvocationFinished

    run(case)


# -- atomic regions ------------------------------------------------------------------------------


def test_a_trap_in_a_region_that_wrote_runs_the_region_again_with_the_same_keys():
    async def case():
        engine, peer = LastingEngine(), RulesPeer(r1=[1, 1])
        async with rules(engine, peer) as shem:
            program = "w1 b0 w2 w3 r1 t. e0 w4"
            assert await shem.invoke(WORKER, "run", [program], key="k") == 1234
            await replays(shem)
        assert peer.writes == [1, 2, 3, 2, 3, 2, 3, 4]
        begin = index_of(engine, BeginAtomicRegion)
        inside = keys_of(engine, begin + 1, begin + 2)
        assert peer.keys == [
            *keys_of(engine, 4),
            *(inside * 3),
            *keys_of(engine, of_kind(engine, Start)[-1][0]),
        ]
        assert [entry.region.first for _, entry in of_kind(engine, Jump)] == [begin + 1] * 2
        assert [entry.retry_from for _, entry in of_kind(engine, Error)] == [begin] * 2
        check_rows(engine, read_worker_id(engine, WORKER))

    run(case)


def test_attempts_are_counted_over_rollbacks_and_end_in_the_trap():
    async def case():
        engine, peer = LastingEngine(), RulesPeer(r1=[1] * 9)
        async with rules(engine, peer) as shem:
            with pytest.raises(GuestTrap, match=r"unreachable.*after 3 attempts"):
                await shem.invoke(WORKER, "run", ["b0 w1 r1 t. e0"])
        assert peer.writes == [1, 1, 1]
        assert len(of_kind(engine, Error)) == 3

    run(case)


@pytest.mark.parametrize("program", ["w1 T.", "b0 l. T.", "b0 w1 e0 T."])
def test_a_trap_without_a_region_that_wrote_fails_at_once(program):
    async def case():
        engine, peer = LastingEngine(), RulesPeer()
        async with rules(engine, peer) as shem:
            with pytest.raises(GuestTrap):
                await shem.invoke(WORKER, "run", [program])
        assert peer.writes == [1] * ("w1" in program)
        assert of_kind(engine, Error) == []

    run(case)


def test_a_crash_in_a_region_rolls_back_to_the_outermost_begin():
    async def case():
        engine = LastingEngine()
        async with rules(engine, RulesPeer()) as shem:
            await shem.invoke(WORKER, "run", ["w1 b0 w2 b1 w3 e1 w4 e0 w5"], key="k")
        begin, end = index_of(engine, BeginAtomicRegion), index_of(engine, EndAtomicRegion, 2)
        first_keys = keys_of(engine, *range(begin + 1, begin + 4))
        for count in range(3, end + 1):
            peer = RulesPeer()
            target, done = await taken_up(engine, count, peer, "k")
            assert done.value == 12345
            jumps = of_kind(target, Jump)
            if begin <= count < end:
                assert peer.writes == [2, 3, 4, 5]
                assert peer.keys[:3] == first_keys
                assert [jump.region.first for _, jump in jumps] == [begin + 1]
            else:
                assert jumps == []
            check_rows(target, read_worker_id(target, WORKER))

    run(case)


def test_a_replay_beside_the_worker_rolls_nothing_back():
    async def case():
        engine, peer = LastingEngine(), RulesPeer()
        entered = trio.Event()

        async def wait(_call, step):
            if step == 3:
                entered.set()
                await trio.sleep_forever()

        peer.before = wait
        async with rules(engine, peer) as shem:
            await shem.submit(WORKER, "run", ["b0 w2 w3 e0"], key="k")
            await entered.wait()
            count = len(worker_entries(engine, WORKER))
            assert (await shem.replay(WORKER)).divergence is None
            assert (await shem.crash(WORKER, go_on=False)).divergence is None
            assert len(worker_entries(engine, WORKER)) == count
            peer.before = None
            assert (await shem.wait(WORKER, "k")).value == 23
        assert len(of_kind(engine, Jump)) == 1

    run(case)


def test_crash_after_crash_in_a_region_appends_one_jump_each_time_something_ran():
    async def case():
        engine = LastingEngine()
        async with rules(engine, RulesPeer()) as shem:
            await shem.invoke(WORKER, "run", ["b0 w2 e0"], key="k")
        count = index_of(engine, BeginAtomicRegion) + 1
        once, _ = await taken_up(engine, count, RulesPeer(), "k")
        jump = index_of(once, Jump)
        twice, done = await taken_up(once, jump, RulesPeer(), "k")
        assert done.value == 2
        assert len(of_kind(twice, Jump)) == 1
        again, done = await taken_up(once, jump + 1, RulesPeer(), "k")
        assert done.value == 2
        assert [entry.region.first for _, entry in of_kind(again, Jump)] == [count] * 2

    run(case)


def test_ending_a_region_that_is_not_open_does_nothing():
    async def case():
        engine = LastingEngine()
        assert await ran("b0 e0 e0 e7 w1", RulesPeer(), engine) == 1
        assert len(of_kind(engine, EndAtomicRegion)) == 1

    run(case)


def test_a_region_ends_with_its_invocation():
    async def case():
        peer = RulesPeer(r1=[1])
        async with rules(LastingEngine(), peer) as shem:
            assert await shem.invoke(WORKER, "run", ["b0 w1"]) == 1
            with pytest.raises(GuestTrap):
                await shem.invoke(WORKER, "run", ["w2 T."])
        assert peer.writes == [1, 2]

    run(case)


def test_a_jump_out_of_a_region_opens_it_no_more():
    async def case():
        engine, peer = LastingEngine(), RulesPeer(r1=[1])
        async with rules(engine, peer) as shem:
            assert await shem.invoke(WORKER, "run", ["i0 b1 w1 r1 j0 e1 w2"]) == 12
            await replays(shem)
        assert peer.writes == [1, 1, 2]

    run(case)


# -- zones that persist nothing --------------------------------------------------------------------


def test_in_a_zone_nothing_is_recorded_and_every_call_has_its_own_key():
    async def case():
        engine, peer = LastingEngine(), RulesPeer()
        async with rules(engine, peer) as shem:
            await shem.invoke(WORKER, "run", ["w1 z. w2 i0 b1 w3 e1 m0 m1 p5 s. w4"], key="k")
        assert peer.writes == [1, 2, 3, 4]
        assert len(set(peer.keys)) == 4
        zone = index_of(engine, SetPersistenceLevel)
        assert index_of(engine, SetPersistenceLevel, 2) == zone + 1
        assert kinds(engine, WORKER).count(SetIdempotenceMode) == 0

    run(case)


def test_a_call_in_a_finished_zone_diverges_in_replay():
    async def case():
        engine, peer = LastingEngine(), RulesPeer()
        async with rules(engine, peer) as shem:
            await shem.invoke(WORKER, "run", ["z. w2 s."])
            found = (await shem.replay(WORKER)).divergence
            assert found.index == index_of(engine, SetPersistenceLevel, 2)
            assert "persists nothing" in found.requested
            count = len(worker_entries(engine, WORKER))
            await shem.crash(WORKER)
            with pytest.raises(Divergence):
                await shem.invoke(WORKER, "run", ["w1"])
            assert set(kinds(engine, WORKER)[count:]) <= {PendingInvocation}
        assert peer.writes == [2]

    run(case)


def test_a_zone_that_a_crash_left_open_is_jumped_and_runs_again():
    async def case():
        engine = LastingEngine()
        async with rules(engine, RulesPeer()) as shem:
            await shem.invoke(WORKER, "run", ["w1 z. w2 s. w3"], key="k")
        zone = index_of(engine, SetPersistenceLevel)
        peer = RulesPeer()
        target, done = await taken_up(engine, zone, peer, "k")
        assert (done.value, peer.writes) == (123, [2, 3])
        ((at, jump),) = of_kind(target, Jump)
        assert jump.region == Region(first=zone + 1, last=at)

    run(case)


def test_a_region_cannot_end_in_a_zone():
    async def case():
        with pytest.raises(GuestError, match="cannot end where nothing is persisted"):
            await ran("b0 z. e0", RulesPeer())

    run(case)


def test_a_zone_ends_with_its_invocation():
    async def case():
        engine, peer = LastingEngine(), RulesPeer()
        async with rules(engine, peer) as shem:
            await shem.invoke(WORKER, "run", ["z."])
            assert await shem.invoke(WORKER, "run", ["w1"]) == 1
            await replays(shem)
        assert len(of_kind(engine, Start)) == 1

    run(case)


# -- modes, policy, keys ---------------------------------------------------------------------------


def test_the_idempotence_mode_holds_from_invocation_to_invocation_and_through_a_rebuild():
    async def case():
        engine = LastingEngine()
        async with rules(engine, RulesPeer()) as shem:
            assert await shem.invoke(WORKER, "run", ["v. m0 v."]) == 10
            await replays(shem)
            assert await shem.invoke(WORKER, "run", ["v. m1 v."]) == 1001
        assert [entry.idempotent for _, entry in of_kind(engine, SetIdempotenceMode)] == [
            False,
            True,
        ]

    run(case)


def test_the_retry_policy_that_a_guest_sets_is_the_one_that_counts():
    async def case():
        engine, peer = LastingEngine(), RulesPeer()

        async def fail(_call, _step):
            raise Transient("not now")

        peer.before = fail
        async with rules(engine, peer) as shem:
            with pytest.raises(GuestError, match="after 5 attempts"):
                await shem.invoke(WORKER, "run", ["p5 w1"])
        assert peer.writes == [1] * 5
        assert len(set(peer.keys)) == 1
        ((_, policy),) = of_kind(engine, SetRetryPolicy)
        assert (policy.attempts_max, policy.min_delay_ns, policy.max_jitter_factor) == (
            5,
            1_000_000,
            None,
        )

    run(case)


def test_transient_errors_in_a_region_count_by_its_begin_and_roll_it_back():
    async def case():
        engine, peer = LastingEngine(), RulesPeer()
        failures = [2, 3]

        async def fail(_call, step):
            if step in failures:
                failures.remove(step)
                raise Transient("not now")

        peer.before = fail
        async with rules(engine, peer) as shem:
            assert await shem.invoke(WORKER, "run", ["p3 b0 w2 w3 e0"]) == 23
        assert peer.writes == [2, 2, 3, 2, 3]
        begin = index_of(engine, BeginAtomicRegion)
        assert [entry.retry_from for _, entry in of_kind(engine, Error)] == [begin] * 2

    run(case)


def test_a_generated_key_is_the_derived_key_of_its_call_and_recorded():
    async def case():
        engine = LastingEngine()
        async with rules(engine, RulesPeer()) as shem:
            total = await shem.invoke(WORKER, "run", ["k0 =0"], key="k")
            await replays(shem)
        (start, _) = of_kind(engine, Start)[0]
        assert total == int(keys_of(engine, start)[0].replace("-", "")[16:], 16)
        _, done = await taken_up(engine, start, RulesPeer(), "k")
        assert done.value == total

    run(case)


def test_generated_keys_in_a_region_are_the_same_in_every_attempt():
    async def case():
        peer = RulesPeer(r1=[1])
        engine = LastingEngine()
        async with rules(engine, peer) as shem:
            await shem.invoke(WORKER, "run", ["b0 w1 k0 w2 r1 t. e0 =0"], key="k")
            total = await shem.invoke(WORKER, "total")
        begin = index_of(engine, BeginAtomicRegion)
        first, key, second = keys_of(engine, begin + 1, begin + 2, begin + 3)
        assert peer.keys == [first, second, first, second]
        assert total == int(key.replace("-", "")[16:], 16)

    run(case)


def test_a_function_that_is_not_offered_yet_is_linked_and_says_so_when_it_is_called():
    async def case():
        async with rules(LastingEngine(), RulesPeer()) as shem:
            assert await shem.invoke(WORKER, "run", ["w1"]) == 1
            with pytest.raises(LimitError, match=r"golem:api/host\.fork is not offered yet"):
                await shem.invoke(WORKER, "run", ["f."])

    run(case)
