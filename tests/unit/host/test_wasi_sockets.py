import errno
import socket

import pytest

from executor.host.network import GuestNetwork
from executor.host.streams import IoError
from executor.host.wasi.sockets_network import (
    ip_text,
    network_error_code,
    system_address,
    wit_address,
    wit_ip,
)
from executor.services.egress import EgressPolicy
from executor.services.sockets import failure_of
from executor.wasm.values import Variant


@pytest.mark.parametrize("text", ["127.0.0.1", "0.0.0.0", "::", "::1", "2606:2800:220:1::1"])
def test_an_address_is_the_same_to_the_guest_and_to_the_system(text):
    assert ip_text(wit_ip(text)) == text
    for port in (0, 443, 65535):
        where = (text, port) if "." in text else (text, port, 7, 2)
        assert system_address(wit_address(where)) == where


def test_a_scope_is_a_number_and_no_part_of_the_address():
    assert wit_address(("fe80::1%eth0", 80, 0, 2)) == Variant(
        "ipv6",
        {"port": 80, "flow-info": 0, "address": (0xFE80, 0, 0, 0, 0, 0, 0, 1), "scope-id": 2},
    )


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.ECONNREFUSED, "connection-refused"),
        (errno.ECONNRESET, "connection-reset"),
        (errno.EPIPE, "connection-reset"),
        (errno.ECONNABORTED, "connection-aborted"),
        (errno.ETIMEDOUT, "timeout"),
        (errno.EHOSTUNREACH, "remote-unreachable"),
        (errno.ENETUNREACH, "remote-unreachable"),
        (errno.EADDRINUSE, "address-in-use"),
        (errno.EADDRNOTAVAIL, "address-not-bindable"),
        (errno.EMFILE, "new-socket-limit"),
        (errno.ENFILE, "new-socket-limit"),
        (errno.EMSGSIZE, "datagram-too-large"),
        (errno.EACCES, "access-denied"),
        (errno.EPERM, "access-denied"),
        (errno.EAFNOSUPPORT, "not-supported"),
        (errno.ENOBUFS, "out-of-memory"),
        (errno.EINVAL, "invalid-argument"),
        (errno.EIO, "unknown"),
        (None, "unknown"),
    ],
)
def test_an_error_of_the_system_has_its_code(number, code):
    assert failure_of(OSError(number, "why")).code == code


def test_who_connects_without_a_free_port_hears_that_addresses_are_in_use():
    error = OSError(errno.EADDRNOTAVAIL, "none left")
    assert failure_of(error, connecting=True).code == "address-in-use"


def test_only_the_error_of_a_socket_has_a_code_of_the_network(make_guest):
    state = make_guest().state
    of_socket = state.handles.add(IoError("reset", socket_error="connection-reset"))
    of_file = state.handles.add(IoError("no", file_error="quota"))
    assert network_error_code(state, of_socket) == "connection-reset"
    assert network_error_code(state, of_file) is None
    for number in (of_socket, of_file):
        state.handles.drop(number)


def test_an_address_is_allowed_by_any_name_that_led_to_it():
    network = GuestNetwork()
    egress = EgressPolicy.of(["db.internal:5432", "example.com"])
    assert "10.0.0.5" in network.refusal(egress, "10.0.0.5", 5432)
    network.learn("other.internal", ["10.0.0.5"])
    assert "other.internal:5432 is not allowed" in network.refusal(egress, "10.0.0.5", 5432)
    network.learn("db.internal", ["10.0.0.5", "::ffff:10.0.0.6"])
    network.learn("db.internal", ["10.0.0.5"])
    assert network.refusal(egress, "10.0.0.5", 5432) is None
    assert network.refusal(egress, "10.0.0.6", 5432) is None
    assert network.refusal(egress, "10.0.0.5", 80) is not None
    network.learn("example.com", ["10.0.0.7", "93.184.216.34"])
    assert "10.0.0.7:80" in network.refusal(egress, "10.0.0.7", 80)
    assert network.refusal(egress, "93.184.216.34", 80) is None


def test_ipv6_sockets_are_of_ipv6_only(guest):
    assert socket.has_ipv6
    network = guest.call("wasi:sockets/instance-network.instance-network")
    made = guest.ok("wasi:sockets/tcp-create-socket.create-tcp-socket", "ipv6")
    where = wit_address(("::ffff:127.0.0.1", 80, 0, 0))
    on = "wasi:sockets/tcp.[method]tcp-socket"
    assert guest.err(f"{on}.start-connect", made, network, where) == "invalid-argument"
    assert guest.call(f"{on}.address-family", made) == "ipv6"
    guest.drop("wasi:sockets/tcp", "tcp-socket", made)
    guest.drop("wasi:sockets/network", "network", network)
