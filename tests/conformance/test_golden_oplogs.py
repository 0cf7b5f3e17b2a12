"""Oplogs that were recorded once and are committed: every later version has to go on with them."""

import json

import pytest

from oplog.codec import decode_entry, decode_value, encode_entry
from oplog.entry import Create, End, InvocationFinished, PendingInvocation, Start
from tests.conformance.golden.record import FOLDER, NAMES, recorded
from tests.support.executors import (
    LastingEngine,
    check_rows,
    opened,
    run,
    worker_entries,
    write_oplog,
)
from tests.support.programs import PROGRAMS, Bank

every_oplog = pytest.mark.parametrize("name", NAMES)

INCOMPLETE_ENTRIES = 4
"""So many entries of the charger's: the last one is the start of a charge without its end."""
INCOMPLETE_KEY = "b2017550-a831-59b9-8235-fa3e61fe7cd3"
"""What the peer was given for it."""


class Golden:
    def __init__(self, name):
        fixture = json.loads((FOLDER / f"{name}.json").read_text())
        self.program = PROGRAMS[fixture["program"]]
        self.worker = fixture["worker"]
        self.worker_id = bytes.fromhex(fixture["worker_id"])
        self.raw = [bytes.fromhex(line) for line in fixture["entries"]]
        self.entries = list(enumerate(map(decode_entry, self.raw), 1))

    async def continued(self, count, test, bank):
        """Runs a test in an executor whose store holds the first `count` entries."""
        engine = LastingEngine()
        options = {"host": bank.functions()}
        async with opened(engine, **options) as shem:
            await shem.deploy(self.program.wasm(), name=self.program.name)
        write_oplog(engine, self.worker_id, self.entries[:count])
        async with opened(engine, **options) as shem:
            return await test(shem, engine)


@every_oplog
def test_its_bytes_are_read_and_written_as_they_were(name):
    golden = Golden(name)
    assert [encode_entry(entry) for _, entry in golden.entries] == golden.raw


@every_oplog
def test_it_replays_without_divergence_and_knows_its_keys(name):
    golden = Golden(name)
    outcomes = [e.outcome for _, e in golden.entries if isinstance(e, InvocationFinished)]
    bank = Bank()

    async def replayed(shem, engine):
        rebuild = await shem.replay(golden.worker)
        assert rebuild.divergence is None
        assert rebuild.entries == len(golden.entries)
        for number, (function, arguments) in enumerate(golden.program.calls):
            key = f"key-{number}"
            value = await shem.invoke(golden.worker, function, list(arguments), key=key)
            assert value == decode_value(outcomes[number].result)
        assert worker_entries(engine, golden.worker) == golden.entries
        check_rows(engine, golden.worker_id)

    run(golden.continued, len(golden.entries), replayed, bank)
    assert bank.asked == []


@every_oplog
def test_every_prefix_of_it_continues_and_keeps_what_was_finished(name):
    golden = Golden(name)
    for count in range(1, len(golden.entries) + 1):
        prefix = golden.entries[:count]
        keys = [entry.key for _, entry in prefix if isinstance(entry, PendingInvocation)]
        outcomes = [e.outcome.result for _, e in prefix if isinstance(e, InvocationFinished)]
        bank = Bank()

        async def goes_on(shem, engine, keys=keys, outcomes=outcomes, prefix=prefix):
            await shem.run(until_idle=True)
            answers = [await shem.wait(golden.worker, key) for key in keys]
            assert {answer.status for answer in answers} <= {"completed"}
            values = [answer.value for answer in answers[: len(outcomes)]]
            assert values == [decode_value(result) for result in outcomes]
            assert (await shem.replay(golden.worker)).divergence is None
            assert worker_entries(engine, golden.worker)[: len(prefix)] == prefix
            check_rows(engine, golden.worker_id)

        run(golden.continued, count, goes_on, bank)
        completed = sum(isinstance(entry, End) for _, entry in prefix)
        if name == "charger":
            charges = (3, 5)[len(keys) - 1] if keys else 0
            assert len(set(bank.asked)) == len(bank.asked) == charges - completed


def test_the_charger_goes_on_from_where_it_was():
    golden = Golden("charger")
    bank = Bank()

    async def goes_on(shem, engine):
        assert await shem.invoke(golden.worker, "charge-many", [1], key="new") == 6
        rebuild = await shem.replay(golden.worker)
        assert rebuild.divergence is None

    run(golden.continued, len(golden.entries), goes_on, bank)
    assert len(bank.asked) == 1


def test_the_clocks_guest_remembers_every_reading():
    golden = Golden("clocks")
    last = [e.outcome for _, e in golden.entries if isinstance(e, InvocationFinished)][-1]

    async def goes_on(shem, engine):
        value = await shem.invoke(golden.worker, "read", [0], key="new")
        assert value == decode_value(last.result)

    run(golden.continued, len(golden.entries), goes_on, Bank())


def test_a_charge_that_never_ended_is_asked_again_with_the_key_of_then():
    golden = Golden("charger")
    assert isinstance(golden.entries[INCOMPLETE_ENTRIES - 1][1], Start)
    bank = Bank()

    async def goes_on(shem, engine):
        outcome = await shem.wait(golden.worker, "key-0")
        assert outcome.value == 3

    run(golden.continued, INCOMPLETE_ENTRIES, goes_on, bank)
    assert bank.asked[0] == INCOMPLETE_KEY
    assert len(bank.asked) == 3


@every_oplog
def test_what_is_recorded_today_has_the_same_bytes(name):
    golden = Golden(name)
    today = [decode_entry(bytes.fromhex(line)) for line in run(recorded, name)]
    assert isinstance(today[0], Create)
    assert today[0].name == golden.entries[0][1].name
    assert [encode_entry(entry) for entry in today[1:]] == golden.raw[1:]
