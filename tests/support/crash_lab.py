"""Where the crash tests run their cases: stores, receiver, children, and the sum of it all.

A case is one store, copied from one in which the guest is deployed, and a chain of children that
use it one after another: each but the last may be killed at its point, the last takes up what is
pending, asks for everything again and verifies.
"""

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import count, repeat
from pathlib import Path
from queue import SimpleQueue
from signal import SIGKILL
from typing import NamedTuple, Self

from msgspec import structs

from tests.support.crash_check import Case, Figures, check_case
from tests.support.crash_plan import AnyEvent, Counted, Deploy, Ended, Plan, decode_event, encode
from tests.support.crash_scenarios import Scenario
from tests.support.receiver import Receiver, Request

ROOT = Path(__file__).parents[2]
CHILDREN_AT_ONCE = 2
CHAIN_LENGTH_MAX = 100
Point = tuple[str, int]
"""Kind and number of a crash point."""
KINDS = ("append", "commit", "before-effect", "after-effect", "before-result", "after-result")


class Children:
    """One process that forks children, one at a time. Methods block."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.crash_child"],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def run(self, plan: Plan) -> int:
        """The exit code of a child; the number of a signal that killed it, negated."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(encode(plan) + b"\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


class Run(NamedTuple):
    """What a chain of children left behind."""

    case: Case
    killed: int
    """How many of them were."""


class Lab:
    """One for all crash tests of a run."""

    def __init__(self, folder: Path, receiver: Receiver) -> None:
        self.folder = folder
        self.receiver = receiver
        self._templates: dict[str, Path] = {}
        self._counts: dict[str, dict[str, int]] = {}
        self._numbers = count(1)
        self._stack = ExitStack()
        self._pool = self._stack.enter_context(ThreadPoolExecutor(CHILDREN_AT_ONCE))
        self._children: SimpleQueue[Children] = SimpleQueue()
        for _ in range(CHILDREN_AT_ONCE):
            children = Children()
            self._stack.callback(children.close)
            self._children.put(children)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    # -- one child ---------------------------------------------------------------------------

    def run_child(self, plan: Plan) -> int:
        children = self._children.get()
        try:
            return children.run(plan)
        finally:
            self._children.put(children)

    def plan(self, scenario: Scenario, folder: Path) -> Plan:
        return Plan(
            store=str(folder / "store"),
            report=str(folder / "reports.jsonl"),
            errors=str(folder / "stderr.txt"),
            receiver_port=self.receiver.port,
            peer=f"/{folder.name}",
            bank=scenario.bank,
            charge_type=scenario.charge_type,
            flaky=str(folder / "flaky") if scenario.flaky else "",
            workers=scenario.workers,
            steps=scenario.steps,
            queries=scenario.queries,
        )

    def new_folder(self, scenario: Scenario) -> Path:
        """A new case's folder, with a store in which the scenario's guest is deployed."""
        template = self.template(scenario)
        folder = self.new_empty_folder(scenario.name)
        (folder / "flaky").mkdir()
        store = folder / "store"
        store.mkdir()
        shutil.copy(template / "store" / "data.mdb", store)
        shutil.copytree(
            template / "store" / "artifacts", store / "artifacts", copy_function=os.link
        )
        return folder

    def new_empty_folder(self, name: str) -> Path:
        folder = self.folder / f"{name}-{next(self._numbers)}"
        folder.mkdir()
        (folder / "stderr.txt").touch()
        return folder

    def template(self, scenario: Scenario) -> Path:
        folder = self._templates.get(scenario.component)
        if folder is None:
            folder = self.folder / f"deployed-{scenario.component}"
            folder.mkdir()
            wasm = folder / "component.wasm"
            wasm.write_bytes(scenario.wasm())
            deploy = Deploy(path=str(wasm), name=scenario.component)
            plan = self.plan(scenario, folder)
            plan = structs.replace(plan, steps=(deploy,), queries=())
            assert self.run_child(plan) == 0, Path(plan.errors).read_text()
            self._templates[scenario.component] = folder
        return folder

    # -- one case ----------------------------------------------------------------------------

    def run_chain(self, scenario: Scenario, points: Iterable[Point]) -> Run:
        """A child a point, then one that recovers and verifies.

        A child that ended of itself is the last that is to be killed.
        """
        folder = self.new_folder(scenario)
        plan = self.plan(scenario, folder)
        tried: list[Point] = []
        sent: list[int] = []
        killed = 0
        for point in points:
            status = self.run_child(structs.replace(plan, point=point, resume=bool(tried)))
            tried.append(point)
            told = (scenario.name, tried, status, Path(plan.errors).read_text())
            assert status in (0, -SIGKILL), told
            sent.append(len(self.requests(plan.peer)))
            if status == 0:
                break
            killed += 1
        status = self.run_child(structs.replace(plan, resume=bool(tried), verify=True))
        case = self.case(scenario, folder, tuple(tried), tuple(sent))
        assert status == 0, case.told(f"the last child ended with {status}")
        shutil.rmtree(folder)
        return Run(case, killed)

    def requests(self, peer: str) -> tuple[Request, ...]:
        return tuple(request for request in self.receiver.requests() if request.path == peer)

    def case(
        self, scenario: Scenario, folder: Path, points: tuple[Point, ...], sent: tuple[int, ...]
    ) -> Case:
        references: dict[str, str] = {}
        for request in self.receiver.requests():
            references.setdefault(request.key, f"ref-{len(references) + 1}")
        return Case(
            scenario=scenario,
            points=points,
            events=events_of(self.plan(scenario, folder)),
            requests=self.requests(f"/{folder.name}"),
            sent=sent,
            references=references,
            errors=(folder / "stderr.txt").read_text(),
        )

    # -- many cases --------------------------------------------------------------------------

    def counts(self, scenario: Scenario) -> dict[str, int]:
        """How often an undisturbed run reaches each kind of point. That run is checked too."""
        found = self._counts.get(scenario.name)
        if found is None:
            run = self.run_chain(scenario, ())
            check_case(run.case)
            found = counts_of(run.case.events)
            self._counts[scenario.name] = found
        return found

    def points(self, scenario: Scenario) -> list[Point]:
        """Every point that an undisturbed run reaches."""
        counts = self.counts(scenario)
        return [(kind, n) for kind in KINDS for n in range(1, counts.get(kind, 0) + 1)]

    def try_chains(self, scenario: Scenario, chains: Sequence[Sequence[Point]]) -> Figures:
        """Runs and checks a case for each chain of points, several at once."""
        figures = Figures(scenario.name)

        def run(chain: Sequence[Point]) -> None:
            ran = self.run_chain(scenario, chain)
            figures.count(ran.case, killed=ran.killed)

        for _ in self._pool.map(run, chains):
            pass
        return figures

    def try_beyond(self, scenario: Scenario, figures: Figures) -> None:
        """Tries the appends and commits after the last that was counted, until there are no more:
        how many entries share a commit is a matter of time.
        """
        for kind in ("append", "commit"):
            number = self.counts(scenario)[kind]
            killed = 1
            while killed:
                number += 1
                case, killed = self.run_chain(scenario, [(kind, number)])
                figures.count(case, killed=killed)

    def try_chain_until_done(self, scenario: Scenario, point: Point, figures: Figures) -> None:
        """Kills one process after another at the same point, until one has nothing left to do."""
        case, killed = self.run_chain(scenario, repeat(point, CHAIN_LENGTH_MAX))
        assert killed < CHAIN_LENGTH_MAX, case.told("no progress")
        figures.count(case, killed=killed)


def events_of(plan: Plan) -> tuple[AnyEvent, ...]:
    """Everything that the children of a plan have reported."""
    report = Path(plan.report)
    lines = report.read_bytes().splitlines() if report.exists() else ()
    return tuple(decode_event(line) for line in lines)


def counts_of(events: Sequence[AnyEvent]) -> dict[str, int]:
    assert isinstance(events[-1], Ended)
    (counted,) = [event for event in events if isinstance(event, Counted)]
    return counted.counts


def new_seed() -> int:
    """`SHEM_CRASH_SEED`, to see a run again, or a new one."""
    given = os.environ.get("SHEM_CRASH_SEED")
    return int(given) if given else random.SystemRandom().randrange(1 << 32)
