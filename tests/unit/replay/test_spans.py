"""What is open after an entry, and after jumps and reverts."""

import random

import pytest

from executor.replay.regions import Regions
from executor.replay.spans import NOTHING, Open, Spans
from oplog.entry import (
    EMPTY_ARRAY,
    BeginAtomicRegion,
    Cancelled,
    CompletionDelivered,
    CompletionDiscarded,
    End,
    EndAtomicRegion,
    InvocationFinished,
    InvocationStarted,
    Jump,
    Log,
    NoOp,
    Outcome,
    PendingInvocation,
    Region,
    Revert,
    SetPersistenceLevel,
    Start,
)

AT = 1
STARTED = InvocationStarted(at=AT, key="k", function="f")
FINISHED = InvocationFinished(at=AT, outcome=Outcome(exit=0))
START = Start(at=AT, function="h", function_type="read-local", request=EMPTY_ARRAY)
SCOPE = Start(at=AT, function="h", function_type="write-remote")
BEGIN = BeginAtomicRegion(at=AT)
NO_OP = NoOp(at=AT)
ZONE = SetPersistenceLevel(at=AT, level="persist-nothing")
SMART = SetPersistenceLevel(at=AT, level="smart")


def end(start):
    return End(at=AT, start_index=start)


def end_region(begin):
    return EndAtomicRegion(at=AT, begin_index=begin)


def jump(first, last):
    return Jump(at=AT, region=Region(first, last))


def cuts(entries):
    return [(i, e) for i, e in enumerate(entries, 1) if isinstance(e, Jump | Revert)]


def opened(*entries):
    """What is open after each visible entry, by its index."""
    spans = Spans(Regions(cuts(entries)))
    return {i: spans.now for i, entry in enumerate(entries, 1) if spans.add(i, entry)}


def test_an_oplog_without_entries_has_nothing_open():
    assert Spans(Regions()).now == NOTHING


@pytest.mark.parametrize("terminal", [end(2), Cancelled(at=AT, start_index=2)])
def test_a_call_is_open_from_its_start_to_its_terminal(terminal):
    found = opened(STARTED, START, NO_OP, terminal)
    assert [found[i].calls for i in range(1, 5)] == [set(), {2}, {2}, set()]
    assert [found[i].legal for i in range(1, 5)] == [True, False, False, True]


@pytest.mark.parametrize("marker", [CompletionDelivered, CompletionDiscarded])
def test_a_call_that_is_known_to_be_observed_is_open_up_to_its_marker(marker):
    entries = [STARTED, START, START, end(2), end(3), marker(at=AT, start_index=2), FINISHED]
    spans = Spans(Regions(), {1: {2}})
    found = {i: spans.now for i, entry in enumerate(entries, 1) if spans.add(i, entry)}
    assert [found[i].calls for i in range(2, 7)] == [{2}, {2, 3}, {2, 3}, {2}, set()]


def test_a_call_that_is_observed_in_a_later_invocation_is_open_there_and_not_in_between():
    marker = CompletionDelivered(at=AT, start_index=2)
    entries = [STARTED, START, end(2), FINISHED, STARTED, FINISHED, STARTED, NO_OP, marker]
    spans = Spans(Regions(), {7: {2}})
    found = {i: spans.now.calls for i, entry in enumerate(entries, 1) if spans.add(i, entry)}
    assert [i for i, calls in found.items() if calls] == [2, 7, 8]


def test_regions_nest_and_the_end_of_an_outer_one_ends_those_inside():
    found = opened(STARTED, BEGIN, BEGIN, end_region(3), BEGIN, end_region(2), end_region(5))
    assert [found[i].regions for i in range(1, 8)] == [
        (),
        (2,),
        (2, 3),
        (2,),
        (2, 5),
        (),
        (),
    ]
    assert [found[i].begin for i in range(1, 8)] == [0, 2, 2, 2, 2, 0, 0]


def test_a_zone_is_open_until_another_level_is_set():
    found = opened(STARTED, ZONE, SMART)
    assert [found[i].begin for i in (1, 2, 3)] == [0, 2, 0]
    assert opened(STARTED, BEGIN, ZONE)[3].begin == 2


def test_nothing_is_open_between_invocations():
    found = opened(STARTED, BEGIN, START, FINISHED, STARTED)
    assert found[4] == NOTHING
    assert found[5] == Open(invocation=5)


def test_after_a_jump_it_is_open_what_was_before_its_region():
    found = opened(STARTED, BEGIN, NO_OP, end_region(2), START, jump(4, 6), NO_OP)
    assert found.keys() == {1, 2, 3, 6, 7}
    assert [(found[i].regions, found[i].calls) for i in (6, 7)] == [((2,), set())] * 2


def test_a_scope_is_open_like_a_region_and_its_body_is_hidden_without_it():
    found = opened(STARTED, SCOPE, BEGIN, end(2), NO_OP)
    assert [found[i].regions for i in range(1, 6)] == [(), (2,), (2, 3), (), ()]
    hidden = Jump(at=AT, region=Region(3, 5), subtree=2)
    assert opened(STARTED, SCOPE, START, end(3), hidden)[5].regions == (2,)


@pytest.mark.parametrize("seed", range(30))
def test_what_is_open_is_that_of_the_visible_entries_alone(seed):
    """Whatever was jumped over or reverted: hidden entries and their cuts leave no trace."""
    print(f"seed {seed}")
    chosen = random.Random(seed)
    entries = [STARTED]
    for index in range(2, 80):
        visible = visible_indices(entries)
        kinds = [START, BEGIN, NO_OP, ZONE, SMART, FINISHED, STARTED]
        kinds += [end(chosen.randrange(1, index)), end_region(chosen.randrange(1, index))]
        kinds += [Log(at=AT, level="stdout"), PendingInvocation(at=AT, key="k", function="f")]
        if chosen.random() < 0.2:
            region = Region(chosen.choice(visible) + 1, index)
            entries.append(chosen.choice([Jump, Revert])(at=AT, region=region))
        else:
            entries.append(chosen.choice(kinds))
    found = opened(*entries)
    assert len(found) > len(visible_indices(entries))  # the cuts that count, besides
    for last in found:
        left = [i for i in visible_indices(entries[:last]) if i <= last]
        plain = Spans(Regions())
        for i in left:
            plain.add(i, entries[i - 1])
        assert found[last] == plain.now


def visible_indices(entries):
    regions = Regions(cuts(entries))
    hidden = [i for i in range(1, len(entries) + 1) if i in regions.jumped or i in regions.reverted]
    return [i for i in range(1, len(entries) + 1) if i not in hidden]


def test_a_call_that_began_before_a_hidden_region_and_ended_in_it_has_ended():
    found = opened(STARTED, START, BEGIN, NO_OP, end(2), jump(4, 6), NO_OP)
    assert found[3].calls == {2}
    assert found[7].calls == set()
