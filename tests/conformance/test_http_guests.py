"""Guests that make many requests at a time, in Python and in C, on the executor."""

import pytest
from trio.testing import trio_test

from oplog.entry import Start
from tests.support import guests
from tests.support.executors import LastingEngine, opened, worker_entries
from tests.support.http_server import closed_port, http_server, pattern_bytes

COUNT = 20
FNV_START = 0xCBF29CE484222325
FNV_PRIME = 0x100000001B3


REFUSED = {
    "gather": "ConnectionRefused",
    "fetcher": "error",
    "collector": "NetworkError when attempting to fetch resource",
}


@pytest.mark.parametrize("name", REFUSED)
@trio_test
async def test_twenty_requests_at_a_time_are_answered_in_order_and_replayed(name):
    wasm = getattr(guests, f"{name}_component")()
    engine = LastingEngine()
    with http_server() as server:
        urls = [f"{server.url}/text/{number}" for number in range(COUNT)]
        wanted = [f"200 {number}" for number in range(COUNT)]
        async with opened(engine) as shem:
            await shem.deploy(wasm, name=name, allow_net=["127.0.0.1"])
            assert await shem.invoke(f"{name}/w", "fetch-all", [urls]) == wanted
            nobody = f"http://127.0.0.1:{closed_port()}/"
            assert await shem.invoke(f"{name}/w", "fetch-all", [[nobody, urls[3]]]) == [
                REFUSED[name],
                "200 3",
            ]
            assert (await shem.replay(f"{name}/w")).divergence is None
            assert (await shem.crash(f"{name}/w")).divergence is None
        assert len(server.requests) == COUNT + 1
        assert len({request.key for request in server.requests}) == COUNT + 1
    starts = [e.function for _, e in worker_entries(engine, f"{name}/w") if isinstance(e, Start)]
    assert starts.count("wasi:http/outgoing-handler.handle") == COUNT + 2


@trio_test
async def test_a_guest_posts_with_asyncio_and_each_request_has_its_key():
    with http_server() as server:
        async with opened(LastingEngine()) as shem:
            wasm = guests.gather_component()
            await shem.deploy(wasm, name="gather", allow_net=["127.0.0.1"])
            body = "a line\n" * 3000
            urls = [f"{server.url}/echo"] * 5
            assert await shem.invoke("gather/w", "post-all", [urls, body]) == [f"200 {body}"] * 5
            assert (await shem.replay("gather/w")).divergence is None
        assert {request.body for request in server.requests} == {body.encode()}
        assert len(server.counts()) == 5


@trio_test
async def test_a_guest_without_a_rule_reaches_nothing_and_its_stderr_says_which():
    with http_server() as server:
        async with opened(LastingEngine()) as shem:
            await shem.deploy(guests.fetcher_component(), name="fetcher")
            url = f"{server.url}/text/secret"
            accepted = await shem.submit("fetcher/w", "fetch-all", [[url]])
            done = await shem.wait("fetcher/w", accepted.key)
            assert done.value == ["error"]
            assert f"--allow-net {server.authority}" in done.stderr
            assert (await shem.replay("fetcher/w")).divergence is None
        assert server.connections == 0


@trio_test
async def test_every_byte_of_a_body_that_is_read_bit_by_bit_arrives():
    content = pattern_bytes(3_000_000)
    checksum = FNV_START
    for byte in content:
        checksum = (checksum ^ byte) * FNV_PRIME & (1 << 64) - 1
    with http_server() as server:
        async with opened(LastingEngine()) as shem:
            wasm = guests.fetcher_component()
            await shem.deploy(wasm, name="fetcher", allow_net=["127.0.0.1"])
            url = f"{server.url}/bytes/{len(content)}"
            assert await shem.invoke("fetcher/w", "drain", [url]) == (len(content), checksum)
