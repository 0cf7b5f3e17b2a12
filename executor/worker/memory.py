"""The process's memory: idle instances are given up while it takes too much of it.

What counts is the process's own: pages of files, as of the store's map, are the machine's to take
back. A machine that does not tell is taken to have enough.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import trio

LOOK_EVERY_S: Final = 1.0
SHARE_MAX: Final = 0.8
"""Of what the process may take."""
LIMITS: Final = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)
"""Where a container's limit stands, in the second and in the first version of control groups."""
USED: Final = Path("/proc/self/statm")


def own_bytes() -> int:
    """What the process has in memory and shares with no file; 0 if the machine does not tell."""
    with suppress(OSError, ValueError, IndexError):
        _, resident, shared, *_ = map(int, USED.read_text().split())
        return max(0, resident - shared) * os.sysconf("SC_PAGE_SIZE")
    return 0


def bearable_bytes() -> int:
    """The part of the machine's memory, or of the container's, that the process may fill."""
    found = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for limit in LIMITS:
        with suppress(OSError, ValueError):  # there is none, or it is `max`
            found.append(int(limit.read_text()))
    return int(SHARE_MAX * min(found))


async def relieve_memory(most_bytes: int, unload_idle: Callable[[], None]) -> None:
    """Has idle instances unloaded for as long as the process has more than `most_bytes`."""
    while True:
        await trio.sleep(LOOK_EVERY_S)
        if own_bytes() > most_bytes:
            unload_idle()
