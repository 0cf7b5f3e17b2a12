"""Golem's guest that asks a server again and again, and what is done to its worker meanwhile.

What is expected is the behaviour of `long_running_poll_loop_*` and `invocation_queue_is_persistent`
in `api.rs` of Golem's executor tests at v1.2.5, written afresh.

What differs: who follows a worker follows its oplog, and is not cut off where the worker is
interrupted; what breaks there is the wait of who invoked it.
"""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from trio.testing import trio_test

from executor.errors import WorkerNotFound
from executor.executor import Executor
from tests.conformance.golem.components import WHY_SKIPPED, components_folder
from tests.conformance.golem.guest import TIMEOUT_S, Guest, Mode
from tests.conformance.golem.servers import Polled, reaching, until
from tests.support.http_server import Answer, Request, http_server
from tests.support.terminals import Terminal, Terminals

if components_folder() is None:
    pytest.skip(WHY_SKIPPED, allow_module_level=True)


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
            done = await shem.wait(guest.worker, accepted.key, timeout_s=TIMEOUT_S)
            assert done.stdout.endswith("Received first\nPoll loop finished\n")
            await guest.rebuild()
            assert (await shem.worker(guest.worker)).status == "idle"


@trio_test
async def test_a_second_invocation_resumes_a_poll_loop_that_was_interrupted(
    tmp_path: Path, mode: Mode
) -> None:
    polled = Polled()

    async def running(shem: Executor) -> list[str]:
        page = await shem.workers("http-client-2", status="running")
        return [worker.worker for worker in page.workers]

    with http_server(polled) as server:
        async with Executor.open(tmp_path) as shem:
            guest = await reaching(shem, "http-client-2", "poll-loop-component-1", mode, server)
            first = await shem.submit(guest.worker, "start-polling", ["first"], env=guest.env)
            await until(lambda: polled.asked > 1)
            assert await running(shem) == [guest.worker]
            await shem.interrupt(guest.worker)
            assert (await shem.worker(guest.worker)).status == "interrupted"
            assert await running(shem) == []
            await guest.rebuild()
            asked = polled.asked
            second = await shem.submit(guest.worker, "start-polling", ["second"])
            await until(lambda: polled.asked > asked)
            assert await running(shem) == [guest.worker]
            assert (await shem.worker(guest.worker)).pending == (second.key,)
            polled.answer = b"first"
            done = await shem.wait(guest.worker, first.key, timeout_s=TIMEOUT_S)
            assert done.stdout.endswith("Poll loop finished\n")
            polled.answer = b"second"
            await shem.wait(guest.worker, second.key, timeout_s=TIMEOUT_S)
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
            await shem.wait(guest.worker, polling.key, timeout_s=TIMEOUT_S)
            await shem.wait(guest.worker, last.key, timeout_s=TIMEOUT_S)
            assert await guest.run("get-count") == 4


@trio_test
async def test_a_poll_loop_that_was_interrupted_can_be_deleted(tmp_path: Path, mode: Mode) -> None:
    polled = Polled()
    with http_server(polled) as server:
        async with Executor.open(tmp_path) as shem:
            guest = await reaching(shem, "http-client-2", "poll-loop-component-5", mode, server)
            await shem.submit(guest.worker, "start-polling", ["first"], env=guest.env)
            await until(lambda: polled.asked > 1)
            await shem.interrupt(guest.worker)
            await guest.rebuild()
            await shem.delete(guest.worker)
            with pytest.raises(WorkerNotFound):
                await shem.worker(guest.worker)


@trio_test
async def test_a_failure_of_a_request_that_passes_is_not_seen(tmp_path: Path, mode: Mode) -> None:
    """Each request is cut off once."""
    asked: dict[str, int] = {}
    answers = iter([b"initial", b"initial", b"first"])

    def answer(request: Request) -> Answer | str:
        count = asked[request.key] = asked.get(request.key, 0) + 1
        return "/reset" if count == 1 else (200, next(answers), {})

    with http_server(answer) as server:
        async with Executor.open(tmp_path) as shem:
            guest = await reaching(shem, "http-client-2", "w", mode, server)
            done = await guest.invocation("start-polling", ["first"])
            assert "Failed to poll" not in done.stdout
            assert done.stdout.count("Received initial") == 2
        assert list(asked.values()) == [2, 2, 2]


@pytest.fixture
def terminals(tmp_path: Path) -> Iterator[Terminals]:
    opened = Terminals(tmp_path)
    try:
        yield opened
    finally:
        opened.close()


def read_until(follower: Terminal, *texts: str) -> None:
    """Reads entries until each text was in one of them, in this order."""
    assert follower.process.stdout is not None
    wanted = list(texts)
    deadline = time.monotonic() + TIMEOUT_S
    while wanted:
        line = follower.process.stdout.readline()
        assert line, "the follower ended"
        assert time.monotonic() < deadline, wanted
        if wanted[0] in line:
            del wanted[0]


def test_who_follows_a_poll_loop_sees_it_interrupted_and_does_not_resume_it(
    terminals: Terminals,
) -> None:
    folder = components_folder()
    assert folder is not None
    polled = Polled()
    with http_server(polled) as server:
        worker = "http-client-2/poll-loop-component-2"
        file = str(folder / "http-client-2.wasm")
        assert terminals.shem("deploy", file, "--allow-net", "localhost").code == 0
        terminals.serve()
        invoked = ("invoke", worker, "start-polling", '"first"', "--key", "k", "--json")
        asking = terminals.start(*invoked, "--env", f"PORT={server.port}")
        terminals.until(lambda: terminals.has_work(worker))
        follower = terminals.start("oplog", worker, "--follow", "--json")
        read_until(follower, "Calling the poll endpoint", "Received initial")
        assert terminals.shem("interrupt", worker).code == 0
        told = asking.ended()
        assert (told.code, json.loads(told.stdout)["error"]["kind"]) == (130, "interrupted")
        read_until(follower, '"interrupted"')
        another = terminals.start("oplog", worker, "--follow", "--json")
        read_until(another, '"interrupted"')
        asked = polled.asked
        time.sleep(0.5)
        assert (polled.asked, terminals.status(worker)) == (asked, "interrupted")
        assert terminals.shem("resume", worker).code == 0
        read_until(follower, '"resumed"', "Calling the poll endpoint", "Received initial")
        polled.answer = b"first"
        for each in (follower, another):
            read_until(each, "Received first", "Poll loop finished", '"invocation-finished"')
        assert terminals.shem(*invoked).json["status"] == "completed"
        assert terminals.status(worker) == "idle"
        assert terminals.shem("replay", worker, "--json").json["divergence"] is None
