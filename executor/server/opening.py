"""The executor of a store: run here, or asked where it runs already."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal, Unpack

from executor.errors import Busy
from executor.server.client import ask, ignore_text
from executor.server.operations import Operations
from executor.server.serving import open_served
from executor.worker.opening import open_store
from executor.world import World


@asynccontextmanager
async def open_or_ask(
    path: Path,
    *,
    recover: Literal["named", "all"] = "named",
    on_silence: Callable[[str], None] = ignore_text,
    **world: Unpack[World],
) -> AsyncIterator[Operations]:
    """Runs the store and serves it, or asks the process that does.

    `on_silence` is told once if that process does not answer; it is waited for nevertheless.
    A store that is given in `world` is run here. What is asked may raise `NotServed` and
    `HandedOver`: then all of it is to be tried again. Raises: StoreError.
    """
    busy: Busy | None = None
    if world.get("store") is None:
        try:
            world["store"] = open_store(path)
        except Busy as error:
            busy = error
    if busy is None:
        async with open_served(path, recover=recover, **world) as executor:
            yield executor
    else:
        async with ask(path, world, busy, on_silence) as asked:
            yield asked
