"""The command `shem`: arguments to calls of the library, answers to text or JSON. No logic.

Importing it takes a while. A Ctrl-C meanwhile ends the process at once, in the words and with the
code that it has later; from `main` on it is answered there.
"""

import json
import os
import signal
import sys
import threading
from contextlib import suppress


def _end(_signal: int, _frame: object) -> None:
    error = {"kind": "interrupted", "message": "interrupted", "where": "", "hint": "run it again"}
    line = json.dumps(error) if "--json" in sys.argv else "shem: interrupted: run it again"
    with suppress(OSError):
        os.write(2, f"{line}\n".encode())
    os._exit(130)


_answered = signal.getsignal(signal.SIGINT)
_replaced = (
    threading.current_thread() is threading.main_thread()
    and _answered is signal.default_int_handler
)
if _replaced:
    signal.signal(signal.SIGINT, _end)

from executor.cli.app import main  # noqa: E402  # only now

if _replaced:
    signal.signal(signal.SIGINT, _answered)

__all__ = ["main"]
