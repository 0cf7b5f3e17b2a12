"""What passes between a guest and its peer besides the content: back-pressure, trailers, time."""

import gc
import socket
import threading
import time
from collections import Counter
from contextlib import contextmanager

import pytest
import trio
from trio.testing import trio_test

from executor.durable.reasons import Unsure
from executor.services.egress import EgressPolicy
from executor.services.http_client import HttpClient
from executor.wasm.values import Variant
from oplog.entry import End, Start
from tests.support.http_guest import STREAMS, TYPES, Client
from tests.support.http_server import closed_port, http_server, pattern_bytes
from tests.support.python_guest import BEGIN, world
from tests.support.secure_server import answering, certificate, secure_server

HANDLE = "wasi:http/outgoing-handler.handle"
PIECE = bytes(64 * 1024)
PIECES = 3_000
BUFFERED_PIECES = 500
"""More than what the sockets of both sides hold."""


@trio_test
async def test_a_response_that_the_guest_does_not_read_is_held_up_at_the_peer():
    """The peer would send 190 MB at once."""

    def program(guest):
        client = Client(guest, server.authority)
        body, stream = client.stream(client.response(client.get("/endless")))
        client.read(stream, 1_000)
        sent = -1
        while sent != server.sent_pieces:
            sent = server.sent_pieces
            time.sleep(0.3)
        guest.tell(0 < sent < BUFFERED_PIECES)
        for _ in range(BUFFERED_PIECES):
            client.read(stream, len(PIECE))
        guest.tell(server.sent_pieces > sent)
        guest.drop(f"{STREAMS}.input-stream", stream)
        guest.drop(f"{TYPES}.incoming-body", body)

    allowed = threading.Semaphore(PIECES)
    with http_server() as server:
        server.stream("/endless", [PIECE] * PIECES, allowed)
        async with world() as around:
            assert (await around.run(program)).trace == [True, True]


@trio_test
async def test_trailers_of_a_request_reach_the_peer_in_every_attempt():
    content = pattern_bytes(100_000)

    def program(guest):
        client = Client(guest, server.authority)
        request = client.request("/echo", "post")
        body, stream = client.body(request)
        future = client.handle(request)
        client.write_as_it_fits(stream, content)
        client.finish(body, stream, [("X-Sum", b"7"), ("x-other", b"two words")])
        guest.tell(client.answer(future))

    with http_server() as server:
        async with world() as around:
            live = await around.run(program)
            for kept in range(len(BEGIN), len(live.entries)):
                again = await around.run(program, live.entries[:kept])
                assert again.trace == [(200, content)]
        whole = [request for request in server.requests if request.complete]
        assert len(whole) > 10
        for request in whole:
            assert request.trailers == {"x-sum": "7", "x-other": "two words"}
            assert request.body == content


@trio_test
async def test_https_is_spoken_as_http_2_and_is_the_same_wherever_the_guest_is_lost():
    """A long response, so that it is asked for again, and trailers behind it."""
    content = pattern_bytes(150_000)

    def program(guest):
        client = Client(guest, server.authority, "HTTPS")
        request = client.request("/", "put", [("te", b"trailers")])
        body, stream = client.body(request)
        future = client.handle(request)
        client.write_as_it_fits(stream, content)
        client.finish(body, stream)
        response = client.response(future)
        guest.tell(client.head(response)[1]["x-version"])
        body, stream = client.stream(response)
        guest.tell(client.read_all(stream) == content)
        guest.tell(client.trailers(body, stream))

    async with secure_server(answering) as server, world() as around:
        around.http = HttpClient(around.nursery, certificate().trusted())
        live = await around.run(program)
        assert live.trace == [b"2", True, [("x-count", b"150000")]]
        for kept in range(len(BEGIN), len(live.entries) + 1, 5):
            again = await around.run(program, live.entries[:kept])
            assert (again.trace, again.lost) == (live.trace, None), f"the first {kept} entries"
        around.http.close()


async def nobody_knows(host, *_, **__):
    raise socket.gaierror(socket.EAI_NONAME, f"{host}: Name or service not known")


FAILURES = {
    "refused": Variant("connection-refused"),
    "unknown name": Variant("DNS-error", {"rcode": "name not found", "info-code": None}),
    "no TLS": Variant("TLS-protocol-error"),
    "not trusted": Variant("TLS-certificate-error"),
    "no rule": Variant("HTTP-request-denied"),
}


@pytest.mark.parametrize("name", FAILURES)
@trio_test
async def test_a_guest_gets_the_code_of_each_failure_and_the_same_in_replay(name, monkeypatch):
    def program(guest):
        scheme = "HTTPS" if name in {"no TLS", "not trusted"} else "HTTP"
        client = Client(guest, authorities[name], scheme)
        guest.tell(client.answer(client.get("/")))

    with http_server() as plain:
        async with secure_server(answering) as secured, world() as around:
            authorities = {
                "refused": f"127.0.0.1:{closed_port()}",
                "unknown name": "nowhere.test:80",
                "no TLS": plain.authority,
                "not trusted": secured.authority,
                "no rule": "127.0.0.9:80",
            }
            around.egress = EgressPolicy.of(["127.0.0.1", "nowhere.test"])
            if name == "unknown name":
                monkeypatch.setattr(trio.socket, "getaddrinfo", nobody_knows)
            live = await around.run(program)
            assert live.trace == [FAILURES[name]]
            again = await around.run(program, live.entries)
            assert (again.trace, again.entries) == (live.trace, live.entries)
            around.http.close()
        assert plain.requests == []


@trio_test
async def test_requests_that_find_no_free_connection_wait_for_one_and_are_answered():
    def program(guest):
        client = Client(guest, server.authority)
        futures = [client.get("/chunks/1/20") for _ in range(10)]
        guest.tell([client.answer(future) for future in futures])

    with http_server() as server:
        async with world() as around:
            around.http = HttpClient(around.nursery, connections_max=2)
            live = await around.run(program)
            assert live.trace == [[(200, b"chunk-0\n")] * 10]
            again = await around.run(program, live.entries[:8])
            assert again.trace == live.trace
            around.http.close()
        assert len(server.counts()) == 10


def held_objects():
    """How many there are of each of the executor's own classes."""
    gc.collect()
    kinds = (type(held) for held in gc.get_objects())
    return Counter(kind.__qualname__ for kind in kinds if kind.__module__.startswith("executor."))


@trio_test
async def test_a_request_that_is_over_leaves_nothing_behind_however_many_there_are():
    """In one invocation, with short responses, long ones, and failures; what is given up too."""

    def program(guest):
        client = Client(guest, server.authority)
        before = Counter()
        for number in range(1, 301):
            client.answer(client.get("/text/short"))
            client.answer(client.post("/echo", b"content"))
            if number % 10 == 0:
                client.answer(client.get("/bytes/200000"))
                client.answer(client.get("/garbage"))
                guest.drop(f"{TYPES}.future-incoming-response", client.get("/text/unread"))
            if number == 100:
                before = held_objects()
        more = held_objects() - before
        guest.tell({kind: count for kind, count in more.items() if count > 40})

    with http_server() as server:
        async with world() as around:
            assert (await around.run(program)).trace == [{}]


@contextmanager
def peer_that_does_not_accept():
    """A port where connections are neither made nor refused: its queue is full."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        waiting = [socket.socket() for _ in range(4)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(listening.getsockname())
        time.sleep(0.05)
        try:
            yield f"127.0.0.1:{listening.getsockname()[1]}"
        finally:
            for one in waiting:
                one.close()


@trio_test
async def test_a_peer_to_whom_there_is_no_connection_in_time_is_given_up_once():
    def program(guest):
        client = Client(guest, authority)
        guest.tell(client.answer(client.handle(client.request("/"), client.options(connect=0.3))))

    with peer_that_does_not_accept() as authority:
        async with world() as around:
            began = time.monotonic()
            live = await around.run(program)
            assert 0.3 <= time.monotonic() - began < 20
            assert live.trace == [Variant("connection-timeout")]
            replayed = await around.run(program, live.entries[:-1])
            assert replayed.trace == live.trace


@trio_test
async def test_with_idempotence_mode_off_a_lost_post_waits_for_its_owner_and_a_put_is_repeated():
    def sending(method):
        def program(guest):
            client = Client(guest, server.authority)
            guest.call("golem:api/host.set-idempotence-mode", False)
            guest.tell(client.answer(client.send(method, "/echo", b"content")))

        return program

    with http_server() as server:
        async with world() as around:
            for method in ("post", "put", "delete"):
                live = await around.run(sending(method))
                assert live.trace == [(200, b"content")]
                [start] = [
                    i
                    for i, e in enumerate(live.entries, 1)
                    if isinstance(e, Start) and e.function == HANDLE
                ]
                cut = next(
                    i
                    for i, e in enumerate(live.entries)
                    if isinstance(e, End) and e.start_index == start
                )
                before = len(server.requests)
                again = await around.run(sending(method), live.entries[:cut])
                if method == "post":
                    assert again.lost == Unsure(start)
                    assert len(server.requests) == before
                else:
                    assert again.trace == live.trace
                    assert server.requests[-1].key == server.requests[before - 1].key
