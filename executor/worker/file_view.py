"""A worker's files, seen from outside.

They live in an instance only, and the living one may be anywhere. So an instance is rebuilt beside
it, and looked at where the committed history ends: after the last recorded call was answered, and
before the guest does anything that a crash could still undo.
"""

from typing import Final

from msgspec.structs import replace

from executor.errors import UnknownFile
from executor.host.state import HostState
from executor.records import FileRecord, WorkerFile
from executor.services.files import FileTree
from executor.services.files_nodes import ROOT, FileError, FileErrorCode
from executor.worker.rebuild import raise_divergence, rebuilt, stop_text
from executor.worker.worker import Worker

LATEST_NS: Final = 253_402_300_800 * 1_000_000_000 - 1
"""The end of the year 9999. A guest may set a later time, which no text of RFC 3339 can name."""
WHY: Final[dict[FileErrorCode, str]] = {
    "no-entry": "there is nothing",
    "not-directory": "it leads through something that is no directory",
    "not-permitted": "it leads out of the worker's files",
    "loop": "it leads through too many symbolic links",
    "name-too-long": "the path or a name in it is too long",
    "invalid": "a path holds no NUL",
}


async def read_file(worker: Worker, path: str) -> WorkerFile:
    """What is at `path`, taken from the root, once everything committed is replayed.

    Raises: UnknownFile, Divergence, ReplayPanic, StoreError.
    """
    seen: list[WorkerFile | UnknownFile] = []

    def look(state: HostState) -> None:
        try:
            seen.append(view(state.files, worker.name, path))
        except UnknownFile as refusal:
            seen.append(refusal)

    async with rebuilt(worker, on_target=look) as (resident, end):
        raise_divergence(end, worker.name)
        if not seen:
            look(resident.state)
    if isinstance(seen[0], UnknownFile):
        raise seen[0]
    return replace(seen[0], stopped_at=stop_text(end))


def view(files: FileTree, worker: str, path: str) -> WorkerFile:
    """Raises: UnknownFile."""
    if path.encode(errors="ignore").decode() != path:
        raise UnknownFile(
            f"{path!r} is not Unicode text", where=worker, hint="names of files are UTF-8"
        )
    try:
        inode = files.lookup(ROOT, path.lstrip("/") or ".", follow=True)
    except FileError as refusal:
        raise UnknownFile(
            f"no file {path!r}: {WHY.get(refusal.code, refusal.code)}",
            where=worker,
            hint=f"see `shem files {worker} /`",
        ) from refusal
    entries: tuple[FileRecord, ...] | None = None
    content: bytes | None = None
    file = record(files, inode, path.rstrip("/").rpartition("/")[2] or "/")
    if file.kind == "directory":
        entries = tuple(
            record(files, files.lookup(inode, name, follow=False), name)
            for name, _ in files.listing(inode)
        )
    else:
        content = files.read(inode, 0, file.size)
    return WorkerFile(worker=worker, path=path, file=file, entries=entries, content=content)


def record(files: FileTree, inode: int, name: str) -> FileRecord:
    stat = files.stat(inode)
    return FileRecord(
        name=name,
        kind=stat.kind,
        size=stat.size,
        links=stat.links,
        writable=stat.writable,
        accessed_at=min(stat.accessed_ns, LATEST_NS),
        modified_at=min(stat.modified_ns, LATEST_NS),
        changed_at=stat.changed_ns,
        target=stat.target,
    )
