"""`golem:durability@1.2.x`: durable functions that a guest's library makes of blocks of its code.

What is recorded and when a block runs is said in `durable/scopes.py`. A response is bytes, or a
value with its type; it is read as what it was persisted as.
"""

from functools import partial
from typing import Any, Final

from executor.durable import scopes
from executor.durable.definition import TO_RECORD, Awaited, Local, ToRecord
from executor.durable.function_type import (
    READ_LOCAL,
    WRITE_REMOTE,
    WRITE_REMOTE_BATCHED,
    FunctionType,
)
from executor.durable.signal import Signal
from executor.errors import GuestError
from executor.host.clock import WorkerClock
from executor.host.golem import api, oplogs
from executor.host.golem.rpc import RPC_TYPES
from executor.host.interface import InterfaceTable, host_interface
from executor.host.pollables import Pollable
from executor.host.state import HostState
from executor.host.wasi.clocks import WALL_CLOCK, datetime_of
from executor.wasm.types import U8, ListType
from executor.wasm.values import Variant

DURABILITY: Final = """
interface golem:durability/durability@1.2.0 {
  use golem:api/host@1.1.6.{persistence-level};
  use golem:api/oplog@1.1.6.{oplog-index, wrapped-function-type};
  use wasi:clocks/wall-clock@0.2.0.{datetime};
  use wasi:io/poll@0.2.0.{pollable};
  use golem:rpc/types@0.2.0.{value-and-type};

  type durable-function-type = wrapped-function-type;
  record durable-execution-state { is-live: bool, persistence-level: persistence-level }
  enum oplog-entry-version { v1, v2 }
  record persisted-durable-function-invocation {
    timestamp: datetime,
    function-name: string,
    response: list<u8>,
    function-type: durable-function-type,
    entry-version: oplog-entry-version,
  }
  record persisted-typed-durable-function-invocation {
    timestamp: datetime,
    function-name: string,
    response: value-and-type,
    function-type: durable-function-type,
    entry-version: oplog-entry-version,
  }

  observe-function-call: func(iface: string, function: string);
  begin-durable-function: func(function-type: durable-function-type) -> oplog-index;
  end-durable-function: func(
    function-type: durable-function-type, begin-index: oplog-index, forced-commit: bool
  );
  current-durable-execution-state: func() -> durable-execution-state;
  persist-durable-function-invocation: func(
    function-name: string,
    request: list<u8>,
    response: list<u8>,
    function-type: durable-function-type
  );
  persist-typed-durable-function-invocation: func(
    function-name: string,
    request: value-and-type,
    response: value-and-type,
    function-type: durable-function-type
  );
  read-persisted-durable-function-invocation: func() -> persisted-durable-function-invocation;
  read-persisted-typed-durable-function-invocation: func()
    -> persisted-typed-durable-function-invocation;

  resource lazy-initialized-pollable {
    constructor();
    set: func(pollable: pollable);
    subscribe: func() -> pollable;
  }
}
"""

BYTES: Final = scopes.Form(ListType(U8))
TYPED: Final = scopes.Form(RPC_TYPES.wit.types["value-and-type"])


def type_of(function_type: Variant) -> FunctionType:
    name: FunctionType = function_type.case  # type: ignore[assignment]  # the cases of its type
    return name


def begin(state: Any, function_type: Variant) -> int:
    return scopes.begin(state.session, type_of(function_type), state.handles.last)


def end(
    state: Any, function_type: Variant, begin_index: int, forced_commit: bool
) -> ToRecord | None:
    """Ends the scope in both modes. What comes after it waits for its commit only where its loss
    would leave a remote write that must not be repeated.
    """
    session = state.session
    state.handles.last = scopes.end(session, begin_index, state.handles.last)
    remote = type_of(function_type) in {WRITE_REMOTE, WRITE_REMOTE_BATCHED}
    if (remote and not session.modes.idempotent) or forced_commit:
        return TO_RECORD
    if remote and session.live:
        session.effects.commit(ignore_commit)
    return None


def ignore_commit(_error: object) -> None:
    """A failure marks the writer, and the worker's next commit reports it."""


async def commit(state: Any, _type: Variant, _begin_index: int, _forced_commit: bool) -> None:
    await state.session.commit()


def execution_state(state: Any) -> dict[str, object]:
    session = state.session
    return {
        "is-live": scopes.is_live(session),
        "persistence-level": Variant(session.modes.level),
    }


def persist(form: scopes.Form, state: Any, *arguments: Any) -> None:
    name, request, response, function_type = arguments
    scopes.persist(state.session, form, (name, type_of(function_type)), request, response)


def read_persisted(form: scopes.Form, state: Any) -> dict[str, object]:
    found = scopes.read_persisted(state.session)
    if not form.is_of(found):
        raise GuestError(
            f"{found.function} persisted its response in the other form: as bytes, or as a value"
            " with its type",
            where=state.session.worker,
        )
    payload = found.scope if found.function_type == WRITE_REMOTE_BATCHED else None
    return {
        "timestamp": datetime_of(found.at),
        "function-name": found.function,
        "response": form.decode(found),
        "function-type": Variant(found.function_type, payload),
        "entry-version": "v2",
    }


class LazyPollable(Pollable):
    """Never ready until it is given another one, which it then stands for."""

    def __init__(self) -> None:
        self.inner: Pollable | None = None

    @property
    def signal(self) -> Signal | None:  # type: ignore[override]  # read where it is waited for
        return None if self.inner is None else self.inner.signal

    def is_ready(self, now_ns: int) -> bool:
        return self.inner is not None and self.inner.is_ready(now_ns)

    @property
    def deadline_ns(self) -> int | None:
        return None if self.inner is None else self.inner.deadline_ns

    def observe(self, clock: WorkerClock) -> None:
        if self.inner is not None:
            self.inner.observe(clock)


def make_lazy(state: HostState) -> int:
    return state.handles.add(LazyPollable())


def set_lazy(state: HostState, number: int, pollable: int) -> None:
    inner = state.handles.drop(pollable)
    assert isinstance(inner, Pollable)
    state.handles.get(number, LazyPollable).inner = inner


def subscribe_lazy(state: HostState, number: int) -> int:
    return state.handles.add(state.handles.get(number, LazyPollable))


ROWS: Final = (
    Local("observe-function-call", lambda _state, _interface, _function: None),
    Local("begin-durable-function", begin),
    Awaited(name="end-durable-function", function_type=READ_LOCAL, action=commit, local=end),
    Local("current-durable-execution-state", execution_state),
    Local("persist-durable-function-invocation", partial(persist, BYTES)),
    Local("persist-typed-durable-function-invocation", partial(persist, TYPED)),
    Local("read-persisted-durable-function-invocation", partial(read_persisted, BYTES)),
    Local("read-persisted-typed-durable-function-invocation", partial(read_persisted, TYPED)),
    Local("[constructor]lazy-initialized-pollable", make_lazy),
    Local("[method]lazy-initialized-pollable.set", set_lazy),
    Local("[method]lazy-initialized-pollable.subscribe", subscribe_lazy),
)

TABLES: Final[tuple[InterfaceTable, ...]] = (
    host_interface(
        DURABILITY,
        "1.2",
        ROWS,
        uses={
            **WALL_CLOCK.wit.types,
            **RPC_TYPES.wit.types,
            **api.TABLES[0].wit.types,
            **oplogs.TABLES[0].wit.types,
        },
    ),
)
