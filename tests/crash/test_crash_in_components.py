"""A process is killed while it deploys a component or deletes a worker."""

from msgspec import structs

from tests.support.crash_lab import events_of
from tests.support.crash_plan import Delete, Deleted, Deploy, Deployed, Found, Outcome
from tests.support.crash_scenarios import scenarios

SCENARIO = scenarios()["charger"]


def run(lab, plan, point=None):
    """The exit code of a child, and what it reported."""
    before = len(events_of(plan))
    status = lab.run_child(structs.replace(plan, point=point))
    return status, events_of(plan)[before:]


def test_a_killed_deployment_is_there_or_not_and_can_be_made_again(lab):
    for point, revisions in ((("commit", 1), [0]), (None, [0, 0])):
        folder = lab.new_empty_folder("deploy")
        wasm = folder / "component.wasm"
        wasm.write_bytes(SCENARIO.wasm())
        deploy = Deploy(path=str(wasm), name="charger")
        plan = structs.replace(lab.plan(SCENARIO, folder), steps=(deploy,), queries=())
        status, events = run(lab, plan, point)
        assert (status == 0) == (point is None)
        again = structs.replace(plan, steps=(deploy, *SCENARIO.steps))
        status, events = run(lab, again)
        assert status == 0
        found = [event.revision for event in events_of(plan) if isinstance(event, Deployed)]
        assert found == revisions
        assert [event.wave for event in events if isinstance(event, Outcome)] == ["2", "3"]


def test_a_killed_deletion_leaves_the_whole_worker_or_nothing_of_it(lab, tell):
    left = []
    killed = True
    number = lab.counts(SCENARIO)["commit"] - 1
    while killed:
        number += 1
        folder = lab.new_folder(SCENARIO)
        plan = structs.replace(lab.plan(SCENARIO, folder), queries=())
        deleting = structs.replace(plan, steps=(*SCENARIO.steps, Delete(worker="charger/one")))
        status, _ = run(lab, deleting, ("commit", number))
        killed = status != 0
        status, events = run(lab, structs.replace(deleting, steps=(Delete(worker="charger/one"),)))
        assert status == 0
        found = [event for event in events if isinstance(event, Found)]
        deleted = [event.found for event in events if isinstance(event, Deleted)]
        assert deleted == [bool(found)]
        for worker in found:
            assert [entry.index for entry in worker.lines] == list(range(1, len(worker.lines) + 1))
        left.append(bool(found))
        status, events = run(lab, structs.replace(plan, verify=True))
        assert status == 0
        assert [event.wave for event in events if isinstance(event, Outcome)] == ["2", "3"]
    gone = left.count(False)
    tell(f"deletion killed, {len(left)} cases: worker whole in {sum(left)}, gone in {gone}")
    assert True in left
    assert left[-2:] == [False, False]
