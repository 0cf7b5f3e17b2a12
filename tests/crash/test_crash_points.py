"""A process is killed at every point of every scenario, and another one goes on."""

import os
import random

import pytest

from tests.support.crash_check import Figures
from tests.support.crash_lab import new_seed
from tests.support.crash_scenarios import scenarios

SCENARIOS = scenarios()
SMALL = tuple(name for name in SCENARIOS if name != "order")
ORDER_POINTS = 40
EVERY_POINT = os.environ.get("SHEM_CRASH_POINTS") == "all"
RECOVERY_PAIRS = 200 if EVERY_POINT else 40
# When their second effect begins, the first is recorded as ended.
ONE_WRITE_AT_A_TIME = ("counter", "failure", "charger", "flaky", "exit", "order")


@pytest.mark.parametrize("name", SMALL)
def test_a_process_killed_at_any_point_loses_and_repeats_nothing(lab, tell, name):
    scenario = SCENARIOS[name]
    points = lab.points(scenario)
    figures = lab.try_chains(scenario, [(point,) for point in points])
    lab.try_beyond(scenario, figures)
    tell(str(figures))
    assert (figures.lost, figures.duplicated) == (0, 0)
    assert figures.recovered == figures.tried > len(points)
    assert figures.killed >= 0.8 * len(points)


def test_the_python_guest_survives_a_kill_at_any_point(lab, tell):
    scenario = SCENARIOS["order"]
    seed = new_seed()
    print("seed", seed)
    points = lab.points(scenario)
    chosen = points if EVERY_POINT else random.Random(seed).sample(points, ORDER_POINTS)
    figures = lab.try_chains(scenario, [(point,) for point in chosen])
    if EVERY_POINT:
        lab.try_beyond(scenario, figures)
    tell(f"{figures}; {len(chosen)} of {len(points)} points, seed {seed}")
    assert (figures.lost, figures.duplicated) == (0, 0)
    assert figures.recovered == figures.tried >= len(chosen)
    assert figures.killed >= 0.8 * len(chosen)


@pytest.mark.parametrize("name", ["counter", "flaky", "pair"])
def test_a_recovery_that_is_killed_is_recovered_from(lab, tell, name):
    scenario = SCENARIOS[name]
    seed = new_seed()
    print("seed", seed)
    chance = random.Random(seed)
    points = lab.points(scenario)
    chains = [(chance.choice(points), early(chance.choice(points))) for _ in range(RECOVERY_PAIRS)]
    figures = lab.try_chains(scenario, chains)
    tell(f"recovery killed, {figures}, seed {seed}")
    assert (figures.lost, figures.duplicated) == (0, 0)
    assert figures.recovered == figures.tried == RECOVERY_PAIRS
    assert figures.killed > 1.3 * RECOVERY_PAIRS


def early(point):
    """A point of the same kind that a process with half the work left is likely to reach."""
    kind, number = point
    return kind, (number + 2) // 3


@pytest.mark.parametrize("point", [("commit", 1), ("commit", 2), ("before-effect", 2)], ids=str)
def test_work_gets_done_though_every_process_is_killed_at_the_same_point(lab, tell, point):
    figures = Figures(f"every process killed at {point[0]}:{point[1]}")
    names = SCENARIOS if point[0] == "commit" else ONE_WRITE_AT_A_TIME
    for name in names:
        scenario = SCENARIOS[name]
        killed = figures.killed
        lab.try_chain_until_done(scenario, point, figures)
        reached = point[1] <= lab.counts(scenario).get(point[0], 0)
        assert (figures.killed > killed) == reached, name
    tell(str(figures))
    assert (figures.lost, figures.duplicated) == (0, 0)
    assert figures.recovered == figures.tried == len(names)
