"""The messages of wasi:http/types that a guest makes: requests, responses and their bodies.

All of it is the guest's own state, the same in replay. A response that a guest makes goes nowhere,
since no request comes in this way.
"""

import re
from collections.abc import Callable
from typing import Final

from executor.durable.definition import Local
from executor.host.state import HostState
from executor.host.wasi.http_fields import Fields
from executor.host.wasi.http_request_body import BodyOutput, RequestBody
from executor.wasm.values import Err, Ok, Variant

TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+\Z")
"""RFC 9110, 9.1."""
SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+\-.]*\Z")
"""RFC 3986, 3.1."""
TARGET: Final = re.compile(r"(?:[/?][\x21\x22\x24-\x7e]*|\*|)\Z")
"""Path and query without fragment: RFC 9112, 3.2."""
AUTHORITY: Final = re.compile(
    r"(?:\[(?P<literal>[0-9A-Fa-f:.]+)\]|(?P<name>[A-Za-z0-9\-._~%!$&'()*+,;=]+))"
    r"(?::(?P<port>[0-9]{0,5}))?\Z"
)
"""RFC 9110, 4.2: host and port, without user information."""
PORT_MAX: Final = 65_535


class OutgoingRequest:
    def __init__(self, headers: Fields) -> None:
        self.headers = Fields(headers.entries, frozen=True)
        self.method = Variant("get")
        self.target: str | None = None
        self.scheme: Variant | None = None
        self.authority: str | None = None
        self.body: OutgoingBody | None = None


class OutgoingResponse:
    def __init__(self, headers: Fields) -> None:
        self.headers = Fields(headers.entries, frozen=True)
        self.status = 200
        self.body: OutgoingBody | None = None


class OutgoingBody:
    def __init__(self, declared_bytes: int | None) -> None:
        self.content = RequestBody(declared_bytes)
        self.written = False
        """The guest has its stream."""


class RequestOptions:
    """Durations in nanoseconds, None for the host's own."""

    def __init__(self) -> None:
        self.connect: int | None = None
        self.first_byte: int | None = None
        self.between_bytes: int | None = None


def declared_length(headers: Fields) -> int | None:
    """What content-length says. Raises: ValueError."""
    said = headers.get("content-length")
    if not said:
        return None
    if len(set(said)) > 1 or not said[0].strip().isdigit():
        raise ValueError(said)
    return int(said[0])


def take_headers(state: HostState, number: int) -> Fields:
    """The guest gives them up to a message."""
    fields = state.handles.get(number, Fields)
    state.handles.drop(number)
    return fields


# -- requests ------------------------------------------------------------------------------------


def make_request(state: HostState, headers: int) -> int:
    return state.handles.add(OutgoingRequest(take_headers(state, headers)))


def request(state: HostState, number: int) -> OutgoingRequest:
    return state.handles.get(number, OutgoingRequest)


def set_method(state: HostState, number: int, method: Variant) -> Ok | Err:
    if method.case == "other" and not TOKEN.match(str(method.payload)):
        return Err()
    request(state, number).method = method
    return Ok()


def set_target(state: HostState, number: int, target: str | None) -> Ok | Err:
    if target is not None and not TARGET.match(target):
        return Err()
    request(state, number).target = target
    return Ok()


def set_scheme(state: HostState, number: int, scheme: Variant | None) -> Ok | Err:
    if scheme is not None and scheme.case == "other" and not SCHEME.match(str(scheme.payload)):
        return Err()
    request(state, number).scheme = scheme
    return Ok()


def set_authority(state: HostState, number: int, authority: str | None) -> Ok | Err:
    if authority is not None:
        found = AUTHORITY.match(authority)
        if found is None or int(found["port"] or 0) > PORT_MAX:
            return Err()
    request(state, number).authority = authority
    return Ok()


def request_headers(state: HostState, number: int) -> int:
    return state.handles.add(request(state, number).headers)


def request_body(state: HostState, number: int) -> Ok | Err:
    return take_body(state, request(state, number))


def take_body(state: HostState, message: OutgoingRequest | OutgoingResponse) -> Ok | Err:
    """Once, and only if its headers agree on its length."""
    if message.body is not None:
        return Err()
    try:
        declared = declared_length(message.headers)
    except ValueError:
        return Err()
    message.body = OutgoingBody(declared)
    return Ok(state.handles.add(message.body))


# -- options -------------------------------------------------------------------------------------


def make_options(state: HostState) -> int:
    return state.handles.add(RequestOptions())


def option_rows(name: str, attribute: str) -> tuple[Local, Local]:
    """One duration: how it is read, and set."""

    def read(state: HostState, number: int) -> int | None:
        found: int | None = getattr(state.handles.get(number, RequestOptions), attribute)
        return found

    def change(state: HostState, number: int, duration: int | None) -> Ok:
        setattr(state.handles.get(number, RequestOptions), attribute, duration)
        return Ok()

    return (
        Local(f"[method]request-options.{name}", read),
        Local(f"[method]request-options.set-{name}", change),
    )


# -- bodies --------------------------------------------------------------------------------------


def write_body(state: HostState, number: int) -> Ok | Err:
    body = state.handles.get(number, OutgoingBody)
    if body.written:
        return Err()
    body.written = True
    return Ok(state.handles.add(BodyOutput(body.content)))


def finish_body(state: HostState, number: int, trailers: int | None) -> Ok | Err:
    body = state.handles.get(number, OutgoingBody)
    state.handles.drop(number)
    fields = [] if trailers is None else take_headers(state, trailers).entries
    code = body.content.finish(fields)
    return Ok() if code is None else Err(code)


def drop_body(state: HostState, number: int) -> None:
    state.handles.get(number, OutgoingBody).content.drop()
    state.handles.drop(number)


# -- responses -----------------------------------------------------------------------------------


def make_response(state: HostState, headers: int) -> int:
    return state.handles.add(OutgoingResponse(take_headers(state, headers)))


def response(state: HostState, number: int) -> OutgoingResponse:
    return state.handles.get(number, OutgoingResponse)


def set_status(state: HostState, number: int, status: int) -> Ok | Err:
    if not 100 <= status <= 999:
        return Err()
    response(state, number).status = status
    return Ok()


def response_headers(state: HostState, number: int) -> int:
    return state.handles.add(response(state, number).headers)


def response_body(state: HostState, number: int) -> Ok | Err:
    return take_body(state, response(state, number))


def reader(attribute: str) -> Callable[[HostState, int], object]:
    def read(state: HostState, number: int) -> object:
        return getattr(request(state, number), attribute)

    return read


ROWS: Final = (
    Local("[constructor]outgoing-request", make_request),
    Local("[method]outgoing-request.body", request_body),
    Local("[method]outgoing-request.method", reader("method")),
    Local("[method]outgoing-request.set-method", set_method),
    Local("[method]outgoing-request.path-with-query", reader("target")),
    Local("[method]outgoing-request.set-path-with-query", set_target),
    Local("[method]outgoing-request.scheme", reader("scheme")),
    Local("[method]outgoing-request.set-scheme", set_scheme),
    Local("[method]outgoing-request.authority", reader("authority")),
    Local("[method]outgoing-request.set-authority", set_authority),
    Local("[method]outgoing-request.headers", request_headers),
    Local("[constructor]request-options", make_options),
    *option_rows("connect-timeout", "connect"),
    *option_rows("first-byte-timeout", "first_byte"),
    *option_rows("between-bytes-timeout", "between_bytes"),
    Local("[constructor]outgoing-response", make_response),
    Local("[method]outgoing-response.status-code", lambda state, n: response(state, n).status),
    Local("[method]outgoing-response.set-status-code", set_status),
    Local("[method]outgoing-response.headers", response_headers),
    Local("[method]outgoing-response.body", response_body),
    Local("[method]outgoing-body.write", write_body),
    Local("[static]outgoing-body.finish", finish_body),
)
