"""Several owners of one worker at the same time, over processes some of which are killed.

The worker posts beside its guest, in regions, over jumps, with idempotence mode off and on:
programs of `guests/poster`, which answer the same however often they are begun again. What the
owners do is drawn, and when. Where a process is killed, the next one has what was committed in that
moment.
"""

import copy
import random
from collections import Counter
from contextlib import suppress

import pytest
import trio

from executor import host_function
from executor.errors import Divergence, ShemError, UnknownKey
from executor.worker.rows import read_worker_id
from oplog.entry import Decision
from oplog.memory_engine import MemoryEngine
from tests.support import guests
from tests.support.executors import LastingEngine, check_rows, opened, worker_entries
from tests.support.http_server import http_server

WORKER = "poster/w"
SOON_S = 60
JUMPS_FROM = 5
"""Asked for a number from here on, the peer answers 0 the first time."""
KEYS_MAX = 4
LIVES = (3, 4, 5, 6)
LIFE_S = (0.002, 0.01, 0.03, 0.08)


def committed(engine):
    """A store with what is in this one right now."""
    inner = engine.inner
    made = MemoryEngine()
    with inner._lock:
        made.epoch = inner.epoch
        made._oplogs = {worker: list(entries) for worker, entries in inner._oplogs.items()}
        made._tables = copy.deepcopy(inner._tables)
        made._contents, made._counts = dict(inner._contents), dict(inner._counts)
    return LastingEngine(made)


class Program:
    """Steps for the guest, and what it is to answer."""

    def __init__(self, chance):
        self._chance = chance
        self._posts = iter(range(10))
        self._registers = iter(range(9))
        self._jumps = iter(range(JUMPS_FROM, 10))
        self._open = []
        self._steps = []
        self._told = []
        for _ in range(3):
            self._block(0)
        if chance.random() < 0.6:  # else they are awaited by the outcome
            self._await_all()

    @property
    def text(self):
        return "".join(self._steps)

    @property
    def answer(self):
        return "".join(f"{told} " for told in self._told)

    def _block(self, depth):
        for _ in range(self._chance.randrange(1, 5)):
            self._draw(depth)

    def _draw(self, depth):
        chance = self._chance.random()
        if chance < 0.3 and (post := next(self._posts, None)) is not None:
            self._steps.append(f"P{post}")
            self._open.append(post)
        elif chance < 0.5 and self._open:
            self._await(self._open.pop(self._chance.randrange(len(self._open))))
        elif chance < 0.65:
            self._ask(self._chance.randrange(1, JUMPS_FROM))
        elif chance < 0.8 and depth < 2 and (register := next(self._registers, None)) is not None:
            self._steps.append(f"({register}")
            self._block(depth + 1)
            self._steps += [f"){register}"] * (self._chance.random() < 0.9)
        elif chance < 0.9 and not depth and (register := next(self._registers, None)) is not None:
            self._jump(register)
        elif chance > 0.95:
            self._steps.append(f"m{self._chance.randrange(2)}")

    def _jump(self, register):
        number = next(self._jumps, None)
        if number is None:
            return
        self._await_all()  # nobody jumps over a call that is under way
        self._steps.append(f"i{register}")
        self._block(1)
        self._await_all()
        self._ask(number)
        self._steps.append(f"j{register}")

    def _await_all(self):
        while self._open:
            self._await(self._open.pop())

    def _await(self, post):
        self._steps.append(f"A{post}")
        self._told.append(200)

    def _ask(self, number):
        self._steps.append(f"a{number}")
        self._told.append(number)


class Story:
    """One worker, and all that is done to it."""

    def __init__(self, seed):
        self.chance = random.Random(seed)
        self.engine = LastingEngine()
        self.asked = Counter()
        self.programs = {}
        self.reports = []
        self.active = 0

    def peer(self):
        @host_function("demo:poster/peer", "ask: func(n: u32) -> u32", type="read-remote")
        async def ask(_call, n):
            self.asked[n] += 1
            return 0 if n >= JUMPS_FROM and self.asked[n] == 1 else n

        return ask

    async def run(self):
        with http_server(lambda _: (200, b"written", {})) as server:
            self.authority = server.authority
            for life in range(lives := self.chance.choice(LIVES)):
                await self._live(first=life == 0, last=life == lives - 1)
                assert not self.reports

    async def _live(self, *, first, last):
        after = self.engine
        async with opened(
            self.engine, host=[self.peer()], recover="all", report=self.reports.append
        ) as shem:
            if first:
                wasm = guests.poster_component()
                await shem.deploy(wasm, name="poster", allow_net=["127.0.0.1"])
                await self._accept(shem)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(shem.run)
                with trio.move_on_after(self.chance.choice(LIFE_S)):
                    while True:
                        await self._answer_questions(shem)
                        self.active += 1
                        nursery.start_soon(self._act, shem)
                        await trio.sleep(self.chance.choice([0, 0.001, 0.002, 0.005]))
                if last:
                    await self._end(shem)
                elif self.chance.random() < 0.7:
                    after = committed(self.engine)
                nursery.cancel_scope.cancel()
        self.engine = after

    async def _accept(self, shem):
        if len(self.programs) < KEYS_MAX:
            program = Program(self.chance)
            key = f"k{len(self.programs)}"
            self.programs[key] = program
            await shem.submit(WORKER, "run", [self.authority, program.text], key=key)

    async def _act(self, shem):
        try:
            match self.chance.choice(
                ["accept", "crash", "interrupt", "resume", "replay", "revert"]
            ):
                case "accept":
                    await self._accept(shem)
                case "crash":
                    assert (await shem.crash(WORKER)).divergence is None
                case "interrupt":
                    await shem.interrupt(WORKER)
                case "resume":
                    await shem.resume(WORKER)
                case "replay":
                    assert (await shem.replay(WORKER)).divergence is None
                case "revert" if self.chance.random() < 0.6:
                    last = len(worker_entries(self.engine, WORKER))
                    await shem.revert(WORKER, to=self.chance.randint(2, last))
        except Divergence:
            raise
        except ShemError:
            pass  # what cannot be done just then
        finally:
            self.active -= 1

    async def _answer_questions(self, shem):
        if (await shem.worker(WORKER)).status == "uncertain":
            entries = worker_entries(self.engine, WORKER)
            asked = [e.start_index for _, e in entries if isinstance(e, Decision)]
            with suppress(ShemError):  # somebody else has said something, or has cut it away
                await shem.resolve(WORKER, asked[-1] if asked else 0, "repeat")

    async def _end(self, shem):
        """Everybody goes, and the worker comes to its end."""
        with trio.fail_after(SOON_S):
            record = await shem.worker(WORKER)
            while self.active or record.status != "idle" or record.pending:
                await self._answer_questions(shem)
                await shem.resume(WORKER)
                await trio.sleep(0.005)
                record = await shem.worker(WORKER)
            await shem.run(until_idle=True)
        for key, program in self.programs.items():
            try:
                outcome = await shem.invocation(WORKER, key)
            except UnknownKey:
                continue  # it was reverted
            assert (outcome.status, outcome.value) == ("completed", program.answer), program.text
        assert (await shem.replay(WORKER)).divergence is None
        check_rows(self.engine, read_worker_id(self.engine, WORKER))


@pytest.mark.parametrize("seed", range(8))
def test_whatever_owners_do_at_once_and_whoever_is_killed_every_answer_is_the_one(seed):
    print(f"seed {seed}")
    trio.run(Story(seed).run)
