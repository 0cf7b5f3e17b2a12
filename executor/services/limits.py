"""What a worker may take of memory, tables and files.

A guest sees a limit when it meets it, so limits are part of what it was answered: they are recorded
in the worker's first entry, by the names and in the units below, and a deployment with others makes
a new revision. A limit that is not recorded is as it has always been: none for memories and tables,
for files what `FileLimits` says.

| limit        | of                            | recorded as      | who meets it                   |
|--------------|-------------------------------|------------------|--------------------------------|
| `memory`     | bytes of each linear memory   | `memory_bytes`   | `memory.grow` answers -1       |
| `tables`     | elements of each table        | `table_elements` | `table.grow` answers -1        |
| `files`      | bytes of all files together   | `files_bytes`    | the error-code `quota`         |
| `file-count` | names in all directories      | `files_count`    | the error-code `quota`         |
"""

from collections.abc import Mapping
from typing import Final

from executor.errors import UsageError
from executor.services.files_nodes import FileLimits

PAGE_BYTES: Final = 65_536
"""A memory is at least one page, or nothing."""


RECORDED: Final = {
    "memory": "memory_bytes",
    "tables": "table_elements",
    "files": "files_bytes",
    "file-count": "files_count",
}
LIMIT_MAX: Final = 2**63 - 1


def recorded_limits(asked: Mapping[str, int]) -> dict[str, int]:
    """The limits of a deployment as its workers record them. Raises: UsageError."""
    for name, size in asked.items():
        if name not in RECORDED:
            raise UsageError(
                f"there is no limit {name!r}", where="deploy", hint=f"one of {', '.join(RECORDED)}"
            )
        if name == "memory" and size < PAGE_BYTES:
            raise UsageError(
                f"a limit of {size} bytes is less than one page of {PAGE_BYTES} bytes",
                where=f"limit {name}",
                hint="write the unit, as memory=64MiB",
            )
        if not 0 <= size <= LIMIT_MAX:
            raise UsageError(
                f"a limit of {size} is too {'large' if size > 0 else 'small'}",
                where=f"limit {name}",
                hint=f"give a number from 0 to {LIMIT_MAX}",
            )
    return {RECORDED[name]: size for name, size in asked.items()}


def file_limits(recorded: Mapping[str, int]) -> FileLimits:
    first = FileLimits()
    return FileLimits(
        bytes_max=recorded.get("files_bytes", first.bytes_max),
        entries_max=recorded.get("files_count", first.entries_max),
    )
