"""What sockets of both kinds do before they talk: they are made, have options, and are bound.

Options are the worker's own state, the same in replay: what a guest sets is what it gets, and the
system comes near it. Binding is a recorded call. A worker gets a free port of the machine, never a
certain one.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from executor.durable.definition import TO_RECORD, HostFunctionRow, Local, Recorded, ToRecord
from executor.durable.function_type import WRITE_LOCAL
from executor.host.connections import Connection
from executor.host.network import SOCKETS_MAX
from executor.host.state import HostState
from executor.host.wasi.sockets_network import (
    FAILED,
    FAMILIES,
    Network,
    denied,
    is_local,
    observed_failure,
    recorded_failure,
    system_address,
    wit_address,
)
from executor.services.sockets import SocketAddress, Sockets, failure_of
from executor.wasm.values import Err, Ok

NS_PER_S: Final = 1_000_000_000
DEFAULTS: Final = {
    "keep-alive-enabled": False,
    "keep-alive-idle-time": 7_200 * NS_PER_S,
    "keep-alive-interval": 75 * NS_PER_S,
    "keep-alive-count": 9,
    "hop-limit": 64,
    "receive-buffer-size": 65_536,
    "send-buffer-size": 65_536,
}
DURATIONS: Final = frozenset({"keep-alive-idle-time", "keep-alive-interval"})
FIXED_PORT: Final = "a worker gets any free port of this machine (port 0), and not a certain one"


class Live(Connection, Protocol):
    """A socket of the system."""

    on_close: Callable[[], None]

    def bind(self, address: SocketAddress) -> SocketAddress: ...

    def set_option(self, name: str, value: int) -> None: ...


L = TypeVar("L", bound=Live)


class GuestSocket(ABC):
    """A `tcp-socket` or a `udp-socket`."""

    live: Live | None = None
    """That of the system; None in replay, and for what was lost with an earlier instance."""

    def __init__(self, family: str) -> None:
        self.family = family
        self.options: dict[str, int] = {}
        """Those that the guest has set."""
        self.bind_in_progress = False
        self.local: object = None
        """An `ip-socket-address`, once there is one."""

    @abstractmethod
    def open(self, state: Any) -> Live:
        """A new one of the system. Raises: OSError."""

    @property
    def bound(self) -> bool:
        return self.local is not None and not self.bind_in_progress

    @property
    def cannot_bind(self) -> str | None:
        """An error-code."""
        if self.bind_in_progress:
            return "concurrency-conflict"
        return "invalid-state" if self.bound else None

    def opened(self, state: Any, kind: Callable[[Sockets, int, dict[str, int]], L]) -> L:
        """A new one, which ends with the instance. Raises: OSError."""
        chosen = {name: system_value(name, value) for name, value in self.options.items()}
        made = kind(state.outside.sockets, FAMILIES[self.family], chosen)
        made.on_close = partial(state.connections.discard, made)
        state.connections.add(made)
        return made


def create(kind: Callable[[str], GuestSocket], state: HostState, family: str) -> Ok | Err:
    if state.network.sockets >= SOCKETS_MAX:
        return Err("new-socket-limit")
    state.network.sockets += 1
    return Ok(state.handles.add(kind(family)))


# -- bind ----------------------------------------------------------------------------------------


def check_bind(state: HostState, number: int, network: int, address: Any) -> Err | ToRecord:
    state.handles.get(network, Network)
    found = state.handles.get(number, GuestSocket)
    if found.cannot_bind is not None:
        return Err(found.cannot_bind)
    return TO_RECORD if is_local(found.family, address) else Err("invalid-argument")


def bind(state: Any, number: int, _network: int, address: Any) -> Ok | Err:
    found = state.handles.get(number, GuestSocket)
    wanted = system_address(address)
    if wanted[1]:
        return recorded_failure(denied(FIXED_PORT))
    live: Live | None = None
    try:
        live = found.open(state)
        local = live.bind(wanted)
    except OSError as error:
        if live is not None:
            state.outside.post(live.close)
        return recorded_failure(failure_of(error))
    found.live = live
    return Ok(wit_address(local))


def observe_bind(state: HostState, answer: Ok | Err, number: int, *_: object) -> Ok | Err:
    if isinstance(answer, Err):
        return observed_failure(state, answer.value)
    found = state.handles.get(number, GuestSocket)
    found.local = answer.value
    found.bind_in_progress = True
    return Ok()


def finish_bind(state: HostState, number: int) -> Ok | Err:
    found = state.handles.get(number, GuestSocket)
    if not found.bind_in_progress:
        return Err("not-in-progress")
    found.bind_in_progress = False
    return Ok()


def local_address(state: HostState, number: int) -> Ok | Err:
    found = state.handles.get(number, GuestSocket)
    return Ok(found.local) if found.bound else Err("invalid-state")


def address_family(state: HostState, number: int) -> str:
    return state.handles.get(number, GuestSocket).family


# -- options -------------------------------------------------------------------------------------


def get_option(option: str, state: HostState, number: int) -> Ok:
    found = state.handles.get(number, GuestSocket)
    return Ok(found.options.get(option, DEFAULTS[option]))


def set_option(option: str, state: HostState, number: int, value: int) -> Ok | Err:
    found = state.handles.get(number, GuestSocket)
    if value == 0 and value is not False:
        return Err("invalid-argument")
    found.options[option] = value
    if found.live is not None:
        found.live.set_option(option, system_value(option, value))
    return Ok()


def system_value(option: str, value: int) -> int:
    """Seconds of a duration, at least one."""
    return max(1, value // NS_PER_S) if option in DURATIONS else int(value)


def binding_rows(resource: str, options: Sequence[tuple[str, str]]) -> list[HostFunctionRow]:
    """Of the functions that are here; `options` are names of functions and of what they set."""
    rows: list[HostFunctionRow] = [
        Recorded(
            name=f"[method]{resource}.start-bind",
            function_type=WRITE_LOCAL,
            local=check_bind,
            action=bind,
            observe=observe_bind,
            answer=f"result<ip-socket-address, {FAILED}>",
        ),
        Local(f"[method]{resource}.finish-bind", finish_bind),
        Local(f"[method]{resource}.local-address", local_address),
        Local(f"[method]{resource}.address-family", address_family),
    ]
    for name, option in options:
        rows.append(Local(f"[method]{resource}.{name}", partial(get_option, option)))
        rows.append(Local(f"[method]{resource}.set-{name}", partial(set_option, option)))
    return rows
