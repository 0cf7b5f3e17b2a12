"""No worker takes all connections: who asks without end waits, and the others are answered."""

import random
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import trio
from trio.testing import trio_test, wait_all_tasks_blocked

from executor.services import http_client
from executor.services.http_client_types import Timeouts
from executor.services.shares import Shares
from tests.support import guests
from tests.support.executors import LastingEngine, opened, until
from tests.support.http_server import http_server
from tests.unit.services.test_http_client import LOOPBACK, answer, asking, failing
from tests.unit.services.test_http_client_secure import running
from tests.unit.services.test_http_client_two import (
    SilentPeer,
    ask,
    listening,
    serving,
    whole,
)

MOST = 16


def test_a_worker_gets_another_one_while_it_holds_fewer_than_are_left():
    shares = Shares(MOST)
    for worker, wanted in (("first", 8), ("second", 4), ("third", 2), ("fourth", 1), ("fifth", 1)):
        held = 0
        while shares.may_take(worker):
            shares.take(worker)
            held += 1
        assert held == wanted, worker
    assert not shares.may_take("sixth")
    shares.give_back("first")
    assert not shares.may_take("first"), "the next one is for who has none"
    assert shares.may_take("sixth")
    assert shares.refusal("first", "things") == (
        "the worker has 7 things open, and 1 of 16 are left:"
        " a worker gets no more than others can have"
    )


def test_whoever_takes_and_gives_back_in_any_order_leaves_something_for_others():
    seed = random.randrange(1 << 32)
    print("seed", seed)
    draw = random.Random(seed)
    shares = Shares(MOST)
    held = dict.fromkeys("abc", 0)
    for _ in range(20_000):
        worker = draw.choice("abc")
        if held[worker] and draw.random() < 0.4:
            shares.give_back(worker)
            held[worker] -= 1
        elif shares.may_take(worker):
            shares.take(worker)
            held[worker] += 1
        assert shares.left == MOST - sum(held.values())
        assert max(held.values()) <= MOST // 2
        assert shares.may_take("new"), "three that ask without end leave one"


@asynccontextmanager
async def full(client, server, worker, count):
    """While it is entered the worker asks for `count` answers that do not come; the answers."""
    answers = []

    async def hang():
        answers.append(await answer(client, asking(server, "/hang"), worker=worker))

    async with trio.open_nursery() as nursery:
        for _ in range(count):
            nursery.start_soon(hang)
        await until(lambda: not client.shares.may_take(worker))
        await wait_all_tasks_blocked()
        yield answers


@trio_test
async def test_a_worker_that_asks_without_end_waits_and_others_are_answered():
    with http_server() as server:
        async with running() as client:
            client.shares.most = MOST
            with trio.fail_after(60):
                async with (
                    full(client, server, "greedy", 40) as first,
                    full(client, server, "second", 40) as second,
                ):
                    assert client.shares.left == MOST - 8 - 4
                    for worker in ("third", "fourth", "third"):
                        found = await answer(client, asking(server, "/text/a"), worker=worker)
                        assert found[2] == b"a"
                    assert (first, second) == ([], [])
                    server.release()
                assert len(first) == len(second) == 40
            assert {status for status, *_ in first + second} == {200}
            assert client.shares.left == MOST


@trio_test
async def test_many_that_wait_are_served_without_waking_one_another(monkeypatch):
    looks = []
    may_take = Shares.may_take
    monkeypatch.setattr(Shares, "may_take", lambda *of: looks.append(of) or may_take(*of))
    served = []
    with http_server() as server:
        async with running() as client, trio.open_nursery() as nursery:
            client.shares.most = 2

            async def ask(number):
                exchange = await client.begin(asking(server, "/text/a"), LOOPBACK, "w")
                served.append(number)
                await trio.lowlevel.checkpoint()
                exchange.close()

            for number in range(200):
                nursery.start_soon(ask, number)
            with trio.fail_after(60):
                await until(lambda: len(served) == 200)
        assert client.shares.left == client.shares.most
    assert len(looks) < 200 * 5


@trio_test
async def test_whoever_gives_up_waiting_leaves_its_place_to_the_next():
    with http_server() as server:
        async with running() as client:
            client.shares.most = 2
            first = await client.begin(asking(server, "/text/a"), LOOPBACK, "w")
            with trio.move_on_after(0):
                await client.begin(asking(server, "/text/a"), LOOPBACK, "w")
            with failing("connection-limit-reached"):
                hasty = asking(server, "/text/a", timeouts=Timeouts(connect_s=0.05))
                await client.begin(hasty, LOOPBACK, "w")
            assert client.shares.left == 1
            first.close()
            assert client.shares.left == 2
            with trio.move_on_after(0):  # its turn has come at once, and it does not take it
                await client.begin(asking(server, "/text/a"), LOOPBACK, "w")
            assert client.shares.left == 2
            assert (await answer(client, asking(server, "/text/a")))[2] == b"a"


@trio_test
async def test_who_waits_for_its_share_for_longer_than_it_may_take_to_connect_hears_why():
    with http_server() as server:
        async with running() as client:
            client.shares.most = MOST
            async with full(client, server, "greedy", 8):
                with failing("connection-limit-reached") as raised:
                    hasty = asking(server, "/text/a", timeouts=Timeouts(connect_s=0.05))
                    await answer(client, hasty, worker="greedy")
                assert "the worker has 8 connections open" in raised.value.message
                assert raised.value.transient
                server.release()


@trio_test
async def test_connections_that_are_kept_are_taken_within_the_share_too():
    with http_server() as server:
        async with running() as client:
            client.shares.most = MOST
            async with full(client, server, "a", 8), full(client, server, "b", 4):
                server.release()
            assert client.shares.left == MOST, "they are kept, and nobody holds them"
            async with AsyncExitStack() as stack:
                for _ in range(8):
                    exchange = await client.begin(asking(server, "/text/a"), LOOPBACK, "a")
                    stack.callback(exchange.close)
                with failing("connection-limit-reached"):
                    hasty = asking(server, "/text/a", timeouts=Timeouts(connect_s=0.05))
                    await client.begin(hasty, LOOPBACK, "a")
            assert client.shares.left == MOST


@trio_test
async def test_a_connection_that_many_share_is_held_once_and_by_nobody_while_it_rests():
    async with serving(*[whole] * 4) as peer, running() as client:
        client.shares.most = 2
        one = await client.begin(ask(peer), LOOPBACK, "a")
        assert client.shares.left == 1
        two = await client.begin(ask(peer), LOOPBACK, "b")
        three = await client.begin(ask(peer), LOOPBACK, "a")
        assert (peer.connections, client.shares.left) == (1, 1)
        for exchange in (one, three):
            exchange.close()
        assert client.shares.left == 1
        two.close()
        assert client.shares.left == 2
        four = await client.begin(ask(peer), LOOPBACK, "b")
        assert (peer.connections, client.shares.left) == (1, 1)
        four.close()


@trio_test
async def test_who_waits_holds_up_nobody_that_asks_the_same_peer_over_tls():
    with http_server() as server:
        async with serving(whole) as peer, running() as client:
            client.shares.most = MOST
            async with full(client, server, "greedy", 8), trio.open_nursery() as nursery:
                nursery.start_soon(partial(answer, client, ask(peer), worker="greedy"))
                await wait_all_tasks_blocked()
                with trio.fail_after(60):
                    assert (await answer(client, ask(peer), worker="other"))[0] == 200
                server.release()


@trio_test
async def test_who_stands_in_line_to_share_a_connection_waits_no_longer_than_to_connect(
    monkeypatch,
):
    async def never(*_):
        await trio.sleep_forever()

    monkeypatch.setattr(http_client, "connect", never)
    async with serving(whole) as peer, running() as client:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(answer, client, ask(peer), worker="a"))
            await wait_all_tasks_blocked()
            with failing("connection-timeout"), trio.fail_after(60):
                await answer(client, ask(peer, timeouts=Timeouts(connect_s=0.05)), worker="b")
            nursery.cancel_scope.cancel()
        assert client.shares.left == client.shares.most


@trio_test
async def test_a_connection_that_its_peer_never_greets_takes_no_room_once_nobody_waits_for_it():
    async with listening(SilentPeer()) as silent, serving(whole) as peer, running() as client:
        client.shares.most = 1
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(partial(answer, client, ask(silent), worker="a"))
                await silent.shaken.wait()
                await wait_all_tasks_blocked()
                nursery.cancel_scope.cancel()
            assert client.shares.left == 1
            assert not silent.closed.is_set(), "the next request would find it"
            assert (await answer(client, ask(peer), worker="a"))[0] == 200
            await silent.closed.wait()


@trio_test
async def test_a_guest_with_more_requests_than_connections_leaves_another_its_own(monkeypatch):
    monkeypatch.setattr(http_client, "CONNECTIONS_MAX", 8)
    with http_server() as server:
        async with opened(LastingEngine()) as shem:
            await shem.deploy(guests.gather_component(), name="gather", allow_net=["127.0.0.1"])
            hanging = [f"{server.url}/hang"] * 20
            with trio.fail_after(60):
                await shem.submit("gather/greedy", "fetch-all", [hanging], key="k")
                await until(lambda: server.waiting == 4)
                texts = [f"{server.url}/text/{number}" for number in range(20)]
                wanted = [f"200 {number}" for number in range(20)]
                assert await shem.invoke("gather/other", "fetch-all", [texts]) == wanted
                assert server.waiting == 4
                server.release()
                assert len((await shem.wait("gather/greedy", "k")).value) == 20
