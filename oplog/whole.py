"""Whether the file of a store is as long as what it holds.

The file is mapped: reading a page that lies behind its end kills the process with SIGBUS, so a file
that a copy or a disk has cut short must be found out before. The last transaction says up to where
it numbered pages, but it leaves pages unwritten that it took and gave back, so a file that ends
earlier may be whole. The writer therefore makes the file as long as that after each commit, and a
file that is shorter nevertheless (a crash in between, or a cut) is read through by a child process:
if that is killed, pages are missing. What the child cannot read, the list of free pages, only a
writer needs: it makes the file longer first, and LMDB then finds those pages damaged.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from oplog.errors import OplogCorruptError

READ_THROUGH: Final = (
    "import sys; from oplog.lmdb_engine import read_through; read_through(sys.argv[1])"
)


def require_whole(path: Path, file: Path, needed_bytes: int) -> None:
    """Blocks, for as long as it takes to read the store if its file is shorter than what it should
    be. Raises: OplogCorruptError if a page that is needed lies behind its end.
    """
    size = file.stat().st_size
    if size >= needed_bytes:
        return
    child = subprocess.run(  # noqa: S603  # this interpreter, our own code
        (sys.executable, "-c", READ_THROUGH, str(path)),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    if child.returncode < 0:
        raise OplogCorruptError(
            f"{file} is cut short: it has {size:,} bytes, and {needed_bytes:,} belong to it"
        )


def make_whole(file: Path, needed_bytes: int) -> int:
    """Makes the file as long as it should be; what is added holds nothing. Answers its length."""
    size = file.stat().st_size
    if size < needed_bytes:
        os.truncate(file, needed_bytes)
    return max(size, needed_bytes)
