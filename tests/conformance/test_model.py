"""The executor against the reference model: programs, owners and kills, step by step.

`tests.conformance.model` holds the reference, written from the rules alone. `python -m
tests.conformance.model --steps N --seed S` goes on for as long as one likes.
"""

import logging
import random

import pytest
import trio
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.conformance.model.program import Code, Op
from tests.conformance.model.regions import current, pending
from tests.conformance.model.stage import Stage
from tests.conformance.model.subject import Fuse, Subject
from tests.conformance.model.wander import Figures, random_program, wander

KEYS = 6

operations = st.one_of(
    *(
        st.builds(Op, st.sampled_from(codes), st.integers(0, most), behaviours)
        for codes, most, behaviours in (
            ((Code.READ_LOCAL, Code.READ_REMOTE, Code.WRITE_REMOTE), 3, st.integers(0, 4)),
            ((Code.SCOPE,), 3, st.sampled_from((0, 1, 2, 3, 4, 8, 9))),
            ((Code.BEGIN, Code.END, Code.INDEX), 3, st.just(0)),
            ((Code.JUMP, Code.TRAP), 3, st.sampled_from((0, 0b1, 0b10, 0b11, 255))),
            ((Code.JUMP_ANYWHERE,), 3, st.integers(0, 8)),
            ((Code.MODE, Code.LEVEL, Code.POLICY), 3, st.just(0)),
            ((Code.KEY, Code.COMMIT, Code.ASK, Code.READ_FILE, Code.STAT_FILE), 0, st.just(0)),
            ((Code.ADD, Code.LOG, Code.FAIL, Code.WRITE_FILE), 3, st.integers(0, 9)),
            ((Code.EXIT,), 0, st.integers(0, 1)),
        )
    )
)
programs = st.one_of(
    st.lists(operations, max_size=10),
    st.builds(lambda seed: random_program(random.Random(seed), 10), st.integers(0, 1 << 16)),
)
fuses = st.one_of(
    st.none(),
    st.builds(
        Fuse,
        st.sampled_from(("append", "before-effect", "after-effect")),
        st.integers(1, 12),
    ),
)


class WorkerMachine(RuleBasedStateMachine):
    """One worker, its owners, and the deaths of its process."""

    def __init__(self):
        super().__init__()
        self.stage = None

    @initialize()
    def open(self):
        self.stage = Stage()

    def teardown(self):
        if self.stage is not None:
            self.stage.close()

    @property
    def life(self):
        return self.stage.life

    @property
    def reference(self):
        return self.life.reference

    def born(self):
        return self.stage is not None and self.life.follower is not None

    def is_held(self):
        return self.born() and self.life.outside.held is not None

    def status(self, *wanted):
        return self.born() and not self.is_held() and self.reference.status() in wanted

    def do(self, step, fuse=None, kept=1.0):
        """One step and what follows from it by itself, maybe with a death on the way that leaves
        this part of what may be left.
        """
        self.stage.choose = lambda least, most: least + round(kept * (most - least))

        async def stepped(shem):
            await step(shem)
            await self.settled(shem)

        self.stage.run(stepped, fuse)
        self.stage.run(self.settled)

    async def settled(self, shem):
        if self.life.follower is not None and await self.life.rest(shem):
            await self.life.check(shem)

    @rule(
        key=st.integers(0, KEYS),
        program=programs,
        hold=st.integers(0, 5),
        fuse=fuses,
        kept=st.floats(0, 1),
    )
    def submit(self, key, program, hold, fuse, kept):
        outside = self.life.outside
        if hold and not self.is_held():
            outside.hold_at = len(outside.deeds) + hold
        self.do(lambda shem: self.life.submit(shem, f"k{key}", program), fuse, kept)

    @precondition(born)
    @rule(key=st.integers(0, KEYS))
    def submit_again(self, key):
        accepted = self.reference.accepted(f"k{key}")
        program = [] if accepted is None else self.reference.programs[accepted["arguments"]]
        self.do(lambda shem: self.life.submit(shem, f"k{key}", program))

    @precondition(born)
    @rule(key=st.integers(0, KEYS))
    def cancel(self, key):
        self.do(lambda shem: self.life.cancel(shem, f"k{key}"))

    @precondition(is_held)
    @rule(fuse=fuses, kept=st.floats(0, 1), more=st.integers(0, 2))
    def let_go(self, fuse, kept, more):
        async def release(_shem):
            self.life.outside.hold_at += more
            self.life.outside.release()

        self.do(release, fuse, kept)

    @precondition(born)
    @rule(replay=st.booleans())
    def crash(self, replay):
        if not replay:
            self.life.outside.hold_at = 0
        self.do(self.life.replay if replay else self.life.crash)

    @precondition(born)
    @rule()
    def interrupt(self):
        self.life.outside.hold_at = 0
        self.do(self.life.interrupt)

    @precondition(lambda self: self.status("interrupted"))
    @rule(fuse=fuses, kept=st.floats(0, 1))
    def resume(self, fuse, kept):
        self.do(self.life.resume, fuse, kept)

    @precondition(lambda self: self.status("uncertain"))
    @rule(choice=st.sampled_from(("repeat", "fail", "value")), fuse=fuses, kept=st.floats(0, 1))
    def resolve(self, choice, fuse, kept):
        self.do(lambda shem: self.life.resolve(shem, choice), fuse, kept)

    @precondition(lambda self: self.born() and not self.is_held())
    @rule(count=st.integers(0, 3), fuse=fuses, kept=st.floats(0, 1))
    def revert_last(self, count, fuse, kept):
        self.do(lambda shem: self.life.revert(shem, last=count), fuse, kept)

    @precondition(lambda self: self.born() and not self.is_held())
    @rule(part=st.floats(0, 1), legal=st.booleans(), fuse=fuses, kept=st.floats(0, 1))
    def revert_to(self, part, legal, fuse, kept):
        cuts = range(len(self.reference.log) + 2)
        if legal:
            cuts = [cut for cut in cuts if self.reference.legal_cut(cut)] or [0]
        cut = cuts[round(part * (len(cuts) - 1))]
        self.do(lambda shem: self.life.revert(shem, to=cut), fuse, kept)

    @precondition(born)
    @rule()
    def delete(self):
        self.life.outside.hold_at = 0
        self.do(self.life.delete)

    @invariant()
    def nothing_is_left_over(self):
        if self.born() and not self.is_held() and not self.reference.diverged:
            log = self.reference.log
            standing = self.reference.status() in ("interrupted", "uncertain", "failed", "exited")
            assert standing or (current(log) is None and not pending(log))


@pytest.fixture(autouse=True)
def quiet():
    """A killed executor's store complains of it."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def test_a_worker_does_what_the_reference_says_whatever_its_owners_and_its_process_do():
    run_state_machine_as_test(
        WorkerMachine,
        settings=settings(
            max_examples=80,
            stateful_step_count=12,
            deadline=None,
            derandomize=True,
            print_blob=True,
            phases=(Phase.explicit, Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_a_jump_into_the_body_of_a_durable_function_goes_back_to_its_beginning():
    stage = Stage()
    program = [Op(Code.SCOPE, 1), Op(Code.INDEX), Op(Code.JUMP_ANYWHERE, 0, 2)]

    async def step(shem):
        await stage.life.submit(shem, "k", program)
        assert await stage.life.rest(shem)
        await stage.life.check(shem)
        await stage.life.crash(shem)

    try:
        stage.run(step)
        log = stage.life.reference.log
        scope = next(i for i, e in enumerate(log, 1) if e.kind == "start")
        jumps = [e.fields for e in log if e.kind == "jump"]
        assert jumps == [{"first": scope + 1, "subtree": scope}]
        writes = [d.effect for d in stage.life.outside.deeds if d.effect.key is not None]
        assert len(writes) == 2
        assert writes[0] == writes[1], "the block runs again, with the same keys"
    finally:
        stage.close()


@pytest.mark.parametrize("seed", range(1, 6))
def test_many_workers_do_what_the_reference_says_over_many_kills(seed):
    print(f"seed {seed}")
    figures = Figures()
    trio.run(wander, Subject(seed), seed, 8, figures)
    assert figures.counts["operations"] > 200
