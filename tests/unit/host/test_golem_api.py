"""`golem:api/host` and `golem:rpc/types` by themselves; what marks mean is tested with a worker."""

import math

import pytest

from executor.errors import GuestError, LimitError
from executor.host.golem.api import NOT_OFFERED
from executor.wasm.values import Variant
from oplog.entry import NoOp, SetIdempotenceMode, SetPersistenceLevel, SetRetryPolicy
from tests.support.host_calls import IDENTITY, TABLES

HOST = "golem:api/host"
POLICY = {
    "max-attempts": 2,
    "min-delay": 1_000_000_000,
    "max-delay": 2**64 - 1,
    "multiplier": 1.5,
    "max-jitter-factor": None,
}
DEFAULT = {
    "max-attempts": 3,
    "min-delay": 100_000_000,
    "max-delay": 1_000_000_000,
    "multiplier": 3.0,
    "max-jitter-factor": 0.15,
}


def test_a_policy_is_read_as_it_was_set(guest):
    assert guest.call(f"{HOST}.get-retry-policy") == DEFAULT
    guest.call(f"{HOST}.set-retry-policy", POLICY)
    assert guest.call(f"{HOST}.get-retry-policy") == POLICY
    assert [type(mark) for mark in guest.session.marks] == [SetRetryPolicy]


@pytest.mark.parametrize("name", ["multiplier", "max-jitter-factor"])
@pytest.mark.parametrize("factor", [math.nan, math.inf, -1.0])
def test_a_policy_whose_delays_are_no_times_is_refused(make_guest, name, factor):
    guest = make_guest()
    with pytest.raises(GuestError, match="finite and not negative"):
        guest.call(f"{HOST}.set-retry-policy", POLICY | {name: factor})
    assert guest.session.marks == []


def test_modes_and_levels_are_read_as_they_were_set(guest):
    assert guest.call(f"{HOST}.get-idempotence-mode") is True
    guest.call(f"{HOST}.set-idempotence-mode", False)
    assert guest.call(f"{HOST}.get-idempotence-mode") is False
    for level in ("smart", "persist-remote-side-effects", "persist-nothing"):
        guest.call(f"{HOST}.set-oplog-persistence-level", Variant(level))
        assert guest.call(f"{HOST}.get-oplog-persistence-level") == Variant(level)
    assert [type(mark) for mark in guest.session.marks] == [
        SetIdempotenceMode,
        *[SetPersistenceLevel] * 3,
    ]


def test_in_a_zone_marks_leave_no_entry(guest):
    assert guest.call(f"{HOST}.get-oplog-index") == 1
    guest.call(f"{HOST}.set-oplog-persistence-level", Variant("persist-nothing"))
    assert guest.call(f"{HOST}.get-oplog-index") == 2
    assert guest.call(f"{HOST}.mark-begin-operation") == 2
    guest.call(f"{HOST}.mark-end-operation", 2)
    guest.call(f"{HOST}.set-retry-policy", POLICY)
    guest.call(f"{HOST}.set-oplog-persistence-level", Variant("persist-nothing"))
    assert [type(mark) for mark in guest.session.marks] == [NoOp, SetPersistenceLevel]


def test_a_worker_knows_who_it_is(guest):
    found = guest.call(f"{HOST}.get-self-metadata")
    uuid = found["worker-id"]["component-id"]["uuid"]
    assert guest.call("golem:rpc/types.uuid-to-string", uuid) == IDENTITY.component_id
    assert found["worker-id"]["worker-name"] == "worker"
    assert (found["component-version"], found["retry-count"]) == (3, 2)
    assert found["status"] == "running"


def test_a_uuid_is_two_halves(guest):
    text = "00000000-0000-0001-ffff-ffffffffffff"
    uuid = guest.ok("golem:rpc/types.parse-uuid", text)
    assert uuid == {"high-bits": 1, "low-bits": 2**64 - 1}
    assert guest.call("golem:rpc/types.uuid-to-string", uuid) == (
        "00000000-0000-0001-ffff-ffffffffffff"
    )
    assert "is not a UUID" in guest.err("golem:rpc/types.parse-uuid", "one")


@pytest.mark.parametrize("name", NOT_OFFERED)
def test_what_is_not_offered_says_so(name):
    (row,) = [row for row in TABLES[HOST].functions if row.name == name]
    with pytest.raises(LimitError) as refusal:
        row.call(None)
    assert refusal.value.message.startswith(f"{HOST}.{name} is not offered yet")
