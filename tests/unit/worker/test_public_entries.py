import pytest

from executor.host.golem.oplogs import TABLES
from executor.services.components import RevisionRow, deployment
from executor.wasm.check import canonical
from executor.wasm.wit import parse_function
from executor.worker.public_entries import Beside, Subject, public_entry
from executor.worker.public_oplogs import SLICE_BYTES, SLICE_ENTRIES, PublicOplogs
from executor.worker.rows import delete_rows, read_status
from oplog.codec import encode_value
from oplog.engine import Batch
from oplog.entry import (
    Create,
    End,
    InvocationFinished,
    InvocationStarted,
    Log,
    Outcome,
    PendingInvocation,
    Raw,
    Start,
)
from oplog.memory_engine import MemoryEngine
from tests.support.executors import write_oplog
from tests.unit.oplog.samples import AT, SAMPLES

OPLOG_ENTRY = TABLES[0].wit.types["oplog-entry"]
ADD = "demo:adder/api.{add}"
NOW = "wasi:clocks/wall-clock.now"
SUBJECT = Subject(
    id=bytes(range(16)),
    name="adder/w",
    component_id="8d2f9c1e-0000-4000-8000-000000000001",
    component_bytes=5,
    exports={ADD: parse_function("f: func(n: u8) -> option<u8>")[1]},
)
LATE = {"seconds": 77, "nanoseconds": 0}
UNSEEN = {
    *("end", "cancelled", "set-idempotence-mode", "completion-delivered", "completion-discarded"),
    *("resumed", "decision", "invocation-finished", "host-stream-frame"),
}
"""Those of the samples that a guest is not told of; a `decision` and an exit among them."""


def raw(value):
    return Raw(encode_value(value))


def seen(entry, **beside):
    value = public_entry(SUBJECT, entry, Beside(**beside))
    canonical(OPLOG_ENTRY, value, where="oplog-entry")
    return value


@pytest.mark.parametrize("name", SAMPLES)
def test_every_kind_of_entry_is_one_that_the_interface_has_or_is_left_out(name):
    value = public_entry(SUBJECT, SAMPLES[name], Beside())
    kind = name.split(",")[0]
    assert (value is None) == (kind in UNSEEN and name.count("result") + name.count("fail") == 0)
    if value is not None:
        canonical(OPLOG_ENTRY, value, where=name)


def test_values_of_exported_functions_have_the_types_of_the_component():
    started = seen(InvocationStarted(at=AT, key="k", function=ADD, arguments=raw([7])))
    assert started.payload["request"][0]["nodes"][0].case == "prim-u8"
    pending = seen(PendingInvocation(at=AT, key="k", function=ADD, arguments=raw([7])))
    assert pending.payload["invocation"].payload["input"][0]["nodes"][0].case == "prim-u8"
    finished = InvocationFinished(at=AT, outcome=Outcome(result=raw(8)))
    nodes = seen(finished, function=ADD).payload["response"]["nodes"]
    assert [node.case for node in nodes] == ["option-value", "prim-u8"]
    assert seen(finished).payload["response"]["nodes"][0].case == "prim-u64"


def test_a_call_of_the_host_has_the_types_of_its_interface_and_the_answer_of_its_end():
    start = Start(at=AT, function=NOW, function_type="read-local", request=raw([]))
    end = End(at=AT, start_index=4, response=raw({"seconds": 1, "nanoseconds": 2}))
    answered = seen(start, end=end).payload
    assert [node.case for node in answered["response"]["nodes"]] == [
        *("record-value", "prim-u64", "prim-u32"),
    ]
    assert seen(start).payload["response"]["nodes"] == []
    foreign = Start(at=AT, function="demo:bank/api.charge", function_type="write-remote")
    other = seen(foreign, end=End(at=AT, start_index=4, response=raw({"ok": "r"}))).payload
    assert [node.case for node in other["response"]["nodes"]] == ["record-value", "prim-string"]


def test_large_values_and_answers_that_are_oplogs_are_left_out():
    large = InvocationStarted(at=AT, key="k", function=ADD, arguments=raw(["x" * 70_000]))
    assert seen(large).payload["request"] == []
    own = "golem:api/oplog.[method]get-oplog.get-next"
    start = Start(at=AT, function=own, function_type="read-remote", request=raw([{"handle": 1}]))
    end = End(at=AT, start_index=4, response=raw({"entries": [], "next": 0}))
    assert seen(start, end=end).payload["response"]["nodes"] == []


# -- slices ----------------------------------------------------------------------------------------


def store(*entries, worker_id=bytes(16)):
    engine = MemoryEngine()
    revision = RevisionRow(
        component="adder",
        component_id=SUBJECT.component_id,
        revision=0,
        digest="ab" * 32,
        size_bytes=5,
        deployed_at=AT,
        imports=(),
        exports=(f"{ADD}: func(n: u8) -> option<u8>",),
    )
    assert engine.write([deployment(revision, {})]) == [None]
    create = Create(at=AT, name="adder/w", component="adder", component_id=SUBJECT.component_id)
    write_oplog(engine, worker_id, list(enumerate((create, *entries), 1)))
    return engine


def indices(found):
    return [index for index, _ in found.entries]


def test_slices_follow_one_another_to_the_end_that_was_asked_for():
    engine = store(*(Log(at=AT, level="info", text=f"{n}") for n in range(120)))
    oplogs = PublicOplogs(engine)
    oplog, last = oplogs.end("adder", "w")
    assert (oplog, last) == (bytes(16).hex(), 121)
    first, read = 1, []
    while first:
        found = oplogs.read(oplog, first, last - 1)
        assert len(found.entries) <= SLICE_ENTRIES
        read += indices(found)
        first = found.next
    assert read == list(range(1, last))


def test_much_in_few_entries_ends_a_slice():
    text = "x" * 60_000
    engine = store(
        *(
            InvocationStarted(at=AT, key=f"{n}", function="f", arguments=raw([text]))
            for n in range(5)
        )
    )
    found = PublicOplogs(engine).read(bytes(16).hex(), 2, 6)
    assert len(found.entries) == SLICE_BYTES // 60_000 + 1
    assert found.next == 2 + len(found.entries)


def test_a_call_is_found_once_by_what_its_start_or_its_end_says():
    start = Start(at=AT, function=NOW, function_type="read-local", request=raw([]))
    between = [Log(at=AT, level="info", text="-")] * 20
    engine = store(start, *between, End(at=AT, start_index=2, response=raw(LATE)))
    oplogs = PublicOplogs(engine)

    def found(text):
        return oplogs.search(bytes(16).hex(), 1, 23, text)

    assert indices(found("seconds:77")) == [2]
    assert indices(found("wall-clock OR seconds:77")) == [2]
    assert indices(found("kind:create")) == [1]
    assert found("nothing-like-it").next == 0


def test_a_search_that_finds_nothing_says_where_it_goes_on():
    engine = store(*[Log(at=AT, level="info", text="-")] * 2_500, Log(at=AT, level="warn"))
    oplogs = PublicOplogs(engine)
    first, looks = 1, []
    while first:
        found = oplogs.search(bytes(16).hex(), first, 2_502, "level:warn")
        looks.append(indices(found))
        first = found.next
    assert looks == [[], [], [2_502]]


def test_the_oplog_of_a_deleted_worker_has_no_more_entries_though_another_has_its_name():
    engine = store(Log(at=AT, level="info"))
    oplogs = PublicOplogs(engine)
    oplog, last = oplogs.end("adder", "w")
    status = read_status(engine, bytes(16))
    rows = delete_rows(engine, bytes(16), status)
    assert engine.write([Batch(rows=tuple(rows), deletes=(bytes(16),))]) == [None]
    assert oplogs.end("adder", "w") == ("", 0)
    create = Create(at=AT, name="adder/w", component="adder", component_id=SUBJECT.component_id)
    write_oplog(engine, bytes(15) + b"\1", [(1, create)])
    assert oplogs.end("adder", "w") == ((bytes(15) + b"\1").hex(), 1)
    assert (oplogs.read(oplog, 1, last).entries, oplogs.read(oplog, 1, last).next) == ([], 0)
