"""wasi:sockets: linked, and refused. No guest gets a socket or an address.

Creating one answers `access-denied`, so the methods of sockets and of their streams are never
called: no handle of theirs exists.
"""

from collections.abc import Sequence
from typing import Final, NoReturn

import msgspec

from executor.durable.definition import Local
from executor.errors import InternalError
from executor.host.interface import InterfaceTable, host_interface
from executor.host.state import HostState
from executor.host.streams import IoError
from executor.wasm.types import WitType
from executor.wasm.values import Err

ACCESS_DENIED: Final = Err("access-denied")


class Network(msgspec.Struct, frozen=True):
    """The network that the guest may name, and that leads nowhere."""


def open_network(state: HostState) -> int:
    return state.handles.add(Network())


def refuse(_state: HostState, *_arguments: object) -> Err:
    return ACCESS_DENIED


def without_socket(_state: HostState, *_arguments: object) -> NoReturn:
    raise InternalError("a method of a socket was called, and no socket exists")


def network_error_code(state: HostState, error: int) -> None:
    """No stream error stems from a socket."""
    state.handles.get(error, IoError)


def refused_rows(resource: str, names: Sequence[str]) -> list[Local]:
    return [Local(f"[method]{resource}.{name}", without_socket) for name in names]


NETWORK: Final = host_interface(
    """
    interface wasi:sockets/network {
        use wasi:io/error.{error};
        resource network;
        enum error-code {
            unknown,
            access-denied,
            not-supported,
            invalid-argument,
            out-of-memory,
            timeout,
            concurrency-conflict,
            not-in-progress,
            would-block,
            invalid-state,
            new-socket-limit,
            address-not-bindable,
            address-in-use,
            remote-unreachable,
            connection-refused,
            connection-reset,
            connection-aborted,
            datagram-too-large,
            name-unresolvable,
            temporary-resolver-failure,
            permanent-resolver-failure,
        }
        enum ip-address-family { ipv4, ipv6 }
        type ipv4-address = tuple<u8, u8, u8, u8>;
        type ipv6-address = tuple<u16, u16, u16, u16, u16, u16, u16, u16>;
        variant ip-address {
            ipv4(ipv4-address),
            ipv6(ipv6-address),
        }
        record ipv4-socket-address {
            port: u16,
            address: ipv4-address,
        }
        record ipv6-socket-address {
            port: u16,
            flow-info: u32,
            address: ipv6-address,
            scope-id: u32,
        }
        variant ip-socket-address {
            ipv4(ipv4-socket-address),
            ipv6(ipv6-socket-address),
        }
        network-error-code: func(err: borrow<error>) -> option<error-code>;
    }
    """,
    "0.2",
    [Local("network-error-code", network_error_code)],
)

_USES: Final[dict[str, WitType]] = NETWORK.wit.types

INSTANCE_NETWORK: Final = host_interface(
    """
    interface wasi:sockets/instance-network {
        use network.{network};
        instance-network: func() -> network;
    }
    """,
    "0.2",
    [Local("instance-network", open_network)],
)

TCP: Final = host_interface(
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
    refused_rows(
        "tcp-socket",
        (
            "start-bind",
            "finish-bind",
            "start-connect",
            "finish-connect",
            "start-listen",
            "finish-listen",
            "accept",
            "local-address",
            "remote-address",
            "is-listening",
            "address-family",
            "set-listen-backlog-size",
            "keep-alive-enabled",
            "set-keep-alive-enabled",
            "keep-alive-idle-time",
            "set-keep-alive-idle-time",
            "keep-alive-interval",
            "set-keep-alive-interval",
            "keep-alive-count",
            "set-keep-alive-count",
            "hop-limit",
            "set-hop-limit",
            "receive-buffer-size",
            "set-receive-buffer-size",
            "send-buffer-size",
            "set-send-buffer-size",
            "subscribe",
            "shutdown",
        ),
    ),
    uses=_USES,
)

TCP_CREATE_SOCKET: Final = host_interface(
    """
    interface wasi:sockets/tcp-create-socket {
        use network.{error-code, ip-address-family};
        use tcp.{tcp-socket};
        create-tcp-socket: func(address-family: ip-address-family)
            -> result<tcp-socket, error-code>;
    }
    """,
    "0.2",
    [Local("create-tcp-socket", refuse)],
    uses=_USES,
)

UDP: Final = host_interface(
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
        *refused_rows(
            "udp-socket",
            (
                "start-bind",
                "finish-bind",
                "stream",
                "local-address",
                "remote-address",
                "address-family",
                "unicast-hop-limit",
                "set-unicast-hop-limit",
                "receive-buffer-size",
                "set-receive-buffer-size",
                "send-buffer-size",
                "set-send-buffer-size",
                "subscribe",
            ),
        ),
        *refused_rows("incoming-datagram-stream", ("receive", "subscribe")),
        *refused_rows("outgoing-datagram-stream", ("check-send", "send", "subscribe")),
    ],
    uses=_USES,
)

UDP_CREATE_SOCKET: Final = host_interface(
    """
    interface wasi:sockets/udp-create-socket {
        use network.{error-code, ip-address-family};
        use udp.{udp-socket};
        create-udp-socket: func(address-family: ip-address-family)
            -> result<udp-socket, error-code>;
    }
    """,
    "0.2",
    [Local("create-udp-socket", refuse)],
    uses=_USES,
)

IP_NAME_LOOKUP: Final = host_interface(
    """
    interface wasi:sockets/ip-name-lookup {
        use wasi:io/poll.{pollable};
        use network.{network, error-code, ip-address};
        resource resolve-address-stream {
            resolve-next-address: func() -> result<option<ip-address>, error-code>;
            subscribe: func() -> pollable;
        }
        resolve-addresses: func(network: borrow<network>, name: string)
            -> result<resolve-address-stream, error-code>;
    }
    """,
    "0.2",
    [
        Local("resolve-addresses", refuse),
        *refused_rows("resolve-address-stream", ("resolve-next-address", "subscribe")),
    ],
    uses=_USES,
)

TABLES: Final[tuple[InterfaceTable, ...]] = (
    NETWORK,
    INSTANCE_NETWORK,
    TCP,
    TCP_CREATE_SOCKET,
    UDP,
    UDP_CREATE_SOCKET,
    IP_NAME_LOOKUP,
)
