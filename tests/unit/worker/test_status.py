"""What each kind of entry makes of a worker's status."""

import pytest

from executor.replay.regions import HiddenRanges, Regions
from executor.worker.status import (
    REFUSING,
    RESTING,
    STATES,
    Status,
    fold,
    forgotten,
    request_digest,
)
from oplog.codec import encode_value
from oplog.entry import (
    BeginAtomicRegion,
    Create,
    Decision,
    End,
    Error,
    Failure,
    InvocationFinished,
    InvocationStarted,
    Jump,
    Log,
    Outcome,
    PendingInvocation,
    Raw,
    Region,
    Revert,
    SetPersistenceLevel,
    Start,
)
from tests.support.executors import fold_reverted

AT = 5
CREATE = Create(
    at=AT, name="c/w", component="c", component_id="id", revision=2, env={"A": "1"}, limits={"m": 1}
)
PENDING = PendingInvocation(at=AT, key="k", function="f")
STARTED = InvocationStarted(at=AT, key="k", function="f")
START = Start(at=AT, function="h", function_type="read-local")


def error(retry_from, retry_at=None):
    return Error(at=AT, retry_from=retry_from, kind="guest-error", details="no", retry_at=retry_at)


def finished(**outcome):
    return InvocationFinished(at=AT, outcome=Outcome(**outcome))


FAILED = finished(failure=Failure(kind="guest-trap", message="unreachable"))
DONE = finished(result=Raw(b"\x07"))


def folded(*entries):
    status = Status()
    for index, entry in enumerate(entries, 1):
        fold(status, index, entry)
    return status


def test_a_new_worker_is_idle_and_knows_what_it_was_created_with():
    status = folded(CREATE)
    assert (status.state, status.last_index, status.created_at) == ("idle", 1, AT)
    assert (status.name, status.component, status.component_id) == ("c/w", "c", "id")
    assert (status.revision, status.env, status.limits) == (2, {"A": "1"}, {"m": 1})


@pytest.mark.parametrize(
    ("entries", "state", "pending"),
    [
        ((PENDING,), "idle", 1),
        ((PENDING, STARTED), "running", 0),
        ((PENDING, STARTED, START, error(4, retry_at=9)), "retrying", 0),
        ((PENDING, STARTED, START, error(4)), "running", 0),
        ((PENDING, STARTED, START, error(4, retry_at=9), PENDING), "retrying", 1),
        ((PENDING, STARTED, START, error(4, 9), End(at=AT, start_index=4)), "running", 0),
        ((PENDING, STARTED, error(3, 9), Log(at=AT, level="stdout")), "running", 0),
        ((PENDING, STARTED, DONE), "idle", 0),
        ((PENDING, STARTED, FAILED), "failed", 0),
        ((PENDING, STARTED, finished(exit=0)), "exited", 0),
        ((PENDING, STARTED, PENDING, finished(exit=3)), "exited", 1),
    ],
)
def test_the_state_after_a_run_of_entries(entries, state, pending):
    status = folded(CREATE, *entries)
    assert (status.state, status.pending) == (state, pending)
    assert state in STATES
    assert (status.current is not None) == (state in {"running", "retrying"})


def test_attempts_count_by_the_call_that_failed_and_end_with_the_next_invocation():
    status = folded(CREATE, PENDING, STARTED, START, error(4, 9), error(4, 9), error(3, 9))
    assert status.attempts == {4: 2, 3: 1}
    assert status.current.attempts == 4
    assert (status.retry_at, status.last_error.message) == (9, "no")
    fold(status, 8, DONE)
    assert (status.retry_at, status.last_error) == (0, None)
    fold(status, 9, PENDING)
    fold(status, 10, STARTED)
    assert status.attempts == {}


def test_attempts_of_calls_that_have_ended_are_forgotten_and_retries_are_not():
    """A worker may meet a failure an hour for years, in one invocation."""
    failures = (
        Error(at=AT, retry_from=index, kind="e", retry_at=9, oldest_open=index - 1)
        for index in range(5, 10_000)
    )
    status = folded(CREATE, PENDING, STARTED, error(3, 9), *failures)
    assert status.attempts == {3: 1, 9_998: 1, 9_999: 1}
    assert status.retries == 9_996
    fold(status, 10_001, DONE)
    fold(status, 10_002, PENDING)
    fold(status, 10_003, STARTED)
    assert (status.attempts, status.retries) == ({}, 0)


def test_a_failure_is_kept_with_its_key_and_refuses():
    status = folded(CREATE, PENDING, STARTED, FAILED)
    assert (status.failed_key, status.last_error.message) == ("k", "unreachable")
    assert status.state in REFUSING


def test_a_change_tells_what_became_of_a_key():
    status = folded(CREATE)
    queued = fold(status, 2, PENDING)
    assert (queued.queued, queued.key.started_index) == (True, 0)
    started = fold(status, 3, STARTED)
    assert (started.queued, started.key.started_index, started.key.attempts) == (False, 3, 1)
    assert fold(status, 4, START) is None
    assert fold(status, 5, Log(at=AT, level="stdout")) is None
    ended = fold(status, 6, finished(exit=3))
    assert (ended.key.finished_index, ended.key.exit_code, ended.key.logs) == (6, 3, True)
    assert not ended.key.failed
    assert started.key.digest == queued.key.digest == ended.key.digest


def test_cuts_are_kept_with_their_index():
    jump = Jump(at=AT, region=Region(2, 3))
    assert folded(CREATE, PENDING, jump).cuts == [(3, jump)]


def test_a_cut_whose_region_lies_in_a_later_one_is_not_kept():
    first, second = Jump(at=AT, region=Region(4, 5)), Jump(at=AT, region=Region(4, 7))
    status = folded(CREATE, PENDING, STARTED, START, first, START, second)
    assert status.cuts == [(7, second)]


def test_a_revert_stays_where_a_later_jump_goes_back_over_it():
    revert = Revert(at=AT, region=Region(first=5, last=6))
    jump = Jump(at=AT, region=Region(first=4, last=7))
    status = folded(CREATE, PENDING, STARTED, START, error(4), revert, jump)
    assert status.cuts == [(6, revert), (7, jump)]
    assert Regions(status.cuts).hides(5, error(4))


def test_a_decision_makes_the_worker_uncertain_until_its_owner_has_spoken():
    def decided(*choices):
        return folded(CREATE, PENDING, STARTED, START, *(decision(choice) for choice in choices))

    def decision(choice):
        return Decision(at=AT, start_index=4, choice=choice)

    assert (decided("asked").state, decided("asked").decision) == ("uncertain", (4, "asked"))
    assert "uncertain" in RESTING
    for word in ("repeat", "begun", "value"):
        assert (decided("asked", word).state, decided("asked", word).decision) == (
            "running",
            (4, word),
        )
    assert decided("asked", "repeat", "begun", "asked").state == "uncertain"


def test_an_invocation_that_opened_a_region_or_a_zone_is_marked():
    zone = SetPersistenceLevel(at=AT, level="persist-nothing")
    smart = SetPersistenceLevel(at=AT, level="smart")
    for entry, marked in ((BeginAtomicRegion(at=AT), True), (zone, True), (smart, False)):
        status = folded(CREATE, PENDING, STARTED, entry)
        assert status.marked == marked
        fold(status, 5, DONE)
        assert not status.marked


def reverted(first, *entries):
    history = list(enumerate([CREATE, *entries], 1))
    index = len(history) + 1
    history.append((index, Revert(at=AT, region=Region(first, index))))
    return fold_reverted(history)


def test_a_revert_leaves_the_status_of_what_it_leaves():
    failed = (PENDING, STARTED, DONE, PENDING, STARTED, error(6, 9), FAILED)
    status = reverted(6, *failed)
    assert (status.state, status.pending, status.current) == ("idle", 0, None)
    assert (status.last_error, status.attempts, status.last_index) == (None, {}, 9)
    status = reverted(7, *failed)
    assert (status.state, status.current.started_index) == ("running", 6)
    assert reverted(9, *failed).state == "failed"


def test_a_revert_keeps_what_waits_and_takes_back_a_decision():
    asked = Decision(at=AT, start_index=4, choice="asked")
    status = reverted(4, PENDING, STARTED, START, PENDING, asked)
    assert (status.state, status.pending, status.decision) == ("running", 1, (0, ""))


def test_a_revert_gives_back_what_a_jump_inside_it_had_hidden():
    jump = Jump(at=AT, region=Region(4, 5))
    status = reverted(5, PENDING, STARTED, START, jump)
    assert not Regions(status.cuts).hides(4, START)


def test_keys_that_were_started_in_a_reverted_region_are_forgotten():
    ranges = HiddenRanges([Region(5, 9)])
    state = folded(CREATE, PENDING, STARTED).current
    assert not forgotten(state, ranges)
    state.started_index = 6
    assert forgotten(state, ranges)


def test_a_digest_tells_functions_and_canonical_arguments_apart():
    def raw(value):
        return Raw(encode_value(value))

    digests = {
        request_digest(function, raw(arguments))
        for function, arguments in [
            ("f", [1]),
            ("f", [True]),
            ("f", [1.0]),
            ("f", ["1"]),
            ("f", []),
            ("g", [1]),
            ("", [1]),
        ]
    }
    assert len(digests) == 7
    assert {len(digest) for digest in digests} == {16}
