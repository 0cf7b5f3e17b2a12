"""Many HTTP requests at a time: asyncio, over `wasi:io/poll`.

`asyncio.gather` of ordinary coroutines. The event loop comes with componentize-py; it waits for the
pollables of all of them in one `poll`. Nothing here knows that its answers are recorded: a worker
that is lost in the middle of twenty requests is rebuilt with the answers that had come, and only
the rest is asked for again.

Every import stands at module level: the standard library is not there at run time, only what the
build has imported.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any
from urllib.parse import urlsplit

import poll_loop
from componentize_py_types import Err
from wit_world import exports
from wit_world.imports import types
from wit_world.imports.types import Fields, Method, OutgoingRequest


class Api(exports.Api):
    def fetch_all(self, urls: list[str]) -> list[str]:
        return run([fetch(url, types.Method_Get(), b"") for url in urls])

    def post_all(self, urls: list[str], body: str) -> list[str]:
        return run([fetch(url, types.Method_Post(), body.encode()) for url in urls])


def run(coroutines: list[Coroutine[Any, Any, str]]) -> list[str]:
    """What each of them gives, in their order, whichever ends first."""
    loop = poll_loop.PollLoop()
    asyncio.set_event_loop(loop)
    return loop.run_until_complete(gathered(coroutines))


async def gathered(coroutines: list[Coroutine[Any, Any, str]]) -> list[str]:
    return list(await asyncio.gather(*coroutines))


async def fetch(url: str, method: Method, content: bytes) -> str:
    """Status and body, or the name of the error-code."""
    try:
        return await exchange(url, method, content)
    except Err as failure:
        return type(failure.value).__name__.removeprefix("ErrorCode_")


async def exchange(url: str, method: Method, content: bytes) -> str:
    request = request_for(url, method)
    if content:
        sink = poll_loop.Sink(request.body())
        await sink.send(content)
        sink.close()
    with await poll_loop.send(request) as response:
        stream = poll_loop.Stream(response.consume())
        pieces = []
        while (piece := await stream.next()) is not None:
            pieces.append(piece)
        return f"{response.status()} {b''.join(pieces).decode()}"


def request_for(url: str, method: Method) -> OutgoingRequest:
    parts = urlsplit(url)
    request = OutgoingRequest(Fields.from_list([("accept", b"*/*")]))
    request.set_method(method)
    request.set_scheme(types.Scheme_Https() if parts.scheme == "https" else types.Scheme_Http())
    request.set_authority(parts.netloc)
    request.set_path_with_query(f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path)
    return request
