"""A process is killed while its guest has twenty requests under way, or has read a part of a long
response, and another one goes on.

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
LONG = 3_000_000
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


def drain(server, *more):
    return ("invoke", "fetcher/w", "drain", f'"{server.url}/bytes/{LONG}"', "--key", "k", *more)


def test_asking_again_for_the_rest_of_a_response_is_an_effect_at_which_a_process_can_be_killed(
    tmp_path,
):
    """The first effect to end in a later process is the request; the read that waits ends then."""
    deploy(tmp_path, "fetcher", guests.fetcher_component())
    with http_server() as server:
        terminals = Terminals(tmp_path)
        asked = {}
        for point in ("append:30", "before-effect:1", "after-effect:1"):
            died = terminals.shem(*drain(server, "--crash-at", point))
            assert died.code == -signal.SIGKILL, (point, died.stderr)
            asked[point] = server.counts().total()
        assert asked == {"append:30": 1, "before-effect:1": 1, "after-effect:1": 2}
        done = terminals.shem(*drain(server))
        assert done.stdout.startswith(f"({LONG}, "), done.stderr
        assert list(server.counts().values()) == [3]
        terminals.close()


def test_a_long_response_is_tortured_and_nothing_is_lost_or_wrong(tmp_path):
    (tmp_path / "fetcher.wasm").write_bytes(guests.fetcher_component())
    with http_server() as server:
        (tmp_path / "script.txt").write_text(f"w drain '\"{server.url}/bytes/400000\"'\n")
        terminals = Terminals(tmp_path)
        seed = new_seed()
        told = terminals.shem(
            *("torture", "fetcher.wasm", "script.txt", "--allow-net", "127.0.0.1", "--json"),
            *("--sample", "12", "--seed", str(seed), "--recovery-kills", "1"),
        )
        assert told.code == 0, (seed, told.stdout, told.stderr)
        assert told.json["kills"] >= 12, seed
        assert told.json["repeated"] > 0, seed
        terminals.close()
