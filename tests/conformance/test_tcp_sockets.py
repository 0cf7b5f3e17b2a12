"""What holds of sockets besides replay: bounds, order, failures of the network, what is closed."""

import socket
import time
from pathlib import Path

import pytest
import trio
from trio.testing import trio_test

from executor.errors import GuestTrap
from executor.services.egress import EgressPolicy
from executor.services.sockets import Sockets
from executor.services.sockets_tcp import RECEIVED_BYTES_MAX, UNSENT_BYTES_MAX
from executor.wasm.values import Err, Ok
from tests.support.executors import until
from tests.support.peers import NOBODYS_PORT, WAIT_S, echo, ignore, reset, speak, swallow, tcp_peer
from tests.support.python_guest import BEGIN, Instance, world
from tests.support.socket_guest import INPUT, OUTPUT, TCP, UDP, Network, at, told

CREATE = "wasi:sockets/tcp-create-socket.create-tcp-socket"


def descriptors():
    """How many files this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))


def tasks_of_sockets(around):
    return [task for task in around.nursery.child_tasks if "Sockets" in task.name]


# -- tcp -----------------------------------------------------------------------------------------


@trio_test
async def test_the_addresses_of_a_connection_are_those_of_the_system():
    with tcp_peer(echo) as peer, tcp_peer(echo, socket.AF_INET6) as peer6:

        def program(network, tell):
            for host, port in (("127.0.0.1", peer.port), ("::1", peer6.port)):
                made = network.connected(host, port)
                tell(network.ok(f"{TCP}.remote-address", made[0]) == at(host, port))
                local = network.ok(f"{TCP}.local-address", made[0])
                tell((local.case, local.payload["address"]) == (
                    at(host, 0).case, at(host, 0).payload["address"])
                )  # fmt: skip
                tell(network.write(made[2], b"x"))
                tell(network.read(made[1]))
                network.drop(*made)

        assert await told(program) == [True, True, None, b"x"] * 2


@trio_test
async def test_a_peer_that_resets_is_a_connection_reset_after_what_it_sent():
    with tcp_peer(reset) as peer:

        def program(network, tell):
            _, received, sent = network.connected("127.0.0.1", peer.port)
            tell(network.write(sent, b"hello"))
            tell(network.read(received))
            peer.go.set()
            tell(network.read(received))
            tell(network.result(network.call(f"{INPUT}.read", received, 10)))
            while network.result(network.call(f"{OUTPUT}.check-write", sent)) not in {
                "connection-reset",
                "closed",
            }:
                network.write(sent, b"more")
            tell(network.result(network.call(f"{OUTPUT}.check-write", sent)))

        assert await told(program) == [None, b"first", "connection-reset", "closed", "closed"]


@trio_test
async def test_who_does_not_listen_refuses_and_the_socket_is_closed():
    def program(network, tell):
        made = network.tcp()
        tell(network.connect(made, "127.0.0.1", NOBODYS_PORT))
        where = network.number, at("127.0.0.1", NOBODYS_PORT)
        tell(network.err(f"{TCP}.start-connect", made, *where))
        tell(network.err(f"{TCP}.finish-connect", made))
        tell(network.err(f"{TCP}.start-bind", made, network.number, at("127.0.0.1", 0)))
        tell(network.err(f"{TCP}.remote-address", made))

    assert await told(program) == [
        *("connection-refused", "invalid-state", "not-in-progress", "invalid-state"),
        "invalid-state",
    ]


@trio_test
async def test_a_peer_that_does_not_read_fills_the_room_and_no_memory():
    with tcp_peer(ignore) as peer:

        def program(network, tell):
            made = network.connected("127.0.0.1", peer.port)
            sent = made[2]
            total = 0
            while True:
                room = network.ok(f"{OUTPUT}.check-write", sent)
                if not room and total > UNSENT_BYTES_MAX:
                    time.sleep(0.05)
                    room = network.ok(f"{OUTPUT}.check-write", sent)
                    if not room:
                        break
                network.ok(f"{OUTPUT}.write", sent, bytes(room))
                total += room
            peer.go.set()
            network.block(f"{OUTPUT}.subscribe", sent)
            tell(network.ok(f"{OUTPUT}.check-write", sent) > 0)
            network.ok(f"{OUTPUT}.blocking-flush", sent)
            network.ok(f"{TCP}.shutdown", made[0], "send")
            tell(network.read(made[1]))
            tell(len(peer.total()) == total)
            network.drop(*made)

        assert await told(program) == [True, "closed", True]


@trio_test
async def test_what_nobody_reads_is_left_with_the_peer():
    with tcp_peer(speak(bytes(8 << 20))) as peer:
        async with world() as around:

            def program(guest):
                network = Network(guest)
                made = network.connected("127.0.0.1", peer.port)
                time.sleep(0.3)
                [connection] = guest.state.connections._open
                guest.tell(len(connection._received) < 2 * RECEIVED_BYTES_MAX)
                total = 0
                while isinstance(piece := network.read(made[1]), bytes):
                    total += len(piece)
                guest.tell((total, piece))

            ran = await around.run(program)
            assert ran.trace == [True, (8 << 20, "closed")]


@trio_test
async def test_a_write_far_beyond_the_room_traps():
    with tcp_peer(ignore) as peer:

        def program(network, _tell):
            _, _, sent = network.connected("127.0.0.1", peer.port)
            with pytest.raises(GuestTrap, match="check-write had not said"):
                write_on(sent, network)

        def write_on(sent, network):
            while True:
                network.ok(f"{OUTPUT}.write", sent, bytes(65536))

        assert await told(program) == []


@trio_test
async def test_each_direction_is_shut_down_for_itself():
    with tcp_peer(echo) as peer:

        def program(network, tell):
            made, received, sent = network.connected("127.0.0.1", peer.port)
            tell(network.write(sent, b"hello"))
            tell(network.call(f"{TCP}.shutdown", made, "send"))
            tell(network.result(network.call(f"{OUTPUT}.check-write", sent)))
            tell(network.write(sent, b"more"))
            tell(network.read_exactly(received, 5))
            tell(network.read(received))
            tell(network.call(f"{TCP}.shutdown", made, "both"))
            tell(network.read(received))
            network.drop(made, received, sent)
            made, received, sent = network.connected("127.0.0.1", peer.port)
            network.ok(f"{TCP}.shutdown", made, "receive")
            tell(network.read(received))
            tell(network.write(sent, b"one way"))

        assert await told(program) == [
            *(None, Ok(), "closed", "closed", b"hello", "closed", Ok(), "closed"),
            *("closed", None),
        ]
        with trio.fail_after(WAIT_S):
            await until(lambda: peer.received == [b"hello", b"one way"])


@trio_test
async def test_a_bound_socket_connects_from_where_it_is_bound():
    with tcp_peer(echo) as peer:

        def program(network, tell):
            made = network.tcp()
            number = network.number
            tell(network.err(f"{TCP}.local-address", made))
            tell(network.err(f"{TCP}.finish-bind", made))
            network.ok(f"{TCP}.start-bind", made, number, at("127.0.0.1", 0))
            tell(network.err(f"{TCP}.start-bind", made, number, at("127.0.0.1", 0)))
            tell(network.err(f"{TCP}.start-connect", made, number, at("127.0.0.1", 1)))
            network.ok(f"{TCP}.finish-bind", made)
            bound = network.ok(f"{TCP}.local-address", made)
            tell(bound.payload["port"] > 0)
            tell(network.err(f"{TCP}.start-bind", made, number, at("127.0.0.1", 0)))
            streams = network.connect(made, "127.0.0.1", peer.port)
            tell(network.ok(f"{TCP}.local-address", made) == bound)
            tell(network.write(streams[1], b"x"))
            tell(network.read(streams[0]))

        assert await told(program) == [
            *("invalid-state", "not-in-progress", "concurrency-conflict", "concurrency-conflict"),
            *(True, "invalid-state", True, None, b"x"),
        ]


@trio_test
async def test_arguments_that_make_no_sense():
    def program(network, tell):
        number = network.number
        four, six = network.tcp("ipv4"), network.tcp("ipv6")
        for made, host, port in (
            (four, "::1", 80),
            (six, "127.0.0.1", 80),
            (four, "127.0.0.1", 0),
            (four, "0.0.0.0", 80),
            (six, "::", 80),
            (four, "224.0.0.1", 80),
            (four, "255.255.255.255", 80),
            (six, "ff02::1", 80),
            (six, "::ffff:127.0.0.1", 80),
        ):
            tell(network.err(f"{TCP}.start-connect", made, number, at(host, port)))
        for made, host in ((four, "::1"), (six, "::ffff:127.0.0.1"), (four, "224.0.0.1")):
            tell(network.err(f"{TCP}.start-bind", made, number, at(host, 0)))
            udp = network.udp("ipv4" if made == four else "ipv6")
            tell(network.err(f"{UDP}.start-bind", udp, number, at(host, 0)))

    assert await told(program, EgressPolicy.of(["*"])) == ["invalid-argument"] * 15


@trio_test
async def test_a_worker_cannot_be_reached():
    def program(network, tell):
        number = network.number
        made = network.tcp()
        tell(network.err(f"{TCP}.start-listen", made))
        tell(network.err(f"{TCP}.start-bind", made, number, at("127.0.0.1", 8080)))
        network.ok(f"{TCP}.start-bind", made, number, at("127.0.0.1", 0))
        tell(network.err(f"{TCP}.start-listen", made))
        network.ok(f"{TCP}.finish-bind", made)
        tell(network.call(f"{TCP}.set-listen-backlog-size", made, 5))
        tell(network.err(f"{TCP}.start-listen", made))
        tell(network.err(f"{TCP}.finish-listen", made))
        tell(network.err(f"{TCP}.accept", made))
        tell(network.call(f"{TCP}.is-listening", made))
        udp = network.udp()
        tell(network.err(f"{UDP}.start-bind", udp, number, at("0.0.0.0", 53)))

    assert await told(program, EgressPolicy.of(["*", "127.0.0.0/8"])) == [
        *("invalid-state", "access-denied", "concurrency-conflict", Ok(), "access-denied"),
        *("not-in-progress", "invalid-state", False, "access-denied"),
    ]


@trio_test
async def test_an_address_of_another_machine_is_not_bindable():
    def program(network, tell):
        number = network.number
        tell(network.err(f"{TCP}.start-bind", network.tcp(), number, at("192.0.2.1", 0)))
        tell(network.err(f"{UDP}.start-bind", network.udp(), number, at("192.0.2.1", 0)))
        made = network.tcp()
        tell(network.err(f"{TCP}.start-bind", made, number, at("192.0.2.1", 0)))
        tell(isinstance(network.connect(made, "127.0.0.1", peer.port), tuple))

    with tcp_peer(echo) as peer:
        assert await told(program) == [*["address-not-bindable"] * 3, True]


@trio_test
async def test_options_are_what_the_guest_set_and_reach_the_system():
    with tcp_peer(echo) as peer:
        async with world() as around:

            def program(guest):
                network = Network(guest)
                made = network.tcp()
                for name, value in (
                    ("keep-alive-enabled", True),
                    ("keep-alive-idle-time", 1_500_000_000),
                    ("keep-alive-interval", 7_000_000_000),
                    ("keep-alive-count", 3),
                    ("hop-limit", 9),
                    ("receive-buffer-size", 1 << 40),
                    ("send-buffer-size", 8192),
                ):
                    guest.tell(network.ok(f"{TCP}.{name}", made))
                    network.ok(f"{TCP}.set-{name}", made, value)
                    guest.tell(network.ok(f"{TCP}.{name}", made) == value)
                    if name != "keep-alive-enabled":
                        guest.tell(network.err(f"{TCP}.set-{name}", made, 0))
                network.connect(made, "127.0.0.1", peer.port)
                network.ok(f"{TCP}.set-hop-limit", made, 11)
                [connection] = guest.state.connections._open
                opened = connection._socket
                got = opened.getsockopt
                guest.tell(got(socket.SOL_SOCKET, socket.SO_KEEPALIVE))
                guest.tell(got(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE))
                guest.tell(got(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL))
                guest.tell(got(socket.IPPROTO_TCP, socket.TCP_KEEPCNT))
                guest.tell(got(socket.IPPROTO_IP, socket.IP_TTL))

            ran = await around.run(program)
    assert ran.trace == [
        *(False, True),
        *(7_200_000_000_000, True, "invalid-argument", 75_000_000_000, True, "invalid-argument"),
        *(9, True, "invalid-argument", 64, True, "invalid-argument"),
        *(65536, True, "invalid-argument", 65536, True, "invalid-argument"),
        *(1, 1, 7, 3, 11),
    ]


# -- order, leaving, limits ------------------------------------------------------------------------


@trio_test
async def test_what_is_written_leaves_only_once_what_came_before_is_durable():
    with tcp_peer(swallow) as peer:
        async with world() as around:
            instance = Instance(around, BEGIN)
            committed = instance.session.commit
            go = trio.Event()

            async def slow_commit():
                await go.wait()
                await committed()

            instance.session.commit = slow_commit

            def program(guest):
                network = Network(guest)
                made = network.connected("127.0.0.1", peer.port)
                network.ok(f"{OUTPUT}.write", made[2], b"caused")
                time.sleep(0.2)
                guest.tell(peer.total())
                around.inbox.post(go.set)
                network.ok(f"{OUTPUT}.blocking-flush", made[2])
                for _ in range(100):
                    if peer.total():
                        break
                    time.sleep(0.01)
                guest.tell(peer.total())

            ran = await instance.run(program)
            assert ran.trace == [b"", b"caused"]


@trio_test
async def test_what_was_written_leaves_when_the_instance_is_left_and_everything_is_closed():
    with tcp_peer(swallow) as peer:
        before = descriptors()
        async with world() as around:
            opened = around.sockets._open

            def program(guest):
                network = Network(guest)
                network.connected("127.0.0.1", peer.port)
                made = network.connected("127.0.0.1", peer.port)
                network.ok(f"{OUTPUT}.write", made[2], b"last words")
                network.bound_udp()
                bound = network.tcp()
                network.ok(f"{TCP}.start-bind", bound, network.number, at("127.0.0.1", 0))
                guest.tell((len(opened), len(guest.state.connections._open)))

            ran = await around.run(program)
            assert ran.trace == [(4, 4)]
            assert not opened
            with trio.fail_after(5):
                await until(lambda: not tasks_of_sockets(around))
                await until(lambda: peer.total() == b"last words")
    assert descriptors() <= before


@trio_test
async def test_a_connection_that_is_dropped_sends_what_was_written_and_ends():
    with tcp_peer(swallow) as peer:
        async with world() as around:

            def program(guest):
                network = Network(guest)
                for _ in range(3):
                    made = network.connected("127.0.0.1", peer.port)
                    network.ok(f"{OUTPUT}.write", made[2], b"bye")
                    network.drop(*made)
                while guest.state.connections:
                    time.sleep(0.01)
                guest.tell(len(around.sockets._open))

            ran = await around.run(program)
        assert ran.trace == [0]
        with trio.fail_after(WAIT_S):
            await until(lambda: peer.received == [b"bye"] * 3)


@trio_test
async def test_a_socket_that_is_dropped_while_it_connects_is_closed():
    async with world(egress=EgressPolicy.of(["10.0.0.0/8", "127.0.0.1"])) as around:

        def program(guest):
            network = Network(guest)
            made = network.tcp()
            where = at("127.0.0.1", 9)
            network.ok(f"{TCP}.start-connect", made, network.number, where)
            tell = network.call(f"{TCP}.start-connect", made, network.number, where)
            guest.tell(tell)
            guest.drop("wasi:sockets/tcp.tcp-socket", made)
            while around.sockets._open:
                time.sleep(0.01)

        ran = await around.run(program)
        assert ran.trace == [Err("concurrency-conflict")]


@trio_test
async def test_guests_get_a_bounded_number_of_sockets():
    with tcp_peer(echo) as peer:
        async with world() as around:
            around.sockets = Sockets(around.nursery, around.inbox.post, open_max=2)

            def program(guest):
                network = Network(guest)
                first = network.connected("127.0.0.1", peer.port)
                network.bound_udp()
                guest.tell(network.connect(network.tcp(), "127.0.0.1", peer.port))
                bind = network.number, at("127.0.0.1", 0)
                guest.tell(network.err(f"{UDP}.start-bind", network.udp(), *bind))
                network.drop(*first)
                while len(around.sockets._open) > 1:
                    time.sleep(0.01)
                network.connected("127.0.0.1", peer.port)
                while isinstance(made := network.call(CREATE, "ipv4"), Ok):
                    last = made.value
                guest.tell(made.value)
                guest.tell(guest.state.network.sockets)
                guest.drop("wasi:sockets/tcp.tcp-socket", last)
                guest.tell(isinstance(network.call(CREATE, "ipv6"), Ok))

            ran = await around.run(program)
    assert ran.trace == [*["new-socket-limit"] * 3, 256, True]
