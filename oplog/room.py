"""Whether a failed write failed for want of room.

A write that the system cuts short is reported as an I/O error by those who do not try the rest, so
the error alone cannot tell a full disk from a broken one; the file system can.
"""

import errno
import os
import resource
from pathlib import Path
from typing import Final

from oplog.errors import OplogError, OplogFullError

NO_ROOM: Final = "no room on the disk of the store"
MORE_FILES: Final = "have more files open at a time (`ulimit -n`)"
_FULL_ERRORS: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_SPARE_BYTES: Final = 1 << 20
"""What a transaction writes beside its content: copied branches, the list of free pages."""


def is_full(code: int | None) -> bool:
    """Whether an error number says by itself that there is no room."""
    return code in _FULL_ERRORS


def is_cut_short(code: int | None) -> bool:
    """Whether an error number can come from a write that had room for a part only."""
    return code == errno.EIO


def is_out_of_files(code: int | None) -> bool:
    """Whether an error number says that the process, or the machine, has too many files open."""
    return code in {errno.EMFILE, errno.ENFILE}


def refusal(what: str, error: OSError, path: Path, hint: str) -> OplogError:
    """What a failure of the system at a store means: `what`, unless the disk is full. The hint is
    for what is not plain by its error.
    """
    if is_full(error.errno):
        return OplogFullError(NO_ROOM, where=str(path))
    if is_out_of_files(error.errno):
        hint = MORE_FILES
    return OplogError(f"{what}: {error.strerror}", where=str(path), hint=hint)


def has_room(path: Path, needed_bytes: int) -> bool:
    """Whether the file could grow by so much, by its disk and by the process's limit on file sizes.

    What cannot be asked counts as room.
    """
    wanted = 2 * needed_bytes + _SPARE_BYTES
    try:
        system = os.statvfs(path)
        size = path.stat().st_size
    except OSError:
        return True
    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if limit != resource.RLIM_INFINITY and size + wanted > limit:
        return False
    return system.f_bavail * system.f_frsize >= wanted
