"""What guests do with requests: live, replayed, and lost at every entry.

Each program tells what it sees. It must see the same wherever it is lost, the server must see the
same body under the same key each time, and nothing that is recorded whole is asked for again.
"""

import re
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import trio_test

from executor.durable.keys import call_key
from executor.wasm.values import Ok, Variant
from oplog.entry import Cancelled, CompletionDelivered, CompletionDiscarded, HostStreamFrame, Start
from tests.support.executors import until
from tests.support.http_guest import STREAMS, TYPES, Client
from tests.support.http_server import http_server, pattern_bytes
from tests.support.python_guest import BEGIN, WORKER_ID, Instance, world

HANDLE = "wasi:http/outgoing-handler.handle"
LONG = 200_000
PROGRAMS: dict[str, tuple[Callable[[Client], Any], list[object]]] = {}


def program(*expected):
    """The decorated function gives, one by one, what it sees; that has to be `expected`."""

    def add(steps):
        PROGRAMS[steps.__name__] = steps, list(expected)
        return steps

    return add


@program((200, b"hello"))
def a_short_answer(client):
    yield client.answer(client.get("/text/hello"))


@program((200, b"content"), (200, b""), (404, b"not found"))
def methods(client):
    yield client.answer(client.post("/echo", b"content"))
    yield client.answer(client.get("/text/never", method="head"))
    yield client.answer(client.get("/nowhere", method="delete"))


@program([b"0", b"1", b"2", b"3", b"4"], (200, b"body"))
def several_at_once(client):
    futures = [client.get(f"/text/{n}") for n in range(5)]
    write = client.post("/echo", b"body")
    yield [client.answer(future)[1] for future in futures]
    yield client.answer(write)


@program(["0", "1", "2", "3"])
def whoever_is_ready_first(client):
    waiting = {client.get(f"/text/{n}"): str(n) for n in range(4)}
    seen = []
    while waiting:
        for future in client.wait(*waiting):
            assert client.answer(future) == (200, waiting[future].encode())
            seen.append(waiting.pop(future))
    yield sorted(seen)


@program((200, pattern_bytes(LONG)))
def a_long_answer(client):
    yield client.answer(client.get(f"/bytes/{LONG}"))


@program(pattern_bytes(LONG))
def a_long_answer_in_odd_pieces(client):
    _, stream = client.stream(client.response(client.get(f"/bytes/{LONG}")))
    yield client.read_all(stream, 33_333)


@program(70_000, pattern_bytes(LONG)[70_000:])
def a_beginning_that_is_skipped(client):
    _, stream = client.stream(client.response(client.get(f"/bytes/{LONG}")))
    skipped = 0
    while skipped < 70_000:
        skipped += client.read(stream, 70_000 - skipped, "blocking-skip")
    yield skipped
    yield client.read_all(stream)


@program(pattern_bytes(LONG))
def reads_when_it_is_told_to(client):
    """Who was told that there is something gets something."""
    guest = client.guest
    _, stream = client.stream(client.response(client.get(f"/bytes/{LONG}")))
    pollable = guest.call(f"{STREAMS}.[method]input-stream.subscribe", stream)
    content = b""
    while True:
        guest.call("wasi:io/poll.[method]pollable.block", pollable)
        piece = client.read(stream, 50_000, "read")
        if piece is None:
            break
        assert piece, "nothing, though it was said to be ready"
        content += piece
    yield content


@program(b"chunk-0\nchunk-1\nchunk-2\n", [("x-count", b"3")], None)
def trailers(client):
    body, stream = client.stream(client.response(client.get("/chunks/3")))
    yield client.read_all(stream, 5)
    yield client.trailers(body, stream)
    body, stream = client.stream(client.response(client.get("/text/none")))
    yield client.trailers(body, stream)


@program([("x-count", b"9")])
def trailers_of_a_body_that_was_not_read(client):
    yield client.trailers(*client.stream(client.response(client.get("/chunks/9/0/2000"))))


@program((200, pattern_bytes(LONG)))
def a_body_written_bit_by_bit(client):
    request = client.request("/echo", "post")
    body, stream = client.body(request)
    client.write(stream, pattern_bytes(5000))
    future = client.handle(request)
    client.write_as_it_fits(stream, pattern_bytes(LONG)[5000:], 40_000)
    client.guest.ok(f"{STREAMS}.[method]output-stream.blocking-flush", stream)
    client.finish(body, stream, [("x-sum", b"7")])
    yield client.answer(future)


@program(200, b"begun 9000")
def an_answer_that_comes_before_the_request_is_whole(client):
    request = client.request("/early", "post")
    body, target = client.body(request)
    client.write(target, b"x" * 4000)
    response = client.response(client.handle(request))
    yield client.head(response)[0]
    client.write(target, b"x" * 5000)
    client.finish(body, target)
    _, source = client.stream(response)
    yield client.read_all(source)


@program(b"begun 1300000")
def a_request_that_is_longer_than_what_may_wait(client):
    """Its answer has begun, so after a loss it has to be sent again for the rest of it to leave."""
    request = client.request("/early", "post")
    body, target = client.body(request)
    response = client.response(client.handle(request))
    client.write_as_it_fits(target, bytes(1_300_000))
    client.finish(body, target)
    _, source = client.stream(response)
    yield client.read_all(source)


@program((200, pattern_bytes(LONG)))
def one_answer_is_the_next_request(client):
    guest = client.guest
    _, source = client.stream(client.response(client.get(f"/bytes/{LONG}")))
    request = client.request("/echo", "put")
    body, target = client.body(request)
    future = client.handle(request)
    on = f"{STREAMS}.[method]output-stream.blocking-splice"
    while isinstance(guest.call(on, target, source, 60_000), Ok):
        pass
    client.finish(body, target)
    yield client.answer(future)


@program((200, b"fine"))
def what_it_gives_up(client):
    """A response that nobody waits for, one that was not read, and half a body."""
    guest = client.guest
    guest.drop(f"{TYPES}.future-incoming-response", client.get("/hang"))
    unread = client.get("/text/unread")
    client.wait(unread)
    guest.drop(f"{TYPES}.future-incoming-response", unread)
    body, stream = client.stream(client.response(client.get(f"/bytes/{LONG}")))
    client.read(stream, 1000)
    guest.drop(f"{STREAMS}.input-stream", stream)
    guest.drop(f"{TYPES}.incoming-body", body)
    yield client.answer(client.get("/text/fine"))


@program(Variant("internal-error", "the request's body was dropped before it was finished"))
def a_body_that_is_never_finished(client):
    guest = client.guest
    request = client.request("/echo", "post")
    body, stream = client.body(request)
    future = client.handle(request)
    client.write(stream, b"half of it")
    guest.drop(f"{STREAMS}.output-stream", stream)
    guest.drop(f"{TYPES}.outgoing-body", body)
    yield client.answer(future)


@program(b"mine", True)
def headers_of_its_own(client):
    mine = [("Idempotency-Key", b"mine"), ("X-Case", b" spaced "), ("TraceParent", b"00-a-b-00")]
    head = client.head(client.response(client.get("/echo", headers=mine)))[1]
    yield head["x-idempotency-key"]
    yield (head["x-x-case"], head["x-traceparent"]) == (b"spaced", b"00-a-b-00")


@program(Variant("HTTP-request-denied"))
def a_place_that_it_may_not_reach(client):
    client.authority = "127.0.0.2:80"
    yield client.answer(client.get("/"))


@program(b"".join(b"chunk-%d\n" % n for n in range(3)))
def a_body_that_is_waited_for_beside_a_timer(client):
    """The timer wins, or the body, as it happens."""
    guest = client.guest
    _, stream = client.stream(client.response(client.get("/chunks/3/12")))
    coming = guest.call(f"{STREAMS}.[method]input-stream.subscribe", stream)
    content = b""
    while True:
        timer = guest.call("wasi:clocks/monotonic-clock.subscribe-duration", 5_000_000)
        ready = guest.call("wasi:io/poll.poll", [timer, coming])
        guest.drop("wasi:io/poll.pollable", timer)
        if 1 in ready:
            piece = client.read(stream, function="read")
            if piece is None:
                break
            content += piece
    yield content


@program(True, (200, b"content"), (200, b"content"), (404, b"not found"))
def writes_of_which_only_some_may_be_repeated(client):
    """Idempotence mode is off, and PUT and DELETE are repeatable whatever the mode."""
    client.guest.call("golem:api/host.set-idempotence-mode", False)
    yield not client.guest.call("golem:api/host.get-idempotence-mode")
    for _ in range(2):
        yield client.answer(client.send("put", "/echo", b"content"))
    yield client.answer(client.get("/nowhere", method="delete"))


def run_of(steps, server):
    def run(guest):
        for seen in steps(Client(guest, server.authority)):
            guest.tell(seen)

    return run


@pytest.mark.parametrize("name", PROGRAMS)
@trio_test
async def test_a_guest_sees_the_same_wherever_it_is_lost(name):
    steps, expected = PROGRAMS[name]
    with http_server() as server:
        async with world() as around:
            run = run_of(steps, server)
            live = await around.run(run)
            assert live.lost is None
            assert live.trace == expected
            await replays(around, run, live, server)
            first = asked(server)
            for kept in range(len(BEGIN), len(live.entries)):
                before = len(server.requests)
                again = await around.run(run, live.entries[:kept])
                assert again.lost is None, f"the first {kept} entries"
                assert again.trace == expected, f"the first {kept} entries"
                assert again.entries[:kept] == live.entries[:kept]
                check_frames(again.entries)
                check_same_requests(live.entries[:kept], first, asked(server, before))
            server.release()


async def replays(around, run, live, server):
    before = asked(server)
    again = await around.run(run, live.entries)
    assert (again.trace, again.entries) == (live.trace, live.entries)
    assert asked(server) == before


def asked(server, first=0):
    """What was asked whole, by key."""
    found = {}
    for request in server.requests[first:]:
        if request.complete:
            found.setdefault(request.key, set()).add((request.method, request.path, request.body))
    return found


def check_same_requests(recorded, first, later):
    """Under the key of a request that is recorded the server is asked the same again, or nothing.

    (A read that was sent, and not recorded, has a key that may be another request's after a loss.)
    """
    for index, entry in enumerate(recorded, 1):
        if getattr(entry, "function", "") == HANDLE:
            key = call_key(WORKER_ID, "k", index)
            assert later.get(key, set()) <= first.get(key, set()), f"request {index}"


def check_frames(entries):
    """The frames of a call make one body: the end comes last, once."""
    ends = [e for e in entries if isinstance(e, HostStreamFrame) and not bytes(e.payload)]
    assert len(ends) == len({end.parent_start for end in ends})


@trio_test
async def test_what_a_guest_gives_up_is_recorded_and_not_sent_again():
    steps, _ = PROGRAMS["what_it_gives_up"]
    with http_server() as server:
        async with world() as around:
            live = await around.run(run_of(steps, server))
            kinds = [type(entry) for entry in live.entries]
            assert (kinds.count(Cancelled), kinds.count(CompletionDiscarded)) == (1, 1)
            cut = kinds.index(CompletionDiscarded) + 1
            before = len(server.requests)
            await around.run(run_of(steps, server), live.entries[:cut])
            paths = [request.path for request in server.requests[before:]]
            assert "/hang" not in paths
            assert "/text/unread" not in paths
            server.release()


def end_of_request(entries):
    """Where the end of the first request stands."""
    starts = [i for i, e in enumerate(entries, 1) if getattr(e, "function", "") == HANDLE]
    ends = [i for i, e in enumerate(entries) if getattr(e, "start_index", 0) == starts[0]]
    return ends[0]


@trio_test
async def test_a_short_answer_is_whole_with_its_end_and_never_asked_for_again():
    steps, expected = PROGRAMS["a_short_answer"]
    with http_server() as server:
        async with world() as around:
            live = await around.run(run_of(steps, server))
            starts = [entry.function for entry in live.entries if isinstance(entry, Start)]
            assert starts.count(HANDLE) == 1
            assert set(starts) <= {HANDLE, "wasi:io/poll.poll"}
            kept = live.entries[: end_of_request(live.entries) + 1]
            assert (await around.run(run_of(steps, server), kept)).trace == expected
            assert len(server.requests) == 1


@trio_test
async def test_the_head_of_a_stream_that_trickles_is_there_at_once():
    def run(guest):
        client = Client(guest, server.authority)
        began = time.monotonic()
        _, stream = client.stream(client.response(client.get("/chunks/4/250")))
        assert time.monotonic() - began < 0.6
        assert client.read_all(stream).count(b"chunk") == 4
        assert time.monotonic() - began > 0.9

    with http_server() as server:
        async with world() as around:
            assert (await around.run(run)).lost is None


@trio_test
async def test_a_request_whose_body_was_dropped_is_not_sent_again():
    steps, expected = PROGRAMS["a_body_that_is_never_finished"]
    with http_server() as server:
        async with world() as around:
            live = await around.run(run_of(steps, server))
            kept = live.entries[: end_of_request(live.entries)]
            await until(lambda: server.connections == 1)
            assert (await around.run(run_of(steps, server), kept)).trace == expected
            await trio.sleep(0.1)
            assert server.connections == 1


@trio_test
async def test_a_guest_that_is_being_left_does_not_have_a_lost_response_asked_for_again():
    """It is live, and reads on when its effects and connections are closed already."""
    live, left = threading.Event(), threading.Event()

    def read_on(guest):
        client = Client(guest, server.authority)
        response = client.response(client.get(f"/bytes/{LONG}"))
        _, stream = client.stream(response)
        guest.call("wasi:random/random.get-random-u64")
        live.set()
        assert left.wait(30)
        while client.read(stream, function="read"):
            pass

    with http_server() as server:
        async with world() as around:
            left.set()
            whole = await around.run(read_on)
            read = next(
                i for i, e in enumerate(whole.entries) if isinstance(e, CompletionDelivered)
            )
            live.clear()
            left.clear()
            instance = Instance(around, whole.entries[: read + 1])
            instance.session.next_invocation()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.to_thread.run_sync, read_on, instance.guest)
                await trio.to_thread.run_sync(live.wait, 30)
                await instance.session.effects.close(writes_awaited_s=0)
                instance.state.connections.close()
                left.set()
            await trio.sleep(0.1)
        assert len(server.requests) == 1


@trio_test
async def test_an_instance_is_kept_while_a_response_would_be_lost_with_it():
    """Whether a long wait may give it up, at each point of two requests."""

    def run(guest):
        client = Client(guest, server.authority)

        def may_leave():
            return guest.state.may_suspend

        seen = [may_leave()]
        waiting = client.get("/hang")
        seen.append(may_leave())
        server.release()
        client.answer(waiting)
        seen.append(may_leave())
        _, stream = client.stream(client.response(client.get(f"/bytes/{LONG}")))
        client.read(stream, 1000)
        seen.append(may_leave())
        client.read_all(stream)
        seen.append(may_leave())
        body, stream = client.stream(client.response(client.get(f"/bytes/{LONG}")))
        seen.append(may_leave())
        guest.drop(f"{STREAMS}.input-stream", stream)
        guest.drop(f"{TYPES}.incoming-body", body)
        seen.append(may_leave())
        guest.tell(seen)

    with http_server() as server:
        async with world() as around:
            live = await around.run(run)
            assert live.trace == [[True, False, True, False, True, False, True]]


@trio_test
async def test_a_request_carries_the_trace_of_its_invocation_unless_the_guest_forbids_it():
    def run(guest):
        client = Client(guest, server.authority)
        client.answer(client.get("/text/traced"))
        guest.state.session.trace.forwards = False
        client.answer(client.get("/text/untraced"))

    with http_server() as server:
        async with world() as around:
            await around.run(run)
        traced, untraced = server.requests
        assert re.fullmatch("00-[0-9a-f]{32}-[0-9a-f]{16}-00", traced.headers["traceparent"])
        assert "traceparent" not in untraced.headers
