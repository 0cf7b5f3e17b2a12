"""The phases of an instance are a table, and nothing else."""

from itertools import product

import pytest

from executor.errors import InternalError
from executor.replay.phases import TRANSITIONS, Phase, PhaseEvent, next_phase

LEGAL = {
    (Phase.REPLAYING, PhaseEvent.DRAINED): Phase.SETTLING,
    (Phase.SETTLING, PhaseEvent.NEW_HISTORY): Phase.REPLAYING,
    (Phase.SETTLING, PhaseEvent.VALIDATED): Phase.LIVE,
}


@pytest.mark.parametrize(("phase", "event"), list(product(Phase, PhaseEvent)))
def test_a_step_is_in_the_table_or_an_internal_error(phase, event):
    if (phase, event) in LEGAL:
        assert next_phase(phase, event) is LEGAL[phase, event]
        return
    with pytest.raises(InternalError, match=f"no transition from {phase.value} on {event.value}"):
        next_phase(phase, event)


def test_live_is_reached_through_settling_only_and_never_left():
    assert [before for before, _ in TRANSITIONS if TRANSITIONS[before, _] is Phase.LIVE] == [
        Phase.SETTLING
    ]
    assert not any(phase is Phase.LIVE for phase, _ in TRANSITIONS)
