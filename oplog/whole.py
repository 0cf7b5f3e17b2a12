"""Whether the file of a store is as long as what it holds, and not damaged in its header.

The file is mapped: reading a page that lies behind its end kills the process with SIGBUS, so a file
that a copy or a disk has cut short must be found out before. The last transaction says up to where
it numbered pages, but it leaves pages unwritten that it took and gave back, so a file that ends
earlier may be whole. The writer therefore makes the file as long as that after each commit, and a
file that is shorter nevertheless (a crash in between, or a cut) is read through by a child process:
if a page is missing that is needed, be it one of the list of free pages, that kills the child.

A whole file may be damaged all the same: LMDB has no checksums, and some flags and numbers of its
pages end the process that meets them by an assertion or a signal. To look at every page takes as
long as the store is large, so nobody does at an opening; `python -m oplog STORE` does, in a child.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

from oplog.directory import DATA_NAME
from oplog.errors import OplogCorruptError, OplogError
from oplog.header import Meta, read_header
from oplog.room import refusal

READ_THROUGH: Final = (
    "import sys; from oplog.lmdb_engine import read_through; sys.exit(read_through(sys.argv[1]))"
)
DAMAGED: Final = 3
"""How `read_through` ends where LMDB finds pages that contradict one another."""
KILLED_BY_PAGE: Final = (-signal.SIGBUS, -signal.SIGSEGV)
DAMAGED_PAGE: Final = (DAMAGED, *KILLED_BY_PAGE, -signal.SIGABRT)
RESTORE: Final = f"restore {DATA_NAME} from a copy"


def require_header(path: Path) -> Meta:
    """How the file of a store begins. Raises: OplogCorruptError if that is damaged, OplogError if
    it cannot be read.
    """
    try:
        header = read_header(path / DATA_NAME)
    except OSError as error:
        hint = f"{DATA_NAME} must be a file that can be read"
        raise refusal("the store cannot be opened", error, path, hint) from error
    if header is None:
        raise OplogCorruptError(
            f"{DATA_NAME} is damaged at its beginning, or is no file of LMDB",
            where=str(path),
            hint=RESTORE,
        )
    return header


def require_whole(path: Path, header: Meta) -> None:
    """Blocks, for as long as it takes to read the store if its file is shorter than it should be.

    Raises: OplogCorruptError if a page that is needed lies behind its end, OplogError if that
    cannot be found out.
    """
    size = (path / DATA_NAME).stat().st_size
    if size >= header.needed_bytes:
        return
    # What is left of a page that was cut reads as if zeros had been written behind it.
    ended = KILLED_BY_PAGE[0] if size % header.page_bytes else _read_in_child(path)
    if ended in KILLED_BY_PAGE:
        raise OplogCorruptError(
            f"{DATA_NAME} is cut short: it has {size:,} bytes, and {header.needed_bytes:,} belong"
            " to it",
            where=str(path),
            hint=RESTORE,
        )
    _require_read(path, ended)


def require_undamaged(path: Path) -> None:
    """Reads every page of LMDB's, in a child: what kills a process there kills that one. Blocks for
    as long as it takes to read the store; beside a process that runs it, too.

    What the values say is not looked at: who reads one that is damaged is told where it lies.
    Raises: as `require_header` and `require_whole`.
    """
    require_whole(path, require_header(path))
    _require_read(path, _read_in_child(path))


def _require_read(path: Path, ended: int) -> None:
    """Raises: OplogCorruptError, OplogError."""
    if ended in DAMAGED_PAGE:
        raise OplogCorruptError(f"{DATA_NAME} is damaged", where=str(path), hint=RESTORE)
    if ended:
        raise OplogError(
            f"whether {DATA_NAME} is whole was not found out: the process that reads it through"
            f" {_end_text(ended)}",
            where=str(path),
            hint="try again",
        )


def _read_in_child(path: Path) -> int:
    """How a process that reads everything ended: its exit code, or the negative of a signal."""
    return subprocess.run(  # noqa: S603  # this interpreter, our own code
        (sys.executable, "-c", READ_THROUGH, str(path)),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
    ).returncode


def _end_text(ended: int) -> str:
    if ended > 0:
        return f"ended with exit code {ended}"
    return f"was killed by signal {-ended}"


def make_whole(file: Path, needed_bytes: int) -> int:
    """Makes the file as long as it should be; what is added holds nothing. Answers its length."""
    size = file.stat().st_size
    if size < needed_bytes:
        os.truncate(file, needed_bytes)
    return max(size, needed_bytes)
