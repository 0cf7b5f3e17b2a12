"""A value of a committed entry that cannot be read any more: whoever meets it names the worker and
the entry and says what to do, and every other worker goes on.
"""

import json
import re

import lmdb
import pytest
from msgspec.structs import replace

from executor.cli.app import main
from executor.cli.output import exit_code
from executor.worker.rows import read_worker_id
from oplog.codec import decode_entry, encode_entry
from oplog.entry import End, InvocationFinished, InvocationStarted, PendingInvocation, Raw, Start
from oplog.keys import entry_key
from oplog.lmdb_engine import LmdbEngine
from tests.support import guests
from tests.support.terminals import Ended

NO_TEXT = Raw(b"\xa2\xff\xfe")
"""A string of two bytes that are no UTF-8: an entry holds it as it is, and nobody can read it."""
NO_VALUE = Raw(b"\xc1")
OTHER = Raw(b"\x93\x01\x02\x03")
"""A value, and of another type than any that it stands for."""

WORKER = "counter/alice"
INVOKE = ("invoke", WORKER, "charge-many", '"bob"', "2", "--key", "k1")

HOST = """
from executor import Ok, host_function

@host_function("demo:bank/api", "charge: func(who: string, cents: u64) -> result<string, string>",
               type="write-remote")
def charge(call, who, cents):
    return Ok(who)
"""


@pytest.fixture
def shem(tmp_path, monkeypatch, capfdbinary):
    """Runs a command in this process, on a store with one worker that did something."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SHEM_DATA", raising=False)

    def run(*arguments):
        code = main(arguments)
        out, err = capfdbinary.readouterr()
        return Ended(code, out.decode(), err.decode())

    (tmp_path / "damaged_bank.py").write_text(HOST)
    (tmp_path / "counter.wasm").write_bytes(guests.counter_component())
    assert run("deploy", "counter.wasm", "--host", "damaged_bank:charge").code == 0
    assert run(*INVOKE).code == 0
    assert run("invoke", WORKER, "add", "2").code == 0
    return run


def damage(store, kind, field, value):
    """Replaces a value of the worker's first entry of that kind; answers its index."""
    engine = LmdbEngine.open(store)
    worker_id = read_worker_id(engine, WORKER)
    last = engine.last_index(worker_id)
    engine.close()
    with (
        lmdb.open(str(store), max_dbs=64, map_size=1 << 40) as environment,
        environment.begin(write=True) as transaction,
    ):
        table = environment.open_db(b"oplog", txn=transaction)
        for index in range(1, last + 1):
            key = entry_key(worker_id, index)
            entry = decode_entry(transaction.get(key, db=table))
            if isinstance(entry, kind):
                if field == "outcome":
                    value = replace(entry.outcome, result=value)
                damaged = encode_entry(replace(entry, **{field: value}))
                assert transaction.put(key, damaged, db=table)
                return index
    raise AssertionError(f"no {kind}")


def test_a_damaged_value_that_lies_beside_the_oplog_is_named_by_its_entry(shem, tmp_path):
    large = f'"{"y" * 70_000}"'
    asked = ("invoke", WORKER, "charge-many", large, "1", "--key", "k2")
    assert shem(*asked).code == 0
    with (
        lmdb.open(str(tmp_path / ".shem"), max_dbs=64, map_size=1 << 40) as environment,
        environment.begin(write=True) as transaction,
    ):
        table = environment.open_db(b"payloads", txn=transaction)
        contents = [(k, v) for k, v in transaction.cursor(table) if b"y" * 70_000 in bytes(v)]
        for digest, content in contents:
            damaged = bytes(content).replace(b"yy", b"yz", 1)
            assert transaction.put(bytes(digest), damaged, db=table)
    for command in (("oplog", WORKER), ("replay", WORKER), ("files", WORKER)):
        ran = shem(*command)
        assert ran.code == 5
        said = ran.stderr.splitlines()[-1]
        assert re.fullmatch(
            rf"shem: entry \d+ is damaged: payload [0-9a-f]+ is damaged.*: {WORKER}: restore .*",
            said,
        )
    assert shem("invoke", "counter/bob", "add", "1").stdout == "1\n"


@pytest.mark.parametrize("value", [NO_TEXT, NO_VALUE, OTHER], ids=["no text", "no value", "other"])
@pytest.mark.parametrize(
    ("kind", "field", "commands"),
    [
        (Start, "request", ["oplog", "search", "replay"]),
        (End, "response", ["oplog", "search", "replay", "crash", "files", "go on"]),
        (InvocationStarted, "arguments", ["oplog", "search", "replay", "crash", "go on"]),
        (PendingInvocation, "arguments", ["oplog", "search"]),
        (InvocationFinished, "outcome", ["oplog", "search", "again"]),
    ],
)
def test_whoever_meets_a_damaged_value_names_worker_and_entry(
    shem, tmp_path, kind, field, commands, value
):
    index = damage(tmp_path / ".shem", kind, field, value)
    lines = {
        "oplog": ("oplog", WORKER),
        "search": ("oplog", WORKER, "--search", "zebra"),
        "replay": ("replay", WORKER),
        "crash": ("crash", WORKER),
        "files": ("files", WORKER),
        "go on": ("invoke", WORKER, "add", "1", "--key", "k9"),
        "again": INVOKE,
    }
    for command in commands:
        if value is OTHER and command in {"oplog", "search"}:
            continue  # it can be read: what it stands for says nothing there
        ran = shem(*lines[command], "--json")
        error = json.loads(ran.stderr.splitlines()[-1] if ran.stderr else ran.stdout)
        error = error.get("error", error)
        if found := error.get("divergence"):
            assert (found["index"], ran.code) == (index, 5)
            continue
        assert error["kind"] in {"store-corrupt", "divergence"}, (command, error)
        assert ran.code == exit_code(error["kind"])
        assert error["where"] == WORKER
        named = f"entry {index} is damaged: ", f"to the call at entry {index - 1} is damaged: "
        assert any(name in error["message"] for name in named), (command, error)
        assert error["hint"]
    assert shem("invoke", "counter/bob", "add", "1").stdout == "1\n"
