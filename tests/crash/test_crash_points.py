"""A process is killed at every point of every scenario, and another one goes on."""

import os
import random

import pytest

from executor.torture.figures import Figures
from tests.support.crash_lab import count, new_seed
from tests.support.crash_scenarios import scenarios

SCENARIOS = scenarios()
SMALL = tuple(name for name in SCENARIOS if name != "order")
ORDER_POINTS = 40
EVERY_POINT = os.environ.get("SHEM_CRASH_POINTS") == "all"
RECOVERY_PAIRS = 200 if EVERY_POINT else 40
# When their second effect begins, the first is recorded as ended.
ONE_WRITE_AT_A_TIME = ("counter", "failure", "charger", "flaky", "exit", "order")


def try_all(lab, points):
    """Tries a case for each point, and those beyond the last that was counted."""
    figures = Figures(lab.trial.name)
    for tried in lab.try_chains([(point,) for point in points]):
        count(figures, tried)
    return figures


def try_beyond(lab, figures):
    for kind in ("append", "commit"):
        for tried in lab.try_beyond(kind):
            count(figures, tried)


@pytest.mark.parametrize("name", SMALL)
def test_a_process_killed_at_any_point_loses_and_repeats_nothing(crash_lab, tell, name):
    lab = crash_lab.of(SCENARIOS[name])
    points = lab.points()
    figures = try_all(lab, points)
    try_beyond(lab, figures)
    tell(str(figures))
    assert (figures.lost, figures.duplicated) == (0, 0)
    assert figures.recovered == figures.tried > len(points)
    assert figures.killed >= 0.8 * len(points)


def test_the_python_guest_survives_a_kill_at_any_point(crash_lab, tell):
    lab = crash_lab.of(SCENARIOS["order"])
    seed = new_seed()
    print("seed", seed)
    points = lab.points()
    chosen = points if EVERY_POINT else random.Random(seed).sample(points, ORDER_POINTS)
    figures = try_all(lab, chosen)
    if EVERY_POINT:
        try_beyond(lab, figures)
    tell(f"{figures}; {len(chosen)} of {len(points)} points, seed {seed}")
    assert (figures.lost, figures.duplicated) == (0, 0)
    assert figures.recovered == figures.tried >= len(chosen)
    assert figures.killed >= 0.8 * len(chosen)


@pytest.mark.parametrize("name", ["counter", "flaky", "pair"])
def test_a_recovery_that_is_killed_is_recovered_from(crash_lab, tell, name):
    lab = crash_lab.of(SCENARIOS[name])
    seed = new_seed()
    print("seed", seed)
    chance = random.Random(seed)
    points = chance.choices(lab.points(), k=RECOVERY_PAIRS)
    figures = Figures(name)
    for tried in lab.try_chains(lab.chains(points, 1, chance)):
        count(figures, tried)
    tell(f"recovery killed, {figures}, seed {seed}")
    assert (figures.lost, figures.duplicated) == (0, 0)
    assert figures.recovered == figures.tried == RECOVERY_PAIRS
    assert figures.killed > 1.3 * RECOVERY_PAIRS


@pytest.mark.parametrize("point", [("commit", 1), ("commit", 2), ("before-effect", 2)], ids=str)
def test_work_gets_done_though_every_process_is_killed_at_the_same_point(crash_lab, tell, point):
    figures = Figures(f"every process killed at {point[0]}:{point[1]}")
    names = SCENARIOS if point[0] == "commit" else ONE_WRITE_AT_A_TIME
    for name in names:
        lab = crash_lab.of(SCENARIOS[name])
        tried = lab.try_until_done(point)
        count(figures, tried)
        reached = point[1] <= lab.counts().get(point[0], 0)
        assert (tried.case.killed > 0) == reached, name
    tell(str(figures))
    assert (figures.lost, figures.duplicated) == (0, 0)
    assert figures.recovered == figures.tried == len(names)
