"""Random programs and random owners: seeded lives, many at a time in one executor, and kills."""

import random
from collections import Counter

import trio

from executor import Executor
from tests.conformance.model.life import Life
from tests.conformance.model.program import Code, Op
from tests.conformance.model.regions import visible
from tests.conformance.model.subject import Fuse, KilledError, Subject

OPENINGS = (0b1, 0b1, 0b1, 0b11, 0b10, 0b101)
"""When a gate is open: at the first ask, at the first two, at the second, …"""
CALLS = (Code.READ_LOCAL, Code.READ_REMOTE, Code.WRITE_REMOTE)
PLAIN = (
    *(CALLS * 3),
    Code.ADD,
    Code.LOG,
    Code.LOG,
    Code.INDEX,
    Code.KEY,
    Code.MODE,
    Code.POLICY,
    Code.WRITE_FILE,
    Code.READ_FILE,
    Code.STAT_FILE,
    Code.COMMIT,
    Code.ASK,
    Code.SCOPE,
)
RARE = (Code.TRAP, Code.FAIL, Code.EXIT, Code.JUMP_ANYWHERE, Code.BEGIN, Code.END, Code.LEVEL)


def random_op(source: random.Random, code: Code) -> Op:
    """Most calls are answered, some fail for a while, few for good."""
    b = source.randrange(256)
    if code in CALLS:
        b = source.choices((0, 1, 2, 3, 4), (60, 8, 4, 1, 1))[0]
    elif code is Code.SCOPE:
        b = source.choices((0, 1, 2, 3, 4, 8, 9), (60, 8, 4, 1, 1, 20, 4))[0]
    elif code is Code.TRAP:
        b = source.choices((0b1, 0b10, 0b11, 255), (6, 3, 3, 1))[0]
    return Op(code, source.randrange(16), b)


def meets_refusal(program: list[Op]) -> bool:
    """Whether a call of it fails. What became of a failure that nobody heard of, nothing tells."""
    calls = (*CALLS, Code.SCOPE)
    return any(op.code in calls and op.b % 8 in range(1, 5) for op in program)


def random_region(source: random.Random, inside: list[Op]) -> list[Op]:
    """A region around these operations: some trap in it, some hold another, some stay open."""
    register = source.randrange(4)
    chance = source.random()
    if chance < 0.3:
        inside = [*inside, Op(Code.TRAP, source.randrange(16), source.choice(OPENINGS))]
    elif chance < 0.36:
        calls = [Op(Code.READ_LOCAL, source.randrange(16)) for _ in inside]
        inside = [*calls, Op(Code.TRAP, 0, 255)]
    elif chance < 0.5:
        inner = [Op(Code.END, register + 1)] * source.randrange(2)
        inside = [Op(Code.BEGIN, register + 1), *inside, *inner]
    end = [Op(Code.END, register)] * (source.random() < 0.9)
    return [Op(Code.BEGIN, register), *inside, *end]


def random_jump(source: random.Random, inside: list[Op]) -> list[Op]:
    """Back over these operations; sometimes another one to a place near by, legal or not."""
    register = source.randrange(4)
    mark = Op(Code.INDEX, register)
    jumps = [mark, *inside, Op(Code.JUMP, register, source.choice(OPENINGS))]
    if source.random() < 0.2:
        jumps += [mark, Op(Code.JUMP_ANYWHERE, register, source.randrange(1, 6))]
    return jumps


def random_program(source: random.Random, length: int) -> list[Op]:
    """Operations one by one, and blocks of them: regions, jumps back, zones."""
    program: list[Op] = []
    while len(program) < length:
        kind = source.random()
        inside = [random_op(source, source.choice(PLAIN)) for _ in range(source.randrange(5))]
        if kind < 0.72:
            program.append(random_op(source, source.choice(PLAIN)))
        elif kind < 0.82:
            program += random_region(source, inside)
        elif kind < 0.90:
            program += random_jump(source, inside)
        elif kind < 0.92:
            program += [Op(Code.LEVEL, 0), *inside, Op(Code.LEVEL, source.choice((1, 2)))]
        elif kind < 0.93:
            program += [Op(Code.LEVEL, 0), Op(Code.LEVEL, 2)]
        else:
            program.append(random_op(source, source.choice(RARE)))
    return program


class Figures:
    """What was done, in all."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    @property
    def steps(self) -> int:
        """Operations of guests that were not replayed, and actions of owners."""
        return self.counts["operations"] + self.counts["actions"]

    def add(self, life: Life) -> None:
        """What a life did since it was added last."""
        self.counts["actions"] += life.actions
        self.counts["operations"] += life.tally.count
        life.actions = life.tally.count = 0


class Wanderer:
    """Drives one life at random."""

    def __init__(self, subject: Subject, name: str, seed: int) -> None:
        self.life = Life(subject, name)
        self.source = random.Random(seed)
        self.seed = seed
        self.over = False
        self.left = self.source.randrange(4, 24)
        self.keys: list[tuple[str, list[Op]]] = []

    async def go_on(self, shem: Executor) -> None:
        """Until the life is over, or the executor is."""
        life = self.life
        while self.left > 0:
            if life.follower is None:
                await self.submit_new(shem)
                self.left -= 1
                continue
            if await life.rest(shem):
                await self.act_at_rest(shem)
            else:
                await self.act_while_held(shem)
            self.left -= 1
        life.outside.hold_at = 0
        life.outside.release()
        if life.follower is not None:
            await life.rest(shem)
            await life.check(shem)
            await life.delete(shem)
        self.over = True

    async def submit_new(self, shem: Executor) -> None:
        source = self.source
        key = f"k{len(self.keys)}"
        program = random_program(source, source.randrange(1, 24))
        self.keys.append((key, program))
        self.life.outside.hold_at = 0
        if source.random() < 0.3:
            self.life.outside.hold_at = len(self.life.outside.deeds) + source.randrange(1, 5)
        await self.life.submit(shem, key, program)
        if not self.life.outside.hold_at and source.random() < 0.15:
            await self.act_while_running(shem)

    async def act_while_running(self, shem: Executor) -> None:
        """Whatever the worker does right now; unless it is about to find out that its replay
        diverges, since whether it has cannot be seen.
        """
        life = self.life
        if life.reference.diverges(len(life.reference.log)):
            return
        for _ in range(self.source.randrange(60)):
            await trio.lowlevel.checkpoint()
        begun = [e for _, e in visible(life.reference.log) if e.kind == "invocation-started"]
        chance = self.source.random()
        if chance < 0.4:
            await life.interrupt(shem)
        elif chance < 0.8 and not any(map(meets_refusal, life.unfinished())):
            await life.crash_running(shem)
        elif begun:
            await life.revert(shem, last=1)

    async def act_at_rest(self, shem: Executor) -> None:
        source, life = self.source, self.life
        status = life.reference.status()
        if source.random() < 0.15:
            await life.check(shem)
        chance = source.random()
        if life.reference.diverged and chance > 0.3:
            if chance < 0.7:
                await self.revert(shem)
            else:
                await life.delete(shem)
        elif chance < 0.1:
            await life.crash(shem)
        elif chance < 0.13:
            await life.replay(shem)
        elif chance < 0.17:
            await self.submit_known(shem)
        elif chance < 0.2:
            await life.cancel(shem, f"k{source.randrange(len(self.keys) + 1)}")
        elif chance < 0.24:
            await self.revert(shem)
        elif status == "uncertain" and chance < 0.9:
            await life.resolve(shem, source.choice(("repeat", "fail", "value")))
        elif status == "interrupted" and chance < 0.6:
            await life.resume(shem)
        elif status in ("failed", "exited") and chance < 0.9:
            await self.revert(shem)
        elif chance < 0.26:
            await life.interrupt(shem)
        elif chance < 0.27:
            await life.delete(shem)
        else:
            await self.submit_new(shem)

    async def act_while_held(self, shem: Executor) -> None:
        source, life = self.source, self.life
        outside = life.outside
        held = outside.held
        assert held is not None
        writes = held.effect.function == "write-remote"
        chance = source.random()
        if chance < 0.15:
            outside.hold_at = 0
            await life.crash(shem)
        elif chance < 0.35:
            outside.hold_at = 0
            await life.interrupt(shem)
        elif chance < 0.5:
            await self.submit_new_behind(shem)
        elif chance < 0.55:
            await self.submit_known(shem)
        elif chance < 0.65:
            await life.cancel(shem, f"k{source.randrange(len(self.keys) + 1)}")
        elif chance < 0.7:
            await life.replay(shem)
        elif chance < 0.75 and not writes:
            outside.hold_at = 0
            await self.revert(shem)
        elif chance < 0.77:
            outside.hold_at = 0
            await life.delete(shem)
        else:
            outside.hold_at += source.choice((0, 1, 2))
            outside.release()
            await trio.lowlevel.checkpoint()

    async def submit_new_behind(self, shem: Executor) -> None:
        key = f"k{len(self.keys)}"
        program = random_program(self.source, self.source.randrange(1, 8))
        self.keys.append((key, program))
        await self.life.submit(shem, key, program)

    async def submit_known(self, shem: Executor) -> None:
        if not self.keys:
            return
        key, program = self.source.choice(self.keys)
        if self.source.random() < 0.4:
            program = [*program, Op(Code.ADD, 1)]
        elif self.life.reference.accepted(key) is None and self.source.random() < 0.5:
            program = random_program(self.source, 3)
        await self.life.submit(shem, key, program)

    async def revert(self, shem: Executor) -> None:
        """To somewhere, mostly where it is legal."""
        life, source = self.life, self.source
        log = life.reference.log
        chance = source.random()
        if chance < 0.4:
            await life.revert(shem, last=source.choice((1, 1, 1, 2, 3, 9)))
            return
        cut = source.randrange(len(log) + 2)
        if chance < 0.85:
            legal = [cut for cut in range(1, len(log) + 1) if life.reference.legal_cut(cut)]
            marks = [cut for cut in legal if log[cut - 1].kind == "no-op"]
            cut = source.choice(source.choice((marks, legal)) or [cut])
        await life.revert(shem, to=cut)


POINTS = ("append", "append", "append", "commit", "before-effect", "after-effect")


async def wander(subject: Subject, seed: int, lives: int, figures: Figures) -> None:
    """Lives at a time in one store, killed and opened again until all are over."""
    source = random.Random(seed)
    await subject.deploy()
    wanderers = [Wanderer(subject, f"w{n}", seed * 1_000 + n) for n in range(lives)]
    while wanderers:
        kind = source.choice(POINTS)
        most = {"append": 60, "commit": 30}.get(kind, 20) * len(wanderers)
        try:
            async with (
                subject.opened(Fuse(kind, source.randrange(1, most))) as shem,
                trio.open_nursery() as nursery,
            ):
                for wanderer in wanderers:
                    nursery.start_soon(wanderer.go_on, shem)
        except* KilledError:
            figures.counts[f"kills at {kind}"] += 1
            for wanderer in wanderers:
                wanderer.life.after_kill(source.choice((None, source.randint)))
                wanderer.life.outside.hold_at = 0
        for wanderer in wanderers:
            figures.add(wanderer.life)
        wanderers = [wanderer for wanderer in wanderers if not wanderer.over]
    figures.counts["lives"] += lives
