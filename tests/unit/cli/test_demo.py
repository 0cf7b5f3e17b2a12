import io

import pytest
from rich.console import Console

from executor.cli import demo
from executor.cli.demo_receiver import Charge

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


def test_a_command_of_the_story_that_fails_ends_it(tmp_path):
    receiver = type("Receiver", (), {"url": "http://nowhere/"})()
    story = demo.Story(tmp_path / "none", receiver, Console(file=io.StringIO()))
    with pytest.raises(demo.InternalError, match="shem worker a/b ended with 5"):
        story.run("worker", "a/b")
    with pytest.raises(demo.InternalError, match="there is no store"):
        story.read("worker", "a/b")
