"""wasi:io: errors and poll. What `ready`, `block` and `poll` answer is recorded."""

from typing import Final

from executor.durable.definition import NOT_READY, Awaited, Local, NotReady, Recorded
from executor.durable.function_type import READ_LOCAL
from executor.durable.reasons import Leave
from executor.errors import GuestTrap
from executor.host.interface import host_interface
from executor.host.pollables import Pollable
from executor.host.state import HostState
from executor.host.streams import IoError
from executor.host.waiting import ready_indices, wait_ready


def debug_string(state: HostState, error: int) -> str:
    return state.handles.get(error, IoError).message


# -- poll ----------------------------------------------------------------------------------------


def pollables(state: HostState, numbers: list[int]) -> list[Pollable]:
    return [state.handles.get(number, Pollable) for number in numbers]


def is_ready(state: HostState, number: int) -> bool:
    return bool(ready_indices(state, pollables(state, [number])))


def observe_is_ready(state: HostState, ready: bool, number: int) -> bool:
    if ready:
        observe_poll(state, [0], [number])
    return ready


def attempt_poll(state: HostState, numbers: list[int]) -> list[int] | NotReady:
    if not numbers:
        raise GuestTrap("poll of an empty list, which would wait for ever", where="wasi:io/poll")
    return ready_indices(state, pollables(state, numbers)) or NOT_READY


async def wait_poll(state: HostState, numbers: list[int]) -> list[int] | Leave:
    return await wait_ready(state, pollables(state, numbers))


def observe_poll(state: HostState, ready: list[int], numbers: list[int]) -> list[int]:
    for index in ready:
        state.handles.get(numbers[index], Pollable).observe(state.clock)
    return ready


def attempt_block(state: HostState, number: int) -> NotReady | None:
    return None if is_ready(state, number) else NOT_READY


async def wait_block(state: HostState, number: int) -> Leave | None:
    ready = await wait_ready(state, pollables(state, [number]))
    return ready if isinstance(ready, Leave) else None


def observe_block(state: HostState, _answer: None, number: int) -> None:
    observe_poll(state, [0], [number])


ERROR = host_interface(
    """
    interface wasi:io/error {
        resource error {
            to-debug-string: func() -> string;
        }
    }
    """,
    "0.2",
    [Local("[method]error.to-debug-string", debug_string)],
)

POLL = host_interface(
    """
    interface wasi:io/poll {
        resource pollable {
            ready: func() -> bool;
            block: func();
        }
        poll: func(in: list<borrow<pollable>>) -> list<u32>;
    }
    """,
    "0.2",
    [
        Recorded(
            name="[method]pollable.ready",
            function_type=READ_LOCAL,
            action=is_ready,
            observe=observe_is_ready,
        ),
        Awaited(
            name="[method]pollable.block",
            function_type=READ_LOCAL,
            attempt=attempt_block,
            action=wait_block,
            observe=observe_block,
        ),
        Awaited(
            name="poll",
            function_type=READ_LOCAL,
            attempt=attempt_poll,
            action=wait_poll,
            observe=observe_poll,
        ),
    ],
)

TABLES: Final = (ERROR, POLL)
