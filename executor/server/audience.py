"""Who listens to the guests' output: this process, and those that asked it for something.

A listener that does not read is not waited for: what its queue has no room for is left out, and
counted. All methods are for the trio thread.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import msgspec
import trio

from executor.records import Accepted
from executor.worker.worker import OnOutput
from executor.world import ignore_output, log_report

EVENTS_MAX: Final = 4_096


class Output(msgspec.Struct, frozen=True):
    """Committed output of a guest."""

    worker: str
    level: str
    text: bytes


class Report(msgspec.Struct, frozen=True):
    """What belongs to no caller: a worker that stands still."""

    text: str


class Progress(msgspec.Struct, frozen=True):
    """Which stage a deployment is in."""

    stage: str


class Taken(msgspec.Struct, frozen=True):
    """An invocation is accepted; its outcome follows."""

    accepted: Accepted


Event = Output | Report | Progress | Taken

ALL_WORKERS: Final = ""
"""Hears every worker, and the reports besides."""


class Listener:
    """One that asked, and what it is told until its answer is there."""

    def __init__(self, worker: str | None) -> None:
        self.worker = worker
        """Whose output it hears, if any."""
        self.left_out = 0
        self.ended = False
        self._send, self.events = trio.open_memory_channel[Event](EVENTS_MAX)

    def hear(self, event: Event) -> None:
        try:
            self._send.send_nowait(event)
        except trio.WouldBlock:
            self.left_out += 1
        except trio.ClosedResourceError:
            return  # it has its answer

    def end(self) -> None:
        """Nothing comes any more: `events` ends behind what is in it."""
        self.ended = True
        self._send.close()


class Audience:
    """Passes on what the executor tells, first to this process."""

    def __init__(
        self, on_output: OnOutput | None = None, report: Callable[[str], None] | None = None
    ) -> None:
        self._on_output = on_output or ignore_output
        self._report = report or log_report
        self._listeners: list[Listener] = []

    def on_output(self, worker: str, level: str, text: bytes) -> None:
        self._on_output(worker, level, text)
        for listener in self._listeners:
            if listener.worker in (ALL_WORKERS, worker):
                listener.hear(Output(worker, level, text))

    def report(self, text: str) -> None:
        self._report(text)
        for listener in self._listeners:
            if listener.worker == ALL_WORKERS:
                listener.hear(Report(text))

    @contextmanager
    def listening(self, worker: str | None) -> Iterator[Listener]:
        listener = Listener(worker)
        self._listeners.append(listener)
        try:
            yield listener
        finally:
            self._listeners.remove(listener)
