"""Golem's guests that make HTTP requests, live, in forced replay and after crashes.

What is expected is the behaviour of `wasi.rs` of Golem's executor tests, written afresh.
"""

import json
import threading
from pathlib import Path
from typing import Literal

import pytest
import trio
from trio.testing import trio_test

from executor.errors import InvocationInterrupted
from executor.executor import Executor
from oplog.entry import End, Start, Suspend
from tests.conformance.golem.components import WHY_SKIPPED, components_folder
from tests.conformance.golem.guest import TIMEOUT_S, Guest, Mode
from tests.conformance.golem.servers import Polled, header_and_body, percentage, reaching, until
from tests.support.http_server import Answer, Request, http_server

if components_folder() is None:
    pytest.skip(WHY_SKIPPED, allow_module_level=True)

EXAMPLE = '200 ExampleResponse { percentage: 0.25, message: Some("response message Golem") }'


@trio_test
async def test_a_request_and_its_response(tmp_path: Path, mode: Mode) -> None:
    with http_server(header_and_body) as server:
        async with Executor.open(tmp_path) as shem:
            guest = await reaching(shem, "http-client", "http-client-1", mode, server)
            assert await guest.run("run") == "200 response is test-header test-body"
        assert [request.path for request in server.requests] == ["/"]


@trio_test
async def test_requests_of_client_libraries(tmp_path: Path, mode: Mode) -> None:
    """Rust's reqwest, and Go's over TinyGo."""
    with http_server(percentage) as server:
        async with Executor.open(tmp_path) as shem:
            guest = await reaching(shem, "http-client-2", "w", mode, server)
            seen = await guest.run("run")
            assert seen == EXAMPLE
            guest = await reaching(shem, "tinygo-wasi-http", "tinygo-wasi-http-1", mode, server)
            assert await guest.run("example1", "hello tinygo") == (
                "200 percentage: 0.250000, message: response message no X-Test header"
            )
        reqwest, go = server.requests
        assert (reqwest.method, reqwest.path, go.method, go.path) == ("POST", "/post-example") * 2
        assert json.loads(reqwest.body) == {
            "name": "Something",
            "amount": 42,
            "comments": ["Hello", "World"],
        }
        assert reqwest.headers["x-test"] == "Golem"
        assert reqwest.headers["authorization"] == "Basic c29tZTpib2R5"
        assert go.body == b'{"Name":"Something","Amount":42,"Comments":["Hello","World"]}'


@trio_test
async def test_a_response_is_kept_between_invocations_and_executors(
    tmp_path: Path, mode: Mode
) -> None:
    with http_server(header_and_body) as server:
        async with Executor.open(tmp_path) as shem:
            guest = await reaching(shem, "http-client", "http-client-2", mode, server)
            await guest.run("send-request")
        async with Executor.open(tmp_path) as shem:
            guest = Guest(shem, guest.worker, mode)
            assert await guest.run("process-response") == "200 response is test-header test-body"
        assert len({request.key for request in server.requests}) == 1


@trio_test
async def test_a_body_that_is_interrupted_in_the_middle_is_read_to_its_end(
    tmp_path: Path, mode: Mode
) -> None:
    """100 KiB, a piece now and then; the worker is interrupted and resumed meanwhile."""
    pieces = threading.Semaphore(0)

    with http_server() as server:
        server.stream("/big-byte-array", [bytes(1024)] * 100, pieces)
        async with Executor.open(tmp_path) as shem:
            guest = await reaching(shem, "http-client-2", "w", mode, server)
            for _ in range(90):
                pieces.release()
            accepted = await shem.submit(guest.worker, "slow-body-stream", [], env=guest.env)
            await until(lambda: server.sent_pieces == 90)
            await trio.sleep(0.2)  # the guest has read on
            await shem.interrupt(guest.worker)
            with pytest.raises(InvocationInterrupted):
                await shem.wait(guest.worker, accepted.key)
            for _ in range(200):
                pieces.release()
            await guest.rebuild()
            await shem.resume(guest.worker)
            done = await shem.wait(guest.worker, accepted.key, timeout_s=30)
            assert done.value == 100 * 1024
            await guest.rebuild()
        assert len({request.key for request in server.requests}) == 1


@trio_test
async def test_a_body_that_breaks_off_is_asked_for_again_unseen(tmp_path: Path, mode: Mode) -> None:
    """In its middle, and before it begins."""
    told = iter(["/close", "/cut/102400/70000", "/reset", "/bytes/102400"])

    with http_server(lambda _request: next(told)) as server:
        async with Executor.open(tmp_path) as shem:
            guest = await reaching(shem, "http-client-2", "w", mode, server)
            assert await guest.run("slow-body-stream") == 100 * 1024
        assert [(request.method, request.path) for request in server.requests] == [
            ("GET", "/big-byte-array")
        ] * 4
        assert len({request.key for request in server.requests}) == 1


@pytest.mark.parametrize("loss", ["crash", "interrupt", "restart"])
@trio_test
async def test_a_request_whose_response_is_lost_in_its_middle_is_sent_again_as_it_was(
    tmp_path: Path, loss: Literal["crash", "interrupt", "restart"]
) -> None:
    """A POST whose response is longer than what is recorded with its head."""
    pieces = threading.Semaphore(0)
    with http_server() as server:
        answer = b'{"percentage": 0.25, "message": "response message Golem"}'
        server.stream("/post-example", [answer[:1], b" " * 100_000, answer[1:]], pieces)
        async with Executor.open(tmp_path) as shem:
            guest = await reaching(shem, "http-client-2", "w", "live", server)
            await shem.submit(guest.worker, "run", key="k", env=guest.env)
            pieces.release()
            with trio.fail_after(TIMEOUT_S):
                while not await head_is_recorded(shem, guest.worker):  # noqa: ASYNC110
                    await trio.sleep(0.02)
            if loss == "crash":
                assert (await shem.crash(guest.worker)).divergence is None
            if loss == "interrupt":
                await shem.interrupt(guest.worker)
                await shem.resume(guest.worker)
        for _ in range(8):
            pieces.release()
        async with Executor.open(tmp_path) as shem:
            done = await shem.wait(guest.worker, "k", timeout_s=TIMEOUT_S)
            assert done.value == EXAMPLE
            assert (await shem.replay(guest.worker)).divergence is None
        first, *others = server.requests
        assert others
        for again in others:
            assert (again.key, again.body) == (first.key, first.body)


async def head_is_recorded(shem: Executor, worker: str) -> bool:
    """Of the worker's one request."""
    records = [(record.index, record.entry) async for record in shem.oplog(worker)]
    asked = [
        index
        for index, entry in records
        if isinstance(entry, Start) and entry.function == "wasi:http/outgoing-handler.handle"
    ]
    return any(isinstance(entry, End) and entry.start_index in asked for _, entry in records)


@trio_test
async def test_a_guest_that_sleeps_between_its_requests_is_suspended_there(
    tmp_path: Path, mode: Mode
) -> None:
    """Each response was read before; what waits behind the sleep is asked for once."""
    polled = Polled()

    def answer(request: Request) -> Answer:
        if polled.asked == 4:
            polled.answer = b"done"
        return polled(request)

    with http_server(answer) as server:
        async with Executor.open(tmp_path, suspend_after_s=0.05) as shem:
            guest = await reaching(shem, "http-client-2", "w", mode, server)
            done = await guest.invocation("start-polling", ["done"])
            assert done.stdout.count("Calling the poll endpoint") == 5
            assert done.stdout.count("Received initial") == 4
            entries = [record.entry async for record in shem.oplog(guest.worker)]
            assert sum(isinstance(entry, Suspend) for entry in entries) == 4
        assert len({request.key for request in server.requests}) == polled.asked == 5
