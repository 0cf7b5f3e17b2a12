"""wasi:sockets/tcp: connections to a peer.

    UNCONNECTED, maybe bound ──connect──▶ CONNECTING ──▶ CONNECTED
                                              └────────▶ CLOSED

Connecting is a deferred one, a remote read: it says nothing to the
peer, and one that never ended is begun again. Reads are recorded with what they gave; of what is
written only how much fits and that it was flushed, since it is never sent again. In which state a
socket is follows from that, the same in replay. Listening is refused.

Threads: the lane; a connection is made on the trio thread.
"""

from enum import Enum
from functools import partial
from typing import Any, Final

from executor.durable.deferred import DeferredCall
from executor.durable.deferred_function import DeferredFunction
from executor.durable.definition import Local, NotReady
from executor.durable.function_type import READ_REMOTE
from executor.host.interface import InterfaceTable, host_interface
from executor.host.pollables import Pollable
from executor.host.state import HostState
from executor.host.wasi.sockets_binding import GuestSocket, binding_rows, create
from executor.host.wasi.sockets_network import (
    FAILED,
    LOST,
    SUBJECT,
    TYPES,
    Network,
    denied,
    is_remote,
    observed_failure,
    recorded_failure,
    system_address,
    wit_address,
)
from executor.host.wasi.sockets_streams import TcpInput, TcpOutput
from executor.services.sockets import SocketFailure, failure_of
from executor.services.sockets_tcp import TcpConnection
from executor.wasm.values import Err, Ok

CONNECT: Final = DeferredFunction(
    "wasi:sockets/tcp",
    "connect: func(remote: ip-socket-address)"
    f" -> result<tuple<ip-socket-address, ip-socket-address>, {FAILED}>",
    TYPES,
)
"""Answers with the local and the remote address."""


LISTENING: Final = "a worker cannot be reached: it may connect, and not listen"


class Phase(Enum):
    UNCONNECTED = "unconnected"
    CONNECTING = "connect-in-progress"
    CONNECTED = "connected"
    CLOSED = "closed"


class TcpSocket(GuestSocket):
    """A `tcp-socket`."""

    live: TcpConnection | None = None

    def __init__(self, family: str) -> None:
        super().__init__(family)
        self.phase = Phase.UNCONNECTED
        self.remote: object = None
        """An `ip-socket-address`, once there is one."""
        self.call: DeferredCall | None = None
        """While it connects."""
        self.input = TcpInput(self)
        self.output = TcpOutput(self)

    @property
    def in_progress(self) -> bool:
        return self.bind_in_progress or self.phase is Phase.CONNECTING

    @property
    def cannot_bind(self) -> str | None:
        if self.in_progress:
            return "concurrency-conflict"
        return "invalid-state" if self.bound or self.phase is not Phase.UNCONNECTED else None

    def open(self, state: Any) -> TcpConnection:
        return self.opened(state, TcpConnection)


class TcpReady(Pollable):
    """Ready when no operation of the socket is in progress."""

    def __init__(self, state: Any, tcp: TcpSocket) -> None:
        self._state = state
        self._tcp = tcp

    def is_ready(self, now_ns: int) -> bool:
        call = self._tcp.call
        if call is None:
            return now_ns >= 0
        self.signal = call.signal
        return bool(self._state.session.deferred.is_ready(call))


def drop_socket(state: Any, number: int) -> None:
    tcp = state.handles.drop(number)
    state.network.sockets -= 1
    tcp.phase = Phase.CLOSED
    tcp.input.closed = tcp.output.closed = True
    if tcp.call is not None:
        state.session.deferred.drop(tcp.call)
    if tcp.live is not None:
        state.outside.post(tcp.live.release)


# -- connect -------------------------------------------------------------------------------------


def start_connect(state: Any, number: int, network: int, address: Any) -> Ok | Err:
    state.handles.get(network, Network)
    tcp = state.handles.get(number, TcpSocket)
    if tcp.in_progress:
        return Err("concurrency-conflict")
    if tcp.phase is not Phase.UNCONNECTED:
        return Err("invalid-state")
    if not is_remote(tcp.family, address):
        return Err("invalid-argument")
    run = partial(connect, state, tcp, address)
    tcp.call = CONNECT.begin(state.session.deferred, READ_REMOTE, (address,), run)
    tcp.phase = Phase.CONNECTING
    return Ok()


async def connect(state: Any, tcp: TcpSocket, address: Any, _call: DeferredCall) -> Ok | Err:
    """The answer of the call, in trio."""
    remote = system_address(address)
    refused = state.network.refusal(state.egress, remote[0], remote[1])
    if refused is not None:
        return recorded_failure(denied(refused))
    if tcp.live is None and tcp.bound:
        return recorded_failure(LOST)
    try:
        tcp.live = live = tcp.live or tcp.open(state)
    except OSError as error:
        return recorded_failure(failure_of(error))
    connected = await live.connect(remote, state.session.commit)
    if isinstance(connected, SocketFailure):
        return recorded_failure(connected)
    return Ok(tuple(map(wit_address, connected)))


def finish_connect(state: Any, number: int) -> Ok | Err:
    tcp = state.handles.get(number, TcpSocket)
    if tcp.call is None:
        return Err("not-in-progress")
    answer = CONNECT.read(state.session.deferred, tcp.call)
    if isinstance(answer, NotReady):
        return Err("would-block")
    tcp.call = None
    if isinstance(answer, Err):
        tcp.phase = Phase.CLOSED
        return observed_failure(state, answer.value)
    assert isinstance(answer, Ok)
    tcp.local, tcp.remote = answer.value  # type: ignore[misc]  # as CONNECT says
    tcp.phase = Phase.CONNECTED
    return Ok((state.handles.add(tcp.input), state.handles.add(tcp.output)))


def subscribe(state: HostState, number: int) -> int:
    return state.handles.add(TcpReady(state, state.handles.get(number, TcpSocket)))


def shut_down(state: Any, number: int, directions: str) -> Ok | Err:
    tcp = state.handles.get(number, TcpSocket)
    if tcp.phase is not Phase.CONNECTED:
        return Err("invalid-state")
    if directions in {"receive", "both"}:
        tcp.input.closed = True
        if tcp.live is not None:
            state.outside.post(tcp.live.stop_receiving)
    if directions in {"send", "both"}:
        tcp.output.closed = True
        if tcp.live is not None:
            state.outside.post(tcp.live.finish)
    return Ok()


# -- listen --------------------------------------------------------------------------------------


def start_listen(state: HostState, number: int) -> Err:
    tcp = state.handles.get(number, TcpSocket)
    if tcp.in_progress:
        return Err("concurrency-conflict")
    if tcp.phase is not Phase.UNCONNECTED or not tcp.bound:
        return Err("invalid-state")
    state.session.log("warn", LISTENING.encode(), SUBJECT)
    return Err("access-denied")


def finish_listen(state: HostState, number: int) -> Err:
    state.handles.get(number, TcpSocket)
    return Err("not-in-progress")


def accept(state: HostState, number: int) -> Err:
    state.handles.get(number, TcpSocket)
    return Err("invalid-state")


def is_listening(state: HostState, number: int) -> bool:
    state.handles.get(number, TcpSocket)
    return False


def set_backlog(state: HostState, number: int, size: int) -> Ok | Err:
    tcp = state.handles.get(number, TcpSocket)
    if size == 0:
        return Err("invalid-argument")
    if tcp.phase is not Phase.UNCONNECTED:
        return Err("invalid-state")
    return Ok()


def remote_address(state: HostState, number: int) -> Ok | Err:
    tcp = state.handles.get(number, TcpSocket)
    return Ok(tcp.remote) if tcp.phase is Phase.CONNECTED else Err("invalid-state")


OPTIONS: Final = tuple(
    (name, name)
    for name in (
        "keep-alive-enabled",
        "keep-alive-idle-time",
        "keep-alive-interval",
        "keep-alive-count",
        "hop-limit",
        "receive-buffer-size",
        "send-buffer-size",
    )
)

TCP: Final[InterfaceTable] = host_interface(
    """
    interface wasi:sockets/tcp {
        use wasi:io/streams.{input-stream, output-stream};
        use wasi:io/poll.{pollable};
        use network.{network, error-code, ip-socket-address, ip-address-family};
        type duration = u64;
        enum shutdown-type { receive, send, both }
        resource tcp-socket {
            start-bind: func(network: borrow<network>, local-address: ip-socket-address)
                -> result<_, error-code>;
            finish-bind: func() -> result<_, error-code>;
            start-connect: func(network: borrow<network>, remote-address: ip-socket-address)
                -> result<_, error-code>;
            finish-connect: func() -> result<tuple<input-stream, output-stream>, error-code>;
            start-listen: func() -> result<_, error-code>;
            finish-listen: func() -> result<_, error-code>;
            accept: func() -> result<tuple<tcp-socket, input-stream, output-stream>, error-code>;
            local-address: func() -> result<ip-socket-address, error-code>;
            remote-address: func() -> result<ip-socket-address, error-code>;
            is-listening: func() -> bool;
            address-family: func() -> ip-address-family;
            set-listen-backlog-size: func(value: u64) -> result<_, error-code>;
            keep-alive-enabled: func() -> result<bool, error-code>;
            set-keep-alive-enabled: func(value: bool) -> result<_, error-code>;
            keep-alive-idle-time: func() -> result<duration, error-code>;
            set-keep-alive-idle-time: func(value: duration) -> result<_, error-code>;
            keep-alive-interval: func() -> result<duration, error-code>;
            set-keep-alive-interval: func(value: duration) -> result<_, error-code>;
            keep-alive-count: func() -> result<u32, error-code>;
            set-keep-alive-count: func(value: u32) -> result<_, error-code>;
            hop-limit: func() -> result<u8, error-code>;
            set-hop-limit: func(value: u8) -> result<_, error-code>;
            receive-buffer-size: func() -> result<u64, error-code>;
            set-receive-buffer-size: func(value: u64) -> result<_, error-code>;
            send-buffer-size: func() -> result<u64, error-code>;
            set-send-buffer-size: func(value: u64) -> result<_, error-code>;
            subscribe: func() -> pollable;
            shutdown: func(shutdown-type: shutdown-type) -> result<_, error-code>;
        }
    }
    """,
    "0.2",
    [
        *binding_rows("tcp-socket", OPTIONS),
        Local("[method]tcp-socket.start-connect", start_connect),
        Local("[method]tcp-socket.finish-connect", finish_connect),
        Local("[method]tcp-socket.start-listen", start_listen),
        Local("[method]tcp-socket.finish-listen", finish_listen),
        Local("[method]tcp-socket.accept", accept),
        Local("[method]tcp-socket.remote-address", remote_address),
        Local("[method]tcp-socket.is-listening", is_listening),
        Local("[method]tcp-socket.set-listen-backlog-size", set_backlog),
        Local("[method]tcp-socket.subscribe", subscribe),
        Local("[method]tcp-socket.shutdown", shut_down),
    ],
    drops={"tcp-socket": drop_socket},
    uses=TYPES,
)

TCP_CREATE_SOCKET: Final[InterfaceTable] = host_interface(
    """
    interface wasi:sockets/tcp-create-socket {
        use network.{error-code, ip-address-family};
        use tcp.{tcp-socket};
        create-tcp-socket: func(address-family: ip-address-family)
            -> result<tcp-socket, error-code>;
    }
    """,
    "0.2",
    [Local("create-tcp-socket", partial(create, TcpSocket))],
    uses=TYPES,
)
