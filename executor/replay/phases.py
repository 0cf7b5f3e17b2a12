"""The three phases of an instance, as a table.

Replaying: answers come from the oplog. Settling: the cursor is exhausted, which is an observation
and not yet liveness. Live: published under the worker's lock; only now may an effect start.
"""

from enum import Enum
from typing import Final

from executor.errors import InternalError


class Phase(Enum):
    REPLAYING = "replaying"
    SETTLING = "settling"
    LIVE = "live"


class PhaseEvent(Enum):
    DRAINED = "drained"
    """No visible, unconsumed guest-driven entry is left up to the target."""
    NEW_HISTORY = "new history"
    """The target moved and guest-driven entries lie before the new one."""
    VALIDATED = "validated"
    """Every replayed outcome matched and the target has not moved."""


TRANSITIONS: Final[dict[tuple[Phase, PhaseEvent], Phase]] = {
    (Phase.REPLAYING, PhaseEvent.DRAINED): Phase.SETTLING,
    (Phase.SETTLING, PhaseEvent.NEW_HISTORY): Phase.REPLAYING,
    (Phase.SETTLING, PhaseEvent.VALIDATED): Phase.LIVE,
}


def next_phase(phase: Phase, event: PhaseEvent) -> Phase:
    """The phase after `event`. Raises InternalError for a step that is not in the table."""
    try:
        return TRANSITIONS[phase, event]
    except KeyError:
        raise InternalError(f"no transition from {phase.value} on {event.value}") from None
