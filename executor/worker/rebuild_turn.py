"""Taking turns: so many workers replay at the same time, and no more."""

import trio

from executor.durable.inbox import Inbox


class RebuildTurn:
    """A place among those that replay at the same time; it ends when the instance is live, though
    the invocation that it goes on with may take for ever.
    """

    def __init__(self, limiter: trio.CapacityLimiter, inbox: Inbox) -> None:
        self._limiter = limiter
        self._inbox = inbox
        self._held = False

    async def take(self) -> None:
        await self._limiter.acquire_on_behalf_of(self)
        self._held = True

    def end(self) -> None:
        """Any thread; idempotent."""
        self._inbox.post(self._release)

    def _release(self) -> None:
        if self._held:
            self._held = False
            self._limiter.release_on_behalf_of(self)
