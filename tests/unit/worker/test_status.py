"""What each kind of entry makes of a worker's status."""

import pytest

from executor.worker.status import REFUSING, STATES, Status, fold, request_digest
from oplog.codec import encode_value
from oplog.entry import (
    Create,
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
    Start,
)

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
