"""Each rule of a case, kept and broken. The events are those of two processes, one was killed."""

import pytest

from executor.torture.account import Difference, Label
from executor.torture.plan import (
    Accepted,
    Call,
    EffectBegan,
    EffectEnded,
    Ended,
    Found,
    Opened,
    Outcome,
    Refused,
    Replayed,
    Resolved,
    Trouble,
)
from executor.torture.verdict import Case, judge

BEGAN = EffectBegan(key="d", function="bank.charge", type="write-remote")
ANSWERED = EffectEnded(key="d", answered=True)
RESUMED = Outcome(worker="w/a", key="k", status="completed", wave="1", resumed=True)
TOLD = Outcome(worker="w/a", key="k", status="completed", wave="1")
REPLAYED = Replayed(worker="w/a", entries=5, replayed=4)


def found(*calls, entries=("a", "b"), verified=False, **fields):
    return Found(worker="w/a", id="00", entries=entries, calls=calls, verified=verified, **fields)


def call(**fields):
    return Call(
        index=3, key="d", invocation="k", function="bank.charge", type="write-remote", **fields
    )


END = found(call(ended=True), entries=("a", "b", "c"), verified=True)


WELL = (RESUMED, TOLD, REPLAYED, END, Ended())


def wrong(*events, end=WELL, failure=""):
    """Of a process that got so far, and another one that ends as told."""
    return judge(Case("c", (("append", 1),), 1, (*events, *end), failure))


def sentences(*events, **fields):
    return " | ".join(wrong(*events, **fields).wrong)


KILLED = (Opened(), Accepted(worker="w/a", key="k"), BEGAN, ANSWERED, found(call()), Opened())


def test_a_case_of_which_everything_holds():
    verdict = wrong(*KILLED)
    assert verdict == (0, 0, 0, 0, ())


def test_an_accepted_key_without_an_outcome_is_lost_though_asking_again_would_run_it():
    verdict = wrong(*KILLED, end=(TOLD, REPLAYED, END, Ended()))
    assert (verdict.lost, verdict.wrong) == (1, ("key k of w/a was accepted and is lost",))
    pending = Outcome(worker="w/a", key="k", status="pending", resumed=True)
    assert wrong(*KILLED, end=(pending, TOLD, REPLAYED, END, Ended())).lost == 1
    behind = Refused(worker="w/a", key="k", kind="previous-failed", message="m")
    assert wrong(*KILLED, end=(behind, REPLAYED, END, Ended())).lost == 0


def test_an_outcome_that_was_told_is_lost_as_an_acceptance_is():
    killed = (Opened(), TOLD, BEGAN, ANSWERED, found(call(ended=True)), Opened())
    assert wrong(*killed, end=(TOLD, REPLAYED, END, Ended())).lost == 1
    assert wrong(*killed).lost == 0


def test_a_recorded_write_that_nobody_performed_is_lost():
    verdict = wrong(Opened(), found(call()), Opened())
    assert verdict.lost == 1
    assert "bank.charge is recorded and was never performed" in verdict.wrong[0]


def test_a_write_is_repeated_once_for_each_crash_that_left_it_open():
    repeated = wrong(*KILLED, BEGAN, ANSWERED)
    assert (repeated.repeated, repeated.wrong) == (1, ())
    again = wrong(*KILLED, BEGAN, found(call()), Opened(), BEGAN, ANSWERED)
    assert (again.repeated, again.wrong) == (2, ())
    twice = wrong(*KILLED, BEGAN, ANSWERED, BEGAN, ANSWERED)
    assert twice.duplicated == 1
    assert "performed 3 times under d, 2 were allowed" in twice.wrong[0]


def test_a_write_that_had_ended_is_not_repeated():
    killed = (Opened(), BEGAN, ANSWERED, found(call(ended=True)), Opened(), BEGAN, ANSWERED)
    assert wrong(*killed).duplicated == 1


def asked_for(times, *, lives=1, setbacks=0, **fields):
    """Of a request that was answered in part by the first process, and repeated so many times by
    `lives` later ones.
    """
    answered = call(ended=True, asked_on=True, **fields)
    kills = (found(answered), Opened()) * lives
    more = found(answered, entries=("a", "b", "c"), verified=True, setbacks=setbacks)
    events = (Opened(), BEGAN, ANSWERED, *kills, *(BEGAN, ANSWERED) * times)
    return wrong(*events, end=(RESUMED, TOLD, REPLAYED, more, Ended()))


@pytest.mark.parametrize(
    ("times", "lives", "setbacks"), [(0, 1, 0), (1, 1, 0), (2, 2, 0), (3, 1, 2), (5, 3, 2)]
)
def test_a_request_is_repeated_for_the_rest_of_its_response_once_a_life_and_setback(
    times, lives, setbacks
):
    verdict = asked_for(times, lives=lives, setbacks=setbacks)
    assert (verdict.duplicated, verdict.repeated, verdict.wrong) == (0, times, ())
    if times:
        once_too_often = asked_for(lives + setbacks + 1, lives=lives, setbacks=setbacks)
        assert once_too_often.duplicated == 1
        allowed = 1 + lives + setbacks
        assert f"{allowed + 1} times under d, {allowed} were allowed" in once_too_often.wrong[0]


def test_a_request_that_must_not_be_repeated_is_not_for_the_rest_of_its_response_either():
    assert asked_for(0, asked=True).wrong == ()
    assert asked_for(1, asked=True, setbacks=3).duplicated == 1


def test_a_request_is_not_repeated_under_the_leave_of_another():
    other = Call(
        index=4, key="o", invocation="k", function="http", type="write-remote", asked_on=True
    )
    killed = (Opened(), BEGAN, ANSWERED, found(call(ended=True), other), Opened(), BEGAN, ANSWERED)
    more = found(call(ended=True), entries=("a", "b", "c"), verified=True, setbacks=9)
    verdict = wrong(*killed, end=(RESUMED, TOLD, REPLAYED, more, Ended()))
    assert verdict.duplicated == 1


def test_an_attempt_without_an_answer_may_be_tried_again():
    failed = EffectEnded(key="d", answered=False)
    verdict = wrong(Opened(), BEGAN, failed, BEGAN, ANSWERED, found(call(ended=True)), Opened())
    assert (verdict.duplicated, verdict.repeated) == (0, 0)


def test_where_the_owner_has_to_be_asked_a_crash_alone_allows_no_repetition():
    opened = (Opened(), BEGAN, found(call(asked=True)), Opened())
    unasked = found(call(ended=True, asked=True), entries=("a", "b", "c"), verified=True)
    end = (RESUMED, TOLD, REPLAYED, unasked, Ended())
    assert wrong(*opened, BEGAN, ANSWERED, end=end).duplicated == 1
    asked = found(call(ended=True, asked=True, begun=1), entries=("a", "b", "c"), verified=True)
    end = (RESUMED, TOLD, REPLAYED, asked, Ended())
    verdict = wrong(*opened, Resolved(worker="w/a", start=3), BEGAN, ANSWERED, end=end)
    assert (verdict.duplicated, verdict.uncertain) == (0, 1)


def test_a_region_that_runs_again_may_repeat_what_it_held():
    region = found(
        call(hidden=True, ended=True), call(ended=True), entries=("a", "b", "c"), verified=True
    )
    killed = (Opened(), BEGAN, ANSWERED, found(call(ended=True)), Opened(), BEGAN, ANSWERED)
    assert wrong(*killed, end=(RESUMED, TOLD, REPLAYED, region, Ended())).wrong == ()


def test_a_write_under_a_key_of_no_call_is_a_duplicate():
    stray = EffectBegan(key="x", function="bank.charge", type="write-remote")
    verdict = wrong(*KILLED, stray)
    assert verdict.duplicated == 1
    assert "which is the key of no call" in verdict.wrong[0]
    reading = EffectBegan(key="x", function="bank.look", type="read-remote")
    assert wrong(*KILLED, reading).wrong == ()


def test_what_a_key_has_twice_is_a_duplicate():
    twice = found(
        call(ended=True), entries=("a", "b", "c"), verified=True, doubles=("key k has 2 outcomes",)
    )
    verdict = wrong(*KILLED, end=(RESUMED, TOLD, REPLAYED, twice, Ended()))
    assert (verdict.duplicated, verdict.wrong) == (1, ("w/a: key k has 2 outcomes",))


def test_a_write_whose_start_was_not_committed_has_left_before_its_cause():
    assert "its start was not committed" in sentences(Opened(), BEGAN, found(), Opened(), BEGAN)


@pytest.mark.parametrize(
    "events",
    [
        (Opened(), TOLD, BEGAN, ANSWERED, found(call(ended=True)), Opened()),
        (Opened(), BEGAN, ANSWERED, found(call(ended=True)), Opened(), RESUMED, Opened()),
    ],
)
def test_an_outcome_does_not_change(events):
    other = Outcome(worker="w/a", key="k", status="completed", wave="2", resumed=True)
    end = (other, REPLAYED, END, Ended())
    assert "key k of w/a was answered" in sentences(*events, end=end)


def test_committed_entries_stay():
    killed = (Opened(), BEGAN, ANSWERED, found(call(), entries=("a", "x")), Opened())
    assert "w/a has not the 2 entries that it had committed" in sentences(*killed)
    other = Found(worker="w/a", id="01", entries=("a", "b", "c"), verified=True)
    assert "w/a is another worker" in sentences(*KILLED, end=(RESUMED, REPLAYED, other, Ended()))
    assert "w/a is gone" in sentences(*KILLED, end=(RESUMED, TOLD, Ended()))


def test_every_worker_replays_to_its_end():
    diverges = Replayed(worker="w/a", entries=5, replayed=4, divergence="at 3")
    assert "w/a diverges: at 3" in sentences(*KILLED, end=(RESUMED, diverges, END, Ended()))
    nothing = Replayed(worker="w/a", entries=5, replayed=0)
    assert "replayed nothing of 5" in sentences(*KILLED, end=(RESUMED, nothing, END, Ended()))
    assert "w/a was not replayed" in sentences(*KILLED, end=(RESUMED, END, Ended()))
    trouble = Trouble(kind="divergence", message="m")
    assert "divergence: m" in sentences(*KILLED, trouble)


def test_a_process_that_ended_otherwise_is_all_that_is_told():
    assert wrong(*KILLED, end=(), failure="exit code 1").wrong == ("exit code 1",)


def test_differences_from_undisturbed_runs_count():
    lost = Difference(Label("key k of w/a", "effect 1"), None, "f")
    more = Difference(Label("key k of w/a", "effect 2"), "f", None)
    other = Difference(Label("key k of w/a", "answer"), "1", "2")
    case = Case("c", (), 1, (*KILLED, RESUMED, TOLD, REPLAYED, END, Ended()))
    verdict = judge(case, [lost, more, other])
    assert (verdict.lost, verdict.duplicated, len(verdict.wrong)) == (1, 1, 3)
