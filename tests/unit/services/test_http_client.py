"""The HTTP client against a server that behaves as it is told."""

import socket
from contextlib import asynccontextmanager, contextmanager
from functools import partial

import pytest
import trio
from trio.testing import trio_test

from executor.services import http_client_connect
from executor.services.egress import EgressPolicy
from executor.services.http_client import HttpClient
from executor.services.http_client_types import (
    Ended,
    HttpFailure,
    HttpRequest,
    StaleConnection,
    Timeouts,
)
from tests.support.http_server import closed_port, http_server, pattern_bytes

LOOPBACK = EgressPolicy.of(["127.0.0.1"])


@asynccontextmanager
async def running(context=None):
    async with trio.open_nursery() as nursery:
        client = HttpClient(nursery, context)
        yield client
        client.close()
        nursery.cancel_scope.cancel()


def asking(server, path, method="GET", **more):
    fields = {
        "method": method,
        "secure": False,
        "host": "127.0.0.1",
        "port": server.port,
        "authority": server.authority,
        "target": path,
        "headers": [],
        "has_body": False,
    }
    return HttpRequest(**fields | more)


async def answer(client, request, body=(), trailers=(), egress=None, worker="w"):
    """Status, headers, body, trailers."""
    exchange = await client.begin(request, egress or LOOPBACK, worker)
    try:
        for piece in body:
            await exchange.send(piece)
        await exchange.send_end(list(trailers))
        head = await exchange.receive_head()
        content = b""
        while not isinstance(piece := await exchange.receive(), Ended):
            content += piece
        return head.status, dict(head.headers), content, piece.trailers
    finally:
        exchange.close()


@contextmanager
def failing(code):
    with pytest.raises(HttpFailure) as raised:
        yield raised
    assert raised.value.code.case == code, raised.value.message


@trio_test
async def test_a_request_is_answered_and_its_connection_kept():
    with http_server() as server:
        async with running() as client:
            for _ in range(3):
                status, headers, body, trailers = await answer(client, asking(server, "/text/a"))
                assert (status, body, trailers) == (200, b"a", None)
                assert headers["content-type"] == b"text/plain"
        assert server.connections == 1
        assert server.requests[0].headers["host"] == server.authority


@trio_test
async def test_bodies_and_trailers_go_both_ways():
    with http_server() as server:
        async with running() as client:
            request = asking(server, "/echo", "POST", has_body=True)
            pieces = [b"one ", b"two ", b"x" * 300_000]
            _, headers, body, _ = await answer(client, request, pieces, [("X-Sum", b"7")])
            assert body == b"".join(pieces)
            assert headers["x-transfer-encoding"] == b"chunked"
            assert server.requests[0].trailers == {"x-sum": "7"}
            sized = asking(server, "/echo", "POST", has_body=True, body_bytes=3)
            _, headers, body, _ = await answer(client, sized, [b"abc"])
            assert (headers["x-content-length"], body) == (b"3", b"abc")
            _, _, body, trailers = await answer(client, asking(server, "/chunks/3"))
            assert (body, trailers) == (b"chunk-0\nchunk-1\nchunk-2\n", [("x-count", b"3")])
        assert server.connections == 1


async def unknown_name(*_, **__):
    raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")


@trio_test
async def test_failures_have_the_code_that_fits(monkeypatch):
    with http_server() as server:
        async with running() as client:
            for path, code in {
                "/close": "HTTP-response-incomplete",
                "/reset": "connection-terminated",
                "/cut/1000/10": "HTTP-response-incomplete",
                "/head/300000": "HTTP-response-header-section-size",
                "/garbage": "HTTP-protocol-error",
            }.items():
                with failing(code) as raised:
                    await answer(client, asking(server, path))
                assert server.authority in raised.value.message, path
            with failing("connection-refused") as raised:
                gone = asking(server, "/", port=closed_port())
                await answer(client, gone)
            assert raised.value.transient
            monkeypatch.setattr(trio.socket, "getaddrinfo", unknown_name)
            with failing("DNS-error") as raised:
                nowhere = asking(server, "/", host="nowhere.test")
                await answer(client, nowhere, egress=EgressPolicy.of(["nowhere.test"]))
            assert raised.value.code.payload == {"rcode": "name not found", "info-code": None}


@trio_test
async def test_a_connection_is_not_kept_after_half_an_exchange_nor_when_the_peer_closes_it():
    with http_server() as server:
        async with running() as client:
            exchange = await client.begin(asking(server, "/bytes/10000000"), LOOPBACK, "w")
            await exchange.send_end([])
            await exchange.receive_head()
            exchange.close()
            _, _, body, _ = await answer(client, asking(server, "/until-close/70000"))
            assert body == pattern_bytes(70_000)
            assert server.connections == 2
            await answer(client, asking(server, "/text/a"))
            assert server.connections == 3


@trio_test
async def test_a_kept_connection_that_dies_is_told_from_a_failure():
    with http_server() as server:
        async with running() as client:
            await answer(client, asking(server, "/text/a"))
            with pytest.raises(StaleConnection):
                await answer(client, asking(server, "/close"))
            with failing("HTTP-response-incomplete"):
                await answer(client, asking(server, "/close"))


async def stays_away(*_):
    await trio.sleep_forever()


@trio_test
async def test_it_connects_in_time_or_says_so(monkeypatch):
    with http_server() as server:
        async with running() as client:
            client.shares.most = 1
            exchange = await client.begin(asking(server, "/hang"), LOOPBACK, "w")
            with failing("connection-limit-reached"):
                hasty = Timeouts(connect_s=0.05)
                await answer(client, asking(server, "/text/a", timeouts=hasty))
            async with trio.open_nursery() as nursery:
                nursery.start_soon(partial(answer, client, asking(server, "/text/a")))
                await trio.testing.wait_all_tasks_blocked()
                exchange.close()
            # A kept connection to somewhere else makes room.
            with http_server() as other:
                assert (await answer(client, asking(other, "/text/b")))[2] == b"b"
            monkeypatch.setattr(http_client_connect, "connected", stays_away)
            client.shares.most = 10
            with failing("connection-timeout"):
                await answer(client, asking(server, "/", timeouts=Timeouts(connect_s=0.05)))


@trio_test
async def test_what_may_not_be_reached_is_not_connected_to_also_over_a_kept_connection():
    with http_server() as server:
        async with running() as client:
            request = asking(server, "/text/a")
            with failing("HTTP-request-denied") as raised:
                await answer(client, request, egress=EgressPolicy())
            assert f"--allow-net {server.authority}" in raised.value.message
            assert server.connections == 0
            await answer(client, request)
            with failing("HTTP-request-denied"):
                await answer(client, request, egress=EgressPolicy.of(["127.0.0.2"]))
            assert (server.connections, len(server.requests)) == (1, 1)


async def leads_inside(*_, **__):
    return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 80))]


@trio_test
async def test_a_public_name_that_leads_inside_needs_a_rule_for_the_address(monkeypatch):
    monkeypatch.setattr(trio.socket, "getaddrinfo", leads_inside)
    with http_server() as server:
        async with running() as client:
            request = asking(server, "/text/a", host="example.com")
            with failing("HTTP-request-denied") as raised:
                await answer(client, request, egress=EgressPolicy.of(["example.com"]))
            assert "leads to 127.0.0.1" in raised.value.message
            assert server.connections == 0
