import pytest

from executor.errors import InternalError
from executor.host.wasi import sockets


def test_a_socket_cannot_be_made(guest):
    for family in ("ipv4", "ipv6"):
        tcp = "wasi:sockets/tcp-create-socket.create-tcp-socket"
        udp = "wasi:sockets/udp-create-socket.create-udp-socket"
        assert guest.err(tcp, family) == "access-denied"
        assert guest.err(udp, family) == "access-denied"


def test_no_name_can_be_looked_up(guest):
    network = guest.call("wasi:sockets/instance-network.instance-network")
    lookup = "wasi:sockets/ip-name-lookup.resolve-addresses"
    assert guest.err(lookup, network, "example.org") == "access-denied"
    guest.drop("wasi:sockets/network", "network", network)


def test_a_method_of_a_socket_that_cannot_exist_is_our_own_fault(make_guest):
    state = make_guest().state
    for table in (sockets.TCP, sockets.UDP):
        for row in table.functions:
            with pytest.raises(InternalError):
                row.call(state, 1)
