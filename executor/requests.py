"""What a caller asks for, checked and made canonical before anything is recorded."""

import os
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import msgspec

from executor.errors import BadArguments, UsageError
from executor.wasm.check import canonical_arguments
from executor.wasm.function_name import resolve
from executor.wasm.plain import encode_arguments
from executor.wasm.types import FuncType
from executor.wasm.wave import parse_arguments
from executor.wasm.weight import check_weight
from oplog.entry import Raw

KEY_BYTES_MAX: Final = 1_024
SERVER: Final = ("wasi:http/incoming-handler.", "wasi:http/incoming-handler@")
"""How the paths begin of what a component exports that answers HTTP requests."""

UNORDERED: Final = (str, bytes, Mapping, AbstractSet)
"""What can be gone through and is no list of arguments."""


class WaveArguments(msgspec.Struct, frozen=True):
    """Arguments as WAVE text, one a parameter."""

    texts: tuple[str, ...]


@lru_cache(maxsize=4_096)
def resolve_path(exports: tuple[str, ...], function: str, component: str) -> str:
    """As `resolve`, remembered: callers name the same few functions again and again."""
    return resolve(exports, function, where=component)


def check_type(value: object, wanted: type, where: str) -> None:
    """Raises: UsageError unless the value, which a caller of the library gave, is of the type."""
    if not isinstance(value, wanted):
        raise UsageError(
            f"it is of type {type(value).__name__}, and has to be {wanted.__name__}",
            where=where,
            hint=f"give a value of type {wanted.__name__}",
        )


def check_options(given: Mapping[str, object], types: Mapping[str, Any]) -> None:
    """Raises: UsageError for an option that is not among `types`, or a value of another type."""
    for name, value in given.items():
        if name not in types:
            raise UsageError(
                "there is no such option", where=name, hint=f"one of {', '.join(sorted(types))}"
            )
        wanted = types[name]
        try:
            msgspec.convert(value, wanted)
        except msgspec.ValidationError as error:
            raise UsageError(
                f"it is of another type: {error}",
                where=name,
                hint=f"give a {wanted.__name__ if isinstance(wanted, type) else wanted}",
            ) from error


def store_directory(path: object) -> Path:
    """Where the store is to be. Raises: UsageError for what names no directory."""
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    if not isinstance(text, str) or not text:
        raise UsageError(
            f"{path!r} names no directory",
            where="path",
            hint='give the directory of the store, as "data"',
        )
    return Path(text)


def check_request(worker: str, function: str, key: str | None) -> None:
    """Raises: UsageError if one of them is no name at all."""
    check_type(worker, str, "worker")
    check_type(function, str, "function")
    if key is not None:
        check_key(key)


def check_promise(promise: int, value: bytes) -> None:
    """Raises: UsageError."""
    check_type(promise, int, "promise")
    check_type(value, bytes, "value")


def check_key(key: str) -> None:
    """Raises: UsageError unless the key is 1 to 1,024 bytes of UTF-8."""
    check_type(key, str, "key")
    try:
        size = len(key.encode())
    except UnicodeEncodeError as error:
        raise UsageError(
            f"{key!r} is not Unicode text",
            where="key",
            hint="a key is text, in UTF-8; write other bytes as hexadecimal digits",
        ) from error
    if not 1 <= size <= KEY_BYTES_MAX:
        raise UsageError(
            f"an idempotency key has 1 to {KEY_BYTES_MAX} bytes of UTF-8",
            where="key",
            hint="give a shorter one, as a digest" if key else "give one, or leave it out",
        )


def canonical_request(path: str, wit: FuncType, arguments: Sequence[object] | WaveArguments) -> Raw:
    """The canonical bytes of the arguments. Raises: BadArguments, LimitError."""
    if path.startswith(SERVER):
        raise BadArguments(
            "it takes a request that came in over HTTP, and none comes in to a worker",
            where=path,
            hint="have the component export a function that takes values, and invoke that one",
        )
    if isinstance(arguments, WaveArguments):
        values = parse_arguments(wit, arguments.texts, path)
    elif isinstance(arguments, UNORDERED) or not isinstance(arguments, Iterable):
        raise BadArguments(
            f"the arguments are one {type(arguments).__name__}",
            where=path,
            hint="give a list with a value for each parameter, [] for none",
        )
    else:
        values = canonical_arguments(wit, arguments, path)
    raw = encode_arguments(wit, values)
    types = (of for _, of in wit.params)
    check_weight(zip(types, values, strict=True), raw, "the arguments take", path)
    return raw
