"""Effects: what a durable call does beside the guest, in trio.

The lane that runs the guest never waits. It starts an effect here, and the effect's end is
delivered to a callback on the trio thread. `perform` is the one way to the outside world; a wrapper
around it sees every effect (that is how crash points are made).
"""

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec
import trio

from executor.durable.commit_soon import CommitSoon
from executor.durable.inbox import Bell
from oplog.store import Writer


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """One effect of one durable call."""

    function: str
    function_type: str
    key: str
    """The derived idempotency key: the same in every attempt."""
    run: Callable[[], Awaitable[object]]


Perform = Callable[[Effect], Awaitable[object]]
EffectDone = Callable[[object, BaseException | None], None]
"""Called once on the trio thread with the answer or the error; not at all if cancelled."""


async def perform_effect(effect: Effect) -> object:
    return await effect.run()


class EffectHandle:
    """An effect that was asked for. For the trio thread."""

    __slots__ = ("_finished", "_scope", "cancelled", "done", "effect", "ended")

    def __init__(self, effect: Effect, done: EffectDone) -> None:
        self.effect = effect
        self.done = done
        self.cancelled = False
        self.ended = False
        self._scope: trio.CancelScope | None = None
        self._finished: trio.Event | None = None

    def begin(self, scope: trio.CancelScope) -> None:
        self._scope = scope

    def end(self) -> None:
        self.ended = True
        self._scope = None
        if self._finished is not None:
            self._finished.set()

    def cancel(self) -> None:
        """The effect stops at its next checkpoint, or never starts."""
        self.cancelled = True
        if self._scope is not None:
            self._scope.cancel()

    async def wait(self) -> None:
        """Until the effect has ended in whatever way."""
        if not self.ended:
            self._finished = self._finished or trio.Event()
            await self._finished.wait()


class EffectRunner(Protocol):
    """What a session needs of the world."""

    def start(self, effect: Effect, done: EffectDone) -> EffectHandle:
        """Starts `effect` in trio; callable from any thread, never blocks."""

    def commit_soon(self, writer: Writer) -> None:
        """Has the writer's entries committed within milliseconds; on the trio thread."""


class TrioEffects:
    """Runs effects on tasks that are kept: most effects of a busy store end at once or wait for
    one answer, and a task for each would cost more than they do.

    A task takes effects from the queue one after another. Before it starts one with others behind
    it, it wakes another task, so that an effect that waits holds up nobody. One of the idle tasks
    listens to a pipe that other threads write to, which wakes it in half the time that a call
    through trio's own queue takes.
    """

    def __init__(self, nursery: trio.Nursery, bell: Bell, perform: Perform) -> None:
        self._nursery = nursery
        self._perform = perform
        self._bell = bell
        self._commits = CommitSoon()
        self.commit_soon = self._commits.add
        self._waiting: deque[EffectHandle] = deque()
        self._idle: list[trio.lowlevel.Task] = []
        self._relief = False
        """Whether a task was woken that has not begun yet."""
        self._listening = False
        nursery.start_soon(self._commits.run)
        nursery.start_soon(self._serve)

    def start(self, effect: Effect, done: EffectDone) -> EffectHandle:
        """One wake-up of the trio thread serves all effects that one commit lets start."""
        handle = EffectHandle(effect, done)
        self._waiting.append(handle)
        self._bell.ring()
        return handle

    def _wake_task(self) -> None:
        if self._relief or self._listening:
            return
        self._relief = True
        if self._idle:
            trio.lowlevel.reschedule(self._idle.pop())
        else:
            self._nursery.start_soon(self._serve)

    async def _serve(self) -> None:
        """One task: takes effects until there are none, waits to be woken, and so on."""
        waiting = self._waiting
        while True:
            self._relief = False
            with trio.CancelScope() as scope:
                while not scope.cancel_called:
                    while waiting and not scope.cancel_called:
                        handle = waiting.popleft()
                        if waiting:
                            self._wake_task()
                        await self._run(handle, scope)
                    if self._listening:
                        await self._sleep()
                        self._relief = False
                    else:
                        await self._listen()

    async def _listen(self) -> None:
        self._listening = True
        try:
            await self._bell.wait()
        finally:
            self._listening = False

    async def _sleep(self) -> None:
        """Until there may be work. A task that is cancelled is no longer idle."""
        task = trio.lowlevel.current_task()
        self._idle.append(task)

        def abort(_: object) -> trio.lowlevel.Abort:
            self._idle.remove(task)
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

    async def _run(self, handle: EffectHandle, scope: trio.CancelScope) -> None:
        if handle.cancelled:
            handle.end()
            return
        handle.begin(scope)
        try:
            answer = await self._perform(handle.effect)
        except trio.Cancelled:
            raise
        except Exception as error:
            handle.done(None, error)
        else:
            handle.done(answer, None)
        finally:
            handle.end()
