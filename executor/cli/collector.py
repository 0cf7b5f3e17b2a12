"""How often Python's collector of cycles looks through memory.

It counts what is made and not yet freed, and takes 700 objects for a sign of garbage. With dozens
of guests under way as many are in use at any time, so it would look through them at every other
step and find nothing: a call leaves no cycle behind. For a process that does nothing else; a
library does not decide this for its embedder.
"""

import gc
from typing import Final

OBJECTS_IN_USE: Final = 10_000
"""What a thousand guests under way have between two waits."""


def settle_collector() -> None:
    """Modules and types are never looked at again, and the rest when there is much of it."""
    gc.freeze()
    gc.set_threshold(OBJECTS_IN_USE, *gc.get_threshold()[1:])
