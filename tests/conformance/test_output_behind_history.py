"""What a guest wrote behind the last thing that is recorded of it. A read that found nothing is not
recorded, so a guest that is rebuilt is live before it comes to the same write.
"""

import time

from trio.testing import trio_test

from oplog.entry import Log, Start
from tests.support.http_guest import TYPES, Client
from tests.support.http_server import http_server
from tests.support.python_guest import BEGIN, Instance, world


def write(guest, stream, text):
    out = guest.call(f"wasi:cli/{stream}.get-{stream}")
    guest.ok("wasi:io/streams.[method]output-stream.blocking-write-and-flush", out, text)
    guest.drop("wasi:io/streams.output-stream", out)


def written(entries, level):
    return [entry.text for entry in entries if isinstance(entry, Log) and entry.level == level]


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
        write(guest, "stdout", b"waiting\n")
        write(guest, "stderr", b"still\n")
        last_index = guest.state.session.writer.last_index
        server.release()
        if guest.state.session.live:
            until(lambda: guest.state.session.writer.last_index > last_index)  # it has its answer
        guest.tell(client.answer(future))
        write(guest, "stdout", b"there\n")

    return program


@trio_test
async def test_the_same_line_is_recorded_once_wherever_its_guest_is_lost():
    with http_server() as server:
        async with world() as around:
            program = polling(server, lambda guest: write(guest, "stdout", b"there\n"))
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
        write(guest, "stdout", b"waiting\n")

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
        write(guest, "stdout", b"waiting\n")
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
