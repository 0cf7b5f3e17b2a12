"""`golem:api/host` and `golem:rpc/types` by themselves; what marks mean is tested with a worker."""

import math

import pytest

from executor.errors import GuestError, LimitError
from executor.host.golem import promises
from executor.host.golem.api import NOT_OFFERED
from executor.host.golem.others import matches
from executor.host.golem.rpc import uuid_record
from executor.host.state import FoundWorker
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


def test_a_promise_needs_an_entry_to_be_named_by(guest):
    """In a zone that persists nothing a call has no index."""
    with pytest.raises(GuestError) as refusal:
        promises.create(guest.state, 0)
    assert "nothing is persisted" in refusal.value.message


OTHER = "0b3c2a8e-5a35-4f0a-9f0c-7f2a4b7d1e56"
OTHER_ID = {"uuid": uuid_record(OTHER)}


class FakeDirectory:
    """One component, `shop`, with so many idle workers, and the one that asks."""

    def __init__(self, count=120):
        self.names = sorted([f"w-{n:03}" for n in range(count)])

    def component_id(self, name):
        return OTHER if name == "shop" else None

    def component_name(self, component_id):
        return "shop" if component_id == OTHER else None

    def worker(self, component, name):
        return found(name) if component == "shop" and name in self.names else None

    def workers(self, component, after, limit):
        assert component == "shop"
        return [found(name) for name in self.names if name > after][:limit]


def found(name, **fields):
    fields = {
        "status": "uncertain",
        "revision": 1,
        "environment": [("A", name)],
        "arguments": ["program", name],
    } | fields
    return FoundWorker(component_id=OTHER, name=name, retry_count=0, created_at=5_000_000, **fields)


def enumerated(guest, wanted=None, component_id=OTHER_ID):
    number = guest.call(f"{HOST}.[constructor]get-workers", component_id, wanted, True)
    names = []
    while (page := guest.call(f"{HOST}.[method]get-workers.get-next", number)) is not None:
        names.append([worker["worker-id"]["worker-name"] for worker in page])
    assert guest.call(f"{HOST}.[method]get-workers.get-next", number) is None
    guest.drop(HOST, "get-workers", number)
    return names


def test_workers_are_enumerated_page_by_page(guest):
    guest.state.directory = FakeDirectory()
    pages = enumerated(guest)
    assert [len(page) for page in pages] == [50, 50, 20]
    assert [name for page in pages for name in page] == guest.state.directory.names
    wanted = {"filters": [{"filters": [text("name", "like", "-11")]}]}
    assert enumerated(guest, wanted) == [[f"w-{n}" for n in range(110, 120)]]
    assert enumerated(guest, component_id={"uuid": uuid_record(IDENTITY.component_id)}) == []


def text(case, comparator, value):
    return Variant(case, {"comparator": comparator, "value": value})


def env(comparator, value):
    return Variant("env", {"name": "A", "comparator": comparator, "value": value})


@pytest.mark.parametrize(
    ("wanted", "fits"),
    [
        ([[]], True),
        ([], False),
        ([[text("name", "equal", "a")]], True),
        ([[text("name", "not-equal", "a")]], False),
        ([[text("name", "equal", "b")], [text("version", "equal", 1)]], True),
        ([[text("name", "equal", "a"), text("version", "less", 1)]], False),
        ([[text("version", "greater-equal", 1), text("version", "less-equal", 1)]], True),
        ([[text("status", "equal", "suspended")]], True),
        ([[text("status", "less", "idle")]], False),
        ([[text("created-at", "greater", 4)]], True),
        ([[text("created-at", "greater", 5)]], False),
        ([[env("like", "a")]], True),
        ([[env("not-like", "a")]], False),
        ([[Variant("env", {"name": "B", "comparator": "not-equal", "value": "a"})]], False),
    ],
)
def test_a_filter_is_any_of_several_that_hold_as_a_whole(wanted, fits):
    any_of = {"filters": [{"filters": every} for every in wanted]}
    assert matches(found("a"), any_of) == fits


def test_names_are_resolved_and_metadata_read(guest):
    guest.state.directory = FakeDirectory(2)
    worker_id = {"component-id": OTHER_ID, "worker-name": "w-001"}
    assert guest.call(f"{HOST}.resolve-component-id", "shop") == OTHER_ID
    assert guest.call(f"{HOST}.resolve-component-id", "none") is None
    assert guest.call(f"{HOST}.resolve-worker-id", "shop", "w-001") == worker_id
    assert guest.call(f"{HOST}.resolve-worker-id", "none", "w-001") is None
    assert guest.call(f"{HOST}.resolve-worker-id-strict", "shop", "w-001") == worker_id
    assert guest.call(f"{HOST}.resolve-worker-id-strict", "shop", "w-002") is None
    read = guest.call(f"{HOST}.get-worker-metadata", worker_id)
    assert (read["worker-id"], read["status"]) == (worker_id, "suspended")
    nobody = worker_id | {"worker-name": "w-002"}
    assert guest.call(f"{HOST}.get-worker-metadata", nobody) is None
