"""Where the crash tests run their scenarios: the product's own laboratory, with a witness.

`shem torture` kills a user's component with the same `Lab`; here every case is checked besides by
what the receiver has got, and by what the scenario expects.
"""

import os
import random
from contextlib import ExitStack
from pathlib import Path
from typing import Self

import trio

from executor.deployment import DeployOptions
from executor.torture.children import Children
from executor.torture.figures import Figures
from executor.torture.lab import Lab, Trial, Tried
from executor.torture.subject import Subject, deploy_subject
from tests.support.crash_bank import MARKERS_VARIABLE, PORT_VARIABLE
from tests.support.crash_check import Witness
from tests.support.crash_scenarios import Scenario
from tests.support.receiver import Receiver

ROOT = Path(__file__).parents[2]
CHILDREN_AT_ONCE = 2


class CrashLab:
    """One for all crash tests of a run; a laboratory for each scenario."""

    def __init__(self, folder: Path, receiver: Receiver) -> None:
        self.folder = folder
        self.receiver = receiver
        self._templates: dict[tuple[str, str], Path] = {}
        self._labs: dict[str, Lab] = {}
        self._stack = ExitStack()
        markers = folder / "markers"
        markers.mkdir()
        os.environ[PORT_VARIABLE] = str(receiver.port)
        os.environ[MARKERS_VARIABLE] = str(markers)
        self.children = self._stack.enter_context(Children(CHILDREN_AT_ONCE))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def of(self, scenario: Scenario) -> Lab:
        lab = self._labs.get(scenario.name)
        if lab is None:
            trial = Trial(scenario.name, self.template(scenario), scenario.steps)
            self._labs[scenario.name] = lab = Lab(
                trial, self.folder, self.children, self.folder / "kept"
            )
            lab.checks.append(Witness(scenario, self.receiver))
        return lab

    def template(self, scenario: Scenario) -> Path:
        """A store in which the scenario's guest is deployed."""
        key = scenario.component, scenario.bank
        if key not in self._templates:
            store = self.folder / f"deployed-{len(self._templates)}"
            options = DeployOptions()
            if scenario.bank:
                options["host"] = (f"tests.support.crash_bank:{scenario.bank}",)
                options["host_directory"] = str(ROOT)
            subject = Subject(scenario.component, scenario.wasm(), options)
            trio.run(deploy_subject, subject, store, store, None)
            self._templates[key] = store
        return self._templates[key]


def count(figures: Figures, tried: Tried) -> None:
    """Fails in full at the first case of which something does not hold."""
    figures.count(tried)
    if tried.verdict.wrong:
        events = "\n".join(map(str, tried.case.events))
        wrong = "; ".join(tried.verdict.wrong)
        raise AssertionError(f"{figures.name} killed at {tried.case.chain}: {wrong}\n{events}")


def new_seed() -> int:
    """`SHEM_CRASH_SEED`, to see a run again, or a new one."""
    given = os.environ.get("SHEM_CRASH_SEED")
    return int(given) if given else random.SystemRandom().randrange(1 << 32)
