"""An instance that has nothing to do: it waits for work, until it is given up."""

import trio


class Idle:
    """The wait of one invocation loop. For the trio thread."""

    def __init__(self) -> None:
        self.since: float | None = None
        """When it began, on trio's clock; None while nobody waits."""
        self._news = trio.Event()
        self._scope = trio.CancelScope()

    async def wait(self, longest_s: float) -> bool:
        """Until there is news: False after too long, or if the wait was ended."""
        self._news = trio.Event()
        self.since = trio.current_time()
        try:
            with trio.move_on_after(longest_s) as self._scope:
                await self._news.wait()
        finally:
            self.since = None
        return not self._scope.cancelled_caught

    def wake(self) -> None:
        self._news.set()

    def end(self) -> None:
        """As if it had waited for too long."""
        self._scope.cancel()
