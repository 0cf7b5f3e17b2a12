"""The process's memory: idle instances are given up while it takes too much of it, and while that
helps.

What counts is the process's own: pages of files, as of the store's map, are the machine's to take
back. A machine that does not tell is taken to have enough. What allocators keep, or others than
idle instances have, does not come back by giving up instances, which would all have to replay when
they are needed: they stay until the process has grown by some more.
"""

import ctypes
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import trio

LOOK_EVERY_S: Final = 1.0
SHARE_MAX: Final = 0.8
"""Of what the process may take."""
GROWTH_SHARE: Final = 0.02
"""Of what the process may take: by so much it grows before instances are given up in vain again."""
WORTH_BYTES: Final = 16_384
"""An instance that gives back less is not worth its replay. The smallest programs of C have twice
as much, those of Python five hundred times."""
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


def return_free_memory() -> None:
    """Has the C library return what it keeps of freed memory, if it can; takes milliseconds."""
    with suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


async def relieve_memory(most_bytes: int, unload_idle: Callable[[], int]) -> None:
    """Has idle instances unloaded for as long as the process has more than `most_bytes`, a part at
    a time. `unload_idle` tells how many it gave up; they are left a moment later.
    """
    bar = most_bytes
    while True:
        await trio.sleep(LOOK_EVERY_S)
        before = own_bytes()
        if before <= most_bytes:
            bar = most_bytes
        if before <= bar:
            continue
        count = unload_idle()
        await trio.sleep(LOOK_EVERY_S)
        await trio.to_thread.run_sync(return_free_memory)
        after = own_bytes()
        helped = count > 0 and before - after >= count * WORTH_BYTES
        bar = most_bytes if helped else after + int(GROWTH_SHARE * most_bytes)
