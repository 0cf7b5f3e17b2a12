"""Names are looked up a few at a time, however many guests wait, or have given up."""

import socket
import threading

import pytest
import trio
from trio.testing import trio_test, wait_all_tasks_blocked

from executor.services.lookups import LOOKUPS_MAX, Lookups


class Servers:
    """Name servers that answer when they are let to."""

    def __init__(self):
        self.asked = []
        self.answering = threading.Event()
        self.lock = threading.Lock()

    def getaddrinfo(self, host, port, *arguments, **more):
        flags = more.get("flags", arguments[3] if len(arguments) > 3 else 0)
        if flags & socket.AI_NUMERICHOST:
            raise socket.gaierror(socket.EAI_NONAME, "no address")
        with self.lock:
            self.asked.append(host)
        assert self.answering.wait(30)
        if host == b"unknown.test":
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        if host == b"busy.test":
            raise RuntimeError("can't start new thread")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.1", port))]


@pytest.fixture
def servers(monkeypatch):
    servers = Servers()
    monkeypatch.setattr(socket, "getaddrinfo", servers.getaddrinfo)
    yield servers
    servers.answering.set()


async def until(condition):
    with trio.fail_after(20):
        while not condition():  # noqa: ASYNC110  # it is in other threads
            await trio.sleep(0.01)


@trio_test
async def test_those_who_gave_up_take_no_more_threads_than_all_may(servers):
    async with trio.open_nursery() as nursery:
        lookups = Lookups(nursery)
        for _ in range(3):
            async with trio.open_nursery() as guests:
                for number in range(2 * LOOKUPS_MAX):
                    guests.start_soon(lookups.addresses, f"n{number}.test", 80)
                await wait_all_tasks_blocked()
                guests.cancel_scope.cancel()
        await until(lambda: len(servers.asked) == LOOKUPS_MAX)
        assert await trio.to_thread.run_sync(lambda: "a thread is free") == "a thread is free"
        servers.answering.set()
        [found] = await lookups.addresses("known.test", 80)
        assert found[4] == ("192.0.2.1", 80)
        assert len(servers.asked) == LOOKUPS_MAX + 1, "nobody waits for the others"


@trio_test
async def test_who_waits_hears_of_a_failure(servers):
    servers.answering.set()
    async with trio.open_nursery() as nursery:
        lookups = Lookups(nursery)
        with pytest.raises(socket.gaierror, match="not known"):
            await lookups.addresses("unknown.test", 80)
        with pytest.raises(UnicodeError):
            await lookups.addresses("ä" * 64 + ".test", 80)
        with pytest.raises(socket.gaierror):
            await lookups.addresses("unknown.test", None)
        with pytest.raises(RuntimeError, match="thread"):
            await lookups.addresses("busy.test", 80)


@trio_test
async def test_an_address_waits_for_nobody():
    async with trio.open_nursery() as nursery:
        lookups = Lookups(nursery)
        lookups._turns = trio.Semaphore(0)
        for address, family in (("127.0.0.1", socket.AF_INET), ("::1", socket.AF_INET6)):
            [found] = await lookups.addresses(address, 80)
            assert (found[0], found[4][:2]) == (family, (address, 80))
