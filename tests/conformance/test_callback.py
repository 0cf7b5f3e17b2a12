"""A guest in C whose requests are durable functions of its own, by golem:durability.

What is expected is the behaviour of `durability.rs` of Golem's executor tests at v1.2.5, written
afresh; what its guest in Rust does with a library, this one does without.
"""

import threading

import pytest
import trio
from trio.testing import trio_test

from executor.executor import Executor
from oplog.entry import Start
from tests.support import guests
from tests.support.http_server import HttpServer, http_server

ASK = "demo:callback/ask"


async def deployed(shem: Executor) -> None:
    await shem.deploy(guests.callback_component(), name="callback", allow_net=["127.0.0.1"])


@trio_test
async def test_what_a_durable_function_asked_for_is_not_asked_for_again(tmp_path):
    with http_server(lambda request: (200, request.path.encode(), {})) as server:
        async with Executor.open(tmp_path) as shem:
            await deployed(shem)
            asked_for = [server.url + "/?a"]
            first = await shem.invoke("callback/w", "ask", asked_for, key="first")
            assert (await shem.replay("callback/w")).divergence is None
            assert (await shem.crash("callback/w")).divergence is None
        async with Executor.open(tmp_path) as shem:
            second = await shem.invoke("callback/w", "ask", [server.url + "/?b"])
            assert (first, second) == ("/?a", "/?b")
            assert await shem.invoke("callback/w", "ask", asked_for, key="first") == "/?a"
            entries = [record.entry async for record in shem.oplog("callback/w")]
        assert [request.path for request in server.requests] == ["/?a", "/?b"]
        started = [entry.function for entry in entries if isinstance(entry, Start)]
        assert started.count(ASK) == 2
        assert not any(function.startswith("wasi:http/") for function in started)


@pytest.mark.parametrize("loss", ["crash", "restart", "interrupt"])
@trio_test
async def test_a_durable_function_that_was_lost_in_its_middle_runs_again_with_its_keys(
    tmp_path, loss
):
    with http_server() as server:
        url = server.url + "/hang"
        async with Executor.open(tmp_path) as shem:
            await deployed(shem)
            await shem.submit("callback/w", "ask", [url], key="k")
            await until_asked(server, 1)
            if loss == "crash":
                assert (await shem.crash("callback/w")).divergence is None
            if loss == "interrupt":
                assert (await shem.interrupt("callback/w")).done
                await shem.resume("callback/w")
            if loss != "restart":
                await until_asked(server, 2)
                server.release()
                assert (await shem.wait("callback/w", "k")).value == "after a while"
        async with Executor.open(tmp_path) as shem:
            server.release()
            assert await shem.invoke("callback/w", "ask", [url], key="k") == "after a while"
            assert (await shem.replay("callback/w")).divergence is None
        assert server.counts() == {server.requests[0].key: 2}


async def until_asked(server: HttpServer, count: int) -> None:
    with trio.fail_after(60):
        while len(server.requests) < count:  # noqa: ASYNC110  # the server is in another thread
            await trio.sleep(0.01)


@pytest.mark.parametrize("mode", ["live", "replayed", "crashed"])
@trio_test
async def test_a_lazy_pollable_stands_for_the_response_of_this_instance(tmp_path, mode):
    """Nothing is recorded of the response but its pieces: a rebuilt instance asks for another."""
    asked_for = (1, 2, 3, 4) if mode == "crashed" else (1, 1, 1, 4)
    allowed = [threading.Semaphore(0) for _ in range(5)]
    with http_server() as server:
        for number in range(1, 5):
            pieces = [b"chunk-%d-%d\n" % (number, piece) for piece in range(3)]
            server.stream(f"/fetch?idx={number}", pieces, allowed[number])

        async def read(shem: Executor, number: int) -> object:
            allowed[asked_for[number - 1]].release()
            url = f"{server.url}/fetch?idx={number}"
            piece = await shem.invoke("callback/w", "reading.next", [1, url], key=f"read-{number}")
            if mode != "live":
                rebuild = await (shem.replay if mode == "replayed" else shem.crash)("callback/w")
                assert rebuild.divergence is None
            return piece

        async with Executor.open(tmp_path) as shem:
            await deployed(shem)
            assert await shem.invoke("callback/w", "reading.new") == 1
            read_pieces = [await read(shem, number) for number in (1, 2, 3)]
        async with Executor.open(tmp_path) as shem:
            read_pieces.append(await read(shem, 4))
    pieces_of = (0, 0, 0, 0) if mode == "crashed" else (0, 1, 2, 0)
    assert read_pieces == [f"chunk-{of}-{n}\n" for of, n in zip(asked_for, pieces_of, strict=True)]
