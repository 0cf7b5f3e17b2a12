"""The command `shem`: arguments to calls of the library, answers to text or JSON. No logic.

Importing it takes a while. A Ctrl-C meanwhile ends the process at once, in the words and with the
code that it has later; from `main` on it is answered there.
"""

import signal
import threading

from executor.cli.ending import end_at_once

_answered = signal.getsignal(signal.SIGINT)
_replaced = (
    threading.current_thread() is threading.main_thread()
    and _answered is signal.default_int_handler
)
if _replaced:
    signal.signal(signal.SIGINT, lambda number, _: end_at_once(number, "run it again"))

from executor.cli.app import main  # noqa: E402  # only now

if _replaced:
    signal.signal(signal.SIGINT, _answered)

__all__ = ["main"]
