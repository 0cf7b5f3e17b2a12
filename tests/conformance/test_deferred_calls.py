"""Deferred calls: whatever ends when, wherever the instance is lost, the guest sees the same."""

import random
from collections import Counter

import pytest

from executor.durable.reasons import Unsure
from executor.errors import Divergence
from executor.replay.resolution import Resolution, resolve
from executor.wasm.host_function import LeaveGuest
from oplog.entry import (
    Cancelled,
    CompletionDelivered,
    CompletionDiscarded,
    Decision,
    End,
    InvocationFinished,
    Start,
    Suspend,
)
from tests.support.deferred_guest import BEGIN, Instance, World

PROGRAMS = 60


def run(program, entries, world_seed):
    return Instance(program, entries, World(world_seed)).run()


def terminals(entries):
    found = {}
    for index, entry in enumerate(entries, 1):
        if isinstance(entry, End | Cancelled):
            assert entry.start_index not in found, "one terminal a call"
            found[entry.start_index] = index
    return found


def seen(run):
    """How much of the trace is recorded: all that was observed before the session was live."""
    return len(run.trace) if run.live_at is None else run.live_at


def check_oplog(entries):
    """What is recorded of each call is one of the rows of the table."""
    ended = terminals(entries)
    marks = {}
    for index, entry in enumerate(entries, 1):
        if isinstance(entry, CompletionDelivered | CompletionDiscarded):
            assert entry.start_index not in marks, "one marker a call"
            assert ended[entry.start_index] < index, "the marker follows its end"
            marks[entry.start_index] = entry
    resolutions = Counter()
    for index, entry in enumerate(entries, 1):
        if isinstance(entry, Start) and entry.function == "test:web/client.fetch":
            terminal = entries[ended[index] - 1] if index in ended else None
            resolutions[resolve(terminal, marks.get(index))] += 1
    return resolutions


@pytest.mark.parametrize("program", range(PROGRAMS))
def test_the_guest_sees_the_same_wherever_it_is_lost(program):
    print(f"program {program}")
    whole = run(program, BEGIN, f"{program} first")
    check_oplog(whole.entries)
    for kept in range(len(BEGIN), len(whole.entries) + 1):
        recorded = whole.entries[:kept]
        again = run(program, recorded, f"{program} {kept}")
        assert again.trace[: seen(again)] == whole.trace[: seen(again)]
        assert again.entries[:kept] == recorded
        check_oplog(again.entries)
        check_effects(recorded, again)
        assert_replays(program, again)
        if isinstance(recorded[-1], Start) and recorded[-1].function.startswith("poll"):
            suspended = [*recorded, Suspend(at=recorded[-1].at)]
            woken = run(program, suspended, f"{program} {kept}")
            assert woken.trace[: seen(woken)] == whole.trace[: seen(woken)]
            assert_replays(program, woken)


def check_effects(recorded, again):
    """No call with a recorded end is performed again, and each one has a key of its own."""
    assert len(set(again.started)) == len(again.started)
    ended = terminals(recorded)
    open_starts = [
        index
        for index, entry in enumerate(recorded, 1)
        if isinstance(entry, Start)
        and entry.function == "test:web/client.fetch"
        and index not in ended
    ]
    new_starts = [
        entry
        for entry in again.entries[len(recorded) :]
        if isinstance(entry, Start) and entry.function == "test:web/client.fetch"
    ]
    assert len(again.started) <= len(open_starts) + len(new_starts)


def assert_replays(program, recorded):
    """The whole oplog replays to the same trace, and nothing is performed. Of a guest that trapped
    the end is not recorded here: it is the same up to where its history ends.
    """
    replayed = run(program, recorded.entries, "another world")
    assert replayed.trace[: seen(replayed)] == recorded.trace[: seen(replayed)]
    if isinstance(recorded.entries[-1], InvocationFinished):
        assert replayed.trace == recorded.trace
        assert replayed.entries == recorded.entries
        assert replayed.started == []
        assert replayed.live_at is None


def test_a_crash_after_a_crash_after_a_crash_is_like_one():
    for seed in range(200):
        chosen = random.Random(seed)
        program = f"chain {seed}"
        last = run(program, BEGIN, f"{seed} 0")
        for crash in range(4):
            kept = chosen.randint(len(BEGIN), len(last.entries))
            before, trace = last.entries[:kept], last.trace
            last = run(program, before, f"{seed} {crash + 1}")
            assert last.trace[: seen(last)] == trace[: seen(last)], f"seed {seed}"
            assert len(set(last.started)) == len(last.started)
        check_oplog(last.entries)
        assert_replays(program, last)


def test_all_rows_of_the_table_are_met():
    resolutions = Counter()
    for program in range(PROGRAMS):
        entries = run(program, BEGIN, f"{program} first").entries
        for kept in range(len(BEGIN), len(entries) + 1):
            resolutions += check_oplog(entries[:kept])
    met = {Resolution.AT_MARKER, Resolution.AT_TAIL, Resolution.PARKED, Resolution.INCOMPLETE}
    assert {found for found, count in resolutions.items() if count > 20} == met


def test_reads_that_find_nothing_are_counted_and_replay_delivers_at_the_same_count():
    missed = 0
    for program in range(PROGRAMS):
        whole = run(program, BEGIN, f"{program} first")
        for index, entry in enumerate(whole.entries):
            if not isinstance(entry, CompletionDelivered) or not entry.missed_reads:
                continue
            missed += 1
            changed = list(whole.entries)
            changed[index] = CompletionDelivered(
                at=entry.at, start_index=entry.start_index, missed_reads=entry.missed_reads - 1
            )
            with pytest.raises(Divergence):
                run(program, changed, "another world")
    assert missed > 20


def first_live():
    """An instance that is live, with one call begun and read too early."""
    instance = Instance("any", BEGIN, World("any"))
    instance.session.next_invocation()
    instance.session.go_live()
    assert instance.begin("read-remote") == 0
    assert instance.read(0) == "nothing"
    instance.recorded("now", lambda: 1)
    return instance


def again_over(instance):
    """Another instance, over everything that is recorded of the first."""
    instance.commit()
    again = Instance("any", instance.entries, World("another"))
    again.session.next_invocation()
    assert again.begin("read-remote") == 0
    return again


def test_an_end_without_a_marker_is_withheld_until_everything_that_is_recorded_was_replayed():
    live = first_live()
    assert live.world.end_one()
    live.recorded("then", lambda: 2)
    again = again_over(live)
    assert again.read(0) == "nothing", "the answer lies further on, and was not seen here"
    again.recorded("now", lambda: 3)
    assert again.read(0) == "nothing", "it was there, and the guest did not look"
    again.recorded("then", lambda: 4)
    assert not again.session.live
    assert again.read(0).startswith("answer of")
    assert again.world.started == [], "an effect that has ended is not performed again"
    again.commit()
    marker = again.entries[-1]
    assert isinstance(marker, CompletionDelivered)
    assert marker.missed_reads == 2


def test_a_call_that_never_ended_is_performed_again_when_its_instance_is_live_and_not_before():
    live = first_live()
    again = again_over(live)
    assert again.read(0) == "nothing"
    again.recorded("now", lambda: 3)
    assert (again.session.live, again.world.started) == (False, [])
    assert again.read(0) == "nothing"
    assert again.session.live
    assert again.world.started == live.world.started
    assert again.world.end_one()
    assert again.read(0).startswith("answer of")


def test_with_idempotence_mode_off_lost_writes_wait_for_their_owner_and_are_then_made_once():
    asked = 0
    for program in range(30):
        whole, _ = attempt(program, BEGIN, {})
        for kept in range(len(BEGIN), len(whole.entries) + 1):
            recorded = whole.entries[:kept]
            decisions = {}
            again, start_index = attempt(program, recorded, decisions)
            while again is None:
                assert start_index not in decisions, f"program {program}, entry {kept}"
                decisions[start_index] = "repeat"
                again, start_index = attempt(program, recorded, decisions)
            begun = [e.start_index for e in again.entries[kept:] if isinstance(e, Decision)]
            assert sorted(begun) == sorted(decisions), f"program {program}, entry {kept}"
            ended = terminals(recorded)
            for start_index in decisions:
                assert recorded[start_index - 1].function_type == "write-remote"
                assert start_index not in ended
            check_oplog(again.entries)
            asked += len(decisions)
    assert asked > 50


def attempt(program, entries, decisions):
    """A run with the mode off; or the start of the call that only its owner may decide on."""
    world = World(f"{program} {len(entries)}")
    instance = Instance(program, entries, world, idempotent=False, decisions=decisions)
    try:
        return instance.run(), 0
    except LeaveGuest as leave:
        reason = leave.reason
    assert isinstance(reason, Unsure)
    assert world.started == [], "nothing starts while its owner has not decided"
    return None, reason.start_index


@pytest.mark.parametrize("idempotent", [True, False])
def test_with_idempotence_mode_off_the_answer_of_a_write_is_seen_once_it_is_committed(idempotent):
    instance = Instance("any", BEGIN, World("any"), idempotent=idempotent)
    session = instance.session
    session.next_invocation()
    session.go_live()
    number = instance.begin("write-remote")
    call = instance.calls[number]
    instance.commit()
    assert instance.world.end_one()
    assert session.deferred.is_ready(call) == idempotent
    if not idempotent:
        assert instance.read(number) == "nothing"
        instance.commit()
        assert session.deferred.is_ready(call)
    assert instance.read(number).startswith("answer")
    instance.commit()
    marker = instance.entries[-1]
    assert isinstance(marker, CompletionDelivered)
    assert marker.missed_reads == (0 if idempotent else 1)
