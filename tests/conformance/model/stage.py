"""Runs an executor for whoever asks step by step, from a thread without trio."""

import queue
import threading
from collections.abc import Awaitable, Callable
from typing import Final

import trio

from executor import Executor
from tests.conformance.model.life import Life
from tests.conformance.model.subject import Fuse, KilledError, Subject

Step = Callable[[Executor], Awaitable[None]]
STEP_TIMEOUT_S: Final = 60


class Stage:
    """One store with one life in it. After a kill the executor is opened again by itself."""

    def __init__(self, seed: int = 0) -> None:
        self.subject = Subject(seed)
        self.life = Life(self.subject, "w")
        self.choose: Callable[[int, int], int] | None = None
        """How much of the worker the next kill leaves, of least to most."""
        self.kills = 0
        self._asked: queue.SimpleQueue[Step | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        self._fuse = Fuse()
        self._thread = threading.Thread(target=trio.run, args=(self._play,), daemon=True)
        self._thread.start()

    def run(self, step: Step, fuse: Fuse | None = None) -> None:
        """Has one step done; a kill on the way ends it. Raises what the step raises."""
        if fuse is not None:
            self._fuse.kind, self._fuse.left = fuse.kind, fuse.left
        self._asked.put(step)
        error = self._answers.get(timeout=STEP_TIMEOUT_S)
        if error is not None:
            raise error

    def close(self) -> None:
        """Ends the executor and its thread."""

        async def let_go(_shem: Executor) -> None:
            self.life.outside.hold_at = 0
            self.life.outside.release()

        if self._thread.is_alive():
            self.run(let_go)
            self._asked.put(None)
        self._thread.join()

    async def _play(self) -> None:
        await self.subject.deploy()
        while True:
            try:
                async with self.subject.opened(self._fuse) as shem:
                    while (step := await trio.to_thread.run_sync(self._asked.get)) is not None:
                        try:
                            await step(shem)
                        except Exception as error:
                            self._answers.put(error)
                        else:
                            self._answers.put(None)
                    return
            except KilledError:
                self._fuse = Fuse()
                self._answers.put(self._bury())

    def _bury(self) -> BaseException | None:
        self.kills += 1
        self.life.outside.hold_at = 0
        try:
            self.life.after_kill(self.choose)
        except Exception as error:
            return error
        return None
