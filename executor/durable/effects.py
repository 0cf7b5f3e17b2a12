"""Effects: what a durable call does beside the guest, in trio.

The lane that runs the guest never waits. It starts an effect here, and the effect's end is
delivered to a callback on the trio thread. `perform` is the one way to the outside world; a wrapper
around it sees every effect (that is how crash points are made).
"""

from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec
import trio


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
    """An effect under way. `cancel` is for the trio thread."""

    __slots__ = ("effect", "finished", "scope")

    def __init__(self, effect: Effect) -> None:
        self.effect = effect
        self.scope = trio.CancelScope()
        self.finished = trio.Event()

    def cancel(self) -> None:
        self.scope.cancel()


class EffectRunner(Protocol):
    """What a session needs of the world."""

    def start(self, effect: Effect, done: EffectDone) -> EffectHandle:
        """Starts `effect` in trio; callable from any thread, never blocks."""


class TrioEffects:
    """Runs effects as tasks of one nursery."""

    def __init__(
        self, nursery: trio.Nursery, token: trio.lowlevel.TrioToken, perform: Perform
    ) -> None:
        self._nursery = nursery
        self._token = token
        self._perform = perform

    def start(self, effect: Effect, done: EffectDone) -> EffectHandle:
        handle = EffectHandle(effect)
        self._token.run_sync_soon(self._spawn, handle, done)
        return handle

    def _spawn(self, handle: EffectHandle, done: EffectDone) -> None:
        self._nursery.start_soon(self._run, handle, done)

    async def _run(self, handle: EffectHandle, done: EffectDone) -> None:
        try:
            with handle.scope:
                try:
                    answer = await self._perform(handle.effect)
                except trio.Cancelled:
                    raise
                except Exception as error:
                    done(None, error)
                else:
                    done(answer, None)
        finally:
            handle.finished.set()
