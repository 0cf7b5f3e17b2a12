"""Everything that a server does wrong, and a crash at every entry of each: what the guest sees, and
how often the server was asked under each key.

A program runs once; then over every beginning of its oplog, as after a crash there. The guest must
see the same, and a request whose response is recorded whole is never sent again.
"""

from typing import NamedTuple

import pytest
from trio.testing import trio_test

from executor.durable.retry_rules import RetryRule, RetryRules, recorded_retry_rules
from executor.wasm.values import Err, Variant
from oplog.codec import decode_value
from oplog.entry import End, Start
from tests.support.http_guest import STREAMS, Client
from tests.support.http_server import http_server, pattern_bytes
from tests.support.python_guest import BEGIN, world

HANDLE = "wasi:http/outgoing-handler.handle"
LONG = 300_000
"""More than what is recorded with a head."""


class Fault(NamedTuple):
    path: str
    seen: object
    """What `Client.answer` gives."""
    asked: int = 1
    """How often the server is asked, at least."""
    post: bytes | None = None
    timeouts: tuple = ()
    forgets: bool = True
    """The server has forgotten, after a crash, how often it was asked."""
    statuses: tuple = ()
    """Those that the deployment's rule calls a failure."""


def whole(count):
    return 200, pattern_bytes(count)


FAULTS = {
    "none": Fault("/text/fine", (200, b"fine")),
    "hangs before the head": Fault(
        "/hang", Variant("connection-read-timeout"), timeouts=(("first_byte", 0.1),)
    ),
    "closes before the head, once": Fault("/close?first=1", (200, b"late"), 2),
    "closes before the head, always": Fault("/close", Variant("HTTP-response-incomplete"), 3),
    "resets before the head, twice": Fault("/reset?first=2", (200, b"late"), 3, forgets=False),
    "resets a write before the head": Fault("/reset?first=1", (200, b"late"), 2, b"content"),
    "cuts a short body, once": Fault("/cut/1000/10?first=1&then=bytes/1000", whole(1000), 2),
    "cuts a long body, once": Fault(
        f"/cut/{LONG}/150000?first=1&then=bytes/{LONG}", whole(LONG), 2
    ),
    "resets in a long body, once": Fault(
        f"/tear/{LONG}/150000?first=1&then=bytes/{LONG}", whole(LONG), 2
    ),
    "cuts the response to a write, once": Fault(
        f"/cut/{LONG}/150000?first=1&then=bytes/{LONG}", whole(LONG), 2, b"content" * 3000
    ),
    "cuts a long body, always": Fault(
        f"/cut/{LONG}/150000",
        (200, (pattern_bytes(150_000), ("HTTP-response-incomplete", ...))),
        3,
    ),
    "answers otherwise after a cut": Fault(
        f"/cut/{LONG}/150000?first=1&then=bytes/400000",
        (200, (pattern_bytes(150_000), ("HTTP-protocol-error", ...))),
        2,
    ),
    "answers with other bytes after a cut": Fault(
        f"/cut/{LONG}/150000?first=1&then=other/{LONG}",
        (200, (pattern_bytes(150_000), ("HTTP-protocol-error", ...))),
        2,
    ),
    "sends more than it said": Fault("/more/1000/500", whole(1000)),
    "is busy": Fault("/status/503", (503, b"no")),
    "is busy, and says for how long": Fault(
        "/status/503?first=1", (200, b"late"), 2, forgets=False, statuses=("5xx",)
    ),
    "is busy with a write": Fault(
        "/status/429?first=1", (200, b"late"), 2, b"content", forgets=False, statuses=(429,)
    ),
    "sends it elsewhere": Fault("/status/302", (302, b"no")),
    "trickles": Fault("/chunks/5/30", (200, b"".join(b"chunk-%d\n" % n for n in range(5)))),
    "trickles too slowly": Fault(
        "/chunks/3/300",
        (200, (b"", ("connection-read-timeout", ...))),
        timeouts=(("between_bytes", 0.15),),
    ),
    "speaks no HTTP": Fault("/garbage", Variant("HTTP-protocol-error")),
    "sends too much of a head": Fault("/head/300000", Variant("HTTP-response-header-section-size")),
}


def program_of(fault, server):
    def program(guest):
        client = Client(guest, server.authority)
        options = client.options(**dict(fault.timeouts)) if fault.timeouts else None
        if fault.post is None:
            future = client.handle(client.request(fault.path), options)
        else:
            future = client.post(fault.path, fault.post)
        guest.tell(client.answer(future))

    return program


def looks_like(seen, wanted):
    """Equal, where `...` stands for anything."""
    if wanted is ...:
        return True
    if isinstance(wanted, tuple):
        return (
            isinstance(seen, tuple)
            and len(seen) == len(wanted)
            and all(map(looks_like, seen, wanted))
        )
    return seen == wanted


def recorded_whole(entries):
    """The starts of requests whose whole response, or whose failure, is recorded."""
    starts = {
        index
        for index, entry in enumerate(entries, 1)
        if isinstance(entry, Start) and entry.function == HANDLE
    }
    found = set()
    for entry in entries:
        if isinstance(entry, End) and entry.start_index in starts:
            answer = decode_value(entry.response)
            if "err" in answer or answer["ok"]["body"]["ended"]:
                found.add(entry.start_index)
    return found


@pytest.mark.parametrize("name", FAULTS)
@trio_test
async def test_a_fault_is_seen_the_same_wherever_the_guest_is_lost(name):
    fault = FAULTS[name]
    with http_server() as server:
        async with world() as around:
            if fault.statuses:
                rule = RetryRule(name="busy", statuses=fault.statuses)
                around.rules = RetryRules(recorded_retry_rules([rule]))
            program = program_of(fault, server)
            live = await around.run(program)
            assert live.lost is None
            [seen] = live.trace
            assert looks_like(seen, fault.seen), seen
            [(key, asked)] = server.counts().items()
            assert asked == fault.asked
            for kept in range(len(BEGIN), len(live.entries) + 1):
                await lost_at(around, server, fault, live, kept)
            assert list(server.counts()) == [key]
            server.release()


async def lost_at(around, server, fault, live, kept):
    program = program_of(fault, server)
    recorded = live.entries[:kept]
    before = server.counts().total()
    if fault.forgets:
        server.forget()
    again = await around.run(program, recorded)
    where = f"the first {kept} of {len(live.entries)} entries"
    assert again.lost is None, where
    assert again.trace == live.trace, where
    asked = server.counts().total() - before
    if recorded_whole(recorded) or kept == len(live.entries):
        assert asked == 0, where
    replayed = await around.run(program, again.entries)
    assert (replayed.trace, replayed.entries) == (again.trace, again.entries), where
    assert server.counts().total() == before + asked, where


@trio_test
async def test_trailers_are_got_over_a_cut():
    def program(guest):
        client = Client(guest, server.authority)
        path = "/cut/1000000/500000?first=1&then=chunks/9/0/100000"
        guest.tell(client.trailers(*client.stream(client.response(client.get(path)))))

    with http_server() as server:
        async with world() as around:
            live = await around.run(program)
            assert live.trace == [Variant("HTTP-protocol-error")]  # the length is another one


@trio_test
async def test_a_peer_that_takes_nothing_is_given_up_when_time_is_over():
    """The guest waits until more of the body fits, and hears that it never will."""

    def program(guest):
        client = Client(guest, server.authority)
        request = client.request("/deaf", "post")
        _, stream = client.body(request)
        future = client.handle(request, client.options(first_byte=0.3))
        on = f"{STREAMS}.[method]output-stream"
        pollable = guest.call(f"{on}.subscribe", stream)
        while True:
            guest.call("wasi:io/poll.poll", [pollable])
            room = guest.call(f"{on}.check-write", stream)
            if isinstance(room, Err):
                break
            guest.ok(f"{on}.write-zeroes", stream, room.value)
        code = guest.call("wasi:http/types.http-error-code", room.value.payload)
        guest.tell(code)
        guest.tell(client.response(future))

    with http_server() as server:
        async with world() as around:
            live = await around.run(program)
            assert live.trace == [Variant("connection-read-timeout")] * 2
            again = await around.run(program, live.entries)
            assert (again.trace, again.entries) == (live.trace, live.entries)
            server.release()
