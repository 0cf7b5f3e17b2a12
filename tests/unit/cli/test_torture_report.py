import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from executor.cli import torture_report
from executor.cli.torture_report import TortureReport
from executor.torture.account import Label, Reference
from executor.torture.lab import Trial, Tried
from executor.torture.plan import Invoke
from executor.torture.verdict import Case, Verdict

WHOLE = Verdict(0, 0, 1, 0, ())
WRONG = Verdict(1, 0, 0, 2, ("key k of w/a was accepted\nand is lost",))


class FakeLab:
    trial = Trial("w", Path("deployed"), (Invoke(worker="w/a", function="f", key="k"),))

    def counts(self):
        return {"append": 7, "commit": 2, "after-result": 1}

    def reference(self):
        reference = Reference({Label("key k of w/a", "answer"): "at 1"})
        reference.add({Label("key k of w/a", "answer"): "at 2"})
        return reference


def tried(verdict, *chain):
    return Tried(Case("c", chain, len(chain), ()), verdict)


@pytest.fixture
def report():
    made = TortureReport(FakeLab(), ["torture", "my w.wasm", "s"])
    made.expect(2)
    made.count(tried(WHOLE, ("commit", 2)))
    made.count(tried(WRONG, ("append", 3), ("append", 1)))
    return made


def test_each_thing_that_was_wrong_is_one_line_with_its_command(report, capfdbinary):
    report.seed = 5
    report.interrupted = True
    report.expect(3)
    report.write(as_json=False)
    assert capfdbinary.readouterr().out.decode().splitlines() == [
        "w: 1 invocation of 1 worker",
        "  POINT   REACHED  TRIED  KILLS",
        "  append        7      1      2",
        "  commit        2      1      1",
        "not compared: key k of w/a: answer, in part: at *",
        (
            "append:3,append:1: key k of w/a was accepted; and is lost:"
            " shem torture 'my w.wasm' s --at append:3,append:1"
        ),
        "interrupted: 3 points not tried",
        (
            "2 points tried, 3 kills, 1 recovered; 1 effect repeated with the same key,"
            " 2 uncertain; seed 5"
        ),
        "lost 1, duplicated 0, wrong 1",
    ]


def test_as_json_it_is_one_object(report, capfdbinary):
    report.write(as_json=True)
    told = json.loads(capfdbinary.readouterr().out)
    assert told.pop("ms") >= 0
    assert told == {
        "component": "w",
        "workers": ["w/a"],
        "invocations": 1,
        "points": [
            {"kind": "append", "reached": 7, "tried": 1, "kills": 2},
            {"kind": "commit", "reached": 2, "tried": 1, "kills": 1},
        ],
        "tried": 2,
        "kills": 3,
        "recovered": 1,
        "lost": 1,
        "duplicated": 0,
        "repeated": 1,
        "uncertain": 2,
        "differences": [
            {
                "at": "append:3,append:1",
                "what": "key k of w/a was accepted\nand is lost",
                "command": "shem torture 'my w.wasm' s --at append:3,append:1",
            }
        ],
        "not_compared": ["key k of w/a: answer, in part: at *"],
        "interrupted": False,
        "seed": None,
    }


@pytest.mark.parametrize("terminal", [True, False])
def test_a_terminal_shows_how_far_it_is_and_nothing_else_does(report, monkeypatch, terminal):
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=terminal, width=100)
    monkeypatch.setattr(torture_report, "stderr_console", lambda: console)
    with report.shown_progress():
        report.count(tried(WHOLE, ("commit", 1)))
    if terminal:
        assert "recovered 2 of 3, lost 1, duplicated 0" in screen.getvalue()
        assert "3/2" in screen.getvalue()
    else:
        assert screen.getvalue() == ""
