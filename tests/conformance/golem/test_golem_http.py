"""Golem's guests that make HTTP requests, live, in forced replay and after crashes.

What is expected is the behaviour of `wasi.rs` and `api.rs` of Golem's executor tests at v1.2.5,
written afresh. Guests find their server at `localhost`, by PORT in their environment.
"""

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
from trio.testing import trio_test

from executor.errors import InvocationInterrupted
from executor.executor import Executor
from tests.conformance.golem.components import WHY_SKIPPED, components_folder, golem_component
from tests.conformance.golem.guest import Guest, Mode
from tests.support.http_server import HttpServer, Request, http_server

if components_folder() is None:
    pytest.skip(WHY_SKIPPED, allow_module_level=True)

Answer = tuple[int, bytes, dict[str, str]]
EXAMPLE = '200 ExampleResponse { percentage: 0.25, message: Some("response message Golem") }'
PERCENTAGE = {"percentage": 0.25, "message": "response message Golem"}


def echo(request: Request) -> Answer:
    """As the server of Golem's tests: header and body of the request, in the response."""
    header = request.headers.get("x-test", "no X-Test header")
    return 200, f"response is {header} {request.body.decode()}".encode(), {}


def percentage(_request: Request) -> Answer:
    return 200, json.dumps(PERCENTAGE).encode(), {"content-type": "application/json"}


async def reaching(shem: Executor, name: str, worker: str, mode: Mode, server: HttpServer) -> Guest:
    """A worker that may reach the server, and knows where it is."""
    await shem.deploy(golem_component(name), name=name, allow_net=["localhost"])
    env = {"PORT": str(server.port), "RUST_BACKTRACE": "1"}
    return Guest(shem, f"{name}/{worker}", mode, env)


@trio_test
async def test_a_request_and_its_response(tmp_path: Path, mode: Mode) -> None:
    with http_server(echo) as server:
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
                "200 percentage: 0.250000, message: response message Golem"
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
        assert json.loads(go.body)["Name"] == "Something"


@trio_test
async def test_a_response_is_kept_between_invocations_and_executors(
    tmp_path: Path, mode: Mode
) -> None:
    with http_server(echo) as server:
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


class Polled:
    """Answers `initial` until it is told something else."""

    def __init__(self) -> None:
        self.answer = b"initial"
        self.asked = 0

    def __call__(self, _request: Request) -> Answer:
        self.asked += 1
        return 200, self.answer, {}


async def until(condition: Callable[[], bool]) -> None:
    with trio.fail_after(20):
        while not condition():  # noqa: ASYNC110  # the server is in another thread
            await trio.sleep(0.01)


@trio_test
async def test_a_guest_polls_until_it_is_told_what_it_waits_for(tmp_path: Path, mode: Mode) -> None:
    polled = Polled()
    with http_server(polled) as server:
        async with Executor.open(tmp_path) as shem:
            guest = await reaching(shem, "http-client-2", "poll-loop-component-0", mode, server)
            accepted = await shem.submit(guest.worker, "start-polling", ["first"], env=guest.env)
            await until(lambda: polled.asked > 2)
            assert (await shem.worker(guest.worker)).status == "running"
            polled.answer = b"first"
            done = await shem.wait(guest.worker, accepted.key, timeout_s=20)
            assert "Poll loop finished" in done.stdout
            await guest.rebuild()
            assert (await shem.worker(guest.worker)).status == "idle"


@trio_test
async def test_a_second_invocation_resumes_a_poll_loop_that_was_interrupted(
    tmp_path: Path, mode: Mode
) -> None:
    polled = Polled()
    with http_server(polled) as server:
        async with Executor.open(tmp_path) as shem:
            guest = await reaching(shem, "http-client-2", "poll-loop-component-1", mode, server)
            first = await shem.submit(guest.worker, "start-polling", ["first"], env=guest.env)
            await until(lambda: polled.asked > 1)
            await shem.interrupt(guest.worker)
            assert (await shem.worker(guest.worker)).status == "interrupted"
            asked = polled.asked
            await trio.sleep(0.3)
            assert polled.asked == asked
            second = await shem.submit(guest.worker, "start-polling", ["second"])
            await until(lambda: polled.asked > asked)
            assert (await shem.worker(guest.worker)).pending == (second.key,)
            polled.answer = b"first"
            await shem.wait(guest.worker, first.key, timeout_s=20)
            polled.answer = b"second"
            await shem.wait(guest.worker, second.key, timeout_s=20)
            await guest.rebuild()


@trio_test
async def test_the_queue_of_a_poll_loop_is_there_after_a_restart(
    tmp_path: Path, mode: Mode
) -> None:
    polled = Polled()
    with http_server(polled) as server:
        async with Executor.open(tmp_path) as shem:
            guest = await reaching(shem, "http-client-2", "invocation_queue", mode, server)
            polling = await shem.submit(guest.worker, "start-polling", ["done"], env=guest.env)
            await until(lambda: polled.asked > 1)
            for number in range(3):
                await shem.submit(guest.worker, "increment", [], key=f"increment-{number}")
            await shem.interrupt(guest.worker)
        async with Executor.open(tmp_path) as shem:
            guest = Guest(shem, guest.worker, mode)
            last = await shem.submit(guest.worker, "increment", [])
            polled.answer = b"done"
            await shem.wait(guest.worker, polling.key, timeout_s=20)
            await shem.wait(guest.worker, last.key, timeout_s=20)
            assert await guest.run("get-count") == 4


@trio_test
async def test_a_poll_loop_can_be_resumed_or_deleted(tmp_path: Path) -> None:
    polled = Polled()
    with http_server(polled) as server:
        async with Executor.open(tmp_path) as shem:
            resumed = await reaching(shem, "http-client-2", "resumed", "live", server)
            deleted = await reaching(shem, "http-client-2", "deleted", "live", server)
            keys = {}
            for guest in (resumed, deleted):
                accepted = await shem.submit(guest.worker, "start-polling", ["done"], env=guest.env)
                keys[guest.worker] = accepted.key
                asked = polled.asked
                await until(lambda asked=asked: polled.asked > asked + 1)
                await shem.interrupt(guest.worker)
            await shem.delete(deleted.worker)
            begun = time.monotonic()
            await shem.resume(resumed.worker)
            polled.answer = b"done"
            await shem.wait(resumed.worker, keys[resumed.worker], timeout_s=20)
            assert time.monotonic() - begun < 15
