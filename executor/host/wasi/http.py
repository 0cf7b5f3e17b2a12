"""wasi:http: the tables of `types` and `outgoing-handler`, of every 0.2.x.

No request comes in this way: the resources of an incoming one are linked, and none of them exists.
"""

from typing import Final, NoReturn

from executor.durable.definition import Local
from executor.errors import InternalError
from executor.host.interface import host_interface
from executor.host.state import HostState
from executor.host.streams import IoError
from executor.host.wasi import http_fields, http_messages, http_outgoing, http_response_body
from executor.host.wasi.clocks import MONOTONIC_CLOCK
from executor.host.wasi.http_text import TYPES, TYPES_TEXT
from executor.wasm.values import Variant


def http_error_code(state: HostState, error: int) -> Variant | None:
    return state.handles.get(error, IoError).http_error


def without_request(_state: HostState, *_arguments: object) -> NoReturn:
    raise InternalError("a method of an incoming request was called, and none exists")


INCOMING: Final = (
    "[method]incoming-request.method",
    "[method]incoming-request.path-with-query",
    "[method]incoming-request.scheme",
    "[method]incoming-request.authority",
    "[method]incoming-request.headers",
    "[method]incoming-request.consume",
    "[method]response-outparam.send-informational",
    "[static]response-outparam.set",
)

HTTP_TYPES: Final = host_interface(
    TYPES_TEXT,
    "0.2",
    [
        Local("http-error-code", http_error_code),
        *http_fields.ROWS,
        *http_messages.ROWS,
        *http_outgoing.ROWS,
        *http_response_body.ROWS,
        *(Local(name, without_request) for name in INCOMING),
    ],
    uses=MONOTONIC_CLOCK.wit.types,
    drops={
        "outgoing-body": http_messages.drop_body,
        "future-incoming-response": http_outgoing.drop_future,
        "incoming-response": http_outgoing.drop_response,
        "incoming-body": http_response_body.drop_body,
        "future-trailers": http_response_body.drop_trailers,
    },
)

OUTGOING: Final = host_interface(
    """
    interface wasi:http/outgoing-handler {
        use types.{outgoing-request, request-options, future-incoming-response, error-code};
        handle: func(request: outgoing-request, options: option<request-options>)
            -> result<future-incoming-response, error-code>;
    }
    """,
    "0.2",
    [Local("handle", http_outgoing.handle, http_outgoing.HANDLE.answer)],
    uses=TYPES,
)

TABLES: Final = (HTTP_TYPES, OUTGOING)
