"""A guest's trap as a sentence and a backtrace, from Wasmtime's error text. Pure."""

import re
from typing import Final

import msgspec

from executor.errors import LimitError
from executor.wasm.bulk_bytes import BYTES_MAX, STREAMS, TOO_LARGE
from executor.wasm.weight import CROSSING_BYTES_MAX, MIB

_NUMBER: Final = re.compile(r"^[0-9]+: ")
_CAUSED_BY: Final = "\nCaused by:"
_TRAP: Final = "wasm trap: "
_BACKTRACE: Final = "wasm backtrace:"
_UNREACHABLE: Final = "wasm `unreachable` instruction executed"


PASSED_TOO_MUCH: Final = "fuel allocated for hostcalls has been exhausted"
"""Part of Wasmtime's text when a guest passes more than `weight.CROSSING_BYTES_MAX` in one call."""


def too_much() -> LimitError:
    """A guest passed more than a call may take: with it, or back."""
    return LimitError(
        f"the guest passed more than {CROSSING_BYTES_MAX // MIB} MiB in one call"
        " (48 bytes for each byte of a list<u8>)",
        hint="pass large values in parts",
    )


class Trapped(msgspec.Struct, frozen=True):
    """The guest broke a rule of WebAssembly, or gave up (an abort compiles to `unreachable`)."""

    message: str
    """`trapped (unreachable)`; with a memory limit, its value if that may be the cause."""
    backtrace: str = ""
    """The guest's functions, innermost first, as Wasmtime names them."""


def trapped(error: str, memory_bytes_max: int | None) -> Trapped:
    """Describe what Wasmtime said of a call or of an instantiation that failed."""
    cause = _innermost_cause(error)
    reason = cause.removeprefix(_TRAP)
    backtrace = _backtrace(error)
    if reason == _UNREACHABLE:
        reason = "unreachable"
        if TOO_LARGE in backtrace.partition("\n")[0]:
            reason = f"more than {BYTES_MAX // MIB} MiB of bytes in one call of {STREAMS}"
    message = f"trapped ({reason})"
    may_be_memory = reason == "unreachable" or "memory" in reason
    if memory_bytes_max is not None and may_be_memory:
        message += f"; its limit is {memory_bytes_max / MIB:g} MiB"
    return Trapped(message, backtrace)


def _innermost_cause(error: str) -> str:
    """The last numbered cause, or the only one; of its text the first line."""
    _, _, causes = error.partition(_CAUSED_BY)
    lines = [line.strip() for line in (causes or error).splitlines() if line.strip()]
    numbered = [line for line in lines if _NUMBER.match(line)]
    first = numbered[-1:] or lines[:1] or ["no reason given"]
    return _NUMBER.sub("", first[0])


def _backtrace(error: str) -> str:
    _, found, rest = error.partition(_BACKTRACE)
    if not found:
        return ""
    frames, _, _ = rest.partition(_CAUSED_BY)
    return "\n".join(line.strip() for line in frames.splitlines() if line.strip())
