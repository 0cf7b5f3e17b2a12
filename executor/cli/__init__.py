"""The command `shem`: arguments to calls of the library, answers to text or JSON. No logic.

Importing it takes a while. A Ctrl-C meanwhile ends the process as it ends any other, without the
traceback of an import; from `main` on it is answered in words.
"""

import signal
import threading

_main_thread = threading.current_thread() is threading.main_thread()
_answered = signal.signal(signal.SIGINT, signal.SIG_DFL) if _main_thread else None

from executor.cli.app import main  # noqa: E402  # only now

if _main_thread:
    signal.signal(signal.SIGINT, _answered)

__all__ = ["main"]
