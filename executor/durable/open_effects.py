"""The effects of one session: asked for, under way, and ended with it.

A write-remote effect starts only after its `start`, and so all before it, is committed. Once the
session is closing no effect starts any more; once it is closed none is heard of.

Threads: effects are asked for on the guest's lane and end on the trio thread; commits are reported
on the committer's. What they share is guarded by the writer's lock.
"""

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import trio

from executor.durable.effects import Effect, EffectHandle, EffectRunner, Failure
from executor.durable.function_type import WRITE_REMOTE
from executor.durable.reasons import CommitFailed
from executor.wasm.host_function import LeaveGuest
from oplog.errors import OplogError
from oplog.writer import Writer

WRITES_AWAITED_MAX_S: Final = 5.0

Defer = Callable[[Callable[[], None]], None]
Post = Callable[..., None]
Then: TypeAlias = Callable[[], None]
CommitError: TypeAlias = OplogError | None
Ended = Callable[[object, Failure], Then | None]
"""Hears an effect's answer or error under the worker's lock; what it answers is called without."""


class AskedEffect:
    """An effect that was asked for; it starts once what has to be durable before it is."""

    __slots__ = ("dropped", "handle")

    def __init__(self) -> None:
        self.dropped = False
        """Nobody waits for it any more: it does not start, or is cancelled."""
        self.handle: EffectHandle | None = None


class OpenEffects:
    def __init__(self, writer: Writer, runner: EffectRunner, post: Post) -> None:
        """`post` has something called on the trio thread."""
        self._writer = writer
        self._runner = runner
        self.post = post
        self._asked: set[AskedEffect] = set()
        self._once: dict[AskedEffect, int] = {}
        """Those that must not be performed twice, with the starts of their calls."""
        self.closing = False
        self.closed = False

    def begin(
        self,
        effect: Effect,
        done: Ended,
        *,
        refused: Callable[[LeaveGuest], None],
        ask: Defer | None = None,
        once: int = 0,
    ) -> AskedEffect:
        """Starts `effect`, a write or one whose key leaves after a commit, which `ask` may put off.
        `once` is the start of its call if it must not be repeated.

        `done` is called on the trio thread, not once the session is closed; `refused` if the commit
        failed.
        """
        asked = AskedEffect()
        if once:
            self._once[asked] = once

        def ended(answer: object, error: Failure) -> None:
            with self._writer.lock:
                self._forget(asked)
                if self.closed or asked.dropped:
                    return
                then = done(answer, error)
            if then is not None:
                then()

        def committed(error: CommitError) -> None:
            if error is not None:
                refused(LeaveGuest(CommitFailed(error)))
                return
            with self._writer.lock:
                if not self.closing and not asked.dropped:
                    self._asked.add(asked)
                    asked.handle = self._runner.start(effect, ended)

        if effect.function_type != WRITE_REMOTE and not effect.keyed:
            committed(None)
        elif ask is None:
            self.commit(committed)
        else:
            ask(lambda: self.commit(committed))
        return asked

    def commit(self, then: Callable[[OplogError | None], None]) -> None:
        """Has everything appended so far committed; `then` is told, maybe at once."""
        try:
            self._writer.commit(then)
        except OplogError as error:
            then(error)

    def commit_soon(self) -> None:
        """Everything appended so far is durable within milliseconds; on the trio thread."""
        self._runner.commit_soon(self._writer)

    def drop(self, asked: AskedEffect) -> None:
        """The guest wants no answer any more. Under the worker's lock."""
        asked.dropped = True
        handle = self._forget(asked)
        if handle is not None:
            self.post(handle.cancel)

    def stop(self, asked: AskedEffect) -> None:
        """As `drop`, on the trio thread: the effect does nothing more."""
        with self._writer.lock:
            asked.dropped = True
            handle = self._forget(asked)
        if handle is not None:
            handle.cancel()

    def _forget(self, asked: AskedEffect) -> EffectHandle | None:
        """Its handle, which it lets go: they refer to each other, and only the collector would
        find what every call leaves behind.
        """
        self._asked.discard(asked)
        self._once.pop(asked, None)
        handle, asked.handle = asked.handle, None
        return handle

    def take_unbegun(self) -> list[int]:
        """Once the session is closed: the starts of the calls whose effect must not be repeated and
        has never begun, each told once.
        """
        once, self._once = self._once, {}
        return [
            start for asked, start in once.items() if asked.handle is None or not asked.handle.begun
        ]

    async def close(self, *, writes_awaited_s: float = WRITES_AWAITED_MAX_S) -> None:
        """Ends the session's effects: no effect starts any more, reads are cancelled, writes are
        awaited for at most `writes_awaited_s` and heard of, then cancelled. In trio.
        """
        with self._writer.lock:
            self.closing = True
            handles: list[Any] = [asked.handle for asked in self._asked]
        writes = [
            handle
            for handle in handles
            if handle.under_way and handle.effect.function_type == WRITE_REMOTE
        ]
        for handle in handles:
            if handle not in writes:
                handle.cancel()
        with trio.move_on_after(writes_awaited_s):
            for handle in writes:
                await handle.wait()
        with self._writer.lock:
            self.closed = True
        for handle in handles:
            handle.cancel()
