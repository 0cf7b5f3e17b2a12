import msgspec
import pytest

from executor.errors import (
    BadArguments,
    Busy,
    ComponentRejected,
    Divergence,
    GuestTrap,
    InternalError,
    KeyConflict,
    PreviousFailed,
    ShemError,
    StoreError,
    WorkerNotFound,
)
from executor.records import ComponentRecord, Done, Rebuild, RevisionRecord, time_text
from executor.server import wire
from executor.server.shapes import component_json, done_json, rebuild_json
from oplog.errors import OplogCorruptError

STDERR = "it broke\n"


def previous_failed():
    error = PreviousFailed("an earlier one failed", where="a/b", hint="delete it")
    error.stderr = STDERR
    return error


@pytest.mark.parametrize(
    "error",
    [
        WorkerNotFound("no worker", where="store", hint="look"),
        KeyConflict("used", where="a/b", hint="take another"),
        BadArguments("column 3: no", where="add", column=3, expected="u32"),
        ComponentRejected("two problems", where="x.wasm", imports=("a: missing", "b: other")),
        previous_failed(),
        Divergence(worker="a/b", index=7, recorded="this", requested="that"),
        StoreError("no room", kind="disk-full", where="a/b", hint="make space"),
        Busy("in use", where="a"),
        InternalError("an invariant broke"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_arrives_as_it_was_raised(error):
    shape = msgspec.json.decode(msgspec.json.encode(wire.error_shape(error, "a/b")))
    arrived = wire.error_of(shape)
    assert type(arrived) is type(error)
    assert vars(arrived) == vars(error)
    assert str(arrived) == str(error)


def test_any_other_exception_arrives_as_internal_or_as_the_stores():
    arrived = wire.error_of(wire.error_shape(ValueError("what"), "a/b"))
    assert isinstance(arrived, InternalError)
    assert str(arrived) == "ValueError: what"
    corrupt = wire.error_of(wire.error_shape(OplogCorruptError("bad bytes"), "a/b"))
    assert isinstance(corrupt, StoreError)
    assert corrupt.kind == "store-corrupt"


def test_every_kind_of_error_has_a_class_and_every_refusal_a_status():
    for kind, found in wire.KINDS.items():
        assert issubclass(found, ShemError)
        assert found.kind == kind
    assert {GuestTrap.kind, "cancelled", "interrupted"} <= set(wire.KINDS)
    assert set(wire.STATUS) <= set(wire.KINDS)


def test_records_arrive_as_they_were():
    done = Done(worker="a/b", done=True, status="idle")
    assert wire.record_of(done_json(done), Done) == done
    rebuild = Rebuild(worker="a/b", entries=9, replayed=4, ms=1.5, divergence=None)
    assert wire.record_of(rebuild_json(rebuild), Rebuild) == rebuild
    revision = RevisionRecord(revision=0, digest="ab", bytes=3, deployed_at=10**18 + 1)
    component = ComponentRecord(
        component="a", id="1", revisions=(revision,), imports=(), exports=("f: func()",)
    )
    assert wire.record_of(component_json(component), ComponentRecord) == component


@pytest.mark.parametrize("at_ns", [0, 1, 999_999_999, 1_700_000_000_123_456_789, -1])
def test_times_arrive_to_the_nanosecond(at_ns):
    assert wire.time_ns(time_text(at_ns)) == at_ns
