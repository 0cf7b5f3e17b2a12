"""A process is killed while it deploys a component or deletes a worker."""

from collections import Counter

import msgspec
import pytest
from msgspec import structs

from executor.torture.children import Children
from executor.torture.lab import events_of
from executor.torture.plan import Found, Outcome
from tests.support.component_child import ComponentPlan
from tests.support.crash_lab import ROOT
from tests.support.crash_scenarios import scenarios

SCENARIO = scenarios()["charger"]
ANSWERS = ["2", "3", "3"]
CASES_MAX = 40


@pytest.fixture(scope="module")
def children():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT))
        with Children(1, "tests.support.component_child") as children:
            yield children


@pytest.fixture
def run(children, crash_lab):
    """The exit code of a process, and what it told and reported."""

    def run_one(folder, *, point=None, steps=(), **asked):
        plan = structs.replace(crash_lab.of(SCENARIO).plan(folder), point=point, steps=steps)
        told = folder / "told.txt"
        told.touch()
        lines, events = len(told.read_text().splitlines()), len(events_of(plan))
        asked = ComponentPlan(plan=plan, told=str(told), host_directory=str(ROOT), **asked)
        status = children.run_line(msgspec.json.encode(asked))
        return status, told.read_text().splitlines()[lines:], events_of(plan)[events:]

    return run_one


def answers(events):
    return [event.wave for event in events if isinstance(event, Outcome)]


def test_a_killed_deployment_is_there_or_not_and_can_be_made_again(tmp_path, run):
    wasm = tmp_path / "component.wasm"
    wasm.write_bytes(SCENARIO.wasm())
    for point, revisions in ((("commit", 1), []), (None, ["revision 0"])):
        folder = tmp_path / f"deployed-{len(revisions)}"
        folder.mkdir()
        status, told, _ = run(folder, point=point, deploy=str(wasm))
        assert (status == 0, told) == (point is None, revisions)
        status, told, events = run(folder, deploy=str(wasm), steps=SCENARIO.steps)
        assert (status, told) == (0, ["revision 0"])
        assert answers(events) == ANSWERS


def test_a_killed_deletion_leaves_the_whole_worker_or_nothing_of_it(crash_lab, run, tell):
    """How many commits the steps take is a matter of time: the kill comes at one after another,
    until one came at the deletion's own and another one was too late.
    """
    left = Counter()
    lab = crash_lab.of(SCENARIO)
    number, killed = lab.counts()["commit"] - 2, True
    while killed or not left["gone by a kill"]:
        assert left.total() < CASES_MAX, left
        number += 1 if killed else -1
        folder = lab.new_folder("deleted")
        point = ("commit", number)
        status, _, _ = run(folder, point=point, steps=SCENARIO.steps, delete="charger/one")
        killed = status != 0
        status, told, events = run(folder, delete="charger/one")
        assert status == 0
        found = [event for event in events if isinstance(event, Found)]
        assert told == ["deleted" if found else "no worker"]
        for worker in found:
            assert worker.entries
            assert not worker.doubles
        left["whole" if found else "gone by a kill" if killed else "deleted"] += 1
        status, _, events = run(folder, steps=SCENARIO.steps)
        assert status == 0
        assert answers(events) == ANSWERS
    tell(f"deletion killed, {left.total()} cases: {dict(left)}")
    assert left["whole"]
