"""Remote writes that are under way beside a guest when it is left: they are awaited, whatever it is
left for, so that none of them has to be repeated.
"""

import threading
from contextlib import asynccontextmanager

import pytest
import trio

from executor import Transient, WaveArguments, host_function
from executor.durable.effects import perform_effect
from executor.errors import BadArguments, GuestError, GuestTrap, Uncertain, UsageError
from oplog.entry import (
    CompletionDelivered,
    End,
    Error,
    Interrupted,
    InvocationFinished,
    NoOp,
    PendingInvocation,
    Start,
)
from tests.support import guests
from tests.support.engines import HeldStart
from tests.support.executors import (
    LastingEngine,
    opened,
    run,
    status_of,
    until,
    worker_entries,
)
from tests.support.http_server import http_server

WORKER = "poster/w"
HANDLE = "wasi:http/outgoing-handler.handle"
A_MOMENT_S = 0.2


class World:
    """A server that answers once it is told to, and a peer that asks for it to be told."""

    def __init__(self, answers):
        """`answers` of the peer, one after another; the last one for ever."""
        self.answers = answers
        self.asked = 0
        self.engine = LastingEngine()
        self.gate = threading.Event()
        self.server = None
        self.nursery = None

    def otherwise(self, _request):
        assert self.gate.wait(30)
        return 200, b"written", {}

    def peer(self):
        @host_function("demo:poster/peer", "ask: func(n: u32) -> u32", type="read-remote")
        async def ask(_call, _n):
            await until(lambda: self.server.requests)  # the write is under way
            self.nursery.start_soon(self._answer_the_write)
            self.asked += 1
            answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
            if isinstance(answer, Exception):
                raise answer
            return answer

        return ask

    async def _answer_the_write(self):
        await trio.sleep(A_MOMENT_S)
        self.gate.set()

    def kinds(self):
        return [type(entry) for _, entry in worker_entries(self.engine, WORKER)]

    def start_of_the_write(self):
        entries = worker_entries(self.engine, WORKER)
        return next(i for i, e in entries if isinstance(e, Start) and e.function == HANDLE)

    def end_of_the_write(self):
        """Where it is recorded."""
        entries, start = worker_entries(self.engine, WORKER), self.start_of_the_write()
        return next(i for i, e in entries if isinstance(e, End) and e.start_index == start)


@asynccontextmanager
async def posting(*answers, **options):
    world = World(list(answers))
    with http_server(world.otherwise) as server:
        world.server = server
        async with trio.open_nursery() as world.nursery:
            async with opened(world.engine, host=[world.peer()], **options) as shem:
                wasm = guests.poster_component()
                await shem.deploy(wasm, name="poster", allow_net=["127.0.0.1"])
                yield shem, world
            world.nursery.cancel_scope.cancel()


async def invoke(shem, world, program, key=None):
    return await shem.invoke(WORKER, "run", [world.server.authority, program], key=key)


@pytest.mark.parametrize("mode", ["m1", "m0"])
def test_a_failure_that_is_tried_again_repeats_no_write_beside_it(mode):
    async def case():
        async with posting(Transient("busy"), 7) as (shem, world):
            assert await invoke(shem, world, f"{mode}P0(1a1)1A0") == "7 200 "
            assert len(world.server.requests) == 1
            assert world.end_of_the_write() < 1 + world.kinds().index(Error)
            assert (await shem.replay(WORKER)).divergence is None

    run(case)


def test_who_interrupts_a_worker_that_awaits_its_writes_awaits_them_too():
    async def case():
        async with posting(Transient("busy"), 7) as (shem, world):
            arguments = [world.server.authority, "P0(1a1)1A0"]
            await shem.submit(WORKER, "run", arguments, key="k")
            await until(lambda: world.asked)
            await trio.sleep(A_MOMENT_S / 4)  # the guest is left, most of the time
            assert (await shem.interrupt(WORKER)).done
            assert world.kinds()[-1] is Interrupted
            world.end_of_the_write()
            assert (await shem.resume(WORKER, until_ended=True)).done
            assert (await shem.wait(WORKER, "k")).value == "7 200 "
            assert len(world.server.requests) == 1
            assert (await shem.replay(WORKER)).divergence is None

    run(case)


def test_the_outcome_of_an_exit_waits_for_the_writes():
    async def case():
        async with posting(7) as (shem, world):
            assert await invoke(shem, world, "P0a1x0") is None
            assert (await shem.worker(WORKER)).status == "exited"
            assert len(world.server.requests) == 1
            assert world.end_of_the_write() < 1 + world.kinds().index(InvocationFinished)

    run(case)


def test_a_trap_leaves_a_write_time_to_end():
    async def case():
        async with posting(7) as (shem, world):
            with pytest.raises(GuestTrap):
                await invoke(shem, world, "P0a1t0")
            assert len(world.server.requests) == 1
            assert world.end_of_the_write() < 1 + world.kinds().index(InvocationFinished)

    run(case)


def test_a_write_that_had_not_begun_when_its_invocation_failed_leaves_the_worker_failed():
    """Also if the process ends before that is durable."""

    async def case():
        hold = HeldStart(of=HANDLE)
        engine = LastingEngine(on_write=hold)
        wasm = guests.poster_component()

        async def let_go(loop):
            await until(lambda: loop._closed)
            hold.go.set()

        async with (
            trio.open_nursery() as nursery,
            opened(engine, host=[World([]).peer()]) as shem,
        ):
            await shem.deploy(wasm, name="poster", allow_net=["127.0.0.1"])
            await shem.submit(WORKER, "run", ["127.0.0.1:1", "m0P0t0"], key="k")
            await until(hold.entered.is_set)
            loop = shem._workers._loops[WORKER]
            await until(lambda: loop.worker.status.state == "failed")
            nursery.start_soon(let_go, loop)
        assert type(worker_entries(engine, WORKER)[-1][1]) is InvocationFinished
        assert status_of(engine, WORKER).state == "failed"

    run(case)


def test_a_write_that_fails_is_the_outcome_once_the_others_have_ended():
    requested = []

    def perform(effect):
        if effect.function == HANDLE:
            requested.append(effect.key)
            if len(requested) == 1:
                raise GuestError("it fails")
        return perform_effect(effect)

    async def case():
        async with posting(7, perform=perform) as (shem, world):
            with pytest.raises(GuestError, match="it fails"):
                await invoke(shem, world, "P0P1a1")
            assert len(world.server.requests) == 1
            ended = [
                e.start_index for _, e in worker_entries(world.engine, WORKER) if type(e) is End
            ]
            assert world.start_of_the_write() not in ended, "the one that failed"
            assert len(ended) == 2
            assert world.kinds()[-1] is InvocationFinished

    run(case)


def test_nobody_jumps_while_a_call_is_under_way():
    async def case():
        async with posting(0, 7) as (shem, world):
            words = "^set-oplog-index: durable host calls are still in flight$"
            with pytest.raises(GuestError, match=words):
                await invoke(shem, world, "i0P0a1j0")
            assert world.end_of_the_write() < 1 + world.kinds().index(InvocationFinished)

    run(case)


def test_a_jump_behind_the_end_of_every_call_makes_them_again():
    async def case():
        async with posting(0, 7) as (shem, world):
            assert await invoke(shem, world, "i0P0a1A0j0") == "7 200 "
            assert len({request.key for request in world.server.requests}) == 2
            assert world.kinds().count(NoOp) == 1
            assert (await shem.replay(WORKER)).divergence is None

    run(case)


def test_no_cut_parts_an_answer_from_where_it_was_seen():
    async def case():
        async with posting(7) as (shem, world):
            world.gate.set()
            assert await invoke(shem, world, "P0A0a1") == "200 7 "
            entries = worker_entries(world.engine, WORKER)
            first = world.start_of_the_write()
            marker = next(i for i, e in entries if isinstance(e, CompletionDelivered))
            for cut in range(first, marker):
                with pytest.raises(UsageError, match="lies inside the call") as refusal:
                    await shem.revert(WORKER, to=cut)
                assert refusal.value.hint.endswith(f": {first - 1} or {marker}")
            assert (await shem.revert(WORKER, to=marker)).done
            key = next(e.key for _, e in entries if isinstance(e, PendingInvocation))
            assert (await shem.wait(WORKER, key)).value == "200 7 "
            assert len(world.server.requests) == 1

    run(case)


async def uncertain(shem, world):
    """A write with idempotence mode off whose instance was lost; where it begins."""
    world.gate.clear()
    arguments = [world.server.authority, "m0P0A0"]
    await shem.submit(WORKER, "run", arguments, key="k")
    await until(lambda: world.server.requests)
    await shem.crash(WORKER)
    with pytest.raises(Uncertain):
        await shem.wait(WORKER, "k")
    return world.start_of_the_write()


def test_an_owner_answers_a_request_by_what_is_recorded_of_one():
    async def case():
        async with posting(7) as (shem, world):
            start = await uncertain(shem, world)
            for handle in ("ok(5)", "err(connection-timeout)"):  # what the guest got is not kept
                with pytest.raises(BadArguments, match="expected record"):
                    await shem.resolve(WORKER, start, "value", WaveArguments((handle,)))
            body = "{content: [], ended: true, trailers: none}"
            answer = f"ok({{status: 202, headers: [], body: {body}}})"
            await shem.resolve(WORKER, start, "value", WaveArguments((answer,)))
            assert (await shem.wait(WORKER, "k")).value == "202 "
            assert len(world.server.requests) == 1
            assert (await shem.replay(WORKER)).divergence is None

    run(case)
