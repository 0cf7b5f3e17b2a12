"""A task beside whoever asks for it, on the trio thread."""

from collections.abc import Awaitable, Callable

import trio


def run_beside(
    nursery: trio.Nursery, run: Callable[[], Awaitable[None]], failed: Callable[[Exception], None]
) -> trio.CancelScope:
    """Runs `run`; cancelling the answer ends it. `failed` hears of what it raises."""
    scope = trio.CancelScope()

    async def task() -> None:
        with scope:
            try:
                await run()
            except Exception as error:
                failed(error)

    nursery.start_soon(task)
    return scope
