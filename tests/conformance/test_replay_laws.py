"""The laws of replay, for every guest.

1. What a guest asks and is answered in replay is what it asked and was answered live.
2. Every prefix of every recorded oplog continues legally: one outcome a key, no completed remote
   write repeated, an incomplete one repeated under its own key, and no divergence.
3. An oplog that the guest would not have written is a divergence that says where and what, and
   nothing is appended to it.
"""

from collections import Counter
from functools import cache, partial

import pytest
from msgspec.structs import replace

from executor.durable.keys import call_key
from executor.errors import Divergence, ReplayPanic
from executor.worker.rows import read_worker_id
from oplog.codec import encode_value
from oplog.entry import (
    End,
    InvocationFinished,
    InvocationStarted,
    Log,
    Outcome,
    PendingInvocation,
    Raw,
    Start,
)
from tests.support.executors import (
    LastingEngine,
    Traces,
    copy_oplog,
    opened,
    run,
    worker_entries,
    write_oplog,
)
from tests.support.programs import BROKEN, PROGRAMS, Bank
from tests.support.wit_values import exact, unordered

every_program = pytest.mark.parametrize("name", PROGRAMS)


class Recording:
    """One run of a program, never interrupted."""

    def __init__(self, name):
        self.program = PROGRAMS[name]
        self.worker = f"{name}/w"
        self.engine = LastingEngine()
        self.bank = Bank()
        self.traces = Traces()
        self.values = {}

    async def run(self):
        with self.traces.installed():
            async with opened(self.engine, host=self.bank.functions()) as shem:
                await shem.deploy(self.program.wasm(), name=self.program.name)
                for number, (function, arguments) in enumerate(self.program.calls):
                    key = f"key-{number}"
                    self.values[key] = await shem.invoke(
                        self.worker, function, list(arguments), key=key
                    )
        return self

    @property
    def entries(self):
        return worker_entries(self.engine, self.worker)


@cache
def recording(name):
    return run(Recording(name).run)


def remote_keys(worker_id, entries):
    """The derived keys of the remote writes in `entries`: completed ones, and the others."""
    key = ""
    starts = {}
    for index, entry in entries:
        match entry:
            case InvocationStarted():
                key = entry.key
            case Start(function_type="write-remote"):
                starts[index] = call_key(worker_id, key, index)
    done = {entry.start_index for _, entry in entries if isinstance(entry, End)}
    return (
        {key for index, key in starts.items() if index in done},
        {key for index, key in starts.items() if index not in done},
    )


def visible(calls):
    return [(path, unordered(arguments), unordered(value)) for path, arguments, value in calls]


@every_program
def test_a_replay_asks_and_is_answered_what_the_live_run_was(name):
    live = recording(name)
    (before,) = live.traces.calls or [[]]
    target = LastingEngine()
    copy_oplog(live.engine, target, live.worker, len(live.entries))

    async def replayed():
        traces = Traces()
        bank = Bank()
        with traces.installed():
            async with opened(target, host=bank.functions()) as shem:
                rebuild = await shem.replay(live.worker)
                assert rebuild.divergence is None
                assert rebuild.entries == len(live.entries)
                again = await shem.crash(live.worker)
                assert (again.divergence, again.replayed) == (None, rebuild.replayed)
        assert bank.asked == []
        return traces.calls

    first, second = run(replayed) or [[], []]
    assert visible(first) == visible(before)
    assert visible(second) == visible(before)
    assert worker_entries(target, live.worker) == live.entries


@every_program
def test_every_prefix_of_the_oplog_continues_legally(name):
    live = recording(name)
    count = len(live.entries)
    for length in range(1, count + 1):
        run(continues_legally, live, length)
    print(f"{name}: {count} prefixes")


async def continues_legally(live, length):
    target = LastingEngine()
    copy_oplog(live.engine, target, live.worker, length)
    prefix = live.entries[:length]
    worker_id = read_worker_id(target, live.worker)
    completed, incomplete = remote_keys(worker_id, prefix)
    keys = [entry.key for _, entry in prefix if isinstance(entry, PendingInvocation)]
    finished = sum(isinstance(entry, InvocationFinished) for _, entry in prefix)
    bank = Bank()
    traces = Traces()
    reports = []
    with traces.installed():
        async with opened(
            target, host=bank.functions(), recover="all", report=reports.append
        ) as shem:
            await shem.run(until_idle=True)
            outcomes = [await shem.wait(live.worker, key) for key in keys]
            rebuild = await shem.replay(live.worker)
            record = await shem.worker(live.worker)
    where = f"{live.program.name}, the first {length} entries"
    assert reports == [], where
    assert rebuild.divergence is None, where
    assert {outcome.status for outcome in outcomes} <= {"completed"}, where
    for outcome in outcomes[:finished]:
        assert exact(outcome.value) == exact(live.values[outcome.key]), where
    assert (record.status, record.pending, record.current_key) == ("idle", (), None), where
    after = worker_entries(target, live.worker)
    assert after[:length] == prefix, where
    ended = Counter(type(entry) for _, entry in after)
    assert ended[InvocationFinished] == ended[InvocationStarted] == len(keys), where
    assert completed.isdisjoint(bank.asked), where
    assert incomplete <= set(bank.asked), where
    assert max(Counter(bank.asked).values(), default=1) == 1, where
    check_recorded_answers(live, traces, prefix, where)


def check_recorded_answers(live, traces, prefix, where):
    """Up to the last recorded answer the guest went through what it went through before."""
    answered = {entry.start_index for _, entry in prefix if isinstance(entry, End)}
    functions = {entry.function for _, entry in live.entries if isinstance(entry, Start)}
    recorded = [seen for seen in visible(next(iter(live.traces.calls), [])) if seen[0] in functions]
    again = [seen for seen in visible(next(iter(traces.calls), [])) if seen[0] in functions]
    length = min(len(answered), len(again))
    assert again[:length] == recorded[:length], where
    if any(isinstance(entry, InvocationStarted) for _, entry in prefix) and ongoing(prefix):
        assert length == len(answered), where


def ongoing(prefix):
    started = sum(isinstance(entry, InvocationStarted) for _, entry in prefix)
    return started > sum(isinstance(entry, InvocationFinished) for _, entry in prefix)


@every_program
def test_output_is_recorded_once_whatever_the_prefix(name):
    live = recording(name)
    if not any(isinstance(entry, Log) for _, entry in live.entries):
        return
    wanted = output(live.entries)

    async def logged(length):
        target = LastingEngine()
        copy_oplog(live.engine, target, live.worker, length)
        async with opened(target, host=Bank().functions(), recover="all") as shem:
            await shem.run(until_idle=True)
            for key in live.values:
                if key not in keys_of(live.entries[:length]):
                    function, arguments = live.program.calls[int(key.partition("-")[2])]
                    await shem.invoke(live.worker, function, list(arguments), key=key)
        return output(worker_entries(target, live.worker))

    for length in range(1, len(live.entries) + 1, 3):
        assert run(logged, length) == wanted, f"the first {length} entries"


def keys_of(entries):
    return {entry.key for _, entry in entries if isinstance(entry, PendingInvocation)}


def output(entries):
    """Every write's level and size; the order workflow prints how long it took."""
    logs = [entry for _, entry in entries if isinstance(entry, Log)]
    return [(entry.level, entry.text.partition("cents,")[0], entry.octets) for entry in logs]


# -- divergence --------------------------------------------------------------------------------


def raw(value):
    return Raw(encode_value(value))


def changed(kind, number, **fields):
    """Tampering: the `number`-th entry of a kind gets other fields."""

    def change(entries):
        indices = [index for index, entry in entries if isinstance(entry, kind)]
        chosen = indices[number]
        return [(i, replace(e, **fields) if i == chosen else e) for i, e in entries], chosen

    return change


def removed(number):
    """The `number`-th call is gone, its end too; ends still name the starts that they belong to."""

    def change(entries):
        starts = [index for index, entry in entries if isinstance(entry, Start)]
        lost = starts[number]
        kept = [
            (index, entry)
            for index, entry in entries
            if index != lost and not (isinstance(entry, End) and entry.start_index == lost)
        ]
        places = {index: place for place, (index, _) in enumerate(kept, 1)}
        moved = [
            (i, replace(e, start_index=places[e.start_index]) if isinstance(e, End) else e)
            for i, e in kept
        ]
        return moved, lost

    return change


def swapped(number):
    """Two calls one after the other have changed places."""

    def change(entries):
        starts = [index for index, entry in entries if isinstance(entry, Start)]
        first, second = starts[number], starts[number + 1]
        by_index = dict(entries)
        by_index[first], by_index[second] = by_index[second], by_index[first]
        return sorted(by_index.items()), first

    return change


def other_outcome(value):
    return changed(InvocationFinished, 0, outcome=Outcome(result=raw(value)))


TAMPERED = {
    "another function": ("charger", changed(Start, 0, function="demo:bank/api.refund"), "refund"),
    "another function type": (
        "charger",
        changed(Start, 1, function_type="read-remote"),
        "read-rem",
    ),
    "another request": ("charger", changed(Start, 2, request=raw(["wat", 9])), "['wat', 9]"),
    "another outcome": ("charger", other_outcome(99), "result 99"),
    "an answer that leads elsewhere": ("clocks", changed(End, 3, response=raw(5)), "result"),
    "a refusal in place of a reference": (
        "counter",
        changed(End, 0, response=raw({"err": "no"})),
        "start wasi:random/random.get-random-u64",
    ),
    "a call that is missing": ("clocks", removed(1), "get-random-u64"),
    "two calls the other way round": ("clocks", swapped(0), "wall-clock.now"),
    "other arguments": ("adder", changed(InvocationStarted, 1, arguments=raw([7])), "result 11"),
}


@pytest.mark.parametrize("case", TAMPERED)
@pytest.mark.parametrize("queued", [False, True], ids=["idle", "with a key that waits"])
def test_a_tampered_oplog_is_a_divergence_that_says_where_and_appends_nothing(case, queued):
    name, tamper, recorded = TAMPERED[case]
    run(diverges, recording(name), tamper, recorded, queued)


async def diverges(live, tamper, recorded, queued):
    target = LastingEngine()
    places = []

    def change(entries):
        tampered, place = tamper(entries)
        places.append(place)
        extra = next(entry for _, entry in entries if isinstance(entry, PendingInvocation))
        if queued:
            tampered = [*tampered, (len(tampered) + 1, replace(extra, key="waits"))]
        return tampered

    copy_oplog(live.engine, target, live.worker, len(live.entries), change)
    before = worker_entries(target, live.worker)
    bank = Bank()
    reports = []
    async with opened(target, host=bank.functions(), report=reports.append) as shem:
        rebuild = await shem.replay(live.worker)
        again = await shem.crash(live.worker)
        if queued:
            with pytest.raises(Divergence) as raised:
                await shem.wait(live.worker, "waits")
            assert raised.value.index == rebuild.divergence.index
            assert (await shem.worker(live.worker)).pending == ("waits",)
    found = rebuild.divergence
    assert found is not None
    assert again.divergence == found
    assert found.index >= places[0]
    assert recorded in found.recorded
    assert found.requested != found.recorded
    assert worker_entries(target, live.worker) == before
    assert bank.asked == []
    assert bool(reports) == queued


def test_a_worker_that_stands_still_leaves_its_neighbours_alone():
    live = recording("charger")

    async def neighbours():
        target = LastingEngine()
        change = partial(tampered_only, changed(Start, 0, function="demo:bank/api.refund"))
        copy_oplog(live.engine, target, live.worker, len(live.entries) - 1, change)
        async with opened(
            target, host=Bank().functions(), recover="all", report=lambda _: None
        ) as shem:
            assert await shem.invoke("charger/other", "charge-many", [1]) == 1
            with pytest.raises(Divergence):
                await shem.wait(live.worker, "key-1")

    run(neighbours)


def tampered_only(tamper, entries):
    return tamper(entries)[0]


def test_an_instance_that_cannot_be_made_again_is_no_outcome_of_the_invocation_that_waits():
    live = recording("adder")
    broken = BROKEN.replace(b"demo:broken/api", b"demo:adder/api")

    async def stands_still():
        target = LastingEngine()
        async with opened(target) as shem:
            await shem.deploy(broken, name="adder")
        entries = live.entries
        waiting = next(entry for _, entry in entries if isinstance(entry, PendingInvocation))
        entries = [*entries, (len(entries) + 1, replace(waiting, key="waits"))]
        write_oplog(target, read_worker_id(live.engine, live.worker), entries)
        async with opened(target, report=lambda _: None) as shem:
            with pytest.raises(ReplayPanic, match=r"unreachable.*while replaying, before entry"):
                await shem.wait(live.worker, "waits")
            with pytest.raises(ReplayPanic):
                await shem.replay(live.worker)
        assert worker_entries(target, live.worker) == entries

    run(stands_still)
