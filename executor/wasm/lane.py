"""Lanes: the threads that run guests.

A lane is a daemon thread with a queue of callables. Everything of an instance (its store, its
futures) is touched only by the lane it was assigned to. A guest that waits is nobody's work until
its answer posts a poll; a guest that computes gives way at an epoch check when others of its lane
have work queued, for which a ticker moves the epoch while, and only while, some lane has both.
This module knows nothing of components.
"""

import os
import sys
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final

SHARE_S: Final = 0.01
"""How long a computing guest keeps its lane while others wait for it."""
LONG_POLL_S: Final = 0.002
"""A guest that ran this long without a wait computes."""
DEFERRED_MAX: Final = 64
"""Deferred work is not held back longer than for so many guests."""


class Lane:
    """One thread and its queue. Made by `Lanes`."""

    def __init__(self, name: str, ask_for_ticks: Callable[[], None]) -> None:
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._ask_for_ticks = ask_for_ticks
        self.assigned_count = 0
        """How many instances were assigned and not released; guarded by `Lanes`."""
        self.busy = False
        """Whether a guest is being polled right now."""
        self._busy_since = 0.0
        self._deferred_since = 0.0
        self._deferred: list[Callable[[], None]] = []
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)

    def post(self, work: Callable[[], None]) -> None:
        """Have `work` run on the lane, after what was posted before. Any thread; never blocks."""
        self._queue.put(work)
        if self.busy:
            self._ask_for_ticks()

    def defer(self, work: Callable[[], None]) -> None:
        """Have `work` run once nothing is queued any more; on the lane.

        For what wakes other threads: while guests are waiting to be polled, each wake-up would take
        the interpreter away from the lane, and what they ask for is done better together.
        """
        if not self._deferred:
            self._deferred_since = time.perf_counter()
        self._deferred.append(work)

    def is_computing(self) -> bool:
        """Whether a guest has been running for a while. Any thread; an estimate."""
        return self.busy and time.perf_counter() - self._busy_since > LONG_POLL_S

    def has_work(self) -> bool:
        """Whether something is queued behind what runs now."""
        return bool(self._deferred) or not self._queue.empty()

    def wants_ticks(self) -> bool:
        """Whether a guest computes while others of the lane have work."""
        return self.busy and self.has_work()

    def mark_busy(self) -> None:
        """A guest is about to be polled; on the lane."""
        self.busy = True
        self._busy_since = time.perf_counter()
        if self.has_work():
            self._ask_for_ticks()

    def stop(self) -> None:
        """End the thread after what is queued."""
        self._queue.put(None)

    def _run(self) -> None:
        queue = self._queue
        deferred = self._deferred
        while True:
            if deferred and (
                queue.empty()
                or len(deferred) >= DEFERRED_MAX
                or time.perf_counter() - self._deferred_since > LONG_POLL_S
            ):
                work: Callable[[], None] | None = self._run_deferred
            else:
                work = queue.get()
            if work is None:
                return
            try:
                work()
            except Exception:
                # What is posted reports its own failures; the lane's other instances go on.
                kind, error, trace = sys.exc_info()
                assert kind is not None
                threading.excepthook(threading.ExceptHookArgs((kind, error, trace, self.thread)))
            self.busy = False

    def _run_deferred(self) -> None:
        deferred = self._deferred
        while deferred:
            deferred.pop(0)()


class Lanes:
    """All lanes of an executor, and the ticker that has computing guests share them."""

    def __init__(self, increment_epoch: Callable[[], None], count: int | None = None) -> None:
        """Start the threads; `count` defaults to the number of CPUs."""
        self._increment_epoch = increment_epoch
        self._lock = threading.Lock()
        self._asked = threading.Event()
        self._closed = False
        self.lanes: Final = tuple(
            Lane(f"lane-{number}", self._ask) for number in range(count or os.cpu_count() or 1)
        )
        self._ticker = threading.Thread(target=self._tick, name="lane-ticker", daemon=True)
        for lane in self.lanes:
            lane.thread.start()
        self._ticker.start()

    def _ask(self) -> None:
        if not self._asked.is_set():
            self._asked.set()

    def assign(self) -> Lane:
        """A lane for an instance; give it back with `release`. Any thread.

        The first lane whose guest does not compute right now: guests that mostly wait share one
        thread, which spares the interpreter from changing threads at every host call, and others
        get a lane of their own. If all compute, the one with the fewest instances.
        """
        with self._lock:
            free = next((lane for lane in self.lanes if not lane.is_computing()), None)
            lane = free or min(self.lanes, key=lambda lane: lane.assigned_count)
            lane.assigned_count += 1
            return lane

    def release(self, lane: Lane) -> None:
        """An instance that was assigned is gone. Any thread."""
        with self._lock:
            lane.assigned_count -= 1

    def close(self) -> None:
        """Run what is queued and end the threads; blocks until they ended.

        Close instances first: a guest that computes for ever never ends.
        """
        self._closed = True
        for lane in self.lanes:
            lane.stop()
        self._asked.set()
        for lane in self.lanes:
            lane.thread.join()
        self._ticker.join()

    def _tick(self) -> None:
        pause = threading.Event()
        while True:
            self._asked.wait()
            self._asked.clear()  # before looking: whoever asks from here on is heard
            if self._closed:
                return
            pause.wait(SHARE_S)
            if any(lane.wants_ticks() for lane in self.lanes):
                self._increment_epoch()
                self._asked.set()
