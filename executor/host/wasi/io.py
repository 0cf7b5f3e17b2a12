"""wasi:io: errors, streams, poll.

What `ready`, `block` and `poll` answer is recorded. Streams answer at once from the worker's own
state, so their operations are not.
"""

from collections.abc import Callable
from typing import Final, TypeVar

from executor.durable.definition import NOT_READY, Awaited, Local, NotReady, Recorded
from executor.durable.function_type import READ_LOCAL
from executor.durable.reasons import Leave
from executor.errors import GuestTrap
from executor.host.interface import host_interface
from executor.host.pollables import AlwaysReady, Pollable
from executor.host.state import HostState
from executor.host.streams import (
    BLOCKING_WRITE_BYTES_MAX,
    TRANSFER_BYTES_MAX,
    InputStream,
    IoError,
    OutputStream,
    StreamClosed,
    StreamFailed,
)
from executor.host.waiting import ready_indices, wait_ready
from executor.wasm.values import Err, Ok, Variant

T = TypeVar("T")

CLOSED: Final = Err(Variant("closed"))


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


# -- streams -------------------------------------------------------------------------------------


def stream_result(
    state: HostState, stream: InputStream | OutputStream, operation: Callable[[], T]
) -> Ok | Err:
    """The operation's result, or its stream-error; a failure closes the stream."""
    if stream.closed:
        return CLOSED
    try:
        return Ok(operation())
    except StreamClosed:
        return CLOSED
    except StreamFailed as failure:
        stream.closed = True
        return Err(Variant("last-operation-failed", state.handles.add(failure.error)))


def read(state: HostState, number: int, count: int) -> Ok | Err:
    stream = state.handles.get(number, InputStream)
    return stream_result(state, stream, lambda: stream.read(state, min(count, TRANSFER_BYTES_MAX)))


def skip(state: HostState, number: int, count: int) -> Ok | Err:
    stream = state.handles.get(number, InputStream)
    return stream_result(state, stream, lambda: stream.skip(state, count))


def subscribe_input(state: HostState, number: int) -> int:
    state.handles.get(number, InputStream)
    return state.handles.add(AlwaysReady())


def subscribe_output(state: HostState, number: int) -> int:
    state.handles.get(number, OutputStream)
    return state.handles.add(AlwaysReady())


def check_write(state: HostState, number: int) -> Ok | Err:
    stream = state.handles.get(number, OutputStream)
    return stream_result(state, stream, lambda: TRANSFER_BYTES_MAX)


def flush(state: HostState, number: int) -> Ok | Err:
    stream = state.handles.get(number, OutputStream)
    return stream_result(state, stream, lambda: None)


def refuse_above(maximum: int, count: int, function: str) -> None:
    if count > maximum:
        raise GuestTrap(
            f"{function} of {count} bytes; it takes at most {maximum}", where="wasi:io/streams"
        )


def write_all(state: HostState, number: int, contents: bytes) -> Ok | Err:
    stream = state.handles.get(number, OutputStream)
    return stream_result(state, stream, lambda: stream.write(state, contents))


def write(state: HostState, number: int, contents: bytes) -> Ok | Err:
    refuse_above(TRANSFER_BYTES_MAX, len(contents), "write")
    return write_all(state, number, contents)


def write_and_flush(state: HostState, number: int, contents: bytes) -> Ok | Err:
    refuse_above(BLOCKING_WRITE_BYTES_MAX, len(contents), "blocking-write-and-flush")
    return write_all(state, number, contents)


def write_zeroes(state: HostState, number: int, count: int) -> Ok | Err:
    refuse_above(TRANSFER_BYTES_MAX, count, "write-zeroes")
    return write_all(state, number, bytes(count))


def write_zeroes_and_flush(state: HostState, number: int, count: int) -> Ok | Err:
    refuse_above(BLOCKING_WRITE_BYTES_MAX, count, "blocking-write-zeroes-and-flush")
    return write_all(state, number, bytes(count))


def splice(state: HostState, number: int, source: int, count: int) -> Ok | Err:
    target = state.handles.get(number, OutputStream)
    if target.closed:
        return CLOSED
    contents = read(state, source, count)
    if isinstance(contents, Err):
        return contents
    assert isinstance(contents.value, bytes)
    written = write_all(state, number, contents.value)
    return written if isinstance(written, Err) else Ok(len(contents.value))


def drop_input(state: HostState, number: int) -> None:
    state.handles.get(number, InputStream).drop(state)
    state.handles.drop(number)


def drop_output(state: HostState, number: int) -> None:
    state.handles.get(number, OutputStream).drop(state)
    state.handles.drop(number)


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

STREAMS = host_interface(
    """
    interface wasi:io/streams {
        use error.{error};
        use poll.{pollable};
        variant stream-error {
            last-operation-failed(error),
            closed,
        }
        resource input-stream {
            read: func(len: u64) -> result<list<u8>, stream-error>;
            blocking-read: func(len: u64) -> result<list<u8>, stream-error>;
            skip: func(len: u64) -> result<u64, stream-error>;
            blocking-skip: func(len: u64) -> result<u64, stream-error>;
            subscribe: func() -> pollable;
        }
        resource output-stream {
            check-write: func() -> result<u64, stream-error>;
            write: func(contents: list<u8>) -> result<_, stream-error>;
            blocking-write-and-flush: func(contents: list<u8>) -> result<_, stream-error>;
            flush: func() -> result<_, stream-error>;
            blocking-flush: func() -> result<_, stream-error>;
            subscribe: func() -> pollable;
            write-zeroes: func(len: u64) -> result<_, stream-error>;
            blocking-write-zeroes-and-flush: func(len: u64) -> result<_, stream-error>;
            splice: func(src: borrow<input-stream>, len: u64) -> result<u64, stream-error>;
            blocking-splice: func(src: borrow<input-stream>, len: u64)
                -> result<u64, stream-error>;
        }
    }
    """,
    "0.2",
    [
        Local("[method]input-stream.read", read),
        Local("[method]input-stream.blocking-read", read),
        Local("[method]input-stream.skip", skip),
        Local("[method]input-stream.blocking-skip", skip),
        Local("[method]input-stream.subscribe", subscribe_input),
        Local("[method]output-stream.check-write", check_write),
        Local("[method]output-stream.write", write),
        Local("[method]output-stream.blocking-write-and-flush", write_and_flush),
        Local("[method]output-stream.flush", flush),
        Local("[method]output-stream.blocking-flush", flush),
        Local("[method]output-stream.subscribe", subscribe_output),
        Local("[method]output-stream.write-zeroes", write_zeroes),
        Local("[method]output-stream.blocking-write-zeroes-and-flush", write_zeroes_and_flush),
        Local("[method]output-stream.splice", splice),
        Local("[method]output-stream.blocking-splice", splice),
    ],
    drops={"input-stream": drop_input, "output-stream": drop_output},
)

TABLES: Final = (ERROR, POLL, STREAMS)
