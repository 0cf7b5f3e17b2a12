"""A process is killed while its guest has twenty requests under way, and another one goes on.

The server is in the test's process and outlives them: it counts what comes under each key. Whatever
was recorded whole is not asked for again; what was not is asked for again with its key.
"""

import json
import random
import signal

import trio

from executor.executor import Executor
from tests.support import guests
from tests.support.crash_lab import new_seed
from tests.support.http_server import http_server
from tests.support.terminals import Terminals

COUNT = 20
SAMPLE = 8
POINTS = [
    *(f"append:{n}" for n in range(5, 60, 4)),
    *(f"commit:{n}" for n in range(2, 8)),
    *(f"before-effect:{n}" for n in (1, 7, COUNT)),
    *(f"after-effect:{n}" for n in (1, 7, COUNT)),
    "before-result",
    "after-result",
]
"""Of the whole run; a random sample is tried."""


def command(server, *more):
    urls = ", ".join(f'"{server.url}/text/{n}"' for n in range(COUNT))
    return ("invoke", "fetcher/w", "fetch-all", f"[{urls}]", "--key", "k", *more)


def deploy(tmp_path, name, wasm):
    async def deployed():
        async with Executor.open(tmp_path / ".shem") as shem:
            await shem.deploy(wasm, name=name, allow_net=["127.0.0.1"])

    trio.run(deployed)


def sampled():
    seed = new_seed()
    print("seed", seed)
    return random.Random(seed).sample(POINTS, SAMPLE)


def test_a_process_killed_amid_requests_is_continued_with_the_same_keys(tmp_path):
    wanted = json.dumps([f"200 {n}" for n in range(COUNT)])
    killed = 0
    for number, point in enumerate(sampled()):
        folder = tmp_path / f"at-{number}"
        folder.mkdir()
        deploy(folder, "fetcher", guests.fetcher_component())
        with http_server() as server:
            terminals = Terminals(folder)
            died = terminals.shem(*command(server, "--crash-at", point))
            assert died.code in (-signal.SIGKILL, 0), point  # some runs have fewer entries
            killed += died.code != 0
            first = server.counts()
            done = terminals.shem(*command(server))
            assert (done.code, done.stdout.strip()) == (0, wanted), (point, done.stderr)
            later = server.counts()
            assert set(first) <= set(later), point
            assert len(later) >= COUNT, point
            assert max(later.values()) <= 2, point
            again = terminals.shem(*command(server))
            assert again.stdout.strip() == wanted, point
            assert server.counts() == later, point
            terminals.close()
    assert killed > SAMPLE / 2
