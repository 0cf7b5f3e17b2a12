"""Reading what is committed through the library: queries, pages, whose thread waits, and damage."""

import threading
from contextlib import suppress
from itertools import groupby

import pytest
import trio

from executor.errors import GuestTrap, PreviousFailed, StoreError, UsageError, WorkerDeleted
from executor.worker.rows import read_worker_id
from oplog.engine import Batch, Row
from oplog.entry import InvocationFinished, InvocationStarted, PendingInvocation
from tests.support.executors import LastingEngine, Traces, deployed, opened, run, worker_entries
from tests.support.guests import ADDER
from tests.support.rules_guest import WORKER, RulesPeer, rules

PAGE = 1_024


class WatchedEngine(LastingEngine):
    """Keeps the threads that read entries, and how many; tells each reading of a page."""

    def __init__(self):
        super().__init__()
        self.readers = set()
        self.reads = []
        self.on_page = lambda: None

    def read_entries(self, worker_id, first, limit):
        self.readers.add(threading.get_ident())
        page = super().read_entries(worker_id, first, limit)
        self.reads.append(len(page))
        if len(page) > 1:
            self.on_page()
        return page


def test_an_oplog_is_searched_by_the_language_and_read_on_a_worker_thread():
    async def case():
        engine = WatchedEngine()
        async with deployed(ADDER, "adder", engine) as shem:
            await shem.invoke("adder/w", "add", [41], key="first")
            await shem.invoke("adder/w", "add", [1], key="second")
            engine.readers.clear()
            found = [entry async for entry in shem.oplog("adder/w", search="first OR result:42")]
            assert threading.get_ident() not in engine.readers
            assert [type(record.entry) for record in found] == [
                PendingInvocation,
                InvocationStarted,
                InvocationFinished,
            ]
            assert found[-1].index > found[1].index + 1, "the second one's result"
            limited = [entry.index async for entry in shem.oplog("adder/w", 3, 1, search="key:f")]
            assert limited == [3]
            with pytest.raises(UsageError, match="closes nothing"):
                await anext(shem.oplog("adder/w", search="41)"))

    run(case)


def test_who_follows_an_oplog_gets_each_entry_once_and_hears_when_its_worker_is_deleted():
    async def case():
        async with deployed(ADDER, "adder") as shem:
            await shem.invoke("adder/w", "add", [41], key="first")
            seen = []

            async def follow():
                with suppress(WorkerDeleted):
                    async for record in shem.oplog("adder/w", search="key:first", follow=True):
                        seen.append(record.index)  # noqa: PERF401  # until it raises

            async with trio.open_nursery() as nursery:
                nursery.start_soon(follow)
                limited = shem.oplog("adder/w", limit=5, follow=True)
                await shem.invoke("adder/w", "add", [1], key="second")
                assert [record.index async for record in limited] == [1, 2, 3, 4, 5]
                await shem.delete("adder/w")
            assert seen == [2, 3]

    run(case)


def test_a_replay_reads_a_page_only_when_the_guest_has_come_to_it():
    """Whatever the length of the history, no more than two pages of it are in memory."""
    calls = 3_000

    async def case():
        engine, traces = WatchedEngine(), Traces()
        with traces.installed():
            async with rules(engine, RulesPeer()) as shem:
                await shem.invoke(WORKER, "run", ["l." * calls])
                entries = len(worker_entries(engine, WORKER))
                engine.reads.clear()
                seen = []
                engine.on_page = lambda: seen.append(len(traces.calls[-1]))
                report = await shem.replay(WORKER)
                engine.on_page = lambda: None
        assert report.divergence is None
        assert report.replayed > 2 * calls
        assert max(engine.reads) <= PAGE
        assert sum(engine.reads) <= entries
        pages = -(-entries // PAGE)
        asked = [done for done, _ in groupby(seen)]  # a page is read in several steps
        assert len(asked) == pages > 5
        # A call is two entries: each page was asked for once the one before it was used up.
        assert all(done >= (page - 1) * PAGE // 2 - 2 for page, done in enumerate(asked[1:], 2))

    run(case)


def test_large_values_end_a_page_before_its_entries_do():
    async def case():
        engine = WatchedEngine()
        async with rules(engine, RulesPeer()) as shem:
            for n in range(12):
                await shem.submit(WORKER, "run", [" " * 1_000_000], key=f"k{n}")
            for n in range(12):
                await shem.wait(WORKER, f"k{n}")
            reader = shem._reader
            pages = [len(page) for page in reader.oplog_pages(WORKER)]
            assert sum(pages) == len(worker_entries(engine, WORKER))
            assert len(pages) >= 3
            assert (await shem.replay(WORKER)).divergence is None

    run(case)


def test_output_is_read_back_on_a_worker_thread():
    async def case():
        engine = WatchedEngine()
        async with rules(engine, RulesPeer()) as shem:
            with pytest.raises(GuestTrap):
                await shem.invoke(WORKER, "run", ["l." * 3 * PAGE + "T."], key="k")
            worker = (await shem._workers.loop(WORKER)).worker
            state = worker.key_state("k")
            state.logs = True  # the guest writes nothing: its entries are searched in vain
            engine.readers.clear()
            engine.reads.clear()
            await shem.wait(WORKER, "k")
            with pytest.raises(PreviousFailed):
                await shem.invoke(WORKER, "run", ["l."], key="next")
            await shem.invocation(WORKER, "k")
            assert engine.readers
            long_reads = [count for count in engine.reads if count > 1]
            assert len(long_reads) > 5

    run(case)


def test_all_pending_work_is_taken_up_while_others_have_their_turn():
    workers = 300

    async def case():
        engine = LastingEngine()
        async with deployed(ADDER, "adder", engine) as shem:
            for n in range(workers):
                await shem.submit(f"adder/w{n}", "add", [n], key="k", run=False)
        async with opened(engine) as shem:
            turns = 0

            async def others():
                nonlocal turns
                while True:
                    turns += 1
                    await trio.lowlevel.checkpoint()

            async with trio.open_nursery() as nursery:
                nursery.start_soon(others)
                await shem._workers.take_up_all()
                nursery.cancel_scope.cancel()
            assert turns >= workers
            await shem.run(until_idle=True)
            assert (await shem.workers(status="idle", limit=1_000)).cursor is None
            for n in range(0, workers, 50):
                assert (await shem.invocation(f"adder/w{n}", "k")).value == n

    run(case)


@pytest.mark.parametrize("damaged", ["entry", "status"])
def test_a_damaged_worker_is_refused_in_words_and_the_others_go_on(damaged):
    async def case():
        engine = LastingEngine()
        async with deployed(ADDER, "adder", engine) as shem:
            await shem.invoke("adder/w", "add", [1])
            await shem.submit("adder/bad", "add", [1], key="k", run=False)
        worker_id = read_worker_id(engine, "adder/bad")
        if damaged == "entry":
            batch = Batch(entries=[(worker_id, 3, b"\xc1")])
        else:
            batch = Batch(rows=[Row(table="workers", key=worker_id, value=b"\xc1")])
        assert engine.write([batch]) == [None]
        reports = []
        async with opened(engine, recover="all", report=reports.append) as shem:
            for asked in (
                shem.invoke("adder/bad", "add", [1]),
                shem.wait("adder/bad", "k"),
                shem.crash("adder/bad"),
                shem.delete("adder/bad"),
                shem.revert("adder/bad", last=1),
            ):
                with pytest.raises(StoreError, match=f"worker {worker_id.hex()}") as refused:
                    await asked
                assert (refused.value.kind, refused.value.where) == ("store-corrupt", "adder/bad")
            assert await shem.invoke("adder/w", "add", [2]) == 3
        assert [report.split(":")[0] for report in reports] == [
            f"worker {worker_id.hex()} is skipped"
        ]

    run(case)
