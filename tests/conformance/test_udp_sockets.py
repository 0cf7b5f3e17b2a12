"""UDP sockets of a guest: who is heard, with whom they are associated, what is bounded."""

import socket
import time

import pytest
from trio.testing import trio_test

from executor.errors import GuestTrap
from executor.services.egress import EgressPolicy
from executor.services.sockets_udp import RECEIVED_MAX, UNSENT_MAX
from executor.wasm.values import Ok
from tests.support.peers import NOBODYS_PORT, udp_peer
from tests.support.python_guest import world
from tests.support.socket_guest import INCOMING, OUTGOING, UDP, Network, at, told


@trio_test
async def test_datagrams_of_who_may_not_be_reached_are_not_heard():
    with udp_peer() as peer:
        stranger = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        stranger.bind(("127.0.0.1", 0))

        def program(network, tell):
            made = network.bound_udp(host="0.0.0.0")
            incoming, outgoing = network.ok(f"{UDP}.stream", made, None)
            port = network.ok(f"{UDP}.local-address", made).payload["port"]
            stranger.sendto(b"from a stranger", ("127.0.0.1", port))
            tell(network.send(outgoing, (b"hello", at("127.0.0.1", peer.port))))
            [datagram] = network.receive(incoming)
            tell(datagram == {"data": b"hello", "remote-address": at("127.0.0.1", peer.port)})
            tell(network.send(outgoing, (b"x", at("127.0.0.1", stranger.getsockname()[1]))))
            tell(network.err(f"{UDP}.remote-address", made))

        rules = EgressPolicy.of([f"127.0.0.1:{peer.port}"])
        assert await told(program, rules) == [1, True, "access-denied", "invalid-state"]
        stranger.close()


@trio_test
async def test_an_association_is_with_one_peer_until_the_next():
    with udp_peer() as first, udp_peer() as second:

        def program(network, tell):
            one, two = at("127.0.0.1", first.port), at("127.0.0.1", second.port)
            made = network.bound_udp()
            bound = network.ok(f"{UDP}.local-address", made)
            old = network.ok(f"{UDP}.stream", made, one)
            tell(network.ok(f"{UDP}.remote-address", made) == one)
            tell(network.send(old[1], (b"a", None)))
            tell(network.receive(old[0])[0]["data"])
            tell(network.send(old[1], (b"a", one)))
            tell(network.send(old[1], (b"b", two)))
            network.block(f"{INCOMING}.subscribe", old[0])
            incoming, outgoing = network.ok(f"{UDP}.stream", made, two)
            tell(network.send(outgoing, (b"c", None)))
            tell(network.receive(incoming)[0])
            tell(network.send(old[1], (b"d", None)))
            incoming, outgoing = network.ok(f"{UDP}.stream", made, None)
            tell(network.ok(f"{UDP}.local-address", made) == bound)
            tell(network.send(outgoing, (b"e", None)))
            tell(network.send(outgoing, (b"e", one), (b"f", two), (b"g", None)))
            heard = []
            while len(heard) < 2:
                heard += network.receive(incoming)
            tell(sorted(datagram["data"] for datagram in heard))

        two = at("127.0.0.1", second.port)
        assert await told(program) == [
            *(True, 1, b"a", 1, "invalid-argument", 1, {"data": b"c", "remote-address": two}),
            *("connection-reset", True, "invalid-argument", 2, [b"e", b"f"]),
        ]


@trio_test
async def test_a_port_where_nobody_is_refuses_datagrams():
    def program(network, tell):
        made = network.bound_udp()
        incoming, outgoing = network.ok(f"{UDP}.stream", made, at("127.0.0.1", NOBODYS_PORT))
        tell(network.send(outgoing, (b"x", None)))
        tell(network.receive(incoming))
        tell(network.call(f"{INCOMING}.receive", incoming, 5))
        tell(network.send(outgoing, (b"x", None)))

    assert await told(program) == [1, "connection-refused", Ok([]), 1]


@trio_test
async def test_datagrams_have_their_bounds():
    with udp_peer(answers=False) as peer:
        where = at("127.0.0.1", peer.port)

        def program(network, tell):
            made = network.bound_udp()
            _, outgoing = network.ok(f"{UDP}.stream", made, where)
            tell(network.send(outgoing, (bytes(65_508), None)))
            tell(network.send(outgoing, (bytes(65_507), None)))
            tell(network.send(outgoing, (b"x", None), (bytes(65_508), None), (b"y", None)))
            tell(network.call(f"{OUTGOING}.send", outgoing, []))
            permitted = network.ok(f"{OUTGOING}.check-send", outgoing)
            tell(permitted <= UNSENT_MAX)
            datagram = {"data": b"", "remote-address": None}
            with pytest.raises(GuestTrap, match=f"check-send permitted {permitted}"):
                network.call(f"{OUTGOING}.send", outgoing, [datagram] * (permitted + 1))
            network.ok(f"{OUTGOING}.send", outgoing, [datagram])
            with pytest.raises(GuestTrap, match="check-send permitted 0"):
                network.call(f"{OUTGOING}.send", outgoing, [datagram])

        assert await told(program) == ["datagram-too-large", 1, 1, Ok(0), True]


@trio_test
async def test_what_comes_while_nobody_receives_is_bounded():
    async with world() as around:

        def program(guest):
            network = Network(guest)
            made = network.bound_udp()
            incoming, _ = network.ok(f"{UDP}.stream", made, None)
            port = network.ok(f"{UDP}.local-address", made).payload["port"]
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
                for _ in range(2 * RECEIVED_MAX):
                    peer.sendto(bytes(2_000), ("127.0.0.1", port))
            time.sleep(0.3)
            [live] = guest.state.connections._open
            guest.tell(sum(len(content) for content, _ in live._received) <= (256 << 10) + 2_000)
            found = network.receive(incoming, 1_000)
            guest.tell(sum(len(datagram["data"]) for datagram in found) <= 64 << 10)

        assert (await around.run(program)).trace == [True, True]


@trio_test
async def test_udp_states():
    def program(network, tell):
        number = network.number
        made = network.udp("ipv6")
        tell(network.call(f"{UDP}.address-family", made))
        tell(network.err(f"{UDP}.local-address", made))
        tell(network.err(f"{UDP}.stream", made, None))
        tell(network.err(f"{UDP}.finish-bind", made))
        network.ok(f"{UDP}.start-bind", made, number, at("::1", 0))
        tell(network.err(f"{UDP}.local-address", made))
        tell(network.err(f"{UDP}.start-bind", made, number, at("::1", 0)))
        network.ok(f"{UDP}.finish-bind", made)
        tell(network.err(f"{UDP}.start-bind", made, number, at("::1", 0)))
        tell(network.err(f"{UDP}.stream", made, at("127.0.0.1", 1)))
        tell(network.err(f"{UDP}.stream", made, at("::1", 0)))
        network.ok(f"{UDP}.set-unicast-hop-limit", made, 3)
        tell(network.ok(f"{UDP}.unicast-hop-limit", made))
        network.block(f"{UDP}.subscribe", made)

    assert await told(program) == [
        *("ipv6", "invalid-state", "invalid-state", "not-in-progress", "invalid-state"),
        *("concurrency-conflict", "invalid-state", "invalid-argument", "invalid-argument", 3),
    ]
