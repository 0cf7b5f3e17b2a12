"""Effects: what a durable call does beside the guest, in trio.

The lane that runs the guest never waits. It starts an effect here, and the effect's end is
delivered to a callback on the trio thread. `perform` is the one way to the outside world; a wrapper
around it sees every effect (that is how crash points are made).
"""

import math
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Final, Protocol, TypeAlias

import msgspec
import trio

from executor.durable.commit_soon import CommitSoon
from executor.durable.inbox import Bell
from executor.errors import InternalError
from oplog.store import Writer

RESTING_MAX: Final = 64
"""Tasks that are kept for when effects wait; more than so many at a time are rare."""

Steps: TypeAlias = Coroutine[Any, Any, object]


class Rest:
    """Whether an effect waits between two attempts: nothing of it is under way then."""

    __slots__ = ("active",)

    def __init__(self) -> None:
        self.active = False


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """One effect of one durable call."""

    function: str
    function_type: str
    key: str
    """The derived idempotency key: the same in every attempt."""
    run: Callable[[], Steps]
    keyed: bool = False
    """Whether a peer hears the key. Then a read too starts only once its `start` is durable: were
    that lost, the next call would have the same index, and the same key."""
    rest: Rest | None = None
    """Of an effect that is tried again by itself."""


Perform = Callable[[Effect], Steps]
Failure: TypeAlias = BaseException | None
"""Of an effect. (The annotations of a nested function are evaluated whenever it is made: in what
every call makes they are names.)"""
EffectDone = Callable[[object, Failure], None]
"""Called once on the trio thread with the answer or the error; not at all if cancelled."""


def perform_effect(effect: Effect) -> Steps:
    return effect.run()


class EffectHandle:
    """An effect that was asked for. For the trio thread."""

    __slots__ = ("_finished", "_scope", "begun", "cancelled", "done", "effect", "ended")

    def __init__(self, effect: Effect, done: EffectDone) -> None:
        self.effect = effect
        self.done = done
        self.begun = False
        self.cancelled = False
        self.ended = False
        self._scope: trio.CancelScope | None = None
        self._finished: trio.Event | None = None

    @property
    def under_way(self) -> bool:
        """Whether the effect has begun and waits for something, other than its next attempt."""
        rest = self.effect.rest
        return self._scope is not None and not (rest is not None and rest.active)

    def begin(self, scope: trio.CancelScope) -> None:
        self._scope = scope

    def finish(self, answer: object, error: BaseException | None) -> None:
        """The effect has ended by itself."""
        self.done(answer, error)
        self.end()

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
        """Until the effect has ended in whatever way. Several may wait, and any of them give up."""
        if not self.ended:
            if self._finished is None:
                self._finished = trio.Event()
            await self._finished.wait()


class EffectRunner(Protocol):
    """What a session needs of the world."""

    def start(self, effect: Effect, done: EffectDone) -> EffectHandle:
        """Starts `effect` in trio; callable from any thread, never blocks."""

    def commit_soon(self, writer: Writer) -> None:
        """Has the writer's entries committed within milliseconds; on the trio thread."""


class TrioEffects:
    """Runs effects on tasks that are kept, since a task for each would cost more than most do.

    One task at a time *attends*: it waits for the bell, takes effects and runs them, one after
    another. Only when an effect makes it wait does it have another task attend, before it does;
    once its effect has ended it rests until it is to attend again. So effects that end at once cost
    no change of tasks, and one that waits holds up nobody.
    """

    def __init__(self, nursery: trio.Nursery, bell: Bell, perform: Perform) -> None:
        self._nursery = nursery
        self._perform = perform
        self._bell = bell
        self._commits = CommitSoon()
        self.commit_soon = self._commits.add
        self._waiting: deque[EffectHandle] = deque()
        self._resting: list[trio.lowlevel.Task] = []
        nursery.start_soon(self._commits.run)
        nursery.start_soon(self._attend)

    def start(self, effect: Effect, done: EffectDone) -> EffectHandle:
        """One wake-up of the trio thread serves all effects that one commit lets start."""
        handle = EffectHandle(effect, done)
        self._waiting.append(handle)
        self._bell.ring()
        return handle

    async def _attend(self) -> None:
        """The life of one task."""
        waiting = self._waiting
        while True:
            with trio.CancelScope() as scope:
                waits = None
                while waits is None:
                    if not waiting:
                        await self._bell.wait()
                    else:
                        waits = self._begin(waiting.popleft(), scope)
                self._have_another_attend()
                await waits
            # The scope was perhaps cancelled, for the sake of the effect that waited in it.
            if len(self._resting) >= RESTING_MAX:
                return
            await self._rest()

    def _begin(self, handle: EffectHandle, scope: trio.CancelScope) -> Steps | None:
        """Begins an effect: None if it has ended, else what is left of it."""
        if handle.cancelled:
            handle.end()
            return None
        handle.begun = True
        try:
            steps = self._perform(handle.effect)
            wait = steps.send(None)
        except StopIteration as end:
            handle.finish(end.value, None)
        except Exception as error:
            handle.finish(None, error)
        except (trio.Cancelled, BaseExceptionGroup) as error:
            handle.finish(None, unasked(handle, error))
        else:
            handle.begin(scope)
            return finish_effect(handle, Begun(steps, wait))
        return None

    def _have_another_attend(self) -> None:
        if self._resting:
            trio.lowlevel.reschedule(self._resting.pop())
        else:
            self._nursery.start_soon(self._attend)

    async def _rest(self) -> None:
        task = trio.lowlevel.current_task()
        self._resting.append(task)

        def abort(_: object) -> trio.lowlevel.Abort:
            self._resting.remove(task)
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)


async def finish_effect(handle: EffectHandle, begun: "Begun") -> None:
    """Awaits the effect and delivers its end; whatever leaves it, the handle has ended."""
    try:
        answer = await begun
    except Exception as error:
        handle.finish(None, error)
    except (trio.Cancelled, BaseExceptionGroup) as error:
        handle.finish(None, unasked(handle, error))
    else:
        handle.finish(answer, None)
    finally:
        handle.end()


def unasked(handle: EffectHandle, error: trio.Cancelled | BaseExceptionGroup) -> InternalError:
    """What is told of an effect that ended as if it were cancelled, and nobody had cancelled it:
    raised on, that would cancel whoever runs the effects, and end the executor without a word.

    Raises: the cancellation, if the effect or the executor was cancelled, whatever else failed
    meanwhile; an interrupt by the user.
    """
    cancelled: BaseException = error
    if isinstance(error, BaseExceptionGroup):  # of a nursery
        found, _ = error.split(trio.Cancelled)
        if found is None or error.subgroup(is_grave) is not None:
            raise error
        cancelled = found
    if handle.cancelled or trio.current_effective_deadline() == -math.inf:
        raise cancelled from None
    return InternalError(f"{handle.effect.function} was cancelled, and nobody had asked for it")


def is_grave(error: BaseException) -> bool:
    """Whether an error is neither a failure nor a cancellation: an interrupt by the user."""
    return not isinstance(error, Exception | trio.Cancelled | BaseExceptionGroup)


class Begun(Generator[Any, Any, object]):
    """Awaits what is left of a coroutine that was begun and waits for `wait`."""

    __slots__ = ("_steps", "_wait")

    def __init__(self, steps: Steps, wait: Any) -> None:
        self._steps = steps
        self._wait = wait

    def __await__(self) -> Generator[Any, Any, object]:
        return self

    def send(self, resumed: Any) -> Any:
        if self._wait is None:
            return self._steps.send(resumed)
        wait, self._wait = self._wait, None
        return wait

    def throw(self, *error: Any) -> Any:
        return self._steps.throw(*error)
