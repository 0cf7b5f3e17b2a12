import json
from typing import NamedTuple

import pytest

from executor.cli.app import main
from executor.cli.command_line import CommandLine
from executor.records import ComponentRecord, RevisionRecord, WorkerRecord
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
from tests.support.fake_executor import FakeStore

AT_NS = 1_700_000_000_123_456_789
AT_TEXT = "2023-11-14T22:13:20.123456789Z"


class Ran(NamedTuple):
    """What one run of the command line left behind."""

    code: int
    stdout: str
    stderr: str

    @property
    def json(self):
        return json.loads(self.stdout)

    @property
    def error(self):
        return json.loads(self.stderr)


@pytest.fixture
def store() -> FakeStore:
    return FakeStore()


@pytest.fixture
def shem(store, tmp_path, monkeypatch, capfdbinary):
    """Runs `shem` with these arguments on the fake store, in a folder where `.shem` exists."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SHEM_DATA", raising=False)
    (tmp_path / ".shem").mkdir()

    def run(*arguments: str) -> Ran:
        line = CommandLine(store.open_executor, store.open_reader)
        code = main(arguments, line)
        out, err = capfdbinary.readouterr()
        return Ran(code, out.decode(), err.decode())

    return run


@pytest.fixture
def alice(store) -> WorkerRecord:
    """A worker `counter/alice` with one finished invocation of key k1."""
    worker = WorkerRecord(
        worker="counter/alice",
        id="00112233445566778899aabbccddeeff",
        component="counter",
        revision=0,
        status="idle",
        env={"COLOUR": "blue"},
        args=("counter", "-v"),
        allow_net=("example.com:443",),
        pending=(),
        current_key=None,
        entries=0,
        bytes=812,
        retries=0,
        last_error=None,
        created_at=AT_NS,
        loaded=False,
    )
    store.workers["counter/alice"] = worker
    add = "demo:counter/api.{add}"
    now = "wasi:clocks/wall-clock.now"
    for entry in (
        Create(at=AT_NS, name="counter/alice", component="counter", env={"COLOUR": "blue"}),
        PendingInvocation(at=AT_NS, key="k1", function=add, arguments=Raw(b"\x91\x05")),
        InvocationStarted(at=AT_NS, key="k1", function=add, arguments=Raw(b"\x91\x05")),
        Start(at=AT_NS, function=now, function_type="read-local", request=Raw(b"\x90")),
        End(at=AT_NS, start_index=4, response=Raw(b"\xc4\x02\x00\xff")),
        Log(at=AT_NS, level="stdout", text="added\n\x1b[31m5"),
        InvocationFinished(at=AT_NS, outcome=Outcome(result=Raw(b"\x05"))),
    ):
        store.append("counter/alice", entry)
    return worker


@pytest.fixture
def counter(store) -> ComponentRecord:
    component = ComponentRecord(
        component="counter",
        id="8d2f9c1e-0000-4000-8000-000000000001",
        revisions=(RevisionRecord(revision=0, digest="ab" * 32, bytes=1234, deployed_at=AT_NS),),
        imports=("wasi:clocks/wall-clock@0.2.0",),
        exports=("demo:counter/api.{add}: func(n: u32) -> u32",),
    )
    store.components["counter"] = component
    return component
