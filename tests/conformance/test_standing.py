"""Who has something to do and does not run now is named, with what it waits for."""

import pytest

from executor import RetryPolicy, Transient
from executor.errors import GuestError, GuestTrap, Uncertain
from executor.records import time_text
from executor.worker.reader import StoreReader
from executor.worker.rows import encode_status, read_worker_id
from executor.worker.standing import NAMED_MAX, standing_workers
from oplog.engine import Batch, Row
from oplog.entry import Start
from tests.support import guests, programs
from tests.support.executors import (
    LastingEngine,
    copy_oplog,
    deployed,
    opened,
    run,
    status_of,
    until,
    until_state,
    worker_entries,
)
from tests.support.rules_guest import WORKER, RulesPeer, index_of, rules
from tests.support.sources import StillSources

HOUR_NS = 3_600 * 10**9


def said(engine):
    return list(standing_workers(StoreReader(engine)))


def test_sleepers_are_named_with_their_time_and_only_the_first_ones():
    async def case():
        engine, sources = LastingEngine(), StillSources()
        async with deployed(guests.SLEEPER, "sleeper", engine, sources=sources) as shem:
            await shem.submit("sleeper/00", "sleep", [HOUR_NS])
            await until_state(engine, "sleeper/00", "suspended")
            due = time_text(status_of(engine, "sleeper/00").wake_at)
            assert said(engine) == [
                f"sleeper/00 waits for {due}: a `shem run` then goes on with it"
            ]
            for number in range(1, NAMED_MAX + 1):
                await shem.submit(f"sleeper/{number:02}", "sleep", [HOUR_NS])
                await until_state(engine, f"sleeper/{number:02}", "suspended")
        assert [text.split()[0] for text in said(engine)[:-1]] == [
            f"sleeper/{number:02}" for number in range(NAMED_MAX)
        ]
        assert (
            said(engine)[-1]
            == "and whoever else is suspended: see `shem workers --status suspended`"
        )

    run(case)


def test_who_failed_or_is_interrupted_is_named_and_who_is_idle_is_not():
    async def case():
        engine = LastingEngine()
        async with deployed(guests.ADDER, "adder", engine) as shem:
            await shem.invoke("adder/idle", "add", [1])
            with pytest.raises(GuestTrap) as trapped:
                await shem.invoke("adder/failed", "fail")
            await shem.submit("adder/stopped", "spin")
            await until(lambda: status_of(engine, "adder/stopped") is not None)
            await shem.interrupt("adder/stopped")
        assert said(engine) == [
            (
                f"adder/failed failed: {trapped.value.message}: shem revert adder/failed --last 1,"
                " or delete it"
            ),
            "adder/stopped is interrupted: shem resume adder/stopped",
        ]

    run(case)


@pytest.mark.parametrize("damage", ["status", "promise"])
def test_a_worker_that_is_damaged_keeps_nobody_in_another_state_from_being_named(damage):
    async def case():
        engine, sources = LastingEngine(), StillSources()
        async with deployed(guests.SLEEPER, "sleeper", engine, sources=sources) as shem:
            await shem.submit("sleeper/w", "sleep", [HOUR_NS])
            await until_state(engine, "sleeper/w", "suspended")
            await shem.submit("sleeper/stopped", "sleep", [HOUR_NS])
            await until_state(engine, "sleeper/stopped", "suspended")
            await shem.interrupt("sleeper/stopped")
        worker_id = read_worker_id(engine, "sleeper/w")
        status = status_of(engine, "sleeper/w")
        status.promises = ("zz/1",)
        row = {"status": b"\xc1", "promise": encode_status(status)}[damage]
        assert engine.write([Batch(rows=[Row("workers", worker_id, row)])]) == [None]
        stopped, damaged = said(engine)
        assert stopped == "sleeper/stopped is interrupted: shem resume sleeper/stopped"
        assert damaged.startswith("not all that are suspended can be named: ")
        assert ("is damaged" if damage == "status" else "has the name 'zz/1'") in damaged

    run(case)


def test_who_has_exited_is_named_if_something_waits_for_it():
    async def case():
        engine = LastingEngine()
        async with deployed(programs.EXITER, "exiter", engine) as shem:
            for name in ("alone", "awaited"):
                await shem.submit(f"exiter/{name}", "exit", [0], key="k", run=False)
            await shem.submit("exiter/awaited", "stay", run=False)
            await shem.run(until_idle=True)
        assert said(engine) == [
            (
                "exiter/awaited has exited, and invocations wait:"
                " shem revert exiter/awaited --last 1, or delete it"
            )
        ]

    run(case)


def test_of_a_long_error_the_beginning_is_named():
    async def case():
        engine = LastingEngine()

        def answer(_call, text):
            raise ValueError(text)

        async with deployed(engine=engine, host=[programs.peer(answer)]) as shem:
            for name, text in (("lines", "first\nsecond"), ("long", "x" * 1_000)):
                with pytest.raises(GuestError):
                    await shem.invoke(f"relay/{name}", "relay", [text])
        lines, long = said(engine)
        assert lines.endswith("first…: shem revert relay/lines --last 1, or delete it")
        assert long.endswith("xxx…: shem revert relay/long --last 1, or delete it")
        assert len(long) < 250

    run(case)


def test_who_waits_for_a_promise_is_named_with_the_command_that_completes_it():
    async def case():
        engine, sources = LastingEngine(), StillSources()
        async with opened(engine, sources=sources) as shem:
            await shem.deploy(guests.approval_component(), name="approval")
            await shem.submit("approval/w", "request", ["a bridge"], key="k")
            await sources.until_asleep()
            sources.advance(2 * 10**9)
            await until_state(engine, "approval/w", "suspended")
            [promise] = (await shem.promises("approval/w")).promises
        number = promise.promise
        assert said(engine) == [
            (
                f"approval/w waits for promise {number}:"
                f" shem promise complete approval/w {number} VALUE"
            )
        ]

    run(case)


def test_who_is_uncertain_is_named_with_the_entry_and_what_its_owner_may_say():
    async def case():
        recorded = LastingEngine()
        async with rules(recorded, RulesPeer()) as shem:
            await shem.invoke(WORKER, "run", ["m0 w1"], key="k")
        start = index_of(recorded, Start)
        engine = LastingEngine()
        copy_oplog(recorded, engine, WORKER, start)
        async with opened(engine, host=RulesPeer().functions(), recover="all") as shem:
            with pytest.raises(Uncertain):
                await shem.wait(WORKER, "k")
        assert said(engine) == [
            (
                f"{WORKER} is uncertain: its write at entry {start} may have happened or not:"
                f" shem resolve {WORKER} {start} --repeat, --fail or --value WAVE"
            )
        ]

    run(case)


def test_who_is_tried_again_later_is_named_with_the_time():
    async def case():
        engine = LastingEngine()

        def answer(_call, _text):
            raise Transient("busy")

        policy = RetryPolicy(min_delay_s=3_600.0, max_delay_s=3_600.0)
        async with opened(engine, host=[programs.peer(answer)]) as shem:
            await shem.deploy(programs.RELAY, name="relay", retry=policy)
            await shem.submit("relay/w", "relay", ["a"], key="k")
            await until_state(engine, "relay/w", "retrying")
        due = worker_entries(engine, "relay/w")[-1][1].retry_at
        assert said(engine) == [f"relay/w is tried again at {time_text(due)}: by a `shem run` then"]

    run(case)
