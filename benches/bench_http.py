"""How many HTTP requests a second go through one worker, and through 64, against the same client
used directly, as many at a time; and what one costs beside the client's own work.
"""

import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import trio

from benches.http_peer import http_peer
from benches.measure import Figure, directory, medians
from executor import Executor
from executor.services.egress import EgressPolicy
from executor.services.http_client import HttpClient
from executor.services.http_client_types import Ended, HttpRequest
from guests import recipes

AT_A_TIME = 20
"""Requests that one worker has under way."""
WORKERS = 64
ROUNDS = 9
TURNS = 5
"""Invocations of the one worker a round."""
US = 1e6
LOOPBACK = EgressPolicy.of(["127.0.0.1"])


class Spent(NamedTuple):
    seconds: float
    processor_s: float


class Round(NamedTuple):
    requests: int
    ours: Spent
    direct: Spent


def concurrent() -> Sequence[Figure]:
    with directory() as path, http_peer() as port:
        one, many = trio.run(measured, path, port)
    return [
        figure("http_concurrent", f"one worker, {AT_A_TIME} requests at a time", one),
        figure("http_concurrent_64", f"{WORKERS} workers, {AT_A_TIME} at a time each", many),
        deferred(one),
    ]


def figure(bench: str, what: str, rounds: Sequence[Round]) -> Figure:
    rates = medians([(n / ours.seconds, n / direct.seconds) for n, ours, direct in rounds])
    return Figure(
        bench=bench,
        value=rates.ours,
        unit="requests/s",
        baseline=rates.baseline,
        ratio=rates.ratio,
        goal="reported",
        note=f"{what}; against the same client used directly, with as many under way",
    )


def deferred(rounds: Sequence[Round]) -> Figure:
    spent = medians(
        [(ours.processor_s / n * US, direct.processor_s / n * US) for n, ours, direct in rounds]
    )
    return Figure(
        bench="deferred_call",
        value=spent.ours - spent.baseline,
        unit="us",
        baseline=spent.baseline,
        ratio=spent.ratio,
        goal="reported",
        note="processor time of a request beside the client's own, which it is compared with:"
        " the guest in C, its calls, five entries and their commit",
    )


async def measured(path: Path, port: int) -> tuple[list[Round], list[Round]]:
    """Rounds of one worker, and of many."""
    wasm = recipes.build("fetcher").read_bytes()
    urls = [f"http://127.0.0.1:{port}/"] * AT_A_TIME
    one: list[Round] = []
    many: list[Round] = []
    async with Executor.open(path / "store") as shem, trio.open_nursery() as nursery:
        await shem.deploy(wasm, name="fetcher", allow_net=["127.0.0.1"])
        client = HttpClient(nursery)

        async def fetch(worker: int, times: int) -> None:
            for _ in range(times):
                await shem.invoke(f"fetcher/{worker}", "fetch-all", [urls])

        async def ask(_number: int, times: int) -> None:
            for _ in range(times):
                await ask_once(client, port)

        for number in range(ROUNDS + 1):
            ours = await spent(fetch, 1, TURNS)
            direct = await spent(ask, AT_A_TIME, TURNS)
            all_ours = await spent(fetch, WORKERS, 1)
            all_direct = await spent(ask, AT_A_TIME * WORKERS, 1)
            if number:  # the first one opens connections and makes workers
                one.append(Round(AT_A_TIME * TURNS, ours, direct))
                many.append(Round(AT_A_TIME * WORKERS, all_ours, all_direct))
        client.close()
        nursery.cancel_scope.cancel()
    return one, many


async def spent(run: Callable[[int, int], Awaitable[None]], tasks: int, times: int) -> Spent:
    """What `run(0, times)` to `run(tasks - 1, times)` take, beside each other."""
    began, processor = time.perf_counter(), time.process_time()
    async with trio.open_nursery() as nursery:
        for number in range(tasks):
            nursery.start_soon(run, number, times)
    return Spent(time.perf_counter() - began, time.process_time() - processor)


async def ask_once(client: HttpClient, port: int) -> None:
    """The same request with nothing around it."""
    request = HttpRequest(
        method="GET",
        secure=False,
        host="127.0.0.1",
        port=port,
        authority=f"127.0.0.1:{port}",
        target="/",
        headers=[],
        has_body=False,
    )
    exchange = await client.begin(request, LOOPBACK, worker="plain")
    await exchange.send_end([])
    assert (await exchange.receive_head()).status == 200
    while not isinstance(await exchange.receive(), Ended):
        pass
    exchange.close()
