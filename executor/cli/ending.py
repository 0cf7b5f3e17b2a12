"""Ending the process at once because of a signal, in one line. Imports nothing that takes a while.

What runs then is lost as at a crash: what was accepted is not.
"""

import os
import signal
import sys
from contextlib import suppress

INTERRUPTED = 130
SHAPE = '{"kind": "interrupted", "message": "%s", "where": "", "hint": "%s"}'


def end_at_once(number: int, hint: str) -> None:
    """For a signal's handler. After a SIGTERM the process ends by it, so that whoever sent it sees
    so; the first process of a container cannot.
    """
    message = "ended by SIGTERM" if number == signal.SIGTERM else "interrupted"
    line = SHAPE % (message, hint) if "--json" in sys.argv else f"shem: {message}: {hint}"
    with suppress(OSError):  # then the exit code says it all
        os.write(2, f"{line}\n".encode())
    if number == signal.SIGTERM:
        end_by_sigterm()
    os._exit(INTERRUPTED)


def end_by_sigterm() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGTERM)
