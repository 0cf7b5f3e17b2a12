"""Running a store and serving it at its socket, for as long as it runs."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, Literal, Unpack, cast

import trio
from hypercorn.config import Config
from hypercorn.trio import serve
from starlette.applications import Starlette

from executor.executor import Executor
from executor.server.application import application
from executor.server.audience import Audience
from executor.server.door import SOCKET_NAME, Door
from executor.worker.commits import refused_store
from executor.worker.opening import open_store
from executor.world import World
from oplog.room import refusal

KEEP_ALIVE_S: Final = 10.0
"""How long a connection is kept on which nothing is asked, each with its descriptor: also one whose
other end is closed, which the server does not look for then."""


@asynccontextmanager
async def open_served(
    path: Path, *, recover: Literal["named", "all"] = "named", **world: Unpack[World]
) -> AsyncIterator[Executor]:
    """As `Executor.open`, and answers at the store's socket until the block ends.

    Raises: Busy if another process runs the store, StoreError.
    """
    store = world.get("store") or open_store(path)
    try:
        door = Door.open(path)
    except OSError as error:
        store.close()
        hint = "keep the store in a directory of this machine that can be written"
        raise refused_store(
            refusal(f"{SOCKET_NAME} cannot be made", error, path, hint), path
        ) from error
    audience = Audience(world.get("on_output"), world.get("report"))
    served: World = {
        **world,
        "store": store,
        "on_output": audience.on_output,
        "report": audience.report,
        "before_close": door.remove,
    }
    try:
        async with Executor.open(path, recover=recover, **served) as shem:
            failure: Exception | None = None
            async with trio.open_nursery() as nursery:
                app = application(shem, audience, nursery)
                nursery.start_soon(serve_until_cancelled, app, configured(door))
                try:
                    yield shem
                except Exception as error:
                    failure = error  # raised bare, outside of the nursery's group
                nursery.cancel_scope.cancel()
            if failure is not None:
                raise failure
    finally:
        door.close()


async def serve_until_cancelled(app: Starlette, config: Config) -> None:
    """Hypercorn takes a Ctrl-C that reaches one of its tasks for a wish to end the serving; it was
    meant for the process.
    """
    await serve(cast("Any", app), config)
    raise KeyboardInterrupt


def configured(door: Door) -> Config:
    """Hypercorn on a socket that is there, silent: what goes wrong is told to who asked."""
    config = Config()
    config.bind = [f"fd://{door.hand_over()}"]
    config.errorlog = None
    config.accesslog = None
    config.include_server_header = False
    config.keep_alive_timeout = KEEP_ALIVE_S
    config.graceful_timeout = 0
    return config
