"""Trying an effect again inside its call, before anything is given up.

A transient failure of an effect that may be repeated needs no new instance: after the policy's
delay the effect is performed once more, under the same start and with the same key. Each failed
attempt is an `error` entry, committed before the wait, so attempts and delay outlive the process.

| the call                                     | a transient failure                           |
|----------------------------------------------|-----------------------------------------------|
| may be repeated, outside of regions and      | tried again here, by policy                   |
| zones, and the delay is at most 20 s         |                                               |
| attempts are used up                         | its answer, if it has one; else as below      |
| anything else                                | its answer, if it has one; else the guest is  |
|                                              | left and the loop decides (`worker/loop.py`)  |

Threads: effects run in trio; policy and modes are read as the guest left them when it began to
wait, or the call.
"""

from collections.abc import Callable
from typing import Final, Protocol

from msgspec.structs import replace

from executor.durable.effects import Effect, Rest
from executor.durable.function_type import may_repeat
from executor.durable.modes import Modes
from executor.durable.open_effects import OpenEffects
from executor.durable.retry import NS_PER_S, RetryPolicy, TransientError, retry_delay_s
from executor.sources import Sources
from oplog.entry import Entry, Error
from oplog.writer import Writer

DELAY_MAX_S: Final = 20.0
"""A longer wait gives up the instance instead."""


class TransientAnswer(TransientError):
    """An effect has an answer that may be better in a moment: no connection, a busy peer.

    Whoever raises it has the guest's answer ready for when it is not tried again.
    """

    def __init__(self, message: str, answer: object, *, retry_after_s: float = 0.0) -> None:
        """`retry_after_s` is how long the peer asks to be left alone."""
        super().__init__(message)
        self.answer = answer
        self.retry_after_s = retry_after_s


class Session(Protocol):
    modes: Modes
    effects: OpenEffects
    writer: Writer
    append: Callable[[Entry], int]

    async def commit(self) -> None: ...


class Retrying:
    """Of one session."""

    def __init__(self, session: Session, sources: Sources, attempts: Callable[[int], int]) -> None:
        self._session = session
        self._sources = sources
        self._attempts = attempts

    def wrap(self, effect: Effect, start_index: int, *, idempotent: bool) -> Effect:
        """The effect with its retries. On the lane, when the call begins or is taken up again."""
        modes = self._session.modes
        repeatable = may_repeat(effect.function_type, idempotent=idempotent)
        if not start_index or not repeatable or modes.begin:
            policy = RetryPolicy(attempts_max=1)
        else:
            policy = modes.policy

        rest = Rest()

        async def run() -> object:
            while True:
                try:
                    return await effect.run()
                except TransientError as failure:
                    delay_ns = await self._delay_ns(failure, start_index, policy)
                    if delay_ns is not None:
                        rest.active = True
                        await self._sources.sleep_until(self._sources.monotonic_ns() + delay_ns)
                        rest.active = False
                    elif isinstance(failure, TransientAnswer):
                        return failure.answer
                    else:
                        raise

        return replace(effect, run=run, rest=rest)

    async def _delay_ns(
        self, failure: TransientError, start_index: int, policy: RetryPolicy
    ) -> int | None:
        """Counts a failed attempt, durably; how long to wait for the next one, None for none."""
        session = self._session
        with session.writer.lock:
            if session.effects.closing:
                return None
            failed_attempts = self._attempts(start_index) + 1
            delay_s = retry_delay_s(policy, failed_attempts, self._sources.random_unit)
            if delay_s is None:
                return None
            if isinstance(failure, TransientAnswer):
                delay_s = max(delay_s, failure.retry_after_s)
            if delay_s > DELAY_MAX_S:
                return None
            delay_ns = int(delay_s * NS_PER_S)
            now = self._sources.wall_ns()
            session.append(
                Error(
                    at=now,
                    retry_from=start_index,
                    kind="guest-error",
                    details=str(failure),
                    retry_at=now + delay_ns,
                )
            )
        await session.commit()
        return delay_ns
