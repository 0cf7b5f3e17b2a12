"""What guests write and log, passed on to stderr as it commits."""

import sys
from contextlib import suppress


def write_guest_output(_worker: str, _level: str, text: bytes) -> None:
    """The guest's own bytes, unchanged, and its log messages as lines. What stderr does not take is
    in the oplog.
    """
    with suppress(OSError):
        sys.stderr.flush()
        sys.stderr.buffer.write(text)
        sys.stderr.buffer.flush()
