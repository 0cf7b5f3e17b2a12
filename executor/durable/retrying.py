"""Trying an effect again inside its call, before anything is given up.

A transient failure of an effect that may be repeated needs no new instance: after the policy's
delay the effect is performed once more, under the same start and with the same key. Each failed
attempt is an `error` entry, committed before the wait, so attempts and delay outlive the process.

| the call                                     | a transient failure                           |
|----------------------------------------------|-----------------------------------------------|
| may be repeated, outside of regions and      | tried again here, by policy                   |
| zones, and the delay is at most 20 s         |                                               |
| the delay is longer                          | the guest is left and the loop waits          |
| attempts are used up, or the peer asks for a | its answer, if it has one; else as below      |
| longer pause than the policy ever makes      |                                               |
| anything else                                | its answer, if it has one; else the guest is  |
|                                              | left and the loop decides (`worker/loop.py`)  |

Which policy decides is chosen once a failure, where it is met, and kept with it
(`durable/retry_rules.py`): the loop goes by the same one. Attempts of a call are counted together,
whatever policies they failed by.

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
from executor.durable.retry import DELAY_MAX_S as TIME_MAX_S
from executor.durable.retry import (
    NS_PER_S,
    Chosen,
    TransientAnswer,
    TransientError,
    retry_delay_s,
    storable,
)
from executor.durable.retry_rules import RetryRules
from executor.sources import Sources
from oplog.entry import Entry, Error
from oplog.writer import Writer

DELAY_MAX_S: Final = 20.0
"""A longer wait gives up the instance instead."""


class Calls(Protocol):
    @property
    def oldest_open(self) -> int: ...


class Session(Protocol):
    @property
    def deferred(self) -> Calls: ...

    modes: Modes
    effects: OpenEffects
    writer: Writer
    failing_start: int
    append: Callable[[Entry], int]

    async def commit(self) -> None: ...


Due = tuple[int, int]
"""Wall time of the next attempt, and how long before it the last one failed; in ns."""


def at_once(_index: int) -> Due:
    """Nothing has failed yet."""
    return 0, 0


def always() -> bool:
    """The guest waits in the call."""
    return True


class Retrying:
    """Of one session."""

    def __init__(
        self,
        session: Session,
        sources: Sources,
        attempts: Callable[[int], int],
        due: Callable[[int], Due] = at_once,
    ) -> None:
        self._session = session
        self._sources = sources
        self._attempts = attempts
        self._due = due
        self.rules = RetryRules()
        """The worker's, from its creation on."""

    def wrap(
        self,
        effect: Effect,
        start_index: int,
        *,
        idempotent: bool,
        is_open: Callable[[], bool] = always,
    ) -> Effect:
        """The effect with its retries, as long as the call `is_open`: asked under the worker's
        lock. On the lane, when the call begins or is taken up again.
        """
        modes = self._session.modes
        own = modes.policy
        repeatable = may_repeat(effect.function_type, idempotent=idempotent)
        here = repeatable and start_index != 0 and not modes.begin
        rest = Rest()

        async def run() -> object:
            if (left_ns := self._left_ns(start_index)) > 0:  # it failed in an earlier instance
                await self._wait(rest, left_ns)
            while True:
                try:
                    return await effect.run()
                except TransientError as failure:
                    if self._session.failing_start not in {0, start_index}:
                        raise  # of a deferred call: it is only met here, as in a poll
                    failure.chosen = self.rules.choose(effect.function, failure, own)
                    delay_s = await self._count(failure, start_index, is_open) if here else None
                    if delay_s is None and isinstance(failure, TransientAnswer):
                        return failure.answer
                    if delay_s is None or delay_s > DELAY_MAX_S:
                        raise
                await self._wait(rest, int(delay_s * NS_PER_S))

        return replace(effect, run=run, rest=rest)

    async def _wait(self, rest: Rest, delay_ns: int) -> None:
        rest.active = True
        await self._sources.sleep_until(self._sources.monotonic_ns() + delay_ns)
        rest.active = False

    def _left_ns(self, start_index: int) -> int:
        """How long the next attempt has to wait, at most the policy's delay: a wall clock that was
        set back does not hold it up.
        """
        due_at, delay_ns = self._due(start_index)
        return due_at and min(due_at - self._sources.wall_ns(), delay_ns)

    def chosen(self, failure: TransientError) -> Chosen:
        """What decides about a failure that left the guest; a trap is of no function."""
        return failure.chosen or self.rules.choose("", failure, self._session.modes.policy)

    def next_attempt(self, failure: TransientError, *counts: int) -> tuple[int, float | None]:
        """Failed attempts with this one, of whichever entry counts most, and the seconds until the
        next attempt, None if there is none. Under the worker's lock, or once the guest was left.
        """
        failed = 1 + max(self._attempts(index) for index in counts)
        policy = self.chosen(failure).policy
        delay_s = retry_delay_s(policy, failed, self._sources.random_unit)
        pause_s = failure.retry_after_s
        too_long = pause_s > max(DELAY_MAX_S, policy.max_delay_s)
        if delay_s is None or (too_long and isinstance(failure, TransientAnswer)):
            return failed, None
        return failed, min(max(delay_s, pause_s), TIME_MAX_S)

    async def _count(
        self, failure: TransientError, start_index: int, is_open: Callable[[], bool]
    ) -> float | None:
        """Seconds until the next attempt, None if there is none. The failed one is counted,
        durably, if the wait is to be here. Raises: the failure, if nobody waits for another one.
        """
        session = self._session
        with session.writer.lock:
            if session.effects.closing:
                raise failure  # not the last attempt: the next instance makes another one
            if not is_open():
                raise failure  # the guest has dropped the call, and this is recorded
            _, delay_s = self.next_attempt(failure, start_index)
            if delay_s is None or delay_s > DELAY_MAX_S:
                return delay_s
            now = self._sources.wall_ns()
            session.append(
                Error(
                    at=now,
                    retry_from=start_index,
                    kind="guest-error",
                    details=storable(str(failure)),
                    retry_at=now + int(delay_s * NS_PER_S),
                    policy=self.chosen(failure).rule,
                    oldest_open=session.deferred.oldest_open,
                )
            )
        await session.commit()
        return delay_s
