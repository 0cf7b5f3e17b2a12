import io
import json

import pytest
from rich.console import Console

from executor.cli import demo, demo_gathering, demo_waiting
from executor.cli.demo_receiver import Charge, Quote

UNDER_WAY = 4


def test_without_its_guest_the_demo_says_how_to_build_it(shem, tmp_path):
    ran = shem("demo", "--component", "none.wasm", "--json")
    assert (ran.code, ran.stdout, ran.error["kind"]) == (2, "", "usage")
    assert ran.error["where"] == "none.wasm"
    assert "make guests" in ran.error["hint"]


def test_the_demo_never_touches_a_store_that_is_there(shem, tmp_path):
    (tmp_path / "order.wasm").write_bytes(b"")
    ran = shem("demo", "--component", "order.wasm", "--data", ".shem", "--json")
    assert (ran.code, ran.stdout, ran.error["kind"]) == (4, "", "exists")
    assert list((tmp_path / ".shem").iterdir()) == []


@pytest.mark.parametrize(
    ("change", "held"),
    [
        (lambda charges: None, [True, True]),
        (lambda charges: setattr(charges[UNDER_WAY], "requests", 2), [True, True]),
        (lambda charges: setattr(charges[2], "requests", 2), [True, False]),
        (lambda charges: setattr(charges[UNDER_WAY], "requests", 3), [True, False]),
        (lambda charges: setattr(charges[1], "charged", 2), [False, True]),
        (lambda charges: charges.pop(), [False, True]),
        (lambda charges: charges.append(charges[-1]), [False, True]),
    ],
)
def test_the_checks_fail_on_a_write_that_is_lost_or_made_twice(tmp_path, change, held):
    amounts = [900, *(count * cents for _, count, cents in demo.ITEMS)]
    charges = [
        Charge(key=f"k{n}", who="alice", cents=cents, reference=f"r{n}", requests=1, charged=1)
        for n, cents in enumerate(amounts)
    ]
    change(charges)
    receiver = type("Receiver", (), {"url": "http://nowhere/"})()
    screen = io.StringIO()
    story = demo.Story(tmp_path, receiver, Console(file=screen, width=200))
    demo.show_charges(story, charges, UNDER_WAY)
    assert [check.held for check in story.checks] == held
    assert screen.getvalue().count("FAILED") == held.count(False)


def quotes_of(recorded):
    return [
        Quote(key=f"k{n}", path=f"/quotes/{n}", requests=1 if n in recorded else 2)
        for n in range(demo_gathering.COUNT)
    ]


@pytest.mark.parametrize(
    ("change", "held"),
    [
        (lambda quotes: None, [True, True, True]),
        (lambda quotes: setattr(quotes[0], "requests", 2), [True, False, True]),
        (lambda quotes: setattr(quotes[1], "requests", 1), [True, True, False]),
        (lambda quotes: setattr(quotes[1], "requests", 3), [True, True, False]),
        (lambda quotes: quotes.append(quotes[0]), [True, True, False]),
    ],
)
def test_the_checks_fail_on_a_request_that_is_made_again_or_under_another_key(
    tmp_path, change, held
):
    even = range(0, demo_gathering.COUNT, 2)
    quotes = quotes_of(even)
    change(quotes)
    receiver = type("Receiver", (), {"url": "http://nowhere/"})()
    story = demo.Story(tmp_path, receiver, Console(file=io.StringIO(), width=200))
    answers = ", ".join(f'"200 {{\\"supplier\\": {n}}}"' for n in range(demo_gathering.COUNT))
    recorded = {f"/quotes/{n}" for n in even}
    demo_gathering.check_quotes(story, f"[{answers}]\n", recorded, quotes)
    assert [check.held for check in story.checks] == held


def test_a_command_of_the_story_that_fails_ends_it(tmp_path):
    receiver = type("Receiver", (), {"url": "http://nowhere/"})()
    story = demo.Story(tmp_path / "none", receiver, Console(file=io.StringIO()))
    with pytest.raises(demo.StepFailed, match="shem worker a/b ended with 5"):
        story.run("worker", "a/b")
    with pytest.raises(demo.InternalError, match="there is no store"):
        story.read("worker", "a/b")


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_where_no_store_can_be_made_the_command_that_met_it_says_so_and_nobody_else(
    shem, tmp_path, monkeypatch, options
):
    (tmp_path / "order.wasm").write_bytes(b"(component)")
    monkeypatch.setattr(demo, "find_guest", lambda *_: tmp_path / "order.wasm")
    ran = shem("demo", "--data", "order.wasm/store", *options)
    assert ran.code == 5
    said = ran.stderr.splitlines()
    [told] = [line for line in said if line.startswith("shem: ")]
    assert told == (
        "shem: the store cannot be made: Not a directory: order.wasm/store:"
        " see that order.wasm is a directory and can be written to"
    )
    if options:
        assert json.loads(said[-1])["message"].endswith("ended with 5")
    else:
        assert len(said) == 1


class Told:
    """A story whose commands answer what a script says."""

    def __init__(self, **answers):
        self.answers = answers
        self.checks = []
        self.commands = []

    def tell(self, text):
        pass

    def check(self, claim, *, held):
        self.checks.append(held)

    def run(self, *arguments):
        self.commands.append(arguments)
        return self.answers.get(arguments[1].partition("/")[2] if len(arguments) > 1 else "", "")

    def read(self, *arguments):
        match arguments:
            case ("promise", "list", _):
                return [{"promises": [{"promise": 4}]}]
            case ("oplog", *_):
                return [{}] * self.answers.get("suspended", 1)
            case _:
                return [{"status": self.answers.get("status", "suspended"), "loaded": False}]


REMINDED = {"reminder": '"water the plants"\n', "bridge": '("a bridge", "approved", 1)\n'}


@pytest.mark.parametrize(
    ("answers", "held"),
    [
        (REMINDED, [True, True, True, True]),
        (REMINDED | {"status": "running"}, [False, False, True, True]),
        (REMINDED | {"bridge": '("a bridge", "refused", 1)\n'}, [True, True, False, True]),
        (REMINDED | {"reminder": ""}, [True, True, True, False]),
        (REMINDED | {"suspended": 0}, [True, True, True, False]),
    ],
)
def test_the_checks_fail_where_a_waiting_worker_was_kept_or_decided_otherwise(
    tmp_path, monkeypatch, answers, held
):
    monkeypatch.setattr(demo_waiting, "SLEEP_S", 0)
    story = Told(**answers)
    demo_waiting.tell_waiting(story, tmp_path / "approval.wasm")
    assert story.checks == held
    assert ("promise", "complete", "approval/bridge", "4", '"refused"') in story.commands


def test_a_reminder_that_comes_too_early_is_seen(tmp_path):
    story = Told(**REMINDED)
    demo_waiting.tell_waiting(story, tmp_path / "approval.wasm")
    assert story.checks == [True, True, True, False]
