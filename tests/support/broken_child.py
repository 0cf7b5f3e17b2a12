"""Processes under torture whose executor has a fault, named by `SHEM_TEST_FAULT`.

Undisturbed they are whole: the fault is there in a process that is to die, or in one that recovers.
"""

import os
from uuid import uuid4

from executor import Ok
from executor.durable import session
from executor.durable.effects import TrioEffects
from executor.durable.session import DurableSession
from executor.torture.child import run_child, serve
from executor.torture.plan import decode_plan
from executor.worker import reader
from executor.worker.worker import Worker


def drop_an_end():
    append_end = DurableSession.append_end
    dropped = []

    def append(self, index, response):
        if dropped or not len(response):
            append_end(self, index, response)
        else:
            dropped.append(index)

    DurableSession.append_end = append


def repeat_under_a_new_key():
    DurableSession.key_of = lambda self, index, function_type: str(uuid4())


def perform(instead):
    """Every effect in another way."""
    make = TrioEffects.__init__

    def made(self, nursery, bell, perform):
        make(self, nursery, bell, lambda effect: instead(perform, effect))

    TrioEffects.__init__ = made


async def twice(perform, effect):
    await perform(effect)
    return await perform(effect)


async def never(perform, effect):
    return Ok("paid")


def lose_an_acceptance():
    """The first commit that a worker is asked for is not made, and said to be."""
    commit = Worker.commit
    asked = []

    async def first_not(self):
        if asked:
            await commit(self)
        asked.append(self)

    Worker.commit = first_not


def answer_otherwise():
    reader.format_wave = lambda wit, value: "0"


def repeat_without_asking():
    session.may_repeat = lambda function_type, *, idempotent: True


DYING = {
    "performs an effect twice": lambda: perform(twice),
    "performs no effect": lambda: perform(never),
    "loses an acceptance": lose_an_acceptance,
}
RECOVERING = {
    "drops an end": drop_an_end,
    "repeats under a new key": repeat_under_a_new_key,
    "answers otherwise": answer_otherwise,
    "repeats without asking": repeat_without_asking,
}


def run_line(text):
    plan = decode_plan(text)
    fault = os.environ["SHEM_TEST_FAULT"]
    faults = RECOVERING if plan.resume else DYING if plan.point else {}
    faults.get(fault, lambda: None)()
    run_child(plan)


if __name__ == "__main__":
    serve(run_line)
