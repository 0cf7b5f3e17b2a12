"""Requests of a guest, live, replayed, and lost at every entry."""

import pytest
from trio.testing import trio_test

from tests.support.http_guest import Client
from tests.support.http_server import http_server
from tests.support.python_guest import BEGIN, world

HANDLE = "wasi:http/outgoing-handler.handle"


def one_get(client, tell):
    tell(client.answer(client.get("/text/hello")))


def one_post(client, tell):
    tell(client.answer(client.post("/echo", b"some content")))


def several_at_once(client, tell):
    futures = [client.get(f"/text/{n}") for n in range(4)] + [client.post("/echo", b"body")]
    for future in futures:
        tell(client.answer(future))


def long_body(client, tell):
    tell(client.answer(client.get("/bytes/300000")))


def trailers(client, tell):
    body, stream = client.stream(client.response(client.get("/chunks/3")))
    tell(client.read_all(stream, 5))
    tell(client.trailers(body, stream))


PROGRAMS = [one_get, one_post, several_at_once, long_body, trailers]


def program_of(steps, server):
    return lambda guest: steps(Client(guest, server.authority), guest.tell)


@pytest.mark.parametrize("steps", PROGRAMS)
@trio_test
async def test_a_guest_sees_the_same_wherever_it_is_lost(steps):
    with http_server() as server:
        async with world() as around:
            program = program_of(steps, server)
            whole = await around.run(program)
            assert whole.lost is None
            first = server.counts()
            assert max(first.values()) == 1
            replayed = await around.run(program, whole.entries)
            assert (replayed.trace, replayed.entries) == (whole.trace, whole.entries)
            assert server.counts() == first
            for kept in range(len(BEGIN), len(whole.entries)):
                before = server.counts()
                again = await around.run(program, whole.entries[:kept])
                assert again.trace == whole.trace, f"the first {kept} entries"
                asked = server.counts() - before
                check_asked(whole.entries[:kept], asked)


def check_asked(recorded, asked):
    """Each request at most once more; none whose whole response is recorded."""
    assert not asked or max(asked.values()) == 1
