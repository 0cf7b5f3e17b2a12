"""The disk is full at a commit, and has room again later: nothing is lost, no write loops."""

import itertools
import json
from pathlib import Path

import pytest
import trio
from msgspec import structs

from executor import Executor
from executor.durable.effects import perform_effect
from executor.errors import ShemError, UnknownKey, WorkerNotFound
from executor.torture.account import account_of
from executor.torture.drive import Drive
from executor.torture.figures import Figures
from executor.torture.lab import Tried
from executor.torture.ledger import recorded_effects, report_oplogs
from executor.torture.plan import EffectBegan, Ended, Opened, Refused
from executor.torture.verdict import Case, judge
from executor.worker import room
from executor.worker.reader import StoreReader
from oplog.lmdb_engine import LmdbEngine
from oplog.store import Store
from tests.support import crash_bank
from tests.support.children import run_python
from tests.support.crash_lab import count
from tests.support.crash_scenarios import scenarios
from tests.support.full_disk import FullEngine

SCENARIOS = scenarios()
LEFT_S = 0.2
HELD_S = 0.6
REGAINED_S = 30
AT_ONCE = 16


class FullDisk:
    """One case: the disk is full from commit `full_at` on."""

    def __init__(self, lab, full_at):
        self.lab = lab
        self.full_at = full_at
        self.plan = structs.replace(lab.plan(lab.new_folder(f"full-{full_at}")), verify=True)
        self.events = []
        self.struck = False

    async def run(self):
        crash_bank.case.set(self.plan.case)
        engine = FullEngine(LmdbEngine.open(Path(self.plan.store)), self.full_at)
        perform = recorded_effects(perform_effect, self.events.append)
        opened = Executor.open(self.plan.store, store=Store(engine), perform=perform)
        async with opened as shem:
            drive = Drive(shem, StoreReader(engine), self.plan, self.events.append)
            self.events.append(Opened())
            await drive.take_steps()
            self.struck = engine.struck
            reader = StoreReader(engine)
            if self.struck:
                await self.stay_full(engine, reader)
            engine.make_room()
            await self.wait_until_regained(shem)
            report_oplogs(reader, self.plan.workers, self.events.append, verified=False)
            self.events.append(Opened())
            await drive.resume()
            await drive.take_steps()
            await drive.verify()
        self.events.append(Ended())

    async def stay_full(self, engine, reader):
        refusals = [event.kind for event in self.events if isinstance(event, Refused)]
        assert "disk-full" in refusals, self.events
        report_oplogs(reader, self.plan.workers, self.events.append, verified=False)
        await trio.sleep(LEFT_S)  # a read that was under way may still arrive: it needs no commit
        before = self.effects()
        probes, commits = engine.probes, engine.commits
        await trio.sleep(HELD_S)
        assert self.effects() == before, "a write was repeated while the disk was full"
        assert engine.commits == commits, "a held worker went on"
        with trio.fail_after(REGAINED_S):  # somebody looks whether there is room
            while engine.probes == probes:  # noqa: ASYNC110  # nobody tells
                await trio.sleep(0.02)

    def effects(self):
        return sum(isinstance(event, EffectBegan) for event in self.events)

    async def wait_until_regained(self, shem):
        """Whatever was accepted goes on by itself."""
        with trio.fail_after(REGAINED_S):
            for step in self.plan.steps:
                while await is_held(shem, step.worker, step.key):  # noqa: ASYNC110  # nobody tells
                    await trio.sleep(0.02)

    def tried(self):
        case = Case(self.plan.case, (("commit", self.full_at),), 0, tuple(self.events))
        differences = list(self.lab.reference().differences(account_of(case.events)))
        verdict = judge(case, differences)
        more = [text for check in self.lab.checks for text in check(case)]
        return Tried(case, verdict._replace(wrong=(*verdict.wrong, *more)))


async def is_held(shem, worker, key):
    try:
        await shem.wait(worker, key)
    except (WorkerNotFound, UnknownKey):
        return False
    except ShemError as error:
        return error.kind == "disk-full"
    return False


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_disk_that_is_full_at_any_commit_loses_and_repeats_nothing(
    crash_lab, tell, monkeypatch, name
):
    monkeypatch.setattr(room, "PROBE_DELAY_MIN_S", 0.1)
    monkeypatch.setattr(room, "PROBE_DELAY_MAX_S", 0.2)
    lab = crash_lab.of(SCENARIOS[name])
    figures = Figures(name)
    numbers = itertools.count(1)
    struck = 0
    while True:
        cases = [FullDisk(lab, next(numbers)) for _ in range(AT_ONCE)]
        trio.run(run_all, cases)
        for case in cases:
            count(figures, case.tried())
        struck += sum(case.struck for case in cases)
        if not cases[-1].struck:
            break
    tell(f"disk full at each of {struck} commits, {figures}")
    assert (figures.lost, figures.duplicated) == (0, 0)
    assert figures.recovered == figures.tried > struck >= lab.counts()["commit"] * 0.5


async def run_all(cases):
    async with trio.open_nursery() as nursery:
        for case in cases:
            nursery.start_soon(case.run)


FULL_FILE = """
    import json, resource, signal, sys
    from pathlib import Path
    import trio
    from executor import Executor
    from executor.errors import ShemError
    from tests.support import guests

    path, slack = Path(sys.argv[1]), int(sys.argv[2])
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    def limit(size):
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    async def run(shem, number):
        line = "x" * 20_000
        return await shem.invoke("printer/one", "print", [line], key=f"line-{number}")

    async def main():
        async with Executor.open(path) as shem:
            await shem.deploy(guests.printer_component(), name="printer")
            assert await run(shem, 1) == 1
            limit((path / "data.mdb").stat().st_size + slack)
            number, error = 1, None
            while error is None:
                number += 1
                try:
                    assert await run(shem, number) == number
                except ShemError as refused:
                    error = refused
            assert error.kind == "disk-full", error
            assert number > 1
            refused = 0
            for _ in range(20):
                await trio.sleep(0.1)
                try:
                    await run(shem, number)
                except ShemError as again:
                    assert again.kind == "disk-full", again
                    refused += 1
            limit(resource.RLIM_INFINITY)
            with trio.fail_after(30):
                while True:
                    try:
                        assert await run(shem, number) == number
                        break
                    except ShemError as again:
                        assert again.kind == "disk-full", again
                        await trio.sleep(0.1)
            for later in range(number + 1, number + 5):
                assert await run(shem, later) == later
            replay = await shem.replay("printer/one")
            assert replay.divergence is None, replay
            print(json.dumps([number, refused]))

    trio.run(main)
"""


@pytest.mark.parametrize("slack", [40_000, 100_000, 300_000])
def test_a_file_that_may_not_grow_holds_its_worker_until_it_may(tmp_path, tell, slack):
    struck, refused = json.loads(run_python(FULL_FILE, tmp_path / "store", slack))
    tell(f"file limited to {slack:,} bytes more: full at line {struck}, refused {refused} of 20")
    assert refused == 20
