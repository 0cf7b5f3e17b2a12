"""What an oplog says of its remote calls: which may be repeated without a word of their owner."""

import pytest

from executor.torture.calls import HTTP_REQUEST, recorded_calls, setbacks
from oplog.codec import encode_value
from oplog.entry import (
    Decision,
    End,
    Error,
    InvocationStarted,
    Jump,
    Raw,
    Region,
    SetIdempotenceMode,
    Start,
)


def response(*, ended):
    body = {"content": b"", "ended": ended, "trailers": None}
    return {"ok": {"status": 200, "headers": [], "body": body}}


def call_of(method, answer=None, *, idempotent=True, function=HTTP_REQUEST):
    request = Raw(encode_value([method, "http", "peer", "/", [], [None, None, None]]))
    history = [
        (2, InvocationStarted(at=1, key="k", function="f")),
        (3, SetIdempotenceMode(at=1, idempotent=idempotent)),
        (4, Start(at=1, function=function, function_type="write-remote", request=request)),
    ]
    if answer is not None:
        history.append((5, End(at=1, start_index=4, response=Raw(encode_value(answer)))))
    [call] = recorded_calls(bytes(16), history)
    return call


@pytest.mark.parametrize(
    ("method", "idempotent", "asked"),
    [("POST", True, False), ("POST", False, True), ("PUT", False, False), ("DELETE", False, False)],
)
def test_an_owner_is_asked_about_writes_that_are_not_idempotent_with_the_mode_off(
    method, idempotent, asked
):
    assert call_of(method, idempotent=idempotent).asked == asked
    assert call_of(method, idempotent=idempotent, function="bank.charge").asked != idempotent


def test_a_request_is_repeated_for_the_rest_of_a_response_that_did_not_come_whole():
    assert call_of("POST", response(ended=False)).asked_on
    assert not call_of("POST", response(ended=True)).asked_on
    assert not call_of("POST", {"err": {"code": "connection-refused", "message": ""}}).asked_on
    assert not call_of("POST").asked_on
    assert not call_of("POST", response(ended=False), function="bank.charge").asked_on


def test_what_may_cost_an_instance_without_a_crash_is_counted():
    history = [
        (2, InvocationStarted(at=1, key="k", function="f")),
        (3, Error(at=1, retry_from=2, kind="guest-error", details="d", retry_at=2)),
        (4, Jump(at=1, region=Region(first=3, last=4))),
        (5, Decision(at=1, start_index=2, choice="asked")),
    ]
    assert [setbacks(history[:count]) for count in range(5)] == [0, 0, 1, 2, 3]
