"""Tells whoever waits in trio that something may have changed. For the trio thread."""

import trio


class Signal:
    """Fired as often as one likes; who waits looks again, and waits on if nothing has changed."""

    __slots__ = ("__weakref__", "_waiting")

    def __init__(self) -> None:
        self._waiting: set[trio.Event] = set()

    def add(self, event: trio.Event) -> None:
        """Has `event` set at the next `fire`."""
        self._waiting.add(event)

    def discard(self, event: trio.Event) -> None:
        self._waiting.discard(event)

    def fire(self) -> None:
        waiting, self._waiting = self._waiting, set()
        for event in waiting:
            event.set()

    async def wait(self) -> None:
        """Until the next `fire`."""
        event = trio.Event()
        self.add(event)
        try:
            await event.wait()
        finally:
            self.discard(event)
