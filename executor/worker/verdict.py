"""What the invocation loop does next."""

from enum import Enum
from typing import Final


class Verdict(Enum):
    GO_ON = "go on"
    REBUILD = "rebuild"
    SUSPEND = "suspend"
    STAND_STILL = "stand still"
    HOLD = "hold"


ENDING: Final = frozenset({Verdict.SUSPEND, Verdict.STAND_STILL, Verdict.HOLD})
"""After these the loop ends, until it is started again."""
