"""What becomes of a deferred call in replay, by what is recorded of it: one total function.

A deferred call begins with its `start`; its effect runs beside the guest, its `end` comes when the
effect is over, and the guest observes it when it reads the value. Only the observation is an input
of the guest, so only that has to come again at the same point.

| recorded                                | resolution | the replaying guest                      |
|-----------------------------------------|------------|------------------------------------------|
| `end`, `completion-delivered`           | AT_MARKER  | gets the value at the marker             |
| `end`                                   | AT_TAIL    | gets it once its instance is live; the   |
|                                         |            | effect is not repeated                   |
| `end`, `completion-discarded`           | PARKED     | never sees a value, and drops the call   |
| `cancelled`                             | PARKED     | the same                                 |
| `cancelled` with a partial answer       | AT_DROP    | gets the part where it drops the call    |
| nothing                                 | INCOMPLETE | the effect is performed again under the  |
|                                         |            | same start, where its type allows that   |

Anything else cannot have been recorded: the oplog is corrupt.
"""

from enum import Enum

from oplog.entry import ABSENT, Cancelled, CompletionDelivered, CompletionDiscarded, End
from oplog.errors import OplogCorruptError


class Resolution(Enum):
    AT_MARKER = "at marker"
    AT_TAIL = "at tail"
    AT_DROP = "at drop"
    PARKED = "parked"
    INCOMPLETE = "incomplete"


def resolve(
    terminal: End | Cancelled | None, marker: CompletionDelivered | CompletionDiscarded | None
) -> Resolution:
    """Raises: OplogCorruptError for a combination that no session records."""
    match terminal, marker:
        case None, None:
            return Resolution.INCOMPLETE
        case End(), None:
            return Resolution.AT_TAIL
        case End(), CompletionDelivered():
            return Resolution.AT_MARKER
        case End(), CompletionDiscarded():
            return Resolution.PARKED
        case Cancelled(partial=part), None:
            return Resolution.PARKED if part is ABSENT else Resolution.AT_DROP
        case _:
            raise OplogCorruptError(
                f"a call with {type(terminal).__name__} and {type(marker).__name__}"
            )
