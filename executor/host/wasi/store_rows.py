"""Rows of functions over a store: remote reads and writes whose refusal is an answer."""

from collections.abc import Callable, Coroutine
from typing import Any

from executor.durable.definition import Awaited, Recorded
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


def read_row(
    name: str, read: Callable[..., object], answer: str, observe: Observe = None
) -> Recorded:
    """`read(state, …)` gives a value of the WIT type `answer`, or raises Refused."""

    def action(*arguments: object) -> Ok | Err:
        try:
            return Ok(read(*arguments))
        except Refused as refused:
            return Err(str(refused))

    return Recorded(
        name=name,
        function_type=READ_REMOTE,
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
