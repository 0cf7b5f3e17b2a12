"""wasi:io/streams: bytes from and to files, outputs and connections.

A stream of a file or an output answers at once from the worker's own state, so its operations are
not recorded. Of a connection's input each read is recorded with what it gave; of its output only
how much fits, and that it was flushed: what the guest writes there its call records
(`durable/frames.py`). See `executor/host/streams.py`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar

from executor.durable.definition import (
    NOT_READY,
    TO_RECORD,
    Awaited,
    Local,
    NotReady,
    Recorded,
    ToRecord,
)
from executor.durable.function_type import READ_LOCAL, READ_REMOTE
from executor.errors import GuestTrap
from executor.host.interface import host_interface
from executor.host.state import HostState
from executor.host.streams import (
    BLOCKING_WRITE_BYTES_MAX,
    TRANSFER_BYTES_MAX,
    Failure,
    InputStream,
    OutputStream,
    Piece,
    RemoteInput,
    RemoteOutput,
    StreamClosed,
    StreamFailed,
)
from executor.wasm.values import Err, Ok, Variant

T = TypeVar("T")
Result = Ok | Err
Remote = RemoteInput | RemoteOutput

CLOSED: Final = Err(Variant("closed"))

FAILURE: Final = "record { code: string, message: string }"
PIECE: Final = (
    "record { content: list<u8>, ended: bool, trailers: option<list<tuple<string, list<u8>>>> }"
)
READ: Final = f"result<{PIECE}, {FAILURE}>"
SPLICED: Final = f"result<record {{ count: u64, piece: option<{PIECE}> }}, tuple<bool, {FAILURE}>>"
"""How much is to be read from a source that replay reads again, or what came from one that it does
not; or what failed, the target or (false) the source."""


def recorded(seen: Piece | Failure) -> Result:
    if isinstance(seen, Failure):
        return Err(failure_record(seen))
    return Ok(piece_record(seen))


def piece_record(piece: Piece) -> dict[str, object]:
    return {"content": piece.content, "ended": piece.ended, "trailers": piece.trailers}


def failure_record(failure: Failure) -> dict[str, object]:
    return {"code": failure.code, "message": failure.message}


def piece_of(record: Any) -> Piece:
    return Piece(record["content"], record["ended"], record["trailers"])


def is_answered(stream: InputStream | OutputStream) -> bool:
    """Whether what is asked of it is not recorded."""
    return not isinstance(stream, Remote) or stream.closed or stream.answers


def stream_result(
    state: HostState, stream: InputStream | OutputStream, operation: Callable[[], T]
) -> Result:
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


def remote_failure(state: HostState, stream: Remote, record: Any) -> Err:
    """What the guest gets of a failure that was recorded; it closes the stream."""
    stream.closed = True
    error = stream.io_error(Failure(record["code"], record["message"]))
    return Err(Variant("last-operation-failed", state.handles.add(error)))


# -- input ---------------------------------------------------------------------------------------


def read(state: HostState, number: int, count: int) -> Result | ToRecord:
    stream = state.handles.get(number, InputStream)
    if not is_answered(stream) and count:
        return TO_RECORD
    return stream_result(state, stream, lambda: stream.read(state, min(count, TRANSFER_BYTES_MAX)))


def skip(state: HostState, number: int, count: int) -> Result | ToRecord:
    stream = state.handles.get(number, InputStream)
    if not is_answered(stream) and count:
        return TO_RECORD
    return stream_result(state, stream, lambda: stream.skip(state, count))


def attempt_read(state: HostState, number: int, count: int) -> Result | NotReady:
    """What is there now, maybe nothing."""
    stream = state.handles.get(number, RemoteInput)
    seen = received_now(stream, count)
    if seen is None:
        return NOT_READY if stream.told_ready else recorded(Piece(b""))
    return NOT_READY if isinstance(seen, NotReady) else recorded(seen)


def attempt_blocking_read(state: HostState, number: int, count: int) -> Result | NotReady:
    seen = received_now(state.handles.get(number, RemoteInput), count)
    return NOT_READY if seen is None or isinstance(seen, NotReady) else recorded(seen)


def received_now(stream: RemoteInput, count: int) -> Piece | Failure | NotReady | None:
    """A failure that may pass is no answer yet: who waits has it tried again."""
    seen = stream.receive(min(count, TRANSFER_BYTES_MAX))
    return NOT_READY if isinstance(seen, Failure) and seen.transient else seen


async def received(
    stream: RemoteInput, count: int, record: Callable[[Piece | Failure], Result]
) -> Result:
    """What is recorded of it. Raises: TransientAnswer, of a failure that may pass."""
    seen = await stream.received(min(count, TRANSFER_BYTES_MAX))
    answer = record(seen)
    if isinstance(seen, Failure) and seen.transient:
        raise seen.passing(answer)
    return answer


async def wait_read(state: HostState, number: int, count: int) -> Result:
    return await received(state.handles.get(number, RemoteInput), count, recorded)


def observe_read(state: HostState, answer: Result, number: int, _count: int) -> Result:
    stream = state.handles.get(number, RemoteInput)
    if isinstance(answer, Err):
        return remote_failure(state, stream, answer.value)
    piece = piece_of(answer.value)
    stream.observe(state, piece)
    return Ok(piece.content) if piece.content or not piece.ended else CLOSED


def observe_skip(state: HostState, answer: Result, number: int, count: int) -> Result:
    read_result = observe_read(state, answer, number, count)
    if isinstance(read_result, Err):
        return read_result
    assert isinstance(read_result.value, bytes)
    return Ok(len(read_result.value))


def subscribe_input(state: HostState, number: int) -> int:
    return state.handles.add(state.handles.get(number, InputStream).pollable())


def drop_input(state: HostState, number: int) -> None:
    state.handles.get(number, InputStream).drop(state)
    state.handles.drop(number)


# -- output --------------------------------------------------------------------------------------


def check_write(state: HostState, number: int) -> Result | ToRecord:
    stream = state.handles.get(number, OutputStream)
    if not is_answered(stream):
        return TO_RECORD
    if isinstance(stream, RemoteOutput) and not stream.closed:
        return observe_room(state, room_of(stream), number)
    return stream_result(state, stream, lambda: TRANSFER_BYTES_MAX)


def room_of(stream: RemoteOutput) -> Result:
    room = stream.room()
    return Err(failure_record(room)) if isinstance(room, Failure) else Ok(room)


def look_for_room(state: HostState, number: int) -> Result:
    return room_of(state.handles.get(number, RemoteOutput))


def observe_room(state: HostState, answer: Result, number: int) -> Result:
    if isinstance(answer, Err):
        return remote_failure(state, state.handles.get(number, RemoteOutput), answer.value)
    return answer


def flush(state: HostState, number: int) -> Result:
    stream = state.handles.get(number, OutputStream)
    return stream_result(state, stream, lambda: None)


def blocking_flush(state: HostState, number: int) -> Result | ToRecord:
    stream = state.handles.get(number, OutputStream)
    return flush(state, number) if is_answered(stream) else TO_RECORD


def attempt_flush(state: HostState, number: int, *_: object) -> Result | NotReady:
    flushed = state.handles.get(number, RemoteOutput).is_flushed()
    if isinstance(flushed, Failure):
        return Err(failure_record(flushed))
    return Ok() if flushed else NOT_READY


async def wait_flush(state: HostState, number: int, *_: object) -> Result:
    failure = await state.handles.get(number, RemoteOutput).flushed()
    return Ok() if failure is None else Err(failure_record(failure))


def observe_flush(state: HostState, answer: Result, number: int, *_: object) -> Result:
    return observe_room(state, answer, number)


def the_stream(number: int, *_: object) -> tuple[int]:
    """What is recorded of a call that writes."""
    return (number,)


def refuse_above(maximum: int, count: int, function: str) -> None:
    if count > maximum:
        raise GuestTrap(
            f"{function} of {count} bytes; it takes at most {maximum}", where="wasi:io/streams"
        )


def write_all(state: HostState, number: int, contents: bytes) -> Result:
    stream = state.handles.get(number, OutputStream)
    return stream_result(state, stream, lambda: stream.write(state, contents))


def write(state: HostState, number: int, contents: bytes) -> Result:
    refuse_above(TRANSFER_BYTES_MAX, len(contents), "write")
    return write_all(state, number, contents)


def write_and_flush(state: HostState, number: int, contents: bytes) -> Result | ToRecord:
    refuse_above(BLOCKING_WRITE_BYTES_MAX, len(contents), "blocking-write-and-flush")
    return then_flushed(state, number, write_all(state, number, contents))


def write_zeroes(state: HostState, number: int, count: int) -> Result:
    refuse_above(TRANSFER_BYTES_MAX, count, "write-zeroes")
    return write_all(state, number, bytes(count))


def write_zeroes_and_flush(state: HostState, number: int, count: int) -> Result | ToRecord:
    refuse_above(BLOCKING_WRITE_BYTES_MAX, count, "blocking-write-zeroes-and-flush")
    return then_flushed(state, number, write_all(state, number, bytes(count)))


def then_flushed(state: HostState, number: int, written: Result) -> Result | ToRecord:
    if isinstance(written, Err) or is_answered(state.handles.get(number, OutputStream)):
        return written
    return TO_RECORD


def subscribe_output(state: HostState, number: int) -> int:
    return state.handles.add(state.handles.get(number, OutputStream).pollable())


def drop_output(state: HostState, number: int) -> None:
    state.handles.get(number, OutputStream).drop(state)
    state.handles.drop(number)


# -- from one to the other -----------------------------------------------------------------------


def splice(state: HostState, number: int, source: int, count: int) -> Result | ToRecord:
    target = state.handles.get(number, OutputStream)
    giving = state.handles.get(source, InputStream)
    if target.closed or giving.closed:
        return CLOSED
    if not is_answered(target) or not is_answered(giving):
        return TO_RECORD
    contents = stream_result(
        state, giving, lambda: giving.read(state, min(count, TRANSFER_BYTES_MAX))
    )
    return spliced(state, number, contents)


def spliced(state: HostState, number: int, contents: Result) -> Result:
    if isinstance(contents, Err):
        return contents
    assert isinstance(contents.value, bytes)
    written = write_all(state, number, contents.value)
    return written if isinstance(written, Err) else Ok(len(contents.value))


def attempt_splice(state: HostState, number: int, source: int, count: int) -> Result | NotReady:
    answer = attempt_blocking_splice(state, number, source, count)
    if answer is not NOT_READY:
        return answer
    giving = state.handles.get(source, InputStream)
    if isinstance(giving, RemoteInput) and giving.told_ready:
        return NOT_READY
    return Ok({"count": 0, "piece": None})


def attempt_blocking_splice(
    state: HostState, number: int, source: int, count: int
) -> Result | NotReady:
    target = state.handles.get(number, OutputStream)
    room = target.room() if isinstance(target, RemoteOutput) else TRANSFER_BYTES_MAX
    if isinstance(room, Failure):
        return Err((True, failure_record(room)))
    if not room:
        return NOT_READY
    giving = state.handles.get(source, InputStream)
    if not isinstance(giving, RemoteInput) or giving.answers:
        return splice_record(min(count, room))
    seen = received_now(giving, min(count, room))
    if seen is None or isinstance(seen, NotReady):
        return NOT_READY
    return splice_record(min(count, room), seen)


async def wait_splice(state: HostState, number: int, source: int, count: int) -> Result:
    target = state.handles.get(number, OutputStream)
    room = await target.has_room() if isinstance(target, RemoteOutput) else TRANSFER_BYTES_MAX
    if isinstance(room, Failure):
        return Err((True, failure_record(room)))
    giving = state.handles.get(source, InputStream)
    if not isinstance(giving, RemoteInput) or giving.answers:
        return splice_record(min(count, room))
    most = min(count, room)
    return await received(giving, most, partial(splice_record, most))


def splice_record(count: int, seen: Piece | Failure | None = None) -> Result:
    if isinstance(seen, Failure):
        return Err((False, failure_record(seen)))
    return Ok({"count": count, "piece": None if seen is None else piece_record(seen)})


def observe_splice(
    state: HostState, answer: Result, number: int, source: int, count: int
) -> Result:
    record: Any = answer.value
    giving = state.handles.get(source, InputStream)
    if isinstance(answer, Err):
        of_target, failure = record
        failed = state.handles.get(number, OutputStream) if of_target else giving
        assert isinstance(failed, Remote)
        return remote_failure(state, failed, failure)
    if record["piece"] is not None:
        contents = observe_read(state, Ok(record["piece"]), source, count)
    else:
        contents = stream_result(state, giving, lambda: giving.read(state, record["count"]))
    return spliced(state, number, contents)


def input_row(
    name: str, local: Callable[..., Any], attempt: Callable[..., Any], observe: Callable[..., Any]
) -> Awaited:
    return Awaited(
        name=f"[method]input-stream.{name}",
        function_type=READ_REMOTE,
        local=local,
        attempt=attempt,
        action=wait_read,
        observe=observe,
        answer=READ,
    )


def flush_row(name: str, local: Callable[..., Any]) -> Awaited:
    return Awaited(
        name=f"[method]output-stream.{name}",
        function_type=READ_LOCAL,
        local=local,
        asked=the_stream,
        attempt=attempt_flush,
        action=wait_flush,
        observe=observe_flush,
        answer=f"result<_, {FAILURE}>",
    )


def splice_row(name: str, attempt: Callable[..., Any]) -> Awaited:
    return Awaited(
        name=f"[method]output-stream.{name}",
        function_type=READ_REMOTE,
        local=splice,
        attempt=attempt,
        action=wait_splice,
        observe=observe_splice,
        answer=SPLICED,
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
        input_row("read", read, attempt_read, observe_read),
        input_row("blocking-read", read, attempt_blocking_read, observe_read),
        input_row("skip", skip, attempt_read, observe_skip),
        input_row("blocking-skip", skip, attempt_blocking_read, observe_skip),
        Local("[method]input-stream.subscribe", subscribe_input),
        Recorded(
            name="[method]output-stream.check-write",
            function_type=READ_LOCAL,
            local=check_write,
            action=look_for_room,
            observe=observe_room,
            answer=f"result<u64, {FAILURE}>",
        ),
        Local("[method]output-stream.write", write),
        flush_row("blocking-write-and-flush", write_and_flush),
        Local("[method]output-stream.flush", flush),
        flush_row("blocking-flush", blocking_flush),
        Local("[method]output-stream.subscribe", subscribe_output),
        Local("[method]output-stream.write-zeroes", write_zeroes),
        flush_row("blocking-write-zeroes-and-flush", write_zeroes_and_flush),
        splice_row("splice", attempt_splice),
        splice_row("blocking-splice", attempt_blocking_splice),
    ],
    drops={"input-stream": drop_input, "output-stream": drop_output},
)

TABLES: Final = (STREAMS,)
