"""What Golem's guests ask over HTTP: the servers of its executor tests, written afresh.

Guests find theirs at `localhost`, by PORT in their environment.
"""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import trio

from executor.executor import Executor
from tests.conformance.golem.components import golem_component
from tests.conformance.golem.guest import TIMEOUT_S, Guest, Mode
from tests.support.http_server import Answer, HttpServer, Request, http_server


async def reaching(shem: Executor, name: str, worker: str, mode: Mode, server: HttpServer) -> Guest:
    """A worker that may reach the server, and knows where it is."""
    await shem.deploy(golem_component(name), name=name, allow_net=["localhost"])
    env = {"PORT": str(server.port), "RUST_BACKTRACE": "1"}
    return Guest(shem, f"{name}/{worker}", mode, env)


async def until(condition: Callable[[], bool]) -> None:
    """A server is in another thread, so nobody is told of what it sees."""
    with trio.fail_after(TIMEOUT_S):
        while not condition():  # noqa: ASYNC110
            await trio.sleep(0.01)


def header_and_body(request: Request) -> Answer:
    """Both are in the response."""
    header = request.headers.get("x-test", "no X-Test header")
    return 200, f"response is {header} {request.body.decode()}".encode(), {}


def percentage(request: Request) -> Answer:
    """The header is in the response, which is JSON."""
    header = request.headers.get("x-test", "no X-Test header")
    answer = {"percentage": 0.25, "message": f"response message {header}"}
    return 200, json.dumps(answer).encode(), {"content-type": "application/json"}


class Polled:
    """Answers `initial` until it is told something else."""

    def __init__(self) -> None:
        self.answer = b"initial"
        self.asked = 0

    def __call__(self, request: Request) -> Answer:
        assert request.path.startswith("/poll?")
        self.asked += 1
        return 200, self.answer, {}


class StepServer:
    """What the guests of `transactions.rs` talk to: it counts steps and notes side effects."""

    def __init__(
        self, trues: int | Mapping[int, int], *, first_kept_s: float, notes_steps: bool
    ) -> None:
        self._trues = trues
        self._first_kept_s = first_kept_s
        self._notes_steps = notes_steps
        self._counts: dict[int, int] = {}
        self._first = threading.Event()
        self._done = threading.Event()
        self.events: list[str] = []
        """Bodies of side effects; steps, `=> 1`, and those undone, `<= 1`, if they are noted."""
        self.http: HttpServer

    def release(self) -> None:
        """Answers what it kept."""
        self._done.set()

    @property
    def env(self) -> dict[str, str]:
        """Where the guests look for it."""
        return {"PORT": str(self.http.port)}

    def answer(self, request: Request) -> Answer:
        if request.path == "/side-effect":
            self.events.append(request.body.decode())
            if self._first_kept_s and not self._first.is_set():
                self._first.set()
                self._done.wait(self._first_kept_s)
            return 200, b"OK", {}
        if self._first_kept_s:
            self._first.wait(TIMEOUT_S)
        step = int(request.path.removeprefix("/step/"))
        done = request.method == "GET"
        if self._notes_steps:
            self.events.append(f"{'=>' if done else '<='} {step}")
        if not done:
            assert request.method == "DELETE"
            return 200, b"false", {}
        count = self._counts[step] = self._counts.get(step, 0) + 1
        trues = self._trues if isinstance(self._trues, int) else self._trues.get(step, 0)
        return 200, b"true" if count <= trues else b"false", {}


@contextmanager
def stepping(
    trues: int | Mapping[int, int], *, first_kept_s: float = 0, notes_steps: bool = False
) -> Iterator[StepServer]:
    """A server whose steps answer true so many times, each or by number. The first side effect is
    answered after so many seconds, and no step before it is there.
    """
    server = StepServer(trues, first_kept_s=first_kept_s, notes_steps=notes_steps)
    with http_server(server.answer) as server.http:
        try:
            yield server
        finally:
            server.release()
