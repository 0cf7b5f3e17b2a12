"""What ends a command that runs, or asks, the executor: Ctrl-C, and SIGTERM."""

import signal
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import FrameType
from typing import Final

import trio

from executor.cli.ending import end_at_once

GOES_ON: Final = "what was accepted goes on when its worker is named again, or with `shem run`"


class Terminated(KeyboardInterrupt):
    """The process got a SIGTERM."""


@asynccontextmanager
async def ended_by_signals() -> AsyncIterator[None]:
    """A SIGTERM cancels the block, and `Terminated` is raised; a Ctrl-C is trio's, which raises it
    when the task waits next. A second signal ends the process at once: a host function that should
    wait and does not holds the first one up. Outside of the main thread there are no signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    token = trio.lowlevel.current_trio_token()
    scope = trio.CancelScope()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    received: list[int] = []

    def answer(number: int, frame: FrameType | None) -> None:
        if received:
            end_at_once(number, GOES_ON)
        received.append(number)
        interrupt = before[signal.SIGINT]
        if number == signal.SIGINT and callable(interrupt):
            interrupt(number, frame)
        else:
            token.run_sync_soon(scope.cancel)

    try:
        for number, answered in before.items():
            if answered != signal.SIG_IGN:
                signal.signal(number, answer)
        with scope:
            yield
    finally:
        for number, answered in before.items():
            signal.signal(number, answered)
    if scope.cancelled_caught:
        raise Terminated
