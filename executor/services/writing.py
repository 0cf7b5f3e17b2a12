"""How a service has something written that depends on what it has read."""

from collections.abc import Awaitable, Callable
from enum import Enum

from oplog.engine import Batch


class Written(Enum):
    DONE = "done"
    """It is durable."""
    CHANGED = "changed"
    """A row that the batch expects is another one by now; nothing was written."""
    EXCEEDED = "exceeded"
    """A number would have grown to more than it may; nothing was written."""


WriteBatch = Callable[[Batch, str], Awaitable[Written]]
"""Has a batch written, for whom the text names; in trio. Raises: StoreError."""
