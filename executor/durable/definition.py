"""How a host module declares its functions: one row a function, by what replay does with it.

| row      | live                                      | replay                              |
|----------|-------------------------------------------|-------------------------------------|
| Local    | runs                                      | runs; it must be deterministic      |
| Recorded | runs on the lane, its answer is recorded  | does not run; the recorded answer   |
| Written  | runs on the lane; what it writes is       | does not run; the recorded answer,  |
|          | durable with its answer                   | and nothing is written              |
| Awaited  | `attempt`, else waits for `action` beside | does not run; the recorded answer   |
|          | the guest; its answer is recorded         |                                     |

A row with `local` is Local where that answers: one function of a stream may read a file, which
replay reads again, or a connection, which it does not.

`state` is the worker's host state. Handles arrive and leave as ints. A row knows nothing of
Wasmtime, of the oplog's bytes or of which mode it runs in.
"""

from collections.abc import Callable, Coroutine
from typing import Any, Final

import msgspec

from executor.durable.function_type import FunctionType
from executor.wasm.types import WitType


class NotReady:
    """The type of `NOT_READY`."""

    __slots__ = ()


NOT_READY: Final = NotReady()
"""An `attempt` answers this when the guest has to wait."""


class ToRecord:
    """The type of `TO_RECORD`."""

    __slots__ = ()


TO_RECORD: Final = ToRecord()
"""A `local` answers this for a call that has to be recorded."""


class Local(msgspec.Struct, frozen=True):
    """Not recorded: a function of the worker's own state, the same in both modes."""

    name: str
    call: Callable[..., Any]
    """`call(state, *arguments) -> value`, on the lane; never waits."""
    answer: WitType | None = None
    """Of one that begins a deferred call: the type of that call's answer."""


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """A serialized durable call that never waits."""

    name: str
    function_type: FunctionType
    action: Callable[..., Any]
    """`action(state, *arguments) -> answer`, on the lane, live only."""
    observe: Callable[..., Any] | None = None
    """`observe(state, answer, *arguments) -> value` for the guest, in both modes."""
    answer: str | None = None
    """The WIT type of the answer where `observe` turns it into the function's result."""
    local: Callable[..., Any] | None = None
    """`local(state, *arguments) -> value | TO_RECORD`, in both modes; it must be deterministic."""


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """A serialized write-local call that never waits: the rows that it writes are of the same
    transaction as its `end`.
    """

    name: str
    action: Callable[..., Any]
    """`action(state, index, *arguments) -> (answer, rows)`, on the lane, live only. `index` is that
    of the call's `start`, 0 where nothing is persisted."""


class Awaited(msgspec.Struct, frozen=True, kw_only=True):
    """A serialized durable call during which the guest may wait."""

    name: str
    function_type: FunctionType
    action: Callable[..., Coroutine[Any, Any, Any]]
    """`await action(state, *arguments) -> answer`, in trio, live only."""
    attempt: Callable[..., Any] | None = None
    """`attempt(state, *arguments) -> answer | NOT_READY`, on the lane, before waiting."""
    observe: Callable[..., Any] | None = None
    answer: str | None = None
    local: Callable[..., Any] | None = None
    keyed: bool = False
    """Whether a peer may hear the key of a call."""
    asked: Callable[..., tuple[Any, ...]] | None = None
    """`asked(*arguments)` is what is recorded of them, as plain values, where that is less than
    all: what a guest writes may be recorded otherwise."""


HostFunctionRow = Local | Recorded | Written | Awaited
