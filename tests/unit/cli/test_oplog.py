import io
import itertools
import json
import os
import sys
import time

import pytest
from rich.console import Console
from rich.text import Text

from executor.cli import oplog as oplog_command
from executor.cli.app import main
from executor.cli.command_line import CommandLine
from executor.cli.output import wait_while_read
from executor.records import OplogRecord, time_text
from executor.server.shapes import entry_json
from oplog.entry import (
    Create,
    Error,
    Failure,
    InvocationFinished,
    Jump,
    Log,
    Outcome,
    Parent,
    Raw,
    Region,
    Retry,
    RetryRule,
    Start,
    Suspend,
)
from tests.unit.cli.conftest import AT_NS, AT_TEXT


def shape(entry, index=3, hidden=False):
    return entry_json(OplogRecord(index=index, entry=entry, hidden=hidden))


def test_each_entry_is_one_aligned_line(shem, alice):
    ran = shem("oplog", "counter/alice")
    assert (ran.code, ran.stderr) == (0, "")
    at = AT_TEXT
    created = 'counter/alice  component counter revision 0  env {"COLOUR": "blue"}'
    assert ran.stdout.splitlines() == [
        f"    1  {at}  create                {created}",
        f"    2  {at}  pending-invocation    k1  demo:counter/api.{{add}}  [5]",
        f"    3  {at}  invocation-started    k1  demo:counter/api.{{add}}  [5]",
        f"    4  {at}  start                 read-local    wasi:clocks/wall-clock.now  []",
        f'    5  {at}  end                   #4  {{"base64": "AP8="}}',
        f'    6  {at}  log                   stdout  "added\\n\\u001b[31m5"',
        f"    7  {at}  invocation-finished   5",
    ]


def test_json_is_one_object_a_line_with_the_fields_of_the_kind(shem, alice):
    lines = shem("oplog", "counter/alice", "--json").stdout.splitlines()
    assert len(lines) == 7
    assert lines[3] == (
        f'{{"index": 4, "at": "{AT_TEXT}", "kind": "start", "hint": false, "hidden": false,'
        ' "function": "wasi:clocks/wall-clock.now", "function_type": "read-local", "request": []}'
    )
    assert '"hint": true' in lines[5]


def test_fields_are_json_values_and_absent_ones_are_left_out():
    assert shape(Start(at=AT_NS, function="f", function_type="read-local")) == {
        "index": 3,
        "at": AT_TEXT,
        "kind": "start",
        "hint": False,
        "hidden": False,
        "function": "f",
        "function_type": "read-local",
    }
    finished = shape(InvocationFinished(at=1, outcome=Outcome(result=Raw(b"\xc0"))))
    assert finished["outcome"] == {"result": None}
    failure = Outcome(failure=Failure(kind="guest-trap", message="unreachable"))
    assert shape(InvocationFinished(at=1, outcome=failure))["outcome"] == {
        "failure": {"kind": "guest-trap", "message": "unreachable"}
    }
    assert shape(InvocationFinished(at=1, outcome=Outcome(exit=3)))["outcome"] == {"exit": 3}
    assert shape(Suspend(at=1, wake_at=AT_NS))["wake_at"] == AT_TEXT
    parent = Parent(worker_id=b"\x01" * 16, cut=9)
    created = shape(Create(at=1, name="a/b", component="a", parent=parent))
    assert created["parent"] == {"worker_id": "01" * 16, "cut": 9}
    jump = shape(Jump(at=1, region=Region(2, 5)), hidden=True)
    assert (jump["region"], jump["hidden"], jump["hint"]) == ({"first": 2, "last": 5}, True, False)
    assert shape(Log(at=1, level="stdout", text="?", octets=b"\xff"))["octets"] == {
        "base64": "/w=="
    }
    rule = RetryRule(
        name="r",
        statuses=("429",),
        policy=Retry(attempts_max=1, min_delay_ns=1, max_delay_ns=1, multiplier=1.0),
    )
    [ruled] = shape(Create(at=1, name="a/b", component="a", retry_rules=(rule,)))["retry_rules"]
    assert json.loads(json.dumps(ruled))["policy"]["attempts_max"] == 1
    retry = shape(Error(at=1, retry_from=4, kind="transient", retry_at=AT_NS))
    assert retry["retry_at"] == AT_TEXT
    assert (retry["kind"], retry["error_kind"]) == ("error", "transient")
    value = Raw(b"\xcb\x7f\xf0\x00\x00\x00\x00\x00\x00")
    assert shape(InvocationFinished(at=1, outcome=Outcome(result=value)))["outcome"] == {
        "result": "inf"
    }


def test_from_kind_and_limit_choose_entries(shem, alice):
    def indices(*options):
        ran = shem("oplog", "counter/alice", *options)
        assert ran.code == 0, ran.stderr
        return [int(line.split()[0].rstrip("~")) for line in ran.stdout.splitlines()]

    assert indices("--from", "5") == [5, 6, 7]
    assert indices("--from", "3", "--limit", "2") == [3, 4]
    assert indices("--kind", "start", "--kind", "end") == [4, 5]
    assert indices("--kind", "log", "--limit", "5") == [6]
    assert indices("--limit", "0") == []
    assert indices("--from", "99") == []


def test_a_search_chooses_among_what_the_other_options_leave(shem, alice):
    def indices(*options):
        ran = shem("oplog", "counter/alice", *options)
        assert ran.code == 0, ran.stderr
        return [int(line.split()[0]) for line in ran.stdout.splitlines()]

    assert indices("--search", "k1") == [2, 3]
    assert indices("--search", "k1 OR level:stdout") == [2, 3, 6]
    assert indices("--search", "k1 OR level:stdout", "--kind", "log") == [6]
    assert indices("--search", "NOT k1", "--from", "2", "--limit", "2") == [4, 5]
    assert indices("--search", "no such thing") == []


def test_a_query_that_makes_no_sense_is_refused_with_its_column(shem, alice):
    ran = shem("oplog", "counter/alice", "--search", 'k1 AND (log OR "a', "--json")
    assert (ran.code, ran.stdout) == (2, "")
    assert ran.error["kind"] == "usage"
    assert ran.error["message"] == "this quote is not closed"
    assert ran.error["where"] == "search, column 16"


@pytest.mark.parametrize("options", [("--kind", "begin"), ("--from", "0"), ("--limit", "x")])
def test_bad_choices_are_usage_errors(shem, alice, options):
    ran = shem("oplog", "counter/alice", *options)
    assert (ran.code, ran.stdout) == (2, "")


def test_hidden_entries_are_marked(shem, store, alice):
    store.append("counter/alice", Log(at=AT_NS, level="stderr", text="x"), hidden=True)
    assert f"    8~ {AT_TEXT}  log " in shem("oplog", "counter/alice").stdout


def test_a_long_value_is_cut_in_the_line_and_whole_in_json(shem, store, alice):
    store.append("counter/alice", Log(at=AT_NS, level="stdout", text="x" * 5000))
    line = shem("oplog", "counter/alice", "--from", "8").stdout
    assert len(line) < 600
    assert line.endswith("…\n")
    assert shem("oplog", "counter/alice", "--from", "8", "--json").json["text"] == "x" * 5000


def test_follow_goes_on_with_what_is_committed_until_the_worker_is_deleted(
    shem, store, alice, monkeypatch
):
    turns = itertools.count(1)

    def sleep(_seconds):
        if next(turns) < 3:
            store.append("counter/alice", Log(at=AT_NS, level="stdout", text="more"))
        else:
            del store.workers["counter/alice"]

    monkeypatch.setattr(oplog_command, "wait_while_read", sleep)
    ran = shem("oplog", "counter/alice", "--from", "6", "--follow")
    assert (ran.code, ran.stderr) == (1, "shem: the worker was deleted: counter/alice\n")
    assert [line.split()[0] for line in ran.stdout.splitlines()] == ["6", "7", "8", "9"]


def test_follow_ends_at_its_limit_and_with_ctrl_c(shem, alice, monkeypatch):
    def interrupt(_seconds):
        raise KeyboardInterrupt

    monkeypatch.setattr(oplog_command, "wait_while_read", interrupt)
    assert shem("oplog", "counter/alice", "--follow", "--limit", "2").code == 0
    ran = shem("oplog", "counter/alice", "--follow")
    assert (ran.code, len(ran.stdout.splitlines())) == (130, 7)


def test_on_a_terminal_lines_are_coloured_and_cut_at_its_width():
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=60, color_system="standard")
    write = oplog_command.line_writer(console, 5)
    write(OplogRecord(index=6, entry=Log(at=AT_NS, level="stdout", text="x" * 99), hidden=False))
    line = screen.getvalue()
    assert "\x1b[" in line
    visible = Text.from_ansi(line).plain.rstrip("\n")
    assert len(visible) == 60
    assert visible.startswith("    6  22:13:20.123  log")
    assert visible.endswith("…")


def test_times_keep_their_nanoseconds():
    assert time_text(0) == "1970-01-01T00:00:00.000000000Z"
    assert time_text(AT_NS) == AT_TEXT
    assert time_text(4_102_444_800_000_000_001) == "2100-01-01T00:00:00.000000001Z"


def test_who_follows_ends_when_nobody_reads_any_more(alice, monkeypatch, store, tmp_path):
    """Without an entry that would find out."""
    reader, writer = os.pipe()
    waited = []

    def wait(duration_s):
        if not waited:
            assert os.read(reader, 1 << 16).count(b"\n") == 7
            wait_while_read(0)
            os.close(reader)
        waited.append(duration_s)
        assert len(waited) == 1
        wait_while_read(60)

    monkeypatch.setattr(oplog_command, "wait_while_read", wait)
    with os.fdopen(writer, "w") as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        line = CommandLine(store.open_executor, store.open_reader)
        began = time.monotonic()
        assert main(["oplog", "counter/alice", "--follow", "--data", str(tmp_path)], line) == 0
        assert time.monotonic() - began < 30
