"""The body of a response, as the guest reads it, and its trailers.

What came with the head is answered from there, without a record. What follows is read from the
`Transmission`, each read with a record of what it gave.
"""

from functools import partial
from typing import Any, Final

from executor.durable.deferred import DeferredCall
from executor.durable.deferred_function import DeferredFunction
from executor.durable.definition import Local, NotReady
from executor.durable.function_type import READ_REMOTE
from executor.host.pollables import AlwaysReady, Pollable, Watched
from executor.host.state import HostState
from executor.host.streams import Failure, IoError, Piece, RemoteInput, StreamClosed
from executor.host.wasi.http_fields import Fields
from executor.host.wasi.http_request_body import http_io_error
from executor.host.wasi.http_transmission import Transmission
from executor.wasm.values import Err, Ok

TRAILERS: Final = DeferredFunction(
    "wasi:http/types",
    "trailers: func(request: u64) -> result<option<list<tuple<string, list<u8>>>>,"
    " record { code: string, message: string }>",
)
"""Reads what is left of a body, for the sake of its trailers; `request` is the start of the call
that the body belongs to."""


class ResponseBody:
    """An `incoming-body`, and what the guest has seen of it."""

    def __init__(self, transmission: Transmission, first: Piece) -> None:
        self.transmission = transmission
        self.rest = first.content
        """Of what came with the head."""
        self.ended = first.ended
        """Nothing follows `rest`."""
        self.trailers = first.trailers
        self.streamed = False
        """The guest has its stream."""

    def observe(self, piece: Piece) -> None:
        self.transmission.observe(piece)
        self.ended = piece.ended
        self.trailers = piece.trailers

    def drop(self) -> None:
        """The guest wants no more of it than it has."""
        self.transmission.give_up()


class BodyInput(RemoteInput):
    """Its stream."""

    def __init__(self, body: ResponseBody) -> None:
        self._body = body

    @property
    def answers(self) -> bool:
        return bool(self._body.rest) or self._body.ended

    def read(self, _state: HostState, count: int) -> bytes:
        body = self._body
        if not body.rest and body.ended:
            raise StreamClosed
        given, body.rest = body.rest[:count], body.rest[count:]
        return given

    def skip(self, state: HostState, count: int) -> int:
        return len(self.read(state, count))

    def drop(self, _state: HostState) -> None:
        """The body may still be finished, for its trailers."""

    def pollable(self) -> Pollable:
        return Watched(self._body.transmission.signal, self._is_ready, self._be_told)

    def receive(self, count: int) -> Piece | Failure | None:
        found = self._body.transmission.take(count)
        if found is None:
            self._body.transmission.ask()
        return found

    async def received(self, count: int) -> Piece | Failure:
        return await self._body.transmission.received(count)

    def observe(self, _state: HostState, piece: Piece) -> None:
        if piece.content or piece.ended:
            self.told_ready = False
        self._body.observe(piece)

    def io_error(self, failure: Failure) -> IoError:
        return http_io_error(failure)

    def _is_ready(self) -> bool:
        return self.answers or self.closed or self._body.transmission.has_something()

    def _be_told(self) -> None:
        self.told_ready = not self.answers


class FutureTrailers:
    """A `future-trailers`: those of a body that was read whole are known; else it is read on."""

    def __init__(self, body: ResponseBody) -> None:
        self.body = body
        self.call: DeferredCall | None = None
        self.taken = False


def finish(state: Any, number: int) -> int:
    """`incoming-body.finish`."""
    body = state.handles.get(number, ResponseBody)
    state.handles.drop(number)
    future = FutureTrailers(body)
    if not body.ended:
        transmission = body.transmission
        request = (transmission.call.index,)
        run = partial(read_to_end, transmission)
        future.call = TRAILERS.begin(state.session.deferred, READ_REMOTE, request, run)
    added: int = state.handles.add(future)
    return added


async def read_to_end(transmission: Transmission, _call: DeferredCall) -> Ok | Err:
    found = await transmission.drained()
    if not isinstance(found, Failure):
        return Ok(found.trailers)
    answer = Err({"code": found.code, "message": found.message})
    if found.transient:
        raise found.passing(answer)
    return answer


def subscribe_trailers(state: Any, number: int) -> int:
    call = state.handles.get(number, FutureTrailers).call
    pollable: Pollable = AlwaysReady()
    if call is not None:
        pollable = Watched(call.signal, lambda: bool(state.session.deferred.is_ready(call)))
    added: int = state.handles.add(pollable)
    return added


def get_trailers(state: Any, number: int) -> Ok | Err | None:
    future = state.handles.get(number, FutureTrailers)
    if future.taken:
        return Err()
    body = future.body
    if future.call is not None:
        answer = TRAILERS.read(state.session.deferred, future.call)
        if isinstance(answer, NotReady):
            return None
        if isinstance(answer, Err):
            future.taken = True
            record: Any = answer.value
            failure = Failure(record["code"], record["message"])
            return Ok(Err(http_io_error(failure).http_error))
        assert isinstance(answer, Ok)
        body.observe(Piece(b"", ended=True, trailers=answer.value))  # type: ignore[arg-type]  # as TRAILERS says
    future.taken = True
    if body.trailers is None:
        return Ok(Ok(None))
    return Ok(Ok(state.handles.add(Fields(body.trailers, frozen=True))))


def drop_trailers(state: Any, number: int) -> None:
    future = state.handles.get(number, FutureTrailers)
    if future.call is not None:
        state.session.deferred.drop(future.call)
    future.body.drop()
    state.handles.drop(number)


def drop_body(state: HostState, number: int) -> None:
    state.handles.get(number, ResponseBody).drop()
    state.handles.drop(number)


def stream(state: HostState, number: int) -> Ok | Err:
    """`incoming-body.stream`, once."""
    body = state.handles.get(number, ResponseBody)
    if body.streamed:
        return Err()
    body.streamed = True
    return Ok(state.handles.add(BodyInput(body)))


ROWS: Final = (
    Local("[method]incoming-body.stream", stream),
    Local("[static]incoming-body.finish", finish),
    Local("[method]future-trailers.subscribe", subscribe_trailers),
    Local("[method]future-trailers.get", get_trailers),
)
