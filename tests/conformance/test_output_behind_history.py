"""What a guest wrote behind the last thing that is recorded of it. A read that found nothing is not
recorded, so a guest that is rebuilt is live before it comes to the same write.
"""

import random
import time

import pytest
from trio.testing import trio_test

from oplog.entry import End, HostStreamFrame, Log, PendingInvocation, Start
from tests.support.http_guest import STREAMS, TYPES, Client
from tests.support.http_server import http_server
from tests.support.python_guest import BEGIN, Instance, accepting, say, world, written


def until(condition):
    """On the guest's thread."""
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def polling(server, otherwise):
    """A guest that says on both streams that it has to wait, or does `otherwise`."""

    def program(guest):
        client = Client(guest, server.authority)
        future = client.get("/text/there?gate")
        got = guest.call(f"{TYPES}.[method]future-incoming-response.get", future)
        if got is not None:
            otherwise(guest)
            return
        say(guest, "stdout", b"waiting\n")
        say(guest, "stderr", b"still\n")
        last_index = guest.state.session.writer.last_index
        server.release()
        if guest.state.session.live:
            until(lambda: guest.state.session.writer.last_index > last_index)  # it has its answer
        guest.tell(client.answer(future))
        say(guest, "stdout", b"there\n")

    return program


@trio_test
async def test_the_same_line_is_recorded_once_wherever_its_guest_is_lost():
    with http_server() as server:
        async with world() as around:
            program = polling(server, lambda guest: say(guest, "stdout", b"there\n"))
            live = await around.run(program)
            assert written(live.entries, "stdout") == ["waiting\n", "there\n"]
            for kept in range(len(BEGIN), len(live.entries) + 1):
                recorded = live.entries[:kept]
                server.hold()
                again = await around.run(program, recorded)
                assert again.lost is None
                assert written(again.entries, "stdout") == ["waiting\n", "there\n"], kept
                assert written(again.entries, "stderr") == ["still\n"], kept


@trio_test
async def test_a_line_that_comes_behind_something_else_is_another_line():
    def otherwise(guest):
        guest.call("wasi:random/random.get-random-u64")
        say(guest, "stdout", b"waiting\n")

    with http_server() as server:
        async with world() as around:
            program = polling(server, otherwise)
            live = await around.run(program)
            went_otherwise = 0
            for kept in range(len(BEGIN), len(live.entries) + 1):
                server.hold()
                again = await around.run(program, live.entries[:kept])
                if again.trace:
                    assert written(again.entries, "stdout") == ["waiting\n", "there\n"], kept
                else:
                    went_otherwise += 1
                    assert written(again.entries, "stdout") == ["waiting\n"] * 2, kept
            assert went_otherwise > 0


@trio_test
async def test_a_line_before_the_answer_to_a_write_that_its_owner_repeats_is_recorded_once():
    def program(guest):
        guest.call("golem:api/host.set-idempotence-mode", False)
        client = Client(guest, server.authority)
        future = client.post("/text/there?gate", b"x")
        assert guest.call(f"{TYPES}.[method]future-incoming-response.get", future) is None
        say(guest, "stdout", b"waiting\n")
        server.release()
        guest.tell(client.answer(future))

    with http_server() as server:
        async with world() as around:
            live = await around.run(program)
            said = next(i for i, entry in enumerate(live.entries, 1) if isinstance(entry, Log))
            asked = next(
                i
                for i, entry in enumerate(live.entries, 1)
                if isinstance(entry, Start) and entry.function.endswith(".handle")
            )
            server.hold()
            instance = Instance(around, live.entries[:said])
            instance.session.decisions = {asked: "repeat"}
            again = await instance.run(program)
            assert (again.trace, again.lost) == (live.trace, None)
            assert written(again.entries, "stdout") == ["waiting\n"]


def sought(guest, future):
    """Whether the answer to a request is there: nothing is recorded if it is not."""
    return guest.call(f"{TYPES}.[method]future-incoming-response.get", future) is not None


def of_the_guest(entries):
    """Where the entries lie that are not from outside, for as many prefixes as differ by them."""
    return [kept for kept, e in enumerate(entries, 1) if not isinstance(e, PendingInvocation)]


@pytest.mark.parametrize("seed", range(15))
@trio_test
async def test_a_line_is_recorded_once_while_invocations_are_accepted_and_an_answer_comes(seed):
    print(f"seed {seed}")
    lines = [f"{number % 2}\n" for number in range(5)]

    with http_server() as server:

        def program(guest):
            client = Client(guest, server.authority)
            future = client.get("/text/there?gate")
            ended_at = random.Random(seed).randrange(len(lines))
            for number, line in enumerate(lines):
                if number <= ended_at and sought(guest, future):
                    return
                say(guest, "stdout", line.encode())
                say(guest, "stderr", line.encode())
                if number == ended_at:
                    server.release()
                    if guest.state.session.live:
                        until(lambda: not guest.state.session.deferred.in_flight)
            guest.tell(client.answer(future))
            say(guest, "stdout", b"there\n")

        async with world() as around:
            live = await around.run(accepting(program, seed))
            for kept in of_the_guest(live.entries)[1:]:
                server.hold()
                again = await around.run(accepting(program, seed + kept), live.entries[:kept])
                assert again.lost is None
                if not again.trace:  # the answer is there, and nothing says that it was not before
                    assert any(isinstance(entry, End) for entry in live.entries[:kept])
                    continue
                assert again.trace == live.trace, kept
                assert written(again.entries, "stdout") == [*lines, "there\n"], kept
                assert written(again.entries, "stderr") == lines, kept


@trio_test
async def test_a_line_of_a_guest_that_was_lost_does_not_stand_for_one_of_the_guest_that_follows():
    with http_server() as server:

        def program(guest):
            client = Client(guest, server.authority)
            first = client.get("/text/first?gate")
            if not sought(guest, first):
                say(guest, "stdout", b"tick\n")
                server.release()
                client.answer(first)
                return
            guest.call("wasi:random/random.get-random-u64")
            say(guest, "stdout", b"tick\n")
            second = client.get("/text/second?gate")
            assert not sought(guest, second)
            say(guest, "stdout", b"tick\n")
            server.release()
            guest.tell(client.answer(second))

        async with world() as around:
            server.hold()
            lost = (await around.run(program)).entries
            said = next(kept for kept, entry in enumerate(lost, 1) if isinstance(entry, Log))
            end = next(e for e in lost if isinstance(e, End) and e.start_index == len(BEGIN) + 1)
            other = await around.run(program, [*lost[:said], end])
            assert written(other.entries, "stdout") == ["tick\n"] * 3
            for kept in range(said + 1, len(other.entries) + 1):
                server.hold()
                again = await around.run(program, other.entries[:kept])
                assert (again.trace, again.lost) == (other.trace, None), kept
                assert written(again.entries, "stdout") == ["tick\n"] * 3, kept


@pytest.mark.parametrize("seed", range(3))
@trio_test
async def test_a_body_that_is_sent_after_two_losses_is_what_the_guest_wrote(seed):
    print(f"seed {seed}")
    pieces = [b"first", b"second", b"third"]

    with http_server() as server:

        def program(guest):
            client = Client(guest, server.authority)
            request = client.request("/echo?gate", "post")
            body, stream = client.body(request)
            future = client.handle(request)
            for piece in pieces:
                assert not sought(guest, future)
                guest.ok(f"{STREAMS}.[method]output-stream.write", stream, piece)
            client.finish(body, stream)
            server.release()
            guest.tell(client.answer(future))

        async with world() as around:
            server.hold()
            live = await around.run(program)
            assert live.trace == [(200, b"".join(pieces))]
            for kept in range(3, len(live.entries) + 1):
                server.hold()
                once = await around.run(accepting(program, seed + kept), live.entries[:kept])
                assert (once.trace, once.lost) == (live.trace, None), kept
                frames = [e for e in once.entries if isinstance(e, HostStreamFrame)]
                assert len(frames) == len(pieces) + 1, kept
                for again in of_the_guest(once.entries)[kept:]:
                    server.hold()
                    twice = await around.run(program, once.entries[:again])
                    assert (twice.trace, twice.lost) == (live.trace, None), (kept, again)
