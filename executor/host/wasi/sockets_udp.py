"""wasi:sockets/udp: datagrams to and from peers.

Associating with a peer, and sending, are recorded calls of the worker's own; what comes is a remote
read. What is sent is not sent again. See `sockets_network`.

Threads: the lane; datagrams come and go on the trio thread.
"""

from functools import partial
from typing import Any, Final

from executor.durable.definition import TO_RECORD, Local, Recorded, ToRecord
from executor.durable.function_type import READ_LOCAL, READ_REMOTE, WRITE_LOCAL
from executor.durable.signal import Signal
from executor.errors import GuestTrap
from executor.host.interface import InterfaceTable, host_interface
from executor.host.pollables import AlwaysReady, Watched
from executor.host.state import HostState
from executor.host.wasi.sockets_binding import GuestSocket, binding_rows, create
from executor.host.wasi.sockets_network import (
    FAILED,
    LOST,
    TYPES,
    denied,
    is_remote,
    observed_failure,
    recorded_failure,
    system_address,
    wit_address,
)
from executor.services.sockets import SocketAddress, SocketFailure
from executor.services.sockets_udp import DATAGRAM_BYTES_MAX, UdpSocket
from executor.wasm.values import Err, Ok

TOO_LARGE: Final = SocketFailure(
    "datagram-too-large", f"a datagram has at most {DATAGRAM_BYTES_MAX} bytes"
)
NO_ADDRESS: Final = SocketFailure("invalid-argument", "no address that can be sent to")


class UdpGuestSocket(GuestSocket):
    """A `udp-socket`, and what its streams see of it."""

    live: UdpSocket | None = None

    def __init__(self, family: str) -> None:
        super().__init__(family)
        self.remote: object = None
        """An `ip-socket-address`, if it is associated with one."""
        self.association = 0
        """Counts; only the streams of the last one are of use."""

    def open(self, state: Any) -> UdpSocket:
        made = self.opened(state, UdpSocket)
        state.outside.post(made.begin, partial(may_be_heard, state), state.session.commit)
        return made


class Datagrams:
    """Either stream of an association."""

    def __init__(self, udp: UdpGuestSocket) -> None:
        self.udp = udp
        self._association = udp.association

    @property
    def live(self) -> UdpSocket | None:
        return self.udp.live if self.current else None

    @property
    def current(self) -> bool:
        return self._association == self.udp.association


class Incoming(Datagrams):
    """An `incoming-datagram-stream`."""


class Outgoing(Datagrams):
    """An `outgoing-datagram-stream`."""

    permitted = 0
    """How many `check-send` has said may be sent next."""


def drop_socket(state: Any, number: int) -> None:
    udp = state.handles.drop(number)
    state.network.sockets -= 1
    udp.association += 1
    if udp.live is not None:
        state.outside.post(udp.live.release)


def may_be_heard(state: HostState, source: SocketAddress) -> bool:
    """Whether the guest may talk with a peer, on the trio thread."""
    return state.network.refusal(state.egress, source[0], source[1]) is None


def check_associate(state: HostState, number: int, remote: Any) -> Err | ToRecord:
    udp = state.handles.get(number, UdpGuestSocket)
    if not udp.bound:
        return Err("invalid-state")
    if remote is not None and not is_remote(udp.family, remote):
        return Err("invalid-argument")
    return TO_RECORD


def associate(state: HostState, number: int, remote: Any) -> Ok | Err:
    udp = state.handles.get(number, UdpGuestSocket)
    address = None if remote is None else system_address(remote)
    if address is not None:
        refused = state.network.refusal(state.egress, address[0], address[1])
        if refused is not None:
            return recorded_failure(denied(refused))
    local = LOST if udp.live is None else udp.live.associate(address)
    if isinstance(local, SocketFailure):
        return recorded_failure(local)
    return Ok(wit_address(local))


def observe_associate(state: HostState, answer: Ok | Err, number: int, remote: Any) -> Ok | Err:
    if isinstance(answer, Err):
        return observed_failure(state, answer.value)
    udp = state.handles.get(number, UdpGuestSocket)
    udp.local = answer.value
    udp.remote = remote
    udp.association += 1
    return Ok((state.handles.add(Incoming(udp)), state.handles.add(Outgoing(udp))))


def remote_address(state: HostState, number: int) -> Ok | Err:
    udp = state.handles.get(number, UdpGuestSocket)
    return Err("invalid-state") if udp.remote is None else Ok(udp.remote)


def subscribe_socket(state: HostState, number: int) -> int:
    """Binding never takes time."""
    state.handles.get(number, UdpGuestSocket)
    return state.handles.add(AlwaysReady())


# -- datagrams -----------------------------------------------------------------------------------


def receive(state: HostState, number: int, most: int) -> Ok | Err:
    live = state.handles.get(number, Incoming).live
    found = LOST if live is None else live.take(most)
    if isinstance(found, SocketFailure):
        return recorded_failure(found)
    return Ok([{"data": data, "remote-address": wit_address(source)} for data, source in found])


def observe_receive(state: HostState, answer: Ok | Err, *_: object) -> Ok | Err:
    return observed_failure(state, answer.value) if isinstance(answer, Err) else answer


def check_send(state: HostState, number: int) -> Ok | Err:
    live = state.handles.get(number, Outgoing).live
    room = LOST if live is None else live.room()
    return recorded_failure(room) if isinstance(room, SocketFailure) else Ok(room)


def observe_check_send(state: HostState, answer: Any, number: int) -> Ok | Err:
    if isinstance(answer, Err):
        return observed_failure(state, answer.value)
    state.handles.get(number, Outgoing).permitted = answer.value
    return Ok(answer.value)


def check_permitted(state: HostState, number: int, datagrams: list[Any]) -> Ok | ToRecord:
    if not datagrams:
        return Ok(0)
    stream = state.handles.get(number, Outgoing)
    if len(datagrams) > stream.permitted:
        raise GuestTrap(
            f"send of {len(datagrams)} datagrams; check-send permitted {stream.permitted}",
            where="wasi:sockets/udp",
        )
    stream.permitted = 0
    return TO_RECORD


def send(state: HostState, number: int, datagrams: list[Any]) -> Ok | Err:
    stream = state.handles.get(number, Outgoing)
    sent = 0
    for datagram in datagrams:
        failure = send_one(state, stream, datagram)
        if failure is not None:
            return Ok(sent) if sent else recorded_failure(failure)
        sent += 1
    return Ok(sent)


def send_one(state: HostState, stream: Outgoing, datagram: Any) -> SocketFailure | None:
    udp, live = stream.udp, stream.live
    if live is None:
        return LOST
    remote, data = datagram["remote-address"], datagram["data"]
    if len(data) > DATAGRAM_BYTES_MAX:
        return TOO_LARGE
    if udp.remote is not None and remote not in (None, udp.remote):
        return NO_ADDRESS
    remote = remote or udp.remote
    if remote is None or not is_remote(udp.family, remote):
        return NO_ADDRESS
    address = system_address(remote)
    refused = state.network.refusal(state.egress, address[0], address[1])
    if refused is not None:
        return denied(refused)
    live.send(data, address)
    return None


def observe_send(state: HostState, answer: Ok | Err, *_: object) -> Ok | Err:
    return observed_failure(state, answer.value) if isinstance(answer, Err) else answer


def subscribe_incoming(state: HostState, number: int) -> int:
    stream = state.handles.get(number, Incoming)
    return state.handles.add(Watched(news_of(stream), lambda: has_input(stream)))


def subscribe_outgoing(state: HostState, number: int) -> int:
    stream = state.handles.get(number, Outgoing)
    return state.handles.add(Watched(news_of(stream), lambda: has_room(stream)))


def news_of(stream: Datagrams) -> Signal:
    live = stream.live
    return Signal() if live is None else live.news


def has_input(stream: Datagrams) -> bool:
    live = stream.live
    return live is None or live.has_input()


def has_room(stream: Datagrams) -> bool:
    live = stream.live
    return live is None or live.has_room()


OPTIONS: Final = (
    ("unicast-hop-limit", "hop-limit"),
    ("receive-buffer-size", "receive-buffer-size"),
    ("send-buffer-size", "send-buffer-size"),
)

UDP: Final[InterfaceTable] = host_interface(
    """
    interface wasi:sockets/udp {
        use wasi:io/poll.{pollable};
        use network.{network, error-code, ip-socket-address, ip-address-family};
        record incoming-datagram {
            data: list<u8>,
            remote-address: ip-socket-address,
        }
        record outgoing-datagram {
            data: list<u8>,
            remote-address: option<ip-socket-address>,
        }
        resource udp-socket {
            start-bind: func(network: borrow<network>, local-address: ip-socket-address)
                -> result<_, error-code>;
            finish-bind: func() -> result<_, error-code>;
            %stream: func(remote-address: option<ip-socket-address>)
                -> result<tuple<incoming-datagram-stream, outgoing-datagram-stream>, error-code>;
            local-address: func() -> result<ip-socket-address, error-code>;
            remote-address: func() -> result<ip-socket-address, error-code>;
            address-family: func() -> ip-address-family;
            unicast-hop-limit: func() -> result<u8, error-code>;
            set-unicast-hop-limit: func(value: u8) -> result<_, error-code>;
            receive-buffer-size: func() -> result<u64, error-code>;
            set-receive-buffer-size: func(value: u64) -> result<_, error-code>;
            send-buffer-size: func() -> result<u64, error-code>;
            set-send-buffer-size: func(value: u64) -> result<_, error-code>;
            subscribe: func() -> pollable;
        }
        resource incoming-datagram-stream {
            receive: func(max-results: u64) -> result<list<incoming-datagram>, error-code>;
            subscribe: func() -> pollable;
        }
        resource outgoing-datagram-stream {
            check-send: func() -> result<u64, error-code>;
            send: func(datagrams: list<outgoing-datagram>) -> result<u64, error-code>;
            subscribe: func() -> pollable;
        }
    }
    """,
    "0.2",
    [
        *binding_rows("udp-socket", OPTIONS),
        Recorded(
            name="[method]udp-socket.stream",
            function_type=WRITE_LOCAL,
            local=check_associate,
            action=associate,
            observe=observe_associate,
            answer=f"result<ip-socket-address, {FAILED}>",
        ),
        Local("[method]udp-socket.remote-address", remote_address),
        Local("[method]udp-socket.subscribe", subscribe_socket),
        Recorded(
            name="[method]incoming-datagram-stream.receive",
            function_type=READ_REMOTE,
            action=receive,
            observe=observe_receive,
            answer=f"result<list<incoming-datagram>, {FAILED}>",
        ),
        Local("[method]incoming-datagram-stream.subscribe", subscribe_incoming),
        Recorded(
            name="[method]outgoing-datagram-stream.check-send",
            function_type=READ_LOCAL,
            action=check_send,
            observe=observe_check_send,
            answer=f"result<u64, {FAILED}>",
        ),
        Recorded(
            name="[method]outgoing-datagram-stream.send",
            function_type=WRITE_LOCAL,
            local=check_permitted,
            action=send,
            observe=observe_send,
            answer=f"result<u64, {FAILED}>",
        ),
        Local("[method]outgoing-datagram-stream.subscribe", subscribe_outgoing),
    ],
    drops={"udp-socket": drop_socket},
    uses=TYPES,
)

UDP_CREATE_SOCKET: Final[InterfaceTable] = host_interface(
    """
    interface wasi:sockets/udp-create-socket {
        use network.{error-code, ip-address-family};
        use udp.{udp-socket};
        create-udp-socket: func(address-family: ip-address-family)
            -> result<udp-socket, error-code>;
    }
    """,
    "0.2",
    [Local("create-udp-socket", partial(create, UdpGuestSocket))],
    uses=TYPES,
)
