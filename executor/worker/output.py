"""What guests write to stdout and stderr and log, as text, and read back from the log hints."""

from typing import Final

from executor.worker.entries import WorkerEntries
from executor.worker.status import KeyState
from oplog.entry import Log

OUTPUT_BYTES_MAX: Final = 64 * 1024
STREAMS: Final = frozenset({"stdout", "stderr"})


def output_text(line: Log) -> bytes:
    """What was written, as it is; a message of wasi:logging as a line of its own."""
    if line.level in STREAMS:
        return line.octets if line.octets is not None else line.text.encode()
    about = f"{line.context}: " if line.context else ""
    return f"{line.level.upper():<5} {about}{line.text}\n".encode()


def read_output(entries: WorkerEntries, state: KeyState) -> tuple[str, str]:
    """The last 64 KiB of stdout and of stderr of one invocation, as committed; log messages stand
    among stderr.
    """
    written = {"stdout": bytearray(), "stderr": bytearray()}
    index = state.started_index
    last = state.finished_index or float("inf")
    while index <= last and (page := entries.page(index)):
        for index, entry in page:
            if isinstance(entry, Log) and index <= last:
                text = written["stdout" if entry.level == "stdout" else "stderr"]
                text += output_text(entry)
                del text[:-OUTPUT_BYTES_MAX]
        index += 1
    stdout, stderr = (text.decode(errors="replace") for text in written.values())
    return stdout, stderr
