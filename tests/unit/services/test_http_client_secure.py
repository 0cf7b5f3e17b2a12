"""The HTTP client over TLS: HTTP/2 with many exchanges a connection, and whom it trusts."""

import socket
import ssl
import threading
from contextlib import asynccontextmanager, suppress

import trio
from trio.testing import trio_test

from executor.services.http_client import HttpClient
from executor.services.http_client_connect import tls_context
from tests.support.http_server import http_server
from tests.support.secure_server import SecureServer, answering, certificate, secure_server
from tests.unit.services.test_http_client import LOOPBACK, answer, asking, failing


def secure(server, path, method="GET", **more):
    return asking(server, path, method, secure=True, **more)


@asynccontextmanager
async def running(context=None):
    async with trio.open_nursery() as nursery:
        client = HttpClient(nursery, context or certificate().trusted())
        yield client
        client.close()
        nursery.cancel_scope.cancel()


@trio_test
async def test_requests_share_one_connection_of_http_2():
    async with secure_server(answering) as server, running() as client:
        peers = set()

        async def ask(number):
            status, headers, body, _ = await answer(client, secure(server, f"/{number}"))
            assert (status, headers["x-version"], len(body)) == (200, b"2", number)
            peers.add(headers["x-peer"])

        async with trio.open_nursery() as nursery:
            for number in range(1, 40):
                nursery.start_soon(ask, number * 1000)
        assert len(peers) == 1


@trio_test
async def test_bodies_of_any_size_go_both_ways_with_trailers():
    async with (
        secure_server(answering) as server,
        running() as client,
    ):
        wanted = [("TE", b"trailers")]
        request = secure(server, "/", "POST", has_body=True, headers=wanted)
        pieces = [bytes([number % 251]) * 70_000 for number in range(30)]
        _, _, body, trailers = await answer(client, request, pieces, [("X-Sum", b"1")])
        assert body == b"".join(pieces)
        assert trailers == [("x-count", b"2100000")]


@trio_test
async def test_a_response_that_nobody_reads_holds_up_no_other():
    async with secure_server(answering) as server, running() as client:
        held = []
        for _ in range(80):  # each more than its window; together more than the connection's
            exchange = await client.begin(secure(server, "/1000000"), LOOPBACK, "w")
            await exchange.receive_head()
            held.append(exchange)
        await trio.sleep(0.3)
        _, _, body, _ = await answer(client, secure(server, "/2000000"))
        assert len(body) == 2_000_000
        for exchange in held:
            exchange.close()
        await answer(client, secure(server, "/1"))


@trio_test
async def test_more_requests_than_the_peer_takes_at_a_time_take_more_connections():
    async with secure_server(answering, h2_max_concurrent_streams=3) as server, running() as client:
        peers = set()

        async def ask():
            peers.add((await answer(client, secure(server, "/5000")))[1]["x-peer"])

        await ask()
        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(ask)
        assert 1 < len(peers) <= 10


@trio_test
async def test_http_1_is_spoken_where_the_peer_speaks_no_other():
    async with secure_server(answering, alpn_protocols=["http/1.1"]) as server, running() as client:
        for _ in range(2):
            _, headers, body, _ = await answer(client, secure(server, "/300000"))
            assert (headers["x-version"], len(body)) == (b"1.1", 300_000)


@trio_test
async def test_a_connection_that_the_peer_closed_is_not_used_again():
    async with running() as client:
        async with secure_server(answering) as server:
            await answer(client, secure(server, "/1"))
            port = server.port
        await trio.sleep(0.05)
        async with secure_server(answering, port) as server:
            assert (await answer(client, secure(server, "/7")))[2] == bytes(7)


@trio_test
async def test_who_is_not_trusted_is_not_talked_to():
    async with secure_server(answering) as server, running(tls_context()) as client:
        with failing("TLS-certificate-error") as raised:
            await answer(client, secure(server, "/"))
        assert "not trusted" in raised.value.message
        assert not raised.value.transient


@trio_test
async def test_a_certificate_for_somebody_else_is_refused(monkeypatch):
    real = trio.socket.getaddrinfo

    async def leads_here(_host, port, **more):
        return await real("127.0.0.1", port, **more)

    monkeypatch.setattr(trio.socket, "getaddrinfo", leads_here)
    async with secure_server(answering) as server, running() as client:
        egress = type(LOOPBACK).of(["elsewhere.test"])
        with failing("TLS-certificate-error"):
            await answer(client, secure(server, "/", host="elsewhere.test"), egress=egress)


@trio_test
async def test_tls_with_somebody_who_speaks_none_fails():
    with http_server() as server:
        async with running() as client:
            with failing("TLS-protocol-error"):
                await answer(client, secure(server, "/"))


@trio_test
async def test_a_peer_that_hangs_up_with_an_alert_says_which():
    """It speaks TLS 1.3 only."""
    made = certificate()
    strict = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    strict.load_cert_chain(made.file, made.key)
    strict.minimum_version = ssl.TLSVersion.TLSv1_3
    old = made.trusted()
    old.maximum_version = ssl.TLSVersion.TLSv1_2

    with socket.create_server(("127.0.0.1", 0)) as listening:

        def refuse():
            accepted, _ = listening.accept()
            with accepted, suppress(ssl.SSLError):
                strict.wrap_socket(accepted, server_side=True)

        refusing = threading.Thread(target=refuse, daemon=True)
        refusing.start()
        async with running(old) as client:
            with failing("TLS-alert-received") as raised:
                peer = SecureServer(listening.getsockname()[1])
                await answer(client, secure(peer, "/"))
        refusing.join()
    assert raised.value.code.payload == {"alert-id": 70, "alert-message": "protocol version"}
