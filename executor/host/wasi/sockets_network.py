"""wasi:sockets/network and instance-network: addresses, error codes, and what is refused.

Nothing a guest does here reaches more than its rules allow (`services/egress.py`). Of an answer
`access-denied` the sentence that names the missing rule is a line of the worker's log.

**A socket does not survive its instance.** What the guest was answered of it is replayed; from then
on it fails with `connection-reset`, as if the peer had gone away. What was written to it is never
sent again. New sockets work.
"""

import socket
from ipaddress import IPv4Address, IPv6Address
from typing import Any, Final

import msgspec

from executor.durable.definition import Local
from executor.host.interface import host_interface
from executor.host.state import HostState
from executor.host.streams import Failure, IoError
from executor.services.sockets import SocketAddress, SocketFailure
from executor.wasm.types import WitType
from executor.wasm.values import Err, Variant

SUBJECT: Final = "wasi:sockets"
"""What refusals are logged about."""
FAMILIES: Final = {"ipv4": socket.AF_INET, "ipv6": socket.AF_INET6}
BROADCAST: Final = IPv4Address("255.255.255.255")

FAILED: Final = "record { code: error-code, message: string }"
"""How a failure is recorded."""

LOST: Final = SocketFailure("connection-reset", "the socket was lost with an earlier instance")


class Network(msgspec.Struct, frozen=True):
    """The one network that there is."""


def open_network(state: HostState) -> int:
    return state.handles.add(Network())


def network_error_code(state: HostState, error: int) -> str | None:
    """The error-code of a stream error that stems from a socket."""
    return state.handles.get(error, IoError).socket_error or None


# -- failures --------------------------------------------------------------------------------------


def recorded_failure(failure: SocketFailure) -> Err:
    return Err({"code": failure.code, "message": failure.message})


def denied(message: str) -> SocketFailure:
    return SocketFailure("access-denied", message)


def observed_failure(state: HostState, record: Any) -> Err:
    """What the guest gets of a recorded failure; live and in replay."""
    if record["code"] == "access-denied":
        state.session.log("warn", record["message"].encode(), SUBJECT)
    return Err(record["code"])


def stream_failure(failure: SocketFailure) -> Failure:
    return Failure(failure.code, failure.message)


def io_error(failure: Failure) -> IoError:
    return IoError(failure.message, socket_error=failure.code)


# -- addresses -------------------------------------------------------------------------------------


def system_address(address: Any) -> SocketAddress:
    """Of an `ip-socket-address`."""
    fields = address.payload
    text = ip_text(Variant(address.case, fields["address"]))
    if address.case == "ipv4":
        return text, fields["port"]
    return text, fields["port"], fields["flow-info"], fields["scope-id"]


def wit_address(address: SocketAddress) -> Variant:
    """An `ip-socket-address`."""
    ip = wit_ip(address[0])
    if len(address) == 2:
        return Variant(ip.case, {"port": address[1], "address": ip.payload})
    _, port, flow, scope = address
    fields = {"port": port, "flow-info": flow, "address": ip.payload, "scope-id": scope}
    return Variant(ip.case, fields)


def ip_text(ip: Any) -> str:
    """Of an `ip-address`."""
    if ip.case == "ipv4":
        return str(IPv4Address(bytes(ip.payload)))
    return str(IPv6Address(b"".join(group.to_bytes(2) for group in ip.payload)))


def wit_ip(text: str) -> Variant:
    """An `ip-address`."""
    if ":" not in text:
        return Variant("ipv4", tuple(IPv4Address(text).packed))
    packed = IPv6Address(text.partition("%")[0]).packed
    groups = tuple(int.from_bytes(packed[at : at + 2]) for at in range(0, 16, 2))
    return Variant("ipv6", groups)


def is_local(family: str, address: Any) -> bool:
    """Whether a socket of the family may be bound to an `ip-socket-address`."""
    return bool(address.case == family) and is_unicast(system_address(address)[0])


def is_remote(family: str, address: Any) -> bool:
    """Whether a socket of the family may talk to an `ip-socket-address`."""
    if address.case != family:
        return False
    text, port, *_ = system_address(address)
    unspecified = IPv4Address(text) if family == "ipv4" else IPv6Address(text)
    return port != 0 and not unspecified.is_unspecified and is_unicast(text)


def is_unicast(text: str) -> bool:
    """Also of what is no IPv4 address in the clothes of one of IPv6."""
    if ":" not in text:
        address = IPv4Address(text)
        return not address.is_multicast and address != BROADCAST
    longer = IPv6Address(text)
    return not longer.is_multicast and longer.ipv4_mapped is None


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

TYPES: Final[dict[str, WitType]] = NETWORK.wit.types
"""What the other interfaces use."""

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
