"""Rows of functions over a store: remote reads and writes whose refusal is an answer."""

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import trio

from executor.durable.definition import NOT_READY, Awaited, NotReady, Recorded
from executor.durable.function_type import READ_REMOTE, WRITE_REMOTE
from executor.host.held import HeldValue
from executor.host.state import HostState
from executor.services.environment import Caller, Refused
from executor.wasm.values import Err, Ok

Observe = Callable[..., Any] | None


def caller(state: Any) -> Caller:
    """Whose write the call that is being performed is."""
    session = state.session
    return Caller(worker_id=state.identity.id, worker=session.worker, key=session.call_key)


def drop_value(state: HostState, number: int) -> None:
    """The guest dropped the resource of a value."""
    state.handles.get(number, HeldValue).leave()
    state.handles.drop(number)


def answered(read: Callable[..., object], *arguments: object) -> Ok | Err:
    try:
        return Ok(read(*arguments))
    except Refused as refused:
        return Err(str(refused))


def read_row(
    name: str, read: Callable[..., object], answer: str, observe: Observe = None
) -> Recorded:
    """`read(state, …)` gives a value of the WIT type `answer`, or raises Refused."""
    return Recorded(
        name=name,
        function_type=READ_REMOTE,
        action=partial(answered, read),
        observe=observe,
        answer=f"result<{answer}, string>",
    )


def many_row(
    name: str,
    read: Callable[..., object],
    few: Callable[..., bool],
    answer: str,
    observe: Observe = None,
) -> Awaited:
    """The same of a read of as many rows as the guest likes: it is made in a thread of its own, and
    the guest waits for it, unless `few(state, …)`.
    """

    def attempt(*arguments: object) -> Ok | Err | NotReady:
        if answered(few, *arguments) == Ok(False):
            return NOT_READY
        return answered(read, *arguments)

    async def action(*arguments: object) -> Ok | Err:
        return await trio.to_thread.run_sync(answered, read, *arguments)

    return Awaited(
        name=name,
        function_type=READ_REMOTE,
        attempt=attempt,
        action=action,
        observe=observe,
        answer=f"result<{answer}, string>",
    )


def write_row(
    name: str,
    write: Callable[..., Coroutine[Any, Any, object]],
    answer: str = "_",
    observe: Observe = None,
) -> Awaited:
    """The same of `await write(state, …)`."""

    async def action(*arguments: object) -> Ok | Err:
        try:
            return Ok(await write(*arguments))
        except Refused as refused:
            return Err(str(refused))

    return Awaited(
        name=name,
        function_type=WRITE_REMOTE,
        action=action,
        observe=observe,
        answer=f"result<{answer}, string>",
    )
