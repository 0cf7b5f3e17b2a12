"""Sockets of a guest, live, replayed, and lost at every entry."""

import pytest
from trio.testing import trio_test

from oplog.entry import End, Log, Start
from tests.support.peers import echo, speak, tcp_peer, udp_peer
from tests.support.python_guest import BEGIN, world
from tests.support.socket_guest import INPUT, OUTPUT, TCP, UDP, Network, at

CONNECT = "wasi:sockets/tcp.connect"


def echoed(network, port, tell):
    socket, received, sent = network.connected("127.0.0.1", port)
    tell(network.write(sent, b"hello"))
    tell(network.read_exactly(received, 5))
    tell(network.write(sent, b"again"))
    tell(network.read_exactly(received, 5))
    network.ok(f"{TCP}.shutdown", socket, "send")
    tell(network.read(received))
    network.drop(socket, received, sent)


def polled(network, port, tell):
    """With every function that does not block."""
    guest = network.guest
    socket, received, sent = network.connected("127.0.0.1", port)
    room = network.result(network.call(f"{OUTPUT}.check-write", sent))
    tell(room)
    if isinstance(room, int):
        network.ok(f"{OUTPUT}.write", sent, b"polled")
        network.ok(f"{OUTPUT}.flush", sent)
    pollable = network.call(f"{INPUT}.subscribe", received)
    content = b""
    while len(content) < 6:
        guest.call("wasi:io/poll.poll", [pollable])
        piece = network.result(network.call(f"{INPUT}.read", received, 100))
        if not isinstance(piece, bytes):
            tell(piece)
            break
        content += piece
    tell(content)
    guest.drop("wasi:io/poll.pollable", pollable)
    network.drop(socket, received, sent)


def one_after_another(network, port, tell):
    for _ in range(3):
        echoed(network, port, tell)


def side_by_side(network, port, tell):
    connections = [network.connected("127.0.0.1", port) for _ in range(3)]
    for number, (_, _, sent) in enumerate(connections):
        tell(network.write(sent, b"number %d" % number))
    for _, received, _ in reversed(connections):
        tell(network.read_exactly(received, 8))
    for connection in connections:
        network.drop(*connection)


def looked_up(network, port, tell):
    found = network.look_up("localhost")
    tell(at("127.0.0.1", 0).payload["address"] in [ip.payload for ip in found])
    echoed(network, port, tell)


PROGRAMS = [echoed, polled, one_after_another, side_by_side, looked_up]


def connections_of(recorded):
    """The starts of connections that are recorded, and of those that ended."""
    starts = [
        n for n, e in enumerate(recorded, 1) if isinstance(e, Start) and e.function == CONNECT
    ]
    ends = {entry.start_index for entry in recorded if isinstance(entry, End)}
    return starts, [index for index in starts if index in ends]


@pytest.mark.parametrize("steps", PROGRAMS)
@trio_test
async def test_what_a_guest_was_told_is_replayed_and_then_its_connections_are_reset(steps):
    with tcp_peer(echo) as peer:
        async with world() as around:

            def program(guest):
                steps(Network(guest), peer.port, guest.tell)

            whole = await around.run(program)
            assert whole.lost is None
            assert "connection-reset" not in whole.trace
            sent = peer.total()
            count = len(peer.received)
            replayed = await around.run(program, whole.entries)
            assert (replayed.trace, replayed.entries) == (whole.trace, whole.entries)
            assert len(peer.received) == count, "a replay connects to nobody"
            for kept in range(len(BEGIN), len(whole.entries)):
                before = len(peer.received)
                recorded = whole.entries[:kept]
                again = await around.run(program, recorded)
                assert again.lost is None
                assert again.entries[:kept] == recorded
                _, lost = connections_of(recorded)
                check_trace(again.trace, whole.trace, bool(lost))
                made = len(peer.received) - before
                assert made <= count - len(lost), f"the first {kept} entries"
                if not lost:
                    assert b"".join(map(bytes, peer.received[before:])) == sent


def check_trace(trace, whole, lost_some):
    """What was told is what was told before, but for resets of what was lost."""
    if not lost_some:
        assert trace == whole
    for told, before in zip(trace, whole, strict=False):
        if told != before:
            assert told in {"connection-reset", "closed", b""}


@trio_test
async def test_datagrams_are_replayed_and_then_the_socket_is_reset():
    with udp_peer() as peer:
        async with world() as around:

            def program(guest):
                network = Network(guest)
                socket = network.bound_udp()
                streams = network.call(f"{UDP}.stream", socket, at("127.0.0.1", peer.port)).value
                if isinstance(streams, str):
                    guest.tell(streams)
                    return
                incoming, outgoing = streams
                for number in range(3):
                    guest.tell(network.send(outgoing, (b"number %d" % number, None)))
                    found = network.receive(incoming)
                    guest.tell(found if isinstance(found, str) else found[0]["data"])

            whole = await around.run(program)
            assert whole.trace == [1, b"number 0", 1, b"number 1", 1, b"number 2"]
            replayed = await around.run(program, whole.entries)
            assert (replayed.trace, replayed.entries) == (whole.trace, whole.entries)
            assert len(peer.received) == 3
            for kept in range(len(BEGIN), len(whole.entries)):
                before = len(peer.received)
                again = await around.run(program, whole.entries[:kept])
                bound = kept >= len(BEGIN) + 2
                for told, seen in zip(again.trace, whole.trace, strict=bool(not bound)):
                    assert told == seen or (bound and told == "connection-reset")
                sent = len(peer.received) - before
                assert sent == (0 if bound else 3), f"the first {kept} entries"


@trio_test
async def test_what_is_received_outlives_the_peer():
    """1 MiB read in pieces, then replayed with nobody there."""
    content = bytes(range(256)) * 4096
    async with world() as around:
        with tcp_peer(speak(content)) as peer:
            port = peer.port

            def program(guest):
                network = Network(guest)
                socket, received, sent = network.connected("127.0.0.1", port)
                guest.tell(network.read_exactly(received, len(content)))
                guest.tell(network.read(received))
                network.drop(socket, received, sent)

            whole = await around.run(program)
        assert whole.trace == [content, "closed"]
        replayed = await around.run(program, whole.entries)
        assert (replayed.trace, replayed.entries) == (whole.trace, whole.entries)


@trio_test
async def test_after_a_loss_new_sockets_work():
    with tcp_peer(echo) as peer:
        async with world() as around:

            def program(guest):
                network = Network(guest)
                for _ in range(2):
                    socket, received, sent = network.connected("127.0.0.1", peer.port)
                    guest.tell(network.write(sent, b"hello"))
                    guest.tell(network.read_exactly(received, 5))
                    network.drop(socket, received, sent)

            whole = await around.run(program)
            ended = next(
                index
                for index, entry in enumerate(whole.entries, 1)
                if isinstance(entry, End)
                and getattr(whole.entries[entry.start_index - 1], "function", "") == CONNECT
            )
            again = await around.run(program, whole.entries[: ended + 1])
            assert again.trace == ["connection-reset", "connection-reset", None, b"hello"]


@trio_test
async def test_a_bound_socket_is_lost_and_one_that_only_connects_is_not():
    with tcp_peer(echo) as peer:
        async with world() as around:

            def program(guest):
                network = Network(guest)
                bound = network.tcp()
                network.ok(f"{TCP}.start-bind", bound, network.number, at("127.0.0.1", 0))
                network.ok(f"{TCP}.finish-bind", bound)
                for socket in (bound, network.tcp()):
                    streams = network.connect(socket, "127.0.0.1", peer.port)
                    guest.tell(streams if isinstance(streams, str) else "connected")

            whole = await around.run(program)
            assert whole.trace == ["connected", "connected"]
            for kept, seen in ((2, "connected"), (4, "connection-reset"), (5, "connection-reset")):
                again = await around.run(program, whole.entries[:kept])
                assert again.trace == [seen, "connected"]


@trio_test
async def test_what_is_refused_is_said_in_the_workers_log_once():
    async with world() as around:

        def program(guest):
            network = Network(guest)
            guest.tell(network.connect(network.tcp(), "192.0.2.7", 80))
            guest.tell(network.look_up("example.com"))
            udp = network.bound_udp()
            guest.tell(network.err(f"{UDP}.stream", udp, at("10.1.2.3", 53)))

        whole = await around.run(program)
        assert whole.trace == ["access-denied"] * 3
        lines = [(e.level, e.context, e.text) for e in whole.entries if isinstance(e, Log)]
        needed = "is not allowed: deploy with --allow-net"
        assert lines == [
            ("warn", "wasi:sockets", f"{asked} {needed} {rule}")
            for asked, rule in (
                ("192.0.2.7:80, which is reserved,", "192.0.2.7:80"),
                ("example.com", "example.com"),
                ("10.1.2.3:53, which is private,", "10.1.2.3:53"),
            )
        ]
        for kept in range(len(BEGIN), len(whole.entries) + 1):
            again = await around.run(program, whole.entries[:kept])
            assert again.trace == whole.trace
            assert [e.text for e in again.entries if isinstance(e, Log)] == [
                text for _, _, text in lines
            ]
