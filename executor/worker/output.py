"""What one invocation wrote to its stdout and stderr, read back from the log hints."""

from typing import Final

from executor.worker.entries import WorkerEntries
from executor.worker.status import KeyState
from oplog.entry import Log

OUTPUT_BYTES_MAX: Final = 64 * 1024


def read_output(entries: WorkerEntries, state: KeyState) -> tuple[str, str]:
    """The last 64 KiB of stdout and of stderr of one invocation, as committed."""
    written = {"stdout": bytearray(), "stderr": bytearray()}
    index = state.started_index
    last = state.finished_index or float("inf")
    while index <= last and (page := entries.page(index)):
        for index, entry in page:
            if isinstance(entry, Log) and entry.level in written and index <= last:
                text = written[entry.level]
                text += entry.octets if entry.octets is not None else entry.text.encode()
                del text[:-OUTPUT_BYTES_MAX]
        index += 1
    stdout, stderr = (text.decode(errors="replace") for text in written.values())
    return stdout, stderr
