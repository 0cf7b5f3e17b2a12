"""Requests that are tried again: which failures and statuses, how often, and over crashes."""

import threading
import time

import pytest
import trio
from trio.testing import trio_test

from executor import host_function
from executor.durable.deferred_function import DeferredFunction
from executor.durable.retry import RetryPolicy, TransientAnswer, TransientError
from executor.durable.retry_rules import RetryRule, RetryRules, recorded_retry_rules
from executor.wasm.values import Variant
from oplog.entry import Cancelled, End, Error, InvocationFinished, Start
from tests.support import guests
from tests.support.executors import LastingEngine, kinds, opened, until
from tests.support.http_guest import Client
from tests.support.http_server import closed_port, http_server
from tests.support.python_guest import BEGIN, world

SECOND_NS = 10**9


def rules(attempts_max, delay_s=0.001, **when):
    policy = RetryPolicy(attempts_max=attempts_max, min_delay_s=delay_s, max_delay_s=2 * delay_s)
    rule = RetryRule(name="rule", functions=("wasi:http/*",), policy=policy, **when)
    return RetryRules(recorded_retry_rules([rule]))


def busy(_request):
    return 503, b"busy", {}


def asking(server, ask):
    return lambda guest: guest.tell(ask(Client(guest, server.authority)))


def errors_of(entries):
    return [entry for entry in entries if isinstance(entry, Error)]


@pytest.mark.parametrize("given_rules", [RetryRules(), rules(9), rules(9, statuses=("429",))])
@trio_test
async def test_a_status_is_an_answer_as_any_other_if_no_rule_names_it(given_rules):
    with http_server(busy) as server:
        async with world() as around:
            around.rules = given_rules
            ran = await around.run(asking(server, lambda c: c.answer(c.get("/busy"))))
        assert ran.trace == [(503, b"busy")]
        assert errors_of(ran.entries) == []
        assert len(server.requests) == 1


@pytest.mark.parametrize("method", ["get", "post"])
@trio_test
async def test_a_status_that_a_rule_names_is_tried_again_under_one_key(method):
    content = b"x" * 100_000

    def ask(client):
        return client.answer(
            client.get("/busy") if method == "get" else client.post("/busy", content)
        )

    with http_server(busy) as server:
        async with world() as around:
            around.rules = rules(4, statuses=("5xx",))
            ran = await around.run(asking(server, ask))
            replayed = await around.run(asking(server, ask), ran.entries)
        assert ran.trace == replayed.trace == [(503, b"busy")]
        assert [error.policy for error in errors_of(ran.entries)] == ["rule"] * 3
        assert all(error.oldest_open == error.retry_from for error in errors_of(ran.entries))
        assert [error.details for error in errors_of(ran.entries)] == [
            f"{server.authority}: status 503"
        ] * 3
        assert list(server.counts().values()) == [4]
        bodies = {(request.body, request.complete) for request in server.requests}
        assert bodies == {(content if method == "post" else b"", True)}


@trio_test
async def test_a_pause_that_the_peer_asks_for_is_made():
    with http_server() as server:
        async with world() as around:
            around.rules = rules(3, statuses=("503",))
            ran = await around.run(asking(server, lambda c: c.answer(c.get("/status/503?first=1"))))
        assert ran.trace == [(200, b"late")]
        (error,) = errors_of(ran.entries)
        assert error.retry_at - error.at == SECOND_NS
        assert len(server.requests) == 2


@trio_test
async def test_a_delay_that_is_too_long_to_wait_here_leaves_the_guest_by_the_requests_rule():
    """Also where the guest waits for the response, and meets the failure in a `poll`."""
    answering = threading.Event()

    def busy_later(_request):
        assert answering.wait(30)
        return 503, b"busy", {}

    def program(guest):
        future = Client(guest, server.authority).get("/busy")
        on = "wasi:http/types.[method]future-incoming-response"
        pollable = guest.call(f"{on}.subscribe", future)
        threading.Timer(0.1, answering.set).start()
        with pytest.raises(TransientAnswer, match="status 503") as raised:
            guest.call("wasi:io/poll.poll", [pollable])
        guest.tell(raised.value.chosen.rule)

    with http_server(busy_later) as server:
        async with world() as around:
            around.rules = rules(4, delay_s=60, statuses=("503",))
            ran = await around.run(program)
        assert ran.trace == ["rule"]
        assert len(server.requests) == 1


@pytest.mark.parametrize(("when", "attempts"), [({}, 2), ({"errors": ("nobody",)}, 3)])
@trio_test
async def test_a_failure_to_connect_has_the_kind_of_its_error_code(when, attempts):
    when = when or {"errors": ("connection-refused",)}
    async with world() as around:
        around.rules = rules(2, **when)
        authority = f"127.0.0.1:{closed_port()}"

        def program(guest):
            client = Client(guest, authority)
            guest.tell(client.answer(client.get("/")))

        ran = await around.run(program)
    assert ran.trace == [Variant("connection-refused")]
    assert len(errors_of(ran.entries)) == attempts - 1


@trio_test
async def test_nothing_is_recorded_of_a_call_after_the_guest_has_dropped_it():
    """Its effect fails before anybody has cancelled it."""
    function = DeferredFunction("test:web/client", "fetch: func(number: u32) -> string")
    failed = threading.Event()

    def program(guest):
        deferred = guest.state.session.deferred

        async def run(call):
            deferred.drop(call)
            failed.set()
            raise TransientError("busy")

        function.begin(deferred, "read-remote", (1,), run)
        assert failed.wait(30)

    async with world() as around:
        ran = await around.run(program)
    assert [type(entry) for entry in ran.entries[2:]] == [Start, Cancelled, InvocationFinished]


@trio_test
async def test_attempts_are_counted_over_a_crash_at_every_entry():
    def ask(client):
        return client.answer(client.post("/busy", b"content"))

    with http_server(busy) as server:
        async with world() as around:
            around.rules = rules(4, statuses=("503",))
            whole = await around.run(asking(server, ask))
            call = errors_of(whole.entries)[0].retry_from
            for kept in range(len(BEGIN), len(whole.entries)):
                before = len(server.requests)
                recorded = whole.entries[:kept]
                again = await around.run(asking(server, ask), recorded)
                assert again.trace == whole.trace, f"the first {kept} entries"
                assert len(errors_of(again.entries)) == 3, f"the first {kept} entries"
                left = 4 - len(errors_of(recorded))
                ended = any(isinstance(e, End) and e.start_index == call for e in recorded)
                asked = len(server.requests) - before
                assert asked == (0 if ended else left), f"the first {kept} entries"
        assert len(server.counts()) == 1


@trio_test
async def test_a_request_keeps_its_delay_over_a_crash_whatever_another_one_comes_to():
    arrived = []
    counted = threading.Event()

    def otherwise(request):
        arrived.append((request.path, time.monotonic()))
        assert request.path == "/0" or counted.wait(30)
        busy = request.path == "/0" and [path for path, _ in arrived].count("/0") == 1
        return 503 if busy else 200, b"", {}

    @host_function("demo:poster/peer", "ask: func(n: u32) -> u32", type="read-local")
    def ask(_call, n):
        return n

    rule = RetryRule(
        name="busy", statuses=(503,), policy=RetryPolicy(min_delay_s=1.5, max_delay_s=1.5)
    )
    engine = LastingEngine()
    with http_server(otherwise) as server, trio.fail_after(30):
        async with opened(engine, host=[ask]) as shem:
            wasm = guests.poster_component()
            await shem.deploy(wasm, name="poster", allow_net=["127.0.0.1"], retry=[rule])
            await shem.submit("poster/w", "run", [server.authority, "P0P1A1A0"], key="k")
            await until(lambda: Error in kinds(engine, "poster/w"))
            counted.set()
            await until(lambda: End in kinds(engine, "poster/w"))
            assert (await shem.worker("poster/w")).status == "running"
            assert (await shem.crash("poster/w")).divergence is None
            assert (await shem.wait("poster/w", "k")).value == "200 200 "
    first, again = (at for path, at in arrived if path == "/0")
    assert again - first >= 1.4
