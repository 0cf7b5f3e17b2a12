"""What guests write to their stdout and stderr, passed on to stderr as it commits."""

import sys
from typing import Final

STREAMS: Final = frozenset({"stdout", "stderr"})


def write_guest_output(_worker: str, level: str, text: bytes) -> None:
    """The guest's own bytes, unchanged; messages of its logging are not output."""
    if level in STREAMS:
        sys.stderr.flush()
        sys.stderr.buffer.write(text)
        sys.stderr.buffer.flush()
