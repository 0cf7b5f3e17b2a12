"""How requests, answers and errors travel: JSON, one object a line.

    POST /v1/<operation>      one object, the operation's arguments by name
    200, one line an event    {"output": …} {"report": …} {"progress": …} {"accepted": …},
                              and last {"answer": …} or {"error": …}
    another status            {"error": …}, where nothing was told before it

Answers have the shapes of the command line's JSON (`executor.server.shapes`); an invocation has its
`exit_code` besides. An error is `{kind, message, where, hint}` with the fields of its own kind.
"""

import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, Final, Literal, TypeVar

import msgspec

from executor.durable.retry import RetryPolicy
from executor.durable.retry_rules import RetryRule
from executor.errors import (
    BadArguments,
    ComponentRejected,
    Divergence,
    InternalError,
    PreviousFailed,
    ShemError,
    StoreError,
)
from executor.records import ErrorRecord, InitialFile, Invocation, Record, WorkerFile
from executor.server.shapes import Json, error_json, invocation_json
from executor.worker.commits import store_error
from oplog.errors import OplogError

NS_PER_S: Final = 1_000_000_000
TIMES: Final = frozenset({"created_at", "deployed_at", "accessed_at", "modified_at", "changed_at"})
OK: Final = 200
BAD_REQUEST: Final = 400
NOT_FOUND: Final = 404
REFUSED: Final = 409
FAILED: Final = 500
STATUS: Final = {
    "usage": BAD_REQUEST,
    "bad-arguments": BAD_REQUEST,
    "component-rejected": BAD_REQUEST,
    "unknown-component": NOT_FOUND,
    "unknown-worker": NOT_FOUND,
    "unknown-function": NOT_FOUND,
    "unknown-key": NOT_FOUND,
    "unknown-file": NOT_FOUND,
    "unknown-promise": NOT_FOUND,
    "key-conflict": REFUSED,
    "exists": REFUSED,
    "busy": REFUSED,
    "uncertain": REFUSED,
    "previous-failed": REFUSED,
    "deleted": REFUSED,
    "interrupted": REFUSED,
    "cancelled": REFUSED,
}
"""HTTP's word for a kind of error; everything else is a fault of this side."""

Answer = TypeVar("Answer", bound=Record)
Request = TypeVar("Request", bound=msgspec.Struct)


def encoded(value: object) -> bytes:
    """JSON. A terminal may pass bytes that are no Unicode text, and an error tells them: they
    travel as escapes of the halves of surrogate pairs that Python makes of them.
    """
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(value)).encode()


def request_of(raw: bytes, kind: type[Request]) -> Request:
    """The request that the bytes hold. Raises: msgspec.MsgspecError, ValueError."""
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        return msgspec.convert(json.loads(raw), kind)


# -- requests --------------------------------------------------------------------------------------


class DeployRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    wasm: bytes
    """As base64, like the content of files."""
    name: str
    env: dict[str, str] = {}
    files: tuple[InitialFile, ...] = ()
    host: tuple[str, ...] = ()
    host_directory: str = ""
    """Where the one who asks imports its host functions from."""
    limits: dict[str, int] = {}
    config: dict[str, str] = {}
    retry: RetryPolicy | None = None
    allow_net: tuple[str, ...] = ()
    retry_rules: tuple[RetryRule, ...] = ()


class SubmitRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    worker: str
    function: str
    arguments: tuple[str, ...] = ()
    """WAVE, one text a parameter."""
    key: str | None = None
    env: dict[str, str] | None = None
    args: tuple[str, ...] | None = None
    allow_net: tuple[str, ...] | None = None


class WaitRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    worker: str
    key: str
    timeout_s: float | None = None


class KeyRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    worker: str
    key: str


class WorkerRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    worker: str


class ReplayRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    worker: str
    to: int | None = None


class FilesRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    worker: str
    path: str


class ResolveRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    worker: str
    start: int
    choice: Literal["repeat", "fail", "value"]
    value: tuple[str, ...] | None = None
    """The answer as WAVE, for the choice `value`."""


class RevertRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    worker: str
    to: int | None = None
    last: int | None = None


class PromiseRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    worker: str
    promise: int
    value: bytes
    """As base64."""
    key: str


class RunRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    until_idle: bool = False


# -- answers ---------------------------------------------------------------------------------------


def invocation_shape(invocation: Invocation) -> Json:
    return invocation_json(invocation) | {"exit_code": invocation.exit_code}


def file_of(shape: Json) -> WorkerFile:
    """As `record_of`; the content is bytes again."""
    content: Any = shape.get("content")
    if content is not None:
        shape = shape | {"content": content["base64"]}
    return record_of(shape, WorkerFile)


def record_of(shape: object, kind: type[Answer]) -> Answer:
    """The record that a shape was made of. `result` stays as JSON has it, `value` is not there."""
    return msgspec.convert(_with_times(shape), kind)


def _with_times(shape: Any) -> Any:
    match shape:
        case dict():
            return {
                name: time_ns(part) if name in TIMES else _with_times(part)
                for name, part in shape.items()
            }
        case list():
            return [_with_times(part) for part in shape]
        case _:
            return shape


def time_ns(text: str) -> int:
    """Nanoseconds since the Unix epoch of an RFC 3339 time with nine digits behind the point."""
    whole, _, rest = text.partition(".")
    since = datetime.fromisoformat(f"{whole}+00:00") - datetime.fromisoformat("1970-01-01T00Z")
    return since // timedelta(seconds=1) * NS_PER_S + int(rest.removesuffix("Z"))


# -- errors ----------------------------------------------------------------------------------------


def error_shape(error: Exception, where: str) -> Json:
    """Any exception as JSON."""
    match error:
        case ShemError():
            return _refusal_shape(error)
        case OplogError():
            return _refusal_shape(store_error(error, where))
        case InternalError():
            text = str(error)
        case _:
            text = f"{type(error).__name__}: {error}"
    return error_json(ErrorRecord(kind="internal", message=text, where=where))


def _refusal_shape(error: ShemError) -> Json:
    record = ErrorRecord(kind=error.kind, message=error.message, where=error.where, hint=error.hint)
    more: Json = {}
    match error:
        case BadArguments():
            more = {"column": error.column, "expected": error.expected}
        case ComponentRejected():
            more = {"imports": list(error.imports)}
        case PreviousFailed():
            more = {"stderr": error.stderr}
        case Divergence():
            names = ("worker", "index", "recorded", "requested")
            more = {name: getattr(error, name) for name in names}
        case _:
            pass
    return error_json(record) | more


def error_of(shape: dict[str, Any]) -> Exception:
    """The exception that a shape was made of."""
    kind = shape["kind"]
    sentence = {name: shape[name] for name in ("message", "where", "hint")}
    match kind:
        case "internal":
            return InternalError(shape["message"])
        case "divergence" if "index" in shape:
            names = ("worker", "index", "recorded", "requested")
            return Divergence(**{name: shape[name] for name in names})
        case "bad-arguments":
            column, expected = shape.get("column", 0), shape.get("expected", "")
            return BadArguments(**sentence, column=column, expected=expected)
        case "component-rejected":
            return ComponentRejected(**sentence, imports=tuple(shape.get("imports", ())))
        case "previous-failed":
            refusal = PreviousFailed(**sentence)
            refusal.stderr = shape.get("stderr", "")
            return refusal
        case _:
            pass
    known = KINDS.get(kind)
    return StoreError(**sentence, kind=kind) if known is None else known(**sentence)


def _kinds(error: type[ShemError]) -> Iterator[tuple[str, type[ShemError]]]:
    for inner in error.__subclasses__():
        if not issubclass(inner, StoreError) and inner is not Divergence:
            yield inner.kind, inner
            yield from _kinds(inner)


KINDS: Final = dict(_kinds(ShemError))
"""The most special class of each kind; kinds that are not here are the store's."""
