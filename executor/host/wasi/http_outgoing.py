"""wasi:http/outgoing-handler, and the response that comes of it.

`handle` begins one deferred call. Its request is what was asked for, its answer the head of the
response with what of the body came with it, or why there is none. GET, HEAD, OPTIONS and TRACE are
read-remote; everything else is write-remote, PUT and DELETE idempotent.
"""

from typing import Any, Final

from executor.durable.deferred import DeferredCall
from executor.durable.deferred_function import DeferredFunction
from executor.durable.definition import Local, NotReady
from executor.durable.frames import Frames
from executor.durable.function_type import READ_REMOTE, WRITE_REMOTE, FunctionType
from executor.host.pollables import Watched
from executor.host.state import HostState
from executor.host.wasi.http_fields import Fields
from executor.host.wasi.http_lost_response import Response
from executor.host.wasi.http_messages import (
    AUTHORITY,
    OutgoingRequest,
    RequestOptions,
    declared_length,
)
from executor.host.wasi.http_response_body import ResponseBody
from executor.host.wasi.http_text import TYPES
from executor.host.wasi.http_transmission import Transmission
from executor.host.wasi.streams import PIECE, piece_of
from executor.services.http_client_types import (
    DEFAULT_TIMEOUT_S,
    HttpRequest,
    ResponseHead,
    Timeouts,
)
from executor.wasm.values import Err, Ok, Variant

HANDLE: Final = DeferredFunction(
    "wasi:http/outgoing-handler",
    "handle: func(method: string, scheme: string, authority: string, path: string,"
    " headers: list<tuple<string, list<u8>>>,"
    " timeouts: tuple<option<u64>, option<u64>, option<u64>>)"
    " -> result<record { status: u16, headers: list<tuple<string, list<u8>>>,"
    f" body: {PIECE} }}, record {{ code: error-code, message: string }}>",
    TYPES,
    keyed=True,
)
"""The timeouts are those to connect, to the first byte and between bytes, in nanoseconds."""

READING: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
IDEMPOTENT: Final = frozenset({"PUT", "DELETE"})
"""Writes that may be repeated by their definition (RFC 9110, 9.2.2), whatever the guest says of its
writes in general."""
BODILESS: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "DELETE"})
"""Methods of which nobody expects a body: without one, nothing is said of its length."""
TARGET_BYTES_MAX: Final = 64 * 1024
HEADERS_BYTES_MAX: Final = 128 * 1024
NS_PER_S: Final = 1_000_000_000


class Unsendable(Exception):
    """A request that is refused before anything is recorded."""

    def __init__(self, case: str, payload: object = None) -> None:
        super().__init__(case)
        self.code = Variant(case, payload)


class FutureResponse:
    def __init__(self, transmission: Transmission, call: DeferredCall) -> None:
        self.transmission = transmission
        self.call = call
        self.taken = False


class IncomingResponse:
    def __init__(self, head: ResponseHead, body: ResponseBody) -> None:
        self.status = head.status
        self.headers = Fields(head.headers, frozen=True)
        self.body = body
        self.consumed = False


def handle(state: Any, request_number: int, options_number: int | None) -> Ok | Err:
    request = state.handles.get(request_number, OutgoingRequest)
    state.handles.drop(request_number)
    options = RequestOptions()
    if options_number is not None:
        options = state.handles.get(options_number, RequestOptions)
        state.handles.drop(options_number)
    try:
        prepared = prepare(request, options)
    except Unsendable as refused:
        return Err(refused.code)
    body = None if request.body is None else request.body.content
    if body is not None and body.dropped:
        return Err(Variant("internal-error", "its body was dropped before it was finished"))
    asked = (
        prepared.method,
        "https" if prepared.secure else "http",
        prepared.authority,
        prepared.target,
        prepared.headers,
        (options.connect, options.first_byte, options.between_bytes),
    )
    transmission = Transmission(state, traced(state, prepared), body, recorded_response)
    function_type: FunctionType = READ_REMOTE if prepared.method in READING else WRITE_REMOTE
    session = state.session
    call = HANDLE.begin(
        session.deferred,
        function_type,
        asked,
        transmission.perform,
        idempotent=prepared.method in IDEMPOTENT,
    )
    transmission.call = call
    if body is not None:
        call.signal = body.news  # who waits to write hears when the call has ended
        body.hand_over(Frames(session, call.index, "request-body"), state.outside)
    return Ok(state.handles.add(FutureResponse(transmission, call)))


def prepare(request: OutgoingRequest, options: RequestOptions) -> HttpRequest:
    """What is to be sent. Raises: Unsendable."""
    scheme = "HTTPS" if request.scheme is None else request.scheme.case
    found = AUTHORITY.match(request.authority or "")
    if scheme == "other":
        raise Unsendable("HTTP-protocol-error")
    if found is None or request.target is None:
        raise Unsendable("HTTP-request-URI-invalid")
    method = request.method.case.upper()
    if method == "OTHER":
        method = str(request.method.payload)
    if method == "CONNECT":
        raise Unsendable("HTTP-request-method-invalid")
    target = request.target
    if not target or target.startswith("?"):
        target = f"/{target}"
    if len(target) > TARGET_BYTES_MAX:
        raise Unsendable("HTTP-request-URI-too-long")
    size = sum(len(name) + len(value) for name, value in request.headers.entries)
    if size > HEADERS_BYTES_MAX:
        raise Unsendable("HTTP-request-header-section-size", size)
    secure = scheme == "HTTPS"
    return HttpRequest(
        method=method,
        secure=secure,
        host=found["literal"] or found["name"],
        port=int(found["port"] or (443 if secure else 80)),
        authority=found[0],
        target=target,
        headers=list(request.headers.entries),
        has_body=request.body is not None,
        body_bytes=body_length(request, method),
        timeouts=Timeouts(
            connect_s=seconds(options.connect),
            first_byte_s=seconds(options.first_byte),
            between_bytes_s=seconds(options.between_bytes),
        ),
    )


def body_length(request: OutgoingRequest, method: str) -> int | None:
    """What is to be said of it besides the request's headers. Raises: Unsendable."""
    try:
        declared = declared_length(request.headers)
    except ValueError:
        raise Unsendable("HTTP-request-body-size") from None
    if request.body is None:
        if declared:
            raise Unsendable("HTTP-request-body-size", 0)
        return None if declared == 0 or method in BODILESS else 0
    body = request.body.content
    return body.written_bytes if body.finished and declared is None else None


def seconds(duration_ns: int | None) -> float:
    return DEFAULT_TIMEOUT_S if duration_ns is None else duration_ns / NS_PER_S


def traced(state: Any, request: HttpRequest) -> HttpRequest:
    """With the header of the invocation's trace, as W3C Trace Context has it, unless the guest set
    its own or forbade it.
    """
    trace = state.session.trace
    if not trace.forwards or request.has("traceparent"):
        return request
    return request.saying("traceparent", trace.header)


def recorded_response(call: DeferredCall) -> Response | None:
    """The response that is recorded as the answer; None if it was another one."""
    answer = HANDLE.decode(call)
    return response_of(answer.value) if isinstance(answer, Ok) else None


def response_of(record: Any) -> Response:
    head = ResponseHead(status=record["status"], headers=record["headers"])
    return Response(head, piece_of(record["body"]))


# -- the future ----------------------------------------------------------------------------------


def subscribe(state: Any, number: int) -> int:
    call = state.handles.get(number, FutureResponse).call
    ready = Watched(call.signal, lambda: bool(state.session.deferred.is_ready(call)))
    added: int = state.handles.add(ready)
    return added


def get(state: Any, number: int) -> Ok | Err | None:
    future = state.handles.get(number, FutureResponse)
    if future.taken:
        return Err()
    answer = HANDLE.read(state.session.deferred, future.call)
    if isinstance(answer, NotReady):
        return None
    future.taken = True
    if isinstance(answer, Err):
        refusal: Any = answer.value
        tell_denied(state, refusal)
        return Ok(Err(refusal["code"]))
    assert isinstance(answer, Ok)
    head, first = response_of(answer.value)
    future.transmission.observe(first)
    response = IncomingResponse(head, ResponseBody(future.transmission, first))
    return Ok(Ok(state.handles.add(response)))


def tell_denied(state: HostState, refusal: Any) -> None:
    """`error-code` cannot say which rule is missing; the worker's stderr does."""
    if refusal["code"].case == "HTTP-request-denied":
        state.session.log("stderr", f"HTTP request denied: {refusal['message']}\n".encode())


def drop_future(state: Any, number: int) -> None:
    future = state.handles.get(number, FutureResponse)
    state.handles.drop(number)
    if not future.taken:
        state.session.deferred.drop(future.call)
        future.transmission.give_up()


# -- the response --------------------------------------------------------------------------------


def status(state: HostState, number: int) -> int:
    return state.handles.get(number, IncomingResponse).status


def headers(state: HostState, number: int) -> int:
    return state.handles.add(state.handles.get(number, IncomingResponse).headers)


def consume(state: HostState, number: int) -> Ok | Err:
    response = state.handles.get(number, IncomingResponse)
    if response.consumed:
        return Err()
    response.consumed = True
    return Ok(state.handles.add(response.body))


def drop_response(state: HostState, number: int) -> None:
    response = state.handles.get(number, IncomingResponse)
    state.handles.drop(number)
    if not response.consumed:
        response.body.drop()


ROWS: Final = (
    Local("[method]future-incoming-response.subscribe", subscribe),
    Local("[method]future-incoming-response.get", get),
    Local("[method]incoming-response.status", status),
    Local("[method]incoming-response.headers", headers),
    Local("[method]incoming-response.consume", consume),
)
