"""SIGTERM, as what supervisors and `kill` send: the command ends as it does at a Ctrl-C."""

import os
import signal
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio


class Terminated(KeyboardInterrupt):
    """The process got a SIGTERM while it ran, or asked, the executor."""


@asynccontextmanager
async def ended_by_sigterm() -> AsyncIterator[None]:
    """A SIGTERM cancels the block, and `Terminated` is raised. The next one is not waited for: it
    ends the process at once. Outside of the main thread nobody can tell.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    token = trio.lowlevel.current_trio_token()
    scope = trio.CancelScope()

    def cancel(number: int, _frame: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        token.run_sync_soon(scope.cancel)

    answered = signal.signal(signal.SIGTERM, cancel)
    try:
        with scope:
            yield
    finally:
        signal.signal(signal.SIGTERM, answered)
    if scope.cancelled_caught:
        raise Terminated


def end_by_sigterm() -> int:
    """Ends the process by the signal that it got, so that whoever sent it sees so. Answers the
    exit code for where nothing comes of that, as in the first process of a container.
    """
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGTERM)
    return 128 + signal.SIGTERM
