"""A response that is lost when the guest has read a part of it: its request is sent again, as an
effect like the first time, by the rules of the request.
"""

from collections import Counter

import pytest
from trio.testing import trio_test

from executor.durable.effects import perform_effect
from executor.durable.retry import RetryPolicy
from executor.durable.retry_rules import RetryRule, RetryRules, recorded_retry_rules
from executor.services.egress import EgressPolicy
from executor.wasm.values import Variant
from oplog.entry import End, Error, Start
from tests.support.http_guest import Client
from tests.support.http_server import http_server, pattern_bytes
from tests.support.python_guest import world

HANDLE = "wasi:http/outgoing-handler.handle"
LONG = 300_000
"""More than what is recorded with a head."""
BUSY = (503, b"busy", {"retry-after": "1"})
WHOLE = (200, pattern_bytes(LONG), {})


class Counted:
    """Performs effects, and counts those that are requests, by key."""

    def __init__(self):
        self.keys = Counter()

    def __call__(self, effect):
        if effect.function == HANDLE:
            self.keys[effect.key] += 1
        return perform_effect(effect)


def reading(server, method="get"):
    def program(guest):
        client = Client(guest, server.authority)
        ask = client.get if method == "get" else lambda path: client.post(path, b"x" * 100_000)
        guest.tell(client.answer(ask("/whole")))

    return program


def half_read(entries):
    """Up to the second piece that was read."""
    ends = [index for index, entry in enumerate(entries, 1) if isinstance(entry, End)]
    return entries[: ends[-2]]


@pytest.mark.parametrize("method", ["get", "post"])
@trio_test
async def test_each_time_that_the_server_is_asked_is_an_effect_with_the_key_of_the_request(method):
    """Crashes at every entry, so that the response is lost before, in and after it."""
    with http_server(lambda _request: WHOLE) as server:
        counted = Counted()
        async with world(perform=counted) as around:
            live = await around.run(reading(server, method))
            assert live.trace == [WHOLE[:2]]
            assert counted.keys == server.counts()
            asked_again = 0
            for kept in range(3, len(live.entries) + 1):
                before = server.counts()
                again = await around.run(reading(server, method), live.entries[:kept])
                assert (again.trace, again.lost) == (live.trace, None), f"the first {kept} entries"
                assert counted.keys == server.counts(), f"the first {kept} entries"
                asked = server.counts() - before
                assert asked.total() <= 1, f"the first {kept} entries"
                asked_again += asked.total()
        [(_, most)] = server.counts().items()
        assert most == 1 + asked_again > 4
        assert len({request.body for request in server.requests}) == 1


@trio_test
async def test_what_may_not_be_reached_any_more_is_not_asked_again():
    with http_server(lambda _request: WHOLE) as server:
        async with world() as around:
            live = await around.run(reading(server))
            around.egress = EgressPolicy.of(["127.0.0.2"])
            again = await around.run(reading(server), half_read(live.entries))
            [(status, (content, (code, text)))] = again.trace
            assert (status, code) == (200, "HTTP-request-denied")
            assert WHOLE[1].startswith(content)
            assert f"--allow-net {server.authority}" in text
            assert len(server.requests) == 1
            replayed = await around.run(reading(server), again.entries)
            assert (replayed.trace, replayed.entries) == (again.trace, again.entries)


@trio_test
async def test_who_waits_for_the_trailers_of_what_may_not_be_asked_for_again_hears_so():
    def program(guest):
        client = Client(guest, server.authority)
        guest.call("golem:api/host.set-idempotence-mode", False)
        guest.tell(client.trailers(*client.stream(client.response(client.post("/whole", b"x")))))

    with http_server(lambda _request: WHOLE) as server:
        async with world() as around:
            live = await around.run(program)
            assert live.trace == [None]
            [waits] = [
                index
                for index, entry in enumerate(live.entries, 1)
                if isinstance(entry, Start) and entry.function == "wasi:http/types.trailers"
            ]
            again = await around.run(program, live.entries[:waits])
            assert (again.trace, again.lost) == ([Variant("connection-terminated")], None)
            assert len(server.requests) == 1


def answering(*answers):
    """Those, one after another, then the last one for ever."""
    left = list(answers)
    return lambda _request: left.pop(0) if len(left) > 1 else left[0]


def rules(attempts_max, **when):
    policy = RetryPolicy(attempts_max=attempts_max, min_delay_s=0.001, max_delay_s=0.002)
    rule = RetryRule(name="rule", functions=("wasi:http/*",), policy=policy, **when)
    return RetryRules(recorded_retry_rules([rule]))


@pytest.mark.parametrize("rule", ["", "rule"])
@trio_test
async def test_a_peer_that_is_busy_when_it_is_asked_again_is_left_alone_for_as_long_as_it_says(
    rule,
):
    with http_server(answering(WHOLE, BUSY, WHOLE)) as server:
        async with world() as around:
            around.rules = rules(2, statuses=("5xx",)) if rule else RetryRules()
            live = await around.run(reading(server))
            again = await around.run(reading(server), half_read(live.entries))
            assert again.trace == live.trace
            [error] = [entry for entry in again.entries if isinstance(entry, Error)]
            assert error.policy == rule
            assert error.retry_at - error.at == 10**9
            assert "status 503" in error.details
            assert len(server.requests) == 3


@trio_test
async def test_attempts_to_have_the_rest_are_as_many_as_the_rule_of_the_request_says():
    with http_server(answering(WHOLE, (502, b"", {}))) as server:
        async with world() as around:
            around.rules = rules(5, errors=("asked for again",))
            live = await around.run(reading(server))
            again = await around.run(reading(server), half_read(live.entries))
            [(status, (_, (code, text)))] = again.trace
            assert (status, code) == (200, "HTTP-protocol-error")
            assert "status 502" in text
            assert len(server.requests) == 1 + 5
