"""A process is killed at every point of every scenario, and another one goes on."""

import os
import random

import pytest

from tests.support.crash_lab import new_seed
from tests.support.crash_scenarios import scenarios

SCENARIOS = scenarios()
SMALL = tuple(name for name in SCENARIOS if name != "order")
ORDER_POINTS = 40
EVERY_POINT = os.environ.get("SHEM_CRASH_POINTS") == "all"


@pytest.mark.parametrize("name", SMALL)
def test_a_process_killed_at_any_point_loses_and_repeats_nothing(lab, tell, name):
    scenario = SCENARIOS[name]
    points = lab.points(scenario)
    figures = lab.try_chains(scenario, [(point,) for point in points])
    tell(str(figures))
    assert (figures.lost, figures.duplicated) == (0, 0)
    assert figures.recovered == figures.tried == len(points)
