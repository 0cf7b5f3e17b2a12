"""Guests with requests beside them, lost again and again: each time over what the last one left.

A program's steps are drawn, and where it is lost. What it is answered, and what its peers are sent,
does not depend on when an answer is there; so it must not depend on losses, nor on what is accepted
meanwhile.
"""

import random

import pytest
from trio.testing import trio_test

from executor.wasm.values import Variant
from tests.support.http_guest import STREAMS, TYPES, Client
from tests.support.http_server import http_server
from tests.support.python_guest import BEGIN, accepting, say, world, written

PATHS = ("/text/a", "/bytes/150000", "/chunks/3/4")
SIZES = (1, 10, 4_000, 5_000, 70_000)
LOSSES_MAX = 4


class Steps:
    """A program's: (what, which request, with what)."""

    def __init__(self, seed):
        self._chance = random.Random(seed)
        self.steps = []
        self.lines = []
        self._requests = 0
        self._unread = []
        """Requests whose answer the guest may still await, or give up."""
        self._pieces = {}
        """What is still to be written of a body, by its request."""
        for _ in range(self._chance.randrange(6, 22)):
            self._draw()
        while self._pieces:
            self._write_on(next(iter(self._pieces)))
        for request in self._unread:
            self.steps.append((self._chance.choice(["await"] * 6 + ["drop"]), request, None))

    def _draw(self):
        chance = self._chance
        what = chance.choice(["get", "post", "write", "write", "seek", "say", "random", "await"])
        if what == "get":
            self._begin(what, chance.choice(PATHS))
            self._unread.append(self._requests)
        elif what == "post":
            self._begin(what, None)
            pieces = [chance.randbytes(chance.choice(SIZES)) for _ in range(chance.randrange(4))]
            self._pieces[self._requests] = pieces
        elif what == "write" and self._pieces:
            self._write_on(chance.choice(list(self._pieces)))
        elif what == "seek" and (waiting := [*self._unread, *self._pieces]):
            self.steps.append((what, chance.choice(waiting), None))
        elif what == "say":
            self.lines.append(chance.choice(["same\n", f"{len(self.lines)}\n"]))
            self.steps.append((what, 0, self.lines[-1].encode()))
        elif what == "random":
            self.steps.append((what, 0, None))
        elif what == "await" and self._unread:
            request = self._unread.pop(chance.randrange(len(self._unread)))
            self.steps.append((what, request, None))

    def _begin(self, what, with_what):
        self._requests += 1
        self.steps.append((what, self._requests, with_what))

    def _write_on(self, request):
        pieces = self._pieces[request]
        if pieces:
            self.steps.append(("write", request, pieces.pop(0)))
        else:
            del self._pieces[request]
            self._unread.append(request)
            self.steps.append(("finish", request, None))


class Walk:
    """One guest's way through the steps."""

    def __init__(self, guest, server):
        self.guest = guest
        self.client = Client(guest, server.authority)
        self.futures = {}
        self.bodies = {}
        self.found = {}
        """What was there when it was looked for."""

    def step(self, what, request, content):
        guest, client = self.guest, self.client
        match what:
            case "get":
                self.futures[request] = client.get(content)
            case "post":
                made = client.request("/echo", "post")
                self.bodies[request] = client.body(made)
                self.futures[request] = client.handle(made)
            case "write":
                _, stream = self.bodies[request]
                if len(content) <= 4_000:
                    guest.ok(f"{STREAMS}.[method]output-stream.write", stream, content)
                else:
                    client.write(stream, content)
            case "finish":
                client.finish(*self.bodies[request])
            case "seek" if request not in self.found:
                get = f"{TYPES}.[method]future-incoming-response.get"
                got = guest.call(get, self.futures[request])
                if got is not None:
                    self.found[request] = got.value.value
            case "say":
                say(guest, "stdout", content)
            case "random":
                guest.call("wasi:random/random.get-random-u64")
            case "drop":
                guest.drop(f"{TYPES}.future-incoming-response", self.futures[request])
            case "await":
                response = self.found.get(request) or client.response(self.futures[request])
                guest.tell(self._content(response))

    def _content(self, response):
        if isinstance(response, Variant):
            return response
        _, stream = self.client.stream(response)
        return self.client.head(response)[0], self.client.read_all(stream)


@pytest.mark.parametrize("seed", range(24))
@trio_test
async def test_a_guest_that_is_lost_again_and_again_is_answered_the_same(seed):
    print(f"seed {seed}")
    chance = random.Random(seed)
    drawn = Steps(seed)

    def program(guest):
        walk = Walk(guest, server)
        for step in drawn.steps:
            walk.step(*step)

    with http_server() as server:
        async with world() as around:
            live = await around.run(program)
            assert live.lost is None
            for _ in range(5):
                entries, kept, cuts = live.entries, len(BEGIN), []
                for _ in range(chance.randrange(1, LOSSES_MAX + 1)):
                    near = min(kept + chance.randrange(5), len(entries))
                    kept = chance.choice([near, chance.randint(kept, len(entries))])
                    cuts.append(kept)
                    run = chance.choice([program, accepting(program, seed + kept)])
                    again = await around.run(run, entries[:kept])
                    assert (again.trace, again.lost) == (live.trace, None), cuts
                    assert is_in(drawn.lines, written(again.entries, "stdout")), cuts
                    entries = again.entries


def is_in(lines, among):
    """Whether all of these are there, in order. One whose guest then went another way, since an
    answer was there that had not been, is there beside its successor's.
    """
    rest = iter(among)
    return all(line in rest for line in lines)
