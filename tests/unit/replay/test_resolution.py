"""The table of what becomes of a deferred call, a test a row."""

import pytest

from executor.replay.resolution import Resolution, resolve
from oplog.entry import Cancelled, CompletionDelivered, CompletionDiscarded, End, Raw
from oplog.errors import OplogCorruptError

AT = 1
END = End(at=AT, start_index=4)
CANCELLED = Cancelled(at=AT, start_index=4)
PARTLY = Cancelled(at=AT, start_index=4, partial=Raw(b"\x01"))
DELIVERED = CompletionDelivered(at=AT, start_index=4)
DISCARDED = CompletionDiscarded(at=AT, start_index=4)

TABLE = [
    ((None, None), Resolution.INCOMPLETE),
    ((END, None), Resolution.AT_TAIL),
    ((END, DELIVERED), Resolution.AT_MARKER),
    ((END, DISCARDED), Resolution.PARKED),
    ((CANCELLED, None), Resolution.PARKED),
    ((PARTLY, None), Resolution.AT_DROP),
]


@pytest.mark.parametrize("terminal", [None, END, CANCELLED, PARTLY])
@pytest.mark.parametrize("marker", [None, DELIVERED, DISCARDED])
def test_every_combination_has_its_row_or_is_corrupt(terminal, marker):
    expected = next((found for row, found in TABLE if row == (terminal, marker)), None)
    if expected is None:
        with pytest.raises(OplogCorruptError):
            resolve(terminal, marker)
    else:
        assert resolve(terminal, marker) is expected
