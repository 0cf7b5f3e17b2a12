"""A claim matches the next recorded entry or is a divergence that names both."""

import pytest
from msgspec.structs import replace

from executor.errors import Divergence
from executor.replay.claims import (
    SHOWN_VALUE_CHARACTERS_MAX,
    claim_invocation,
    claim_mark,
    claim_outcome,
    claim_start,
    describe,
    same_bytes,
    same_outcome,
    show_value,
)
from executor.replay.cursor import Cursor
from executor.replay.regions import Regions
from oplog.codec import encode_value
from oplog.entry import (
    ABSENT,
    BeginAtomicRegion,
    EndAtomicRegion,
    Failure,
    InvocationFinished,
    InvocationStarted,
    NoOp,
    Outcome,
    Raw,
    SetIdempotenceMode,
    SetPersistenceLevel,
    SetRetryPolicy,
    Start,
)

WORKER = "shop/ann"


def raw(value):
    return Raw(encode_value(value))


RECORDED = Start(
    at=77, function="demo:bank/api.charge", function_type="write-remote", request=raw(["bob", 5])
)
CALL = {
    "function": "demo:bank/api.charge",
    "function_type": "write-remote",
    "request": raw(["bob", 5]),
}


def cursor_of(*entries):
    page = list(enumerate(entries, 1))
    return Cursor(
        lambda first, limit: page[first - 1 : first - 1 + limit],
        first=1,
        target=len(entries),
        regions=Regions(),
    )


def diverged(claim, *arguments, **named):
    with pytest.raises(Divergence) as raised:
        claim(*arguments, **named)
    return raised.value


def test_a_call_takes_its_own_start_and_learns_index_and_time():
    cursor = cursor_of(NoOp(at=1), RECORDED)
    cursor.peek()
    cursor.take()
    assert claim_start(cursor, WORKER, **CALL) == (2, 77)
    assert cursor.peek() is None


def test_a_drained_cursor_answers_nothing_to_every_claim():
    assert claim_start(cursor_of(), WORKER, **CALL) is None
    assert claim_invocation(cursor_of(), WORKER) is None
    assert claim_outcome(cursor_of(), WORKER, Outcome(exit=0)) is None


@pytest.mark.parametrize(
    "other",
    [
        {"function": "demo:bank/api.refund"},
        {"function_type": "read-remote"},
        {"request": raw(["bob", 6])},
        {"request": raw(["bob", 5.0])},
        {"request": raw(["bob", True])},
        {"request": ABSENT},
    ],
    ids=["function", "type", "request", "float for int", "bool for int", "no request"],
)
def test_a_call_that_differs_in_anything_is_a_divergence_and_consumes_nothing(other):
    cursor = cursor_of(RECORDED)
    error = diverged(claim_start, cursor, WORKER, **CALL | other)
    assert (error.worker, error.index, error.kind) == (WORKER, 1, "divergence")
    assert error.recorded == "start demo:bank/api.charge write-remote ['bob', 5]"
    requested = CALL | other
    assert error.requested.startswith(
        f"start {requested['function']} {requested['function_type']} "
    )
    assert f"entry 1: recorded {error.recorded}, requested {error.requested}" in str(error)
    assert cursor.peek() == (1, RECORDED)


def test_a_call_inside_another_call_is_not_taken_for_one_of_the_guest():
    inner = Start(**{name: getattr(RECORDED, name) for name in CALL}, at=1, parent_start=1)
    assert diverged(claim_start, cursor_of(inner), WORKER, **CALL).index == 1


def test_a_call_where_the_invocation_ended_is_a_divergence():
    finished = InvocationFinished(at=1, outcome=Outcome(result=raw(7)))
    error = diverged(claim_start, cursor_of(finished), WORKER, **CALL)
    assert error.recorded == "invocation-finished result 7"


def test_an_invocation_is_claimed_or_a_divergence_says_what_was_left():
    started = InvocationStarted(at=1, key="k", function="f", arguments=raw([1]))
    assert claim_invocation(cursor_of(started), WORKER) == (1, started)
    error = diverged(claim_invocation, cursor_of(RECORDED), WORKER)
    assert error.index == 1
    assert error.recorded.startswith("start demo:bank/api.charge")
    assert "the next invocation" in error.requested


@pytest.mark.parametrize(
    ("outcome", "recorded"),
    [
        (Outcome(result=raw(7)), "result 7"),
        (Outcome(failure=Failure(kind="guest-trap", message="unreachable")), "failure guest-trap"),
        (Outcome(exit=3), "exit 3"),
    ],
    ids=["result", "failure", "exit"],
)
def test_another_outcome_is_a_divergence_and_the_same_is_consumed(outcome, recorded):
    cursor = cursor_of(InvocationFinished(at=9, outcome=outcome))
    error = diverged(claim_outcome, cursor, WORKER, Outcome(result=raw(8)))
    assert error.recorded.startswith(f"invocation-finished {recorded}")
    assert error.requested == "invocation-finished result 8"
    assert claim_outcome(cursor, WORKER, outcome) == 9
    assert cursor.peek() is None


def test_an_outcome_where_the_guest_called_something_is_a_divergence():
    error = diverged(claim_outcome, cursor_of(RECORDED), WORKER, Outcome(result=raw(8)))
    assert error.recorded.startswith("start demo:bank/api.charge")


def test_results_are_compared_as_canonical_bytes_and_failures_by_being_one():
    assert not same_outcome(Outcome(result=raw(1)), Outcome(result=raw(True)))
    assert not same_outcome(Outcome(result=raw(0.0)), Outcome(result=raw(-0.0)))
    assert same_outcome(Outcome(result=raw(float("nan"))), Outcome(result=raw(float("nan"))))
    assert same_outcome(
        Outcome(failure=Failure(kind="guest-trap", message="a")),
        Outcome(failure=Failure(kind="guest-trap", message="b")),
    )
    assert not same_outcome(Outcome(exit=0), Outcome())
    trapped = Outcome(failure=Failure(kind="guest-trap", message="a"))
    assert not same_outcome(trapped, Outcome()), "a function without a result returned"
    assert not same_outcome(Outcome(), trapped)
    assert same_bytes(ABSENT, ABSENT)
    assert not same_bytes(ABSENT, raw(None))


def test_a_value_is_shown_shortly_and_even_if_it_is_none():
    assert show_value(ABSENT) == "()"
    assert show_value(raw("é")) == "'é'"
    long = show_value(raw("x" * 1_000))
    assert len(long) == SHOWN_VALUE_CHARACTERS_MAX + 1
    assert long.endswith("…")


@pytest.mark.parametrize(
    "mark",
    [
        NoOp(at=0),
        BeginAtomicRegion(at=0),
        EndAtomicRegion(at=0, begin_index=5),
        SetIdempotenceMode(at=0, idempotent=False),
        SetPersistenceLevel(at=0, level="smart"),
        SetRetryPolicy(at=0, attempts_max=1, min_delay_ns=1, max_delay_ns=1, multiplier=1.0),
    ],
    ids=lambda mark: type(mark).__name__,
)
def test_a_mark_is_claimed_by_its_equal_and_by_nothing_else(mark):
    cursor = cursor_of(replace(mark, at=9))
    other = EndAtomicRegion(at=0, begin_index=6)
    error = diverged(claim_mark, cursor, WORKER, other)
    assert error.requested == "end-atomic-region begin_index 6"
    assert error.recorded == describe(mark)
    index, at = claim_mark(cursor, WORKER, mark)
    assert (index > 0, at) == (True, 9)
    assert claim_mark(cursor, WORKER, mark) is None
