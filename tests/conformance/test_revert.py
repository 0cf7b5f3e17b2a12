"""Reverting a worker: legal cuts, forgotten keys, and what stays."""

import threading

import pytest
import trio

from executor.errors import (
    GuestTrap,
    KeyConflict,
    PreviousFailed,
    UnknownKey,
    UsageError,
    WorkerDeleted,
)
from executor.worker.rows import read_worker_id
from oplog.entry import (
    BeginAtomicRegion,
    EndAtomicRegion,
    InvocationFinished,
    InvocationStarted,
    NoOp,
    Revert,
    SetPersistenceLevel,
)
from oplog.reader import STEP_ENTRIES
from tests.support.executors import LastingEngine, check_rows, run, until, worker_entries
from tests.support.rules_guest import WORKER, RulesPeer, index_of, rules

# Three invocations of one write each:
# 1 create, 2 pending, 3 started, 4 start, 5 end, 6 finished, 7 pending, 8 started, 9 start, …


async def three(shem):
    for n in (1, 2, 3):
        await shem.invoke(WORKER, "run", [f"w{n}"], key=f"k{n}")


def test_the_last_invocations_are_undone_and_their_keys_are_unknown_again():
    async def case():
        engine, peer = LastingEngine(), RulesPeer()
        async with rules(engine, peer) as shem:
            await three(shem)
            done = await shem.revert(WORKER, last=2)
            assert (done.done, done.status) == (True, "idle")
            assert await shem.invoke(WORKER, "total") == 1
            assert await shem.invoke(WORKER, "run", ["w1"], key="k1") == 1
            with pytest.raises(UnknownKey):
                await shem.invocation(WORKER, "k2")
            with pytest.raises(UnknownKey):
                await shem.wait(WORKER, "k3")
            assert await shem.invoke(WORKER, "run", ["w7"], key="k2") == 17
            with pytest.raises(KeyConflict):
                await shem.invoke(WORKER, "run", ["w2"], key="k2")
            assert (await shem.replay(WORKER)).divergence is None
        async with rules(engine, peer) as shem:
            assert await shem.invoke(WORKER, "total") == 17
            with pytest.raises(UnknownKey):
                await shem.invocation(WORKER, "k3")
        assert peer.writes == [1, 2, 3, 7]
        check_rows(engine, read_worker_id(engine, WORKER))

    run(case)


def test_a_failed_worker_lives_again_before_its_failure():
    async def case():
        engine = LastingEngine()
        async with rules(engine, RulesPeer()) as shem:
            await shem.invoke(WORKER, "run", ["w1"])
            with pytest.raises(GuestTrap):
                await shem.invoke(WORKER, "run", ["w2 T."], key="bad")
            with pytest.raises(PreviousFailed):
                await shem.invoke(WORKER, "total")
            assert (await shem.revert(WORKER, last=1)).status == "idle"
            assert (await shem.worker(WORKER)).last_error is None
            assert await shem.invoke(WORKER, "total") == 1
            assert await shem.invoke(WORKER, "run", ["w3"], key="bad") == 13
        check_rows(engine, read_worker_id(engine, WORKER))

    run(case)


def test_a_cut_at_the_start_of_a_failed_invocation_runs_it_again():
    async def case():
        engine, peer = LastingEngine(), RulesPeer(r1=[1, 0])
        async with rules(engine, peer) as shem:
            with pytest.raises(GuestTrap):
                await shem.invoke(WORKER, "run", ["w1 r1 t. w2"], key="k")
            started = index_of(engine, InvocationStarted)
            done = await shem.revert(WORKER, to=started)
            assert done.status == "running"
            assert (await shem.wait(WORKER, "k")).value == 12
        assert peer.writes == [1, 1, 2]
        check_rows(engine, read_worker_id(engine, WORKER))

    run(case)


def test_a_cut_in_the_middle_of_an_invocation_goes_on_from_there():
    async def case():
        engine, peer = LastingEngine(), RulesPeer()
        async with rules(engine, peer) as shem:
            await shem.invoke(WORKER, "run", ["w1 w2"], key="k")
            await shem.revert(WORKER, to=5, go_on=False)
            record = await shem.worker(WORKER)
            assert (record.status, record.current_key) == ("running", "k")
            assert (await shem.wait(WORKER, "k")).value == 12
            assert await shem.invoke(WORKER, "run", ["w1 w2"], key="k") == 12
            assert (await shem.replay(WORKER)).divergence is None
        assert peer.writes == [1, 2, 2]
        check_rows(engine, read_worker_id(engine, WORKER))

    run(case)


def test_a_waiting_invocation_stays_in_the_queue():
    async def case():
        engine, peer = LastingEngine(), RulesPeer()
        gate = trio.Event()

        async def wait(_call, _step):
            await gate.wait()

        async with rules(engine, peer) as shem:
            await shem.invoke(WORKER, "run", ["w1"], key="k1")
            peer.before = wait
            await shem.submit(WORKER, "run", ["w2"], key="k2")
            await shem.submit(WORKER, "run", ["w3"], key="k3")
            with trio.move_on_after(0.1):
                await shem.wait(WORKER, "k2")
            gate.set()
            done = await shem.revert(WORKER, to=6, go_on=False)
            assert done.done
            record = await shem.worker(WORKER)
            assert record.pending == ("k3",)
            assert (await shem.wait(WORKER, "k3")).value == 13
            with pytest.raises(UnknownKey):
                await shem.invocation(WORKER, "k2")
        check_rows(engine, read_worker_id(engine, WORKER))

    run(case)


def test_who_waits_for_a_reverted_key_hears_of_it():
    async def case():
        engine, peer = LastingEngine(), RulesPeer()

        async def wait(_call, _step):
            await trio.sleep_forever()

        async with rules(engine, peer) as shem:
            await shem.invoke(WORKER, "run", ["r1"])
            peer.before = wait
            heard = []

            async def waiter():
                with pytest.raises(UnknownKey, match="was reverted"):
                    await shem.invoke(WORKER, "run", ["w2"], key="k2")
                heard.append(True)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(waiter)
                await until(lambda: peer.writes)
                with trio.move_on_after(20):
                    await shem.revert(WORKER, last=1)
            assert heard == [True]

    run(case)


@pytest.mark.parametrize(
    ("cut", "nearest"),
    [
        (lambda engine: 4, "3 or 5"),
        (lambda engine: index_of(engine, BeginAtomicRegion), "5 or 9"),
        (lambda engine: index_of(engine, BeginAtomicRegion) + 2, "5 or 9"),
        (lambda engine: index_of(engine, SetPersistenceLevel), "9 or 11"),
    ],
)
def test_a_cut_inside_a_pair_is_refused_and_the_nearest_ones_are_named(cut, nearest):
    # 4, 5 a write; 6 begin, 7, 8 a write, 9 end; 10, 11 a zone; 12, 13 a write
    async def case():
        engine = LastingEngine()
        async with rules(engine, RulesPeer()) as shem:
            await shem.invoke(WORKER, "run", ["w1 b0 w2 e0 z. s. w3"])
            assert index_of(engine, EndAtomicRegion) == 9
            count = len(worker_entries(engine, WORKER))
            with pytest.raises(UsageError, match="cannot be cut") as refusal:
                await shem.revert(WORKER, to=cut(engine))
            assert refusal.value.hint.endswith(f": {nearest}")
            assert len(worker_entries(engine, WORKER)) == count

    run(case)


def test_a_cut_that_is_none_is_refused_in_words():
    async def case():
        engine = LastingEngine()
        async with rules(engine, RulesPeer(r1=[1])) as shem:
            await shem.invoke(WORKER, "run", ["i0 w1 r1 j0"])
            last = len(worker_entries(engine, WORKER))
            for arguments in ({"to": 0}, {"to": last + 1}, {"last": 2}, {"last": 0}, {}):
                with pytest.raises(UsageError):
                    await shem.revert(WORKER, **arguments)
            with pytest.raises(UsageError, match="is hidden"):
                await shem.revert(WORKER, to=6)
            assert not (await shem.revert(WORKER, to=last)).done
            assert len(worker_entries(engine, WORKER)) == last

    run(case)


def test_a_revert_may_follow_a_revert_and_a_jump():
    async def case():
        engine, peer = LastingEngine(), RulesPeer(r1=[1])
        async with rules(engine, peer) as shem:
            await three(shem)
            await shem.invoke(WORKER, "run", ["i0 w4 r1 j0 w5"], key="j")
            await shem.revert(WORKER, last=2)
            assert await shem.invoke(WORKER, "run", ["w6"], key="k3") == 126
            await shem.revert(WORKER, last=2)
            assert await shem.invoke(WORKER, "total") == 1
            for key in ("k2", "k3", "j"):
                with pytest.raises(UnknownKey):
                    await shem.invocation(WORKER, key)
            assert (await shem.replay(WORKER)).divergence is None
        reverts = [e for _, e in worker_entries(engine, WORKER) if isinstance(e, Revert)]
        assert len(reverts) == 2
        finished = [e for _, e in worker_entries(engine, WORKER) if type(e) is InvocationFinished]
        assert len(finished) == 6
        check_rows(engine, read_worker_id(engine, WORKER))

    run(case)


def test_what_began_right_after_a_revert_can_be_reverted_as_well():
    async def case():
        engine, peer = LastingEngine(), RulesPeer()
        async with rules(engine, peer) as shem:
            await three(shem)
            await shem.submit(WORKER, "run", ["w4"], key="k4", run=False)
            await shem.revert(WORKER, last=2)
            assert (await shem.wait(WORKER, "k4")).value == 14
            revert = index_of(engine, Revert)
            assert index_of(engine, InvocationStarted, 4) == revert + 1
            assert (await shem.revert(WORKER, last=1)).done
            assert await shem.invoke(WORKER, "total") == 1
            await shem.revert(WORKER, to=revert)
            assert await shem.invoke(WORKER, "total") == 1
            assert (await shem.replay(WORKER)).divergence is None
        check_rows(engine, read_worker_id(engine, WORKER))

    run(case)


class SlowlyRead(LastingEngine):
    """Keeps who reads how much, and lets something else happen in the middle of a reading."""

    def __init__(self):
        super().__init__()
        self.reads = []
        self.asked = trio.Event()
        self.go = threading.Event()
        self.go.set()
        self.token = None
        self.trio_thread = threading.get_ident()

    def read_entries(self, worker_id, first, limit):
        page = super().read_entries(worker_id, first, limit)
        self.reads.append((threading.get_ident(), len(page)))
        go = self.go
        if not go.is_set() and threading.get_ident() != self.trio_thread:
            self.token.run_sync_soon(self.asked.set)
            assert go.wait(30)
        return page

    def hold(self):
        self.token = trio.lowlevel.current_trio_token()
        self.asked = trio.Event()
        self.go.clear()


def test_a_revert_reads_the_oplog_a_page_at_a_time_and_not_on_the_trio_thread():
    async def case():
        engine = SlowlyRead()
        async with rules(engine, RulesPeer()) as shem:
            await three(shem)
            await shem.invoke(WORKER, "run", ["l." * 1_200])
            engine.reads.clear()
            await shem.revert(WORKER, last=2)
            assert engine.trio_thread not in {thread for thread, _ in engine.reads}
            assert max(count for _, count in engine.reads) == STEP_ENTRIES
            read = sum(count for _, count in engine.reads)
            entries = len(worker_entries(engine, WORKER)) - 1
            assert entries > 2 * 1_024
            assert read == 2 * entries  # once for the cut, once for the status that it leaves
            assert await shem.invoke(WORKER, "total") == 12
        check_rows(engine, read_worker_id(engine, WORKER))

    run(case)


def test_what_is_accepted_while_a_revert_reads_stays_accepted_and_runs_behind_it():
    async def case():
        engine = SlowlyRead()
        async with rules(engine, RulesPeer()) as shem:
            await three(shem)
            engine.hold()
            async with trio.open_nursery() as nursery:

                async def revert():
                    assert (await shem.revert(WORKER, last=2)).done

                nursery.start_soon(revert)
                await engine.asked.wait()
                await shem.submit(WORKER, "run", ["w9"], key="k9")
                assert (await shem.interrupt(WORKER)).done
                await shem.resume(WORKER)
                engine.go.set()
            assert (await shem.wait(WORKER, "k9")).value == 19
            assert (await shem.replay(WORKER)).divergence is None
        check_rows(engine, read_worker_id(engine, WORKER))

    run(case)


def test_of_two_reverts_at_once_the_second_knows_of_the_first():
    async def case():
        engine = SlowlyRead()
        async with rules(engine, RulesPeer()) as shem:
            await three(shem)
            engine.hold()
            async with trio.open_nursery() as nursery:

                async def revert():
                    with pytest.raises(UsageError, match="after entry 11: it is hidden"):
                        await shem.revert(WORKER, to=11)

                nursery.start_soon(revert)
                await engine.asked.wait()
                held, engine.go = engine.go, threading.Event()
                engine.go.set()
                assert (await shem.revert(WORKER, to=6)).done
                held.set()
            check_rows(engine, read_worker_id(engine, WORKER))
            assert (await shem.replay(WORKER)).divergence is None
            assert await shem.invoke(WORKER, "total") == 1
        check_rows(engine, read_worker_id(engine, WORKER))

    run(case)


def test_a_replay_beside_goes_by_a_revert_that_comes_while_it_is_prepared(monkeypatch):
    async def case():
        engine = LastingEngine()
        async with rules(engine, RulesPeer()) as shem:
            await three(shem)
            revisions = shem._services.revisions
            load = revisions.load
            token = trio.lowlevel.current_trio_token()
            asked = trio.Event()
            go = threading.Event()

            def load_slowly(*which):
                token.run_sync_soon(asked.set)
                assert go.wait(30)
                return load(*which)

            monkeypatch.setattr(revisions, "load", load_slowly)
            async with trio.open_nursery() as nursery:

                async def replay():
                    assert (await shem.replay(WORKER)).divergence is None

                nursery.start_soon(replay)
                await asked.wait()
                await shem.revert(WORKER, last=2, go_on=False)
                go.set()
                assert await shem.invoke(WORKER, "run", ["w5"]) == 15

    run(case)


def test_a_revert_of_a_worker_that_is_deleted_meanwhile_says_so():
    async def case():
        engine = SlowlyRead()
        async with rules(engine, RulesPeer()) as shem:
            await three(shem)
            engine.hold()
            async with trio.open_nursery() as nursery:

                async def revert():
                    with pytest.raises(WorkerDeleted):
                        await shem.revert(WORKER, last=2)

                nursery.start_soon(revert)
                await engine.asked.wait()
                await shem.delete(WORKER)
                engine.go.set()
            assert await shem.invoke(WORKER, "total") == 0
        assert not engine.read_entries(read_worker_id(engine, WORKER), 7, 9)

    run(case)


def test_a_jump_over_a_revert_gives_no_reverted_key_back():
    async def case():
        engine, peer = LastingEngine(), RulesPeer(r1=[0, 1, 0])
        async with rules(engine, peer) as shem:
            await shem.invoke(WORKER, "run", ["i0 w1 r1 j0 w2"], key="k1")
            await shem.invoke(WORKER, "run", ["w3"], key="k2")
            await shem.revert(WORKER, to=index_of(engine, NoOp))
            assert (await shem.wait(WORKER, "k1")).value == 12
            with pytest.raises(UnknownKey):
                await shem.invocation(WORKER, "k2")
            assert await shem.invoke(WORKER, "run", ["w3"], key="k2") == 123
        assert peer.writes == [1, 2, 3, 1, 1, 2, 3]
        check_rows(engine, read_worker_id(engine, WORKER))

    run(case)
