"""`shem torture`, as a user runs it."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from executor.cli.app import main
from executor.cli.command_line import CommandLine
from executor.torture.children import Children
from tests.support import guests
from tests.support.crash_lab import ROOT
from tests.support.rules_guest import RULES

EVERY_POINT = os.environ.get("SHEM_CRASH_POINTS") == "all"

BANK = """
from executor import Ok, host_function

@host_function("demo:bank/api", "charge: func(who: string, cents: u64) -> result<string, string>",
               type="write-remote")
async def charge(call, who, cents):
    return Ok("paid")
"""


class Told:
    """What one run of the command said."""

    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    @property
    def json(self):
        return json.loads(self.out)


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A user's folder with a component, its bank and a script; temporary files go beside it."""
    folder = tmp_path / "user"
    folder.mkdir()
    (folder / "counter.wasm").write_bytes(guests.counter_component())
    (folder / "bank.py").write_text(BANK)
    (folder / "script.txt").write_text(
        "alice charge-many '\"bob\"' 2 --key bob\nalice add 3\nalice get\n"
    )
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def shem(here, capfdbinary):
    def run(*arguments, line=None):
        code = main([str(word) for word in arguments], line)
        out, err = capfdbinary.readouterr()
        return Told(code, out.decode(), err.decode())

    return run


COUNTER = ("counter.wasm", "script.txt", "--host", "bank:charge")


def left_behind(here):
    return list((here.parent / "temporary").iterdir())


def test_a_component_that_keeps_its_promises_is_found_to_do_so(shem, here):
    told = shem("torture", *COUNTER)
    assert told.code == 0, told.out + told.err
    *_, sums, verdict = told.out.splitlines()
    assert verdict == "lost 0, duplicated 0, wrong 0"
    assert " points tried, " in sums
    assert told.out.startswith("counter: 3 invocations of 1 worker\n")
    assert "not compared: key bob of counter/alice: answer, in part" in told.out
    assert left_behind(here) == []
    assert sorted(path.name for path in here.iterdir() if path.name[0] != "_") == [
        "bank.py",
        "counter.wasm",
        "script.txt",
    ]


def test_as_json_it_is_one_object_with_every_figure(shem):
    told = shem("torture", *COUNTER, "--json", "--points", "before-effect,after-result")
    assert (told.code, told.err) == (0, "")
    figures = told.json
    assert figures["points"] == [
        {"kind": "before-effect", "reached": 2, "tried": 2, "kills": 2},
        {"kind": "after-result", "reached": 3, "tried": 3, "kills": 3},
    ]
    assert figures["workers"] == ["counter/alice"]
    assert (figures["invocations"], figures["tried"], figures["recovered"]) == (3, 5, 5)
    assert (figures["lost"], figures["duplicated"], figures["differences"]) == (0, 0, [])
    assert figures["seed"] is None


def test_regions_jumps_zones_and_uncertain_writes_are_judged_by_their_own_rules(
    shem, here, monkeypatch
):
    """The rules guest's programs: what a rolled-back region held runs again under the same keys,
    a jump's calls have keys of their own, and where repeating is forbidden the owner is asked.
    """
    markers = here / "markers"
    markers.mkdir()
    monkeypatch.setenv("SHEM_TEST_MARKERS", str(markers))
    (here / "rules.wat").write_bytes(RULES)
    (here / "rules.txt").write_text(
        """
        region run '"w1 b1 w2 k2 w3 b2 w4 e2 e1 w5"'
        jumps run '"i1 w1 r1 j1 w2"'
        zone run '"w1 z. s. w2"'
        unsure run '"m0 w1 w2 b1 w3 e1 m1 w4"'
        unsure total
        """
    )
    sample = () if EVERY_POINT else ("--sample", 30)
    told = shem(
        "torture",
        "rules.wat",
        "rules.txt",
        "--host",
        "tests.support.torture_peer",
        "--json",
        *sample,
    )
    assert told.code == 0, told.out + told.err
    assert told.json["lost"] == told.json["duplicated"] == 0
    assert told.json["repeated"] > 0
    several = shem(
        "torture", "rules.wat", "rules.txt", "--host", "tests.support.torture_peer", "--json",
        "--points", "before-effect,after-effect", "--recovery-kills", 1, "--seed", 7,
    )  # fmt: skip
    assert several.code == 0, several.out + several.err
    assert several.json["uncertain"] > 0
    assert several.json["kills"] > several.json["tried"]
    assert several.json["seed"] == 7


# -- what is wrong is found -----------------------------------------------------------------------


@pytest.fixture
def broken(monkeypatch):
    """The command with an executor that has a fault once it recovers, or once it is to die."""

    def line(fault):
        monkeypatch.setenv("SHEM_TEST_FAULT", fault)
        return CommandLine(children=partial(Children, module="tests.support.broken_child"))

    return line


@pytest.mark.parametrize(
    ("fault", "points", "figure", "sentence"),
    [
        ("drops an end", "before-effect", "wrong", "diverges"),
        ("repeats under a new key", "after-effect", "duplicated", "which is the key of no call"),
        ("performs an effect twice", "after-result", "duplicated", "was performed 2 times"),
        ("performs no effect", "after-result", "lost", "is recorded and was never performed"),
        ("loses an acceptance", "append", "lost", "was accepted and is lost"),
        ("answers otherwise", "after-result", "wrong", "was answered"),
    ],
)
def test_a_planted_fault_is_found_and_the_command_it_names_shows_it_again(
    shem, broken, fault, points, figure, sentence
):
    told = shem("torture", *COUNTER, "--points", points, "--json", line=broken(fault))
    assert told.code == 1, told.out + told.err
    figures = told.json
    found = [wrong for wrong in figures["differences"] if sentence in wrong["what"]]
    assert found, figures["differences"]
    assert figure == "wrong" or figures[figure] > 0
    assert figures["recovered"] < figures["tried"]
    first = found[0]
    assert first["command"] == f"shem torture {' '.join(COUNTER)} --at {first['at']}"
    command = shlex.split(first["command"])[1:]
    again = shem(*command, line=broken(fault))
    assert again.code == 1
    [line, *_] = [line for line in again.out.splitlines() if sentence in line]
    assert line.startswith(f"{first['at']}: ")
    assert line.endswith(f": {first['command']}")
    assert shem(*command).code == 0, "without the fault there is nothing to be found there"


def test_a_write_that_is_repeated_without_a_word_of_its_owner_is_a_duplicate(shem, broken, here):
    (here / "rules.wat").write_bytes(RULES)
    (here / "rules.txt").write_text("unsure run '\"m0 w1\"'")
    command = ("torture", "rules.wat", "rules.txt", "--host", "tests.support.torture_peer")
    told = shem(*command, "--at", "after-effect:1", "--json", line=broken("repeats without asking"))
    assert (told.code, told.json["duplicated"]) == (1, 1)
    whole = shem(*command, "--at", "after-effect:1", "--json")
    assert (whole.code, whole.json["uncertain"]) == (0, 1)


def test_what_went_wrong_is_kept_to_be_looked_at(shem, broken, here):
    told = shem(
        "torture",
        *COUNTER,
        "--at",
        "after-result",
        "--keep",
        "kept",
        line=broken("answers otherwise"),
    )
    assert told.code == 1
    assert "--keep" not in told.out
    [kept] = (here / "kept").iterdir()
    oplog = shem(
        "--data", kept / "store", "oplog", "counter/alice", "--kind", "invocation-finished"
    )
    assert oplog.code == 0
    assert len(oplog.out.splitlines()) == 3
    assert left_behind(here) == []


def test_a_process_that_hangs_is_told_as_such(shem, here):
    (here / "bank.py").write_text(
        BANK.replace(
            '    return Ok("paid")', "    await sleep_if_recovered(call)\n    return Ok('paid')"
        )
        + """
import trio, os, pathlib

async def sleep_if_recovered(call):
    marker = pathlib.Path("marker-" + os.environ["SHEM_TORTURE_CASE"] + call.key)
    if marker.exists():
        await trio.sleep_forever()
    marker.touch()
"""
    )
    told = shem("torture", *COUNTER, "--at", "after-effect:1", "--timeout", "2")
    assert told.code == 1
    assert "after-effect:1: a process did not end within 2 s: shem torture" in told.out
    assert "--timeout 2 --at after-effect:1" in told.out


def test_what_chance_decides_is_no_difference_and_is_said(shem, here):
    chance = "random.choice(['a', 'b c', 'd e f', 'g h i j', 'k'])"
    (here / "bank.py").write_text(f"import random\n{BANK}".replace('"paid"', chance))
    told = shem("torture", *COUNTER, "--points", "append,after-effect")
    assert told.code == 0, told.out
    assert "not compared: key bob of counter/alice: answer, at all" in told.out
    assert "line-3" not in told.out


# -- what it is given ----------------------------------------------------------------------------


def test_a_deployed_component_is_taken_with_its_options_and_its_store_is_left_alone(shem, here):
    assert shem("deploy", "counter.wasm", "--host", "bank:charge", "--name", "till").code == 0
    assert shem("invoke", "till/alice", "add", "5").out == "5\n"
    before = (here / ".shem" / "data.mdb").read_bytes()
    (here / "script.txt").write_text("till/alice get\nalice charge-many '\"eve\"' 1\n")
    told = shem("torture", "till", "script.txt", "--points", "after-result", "--json")
    assert told.code == 0, told.out + told.err
    assert told.json["component"] == "till"
    assert (here / ".shem" / "data.mdb").read_bytes() == before
    assert shem("invoke", "till/alice", "get").out == "5\n"


def test_a_sample_is_the_same_for_the_same_seed(shem):
    chosen = ("--points", "append,before-effect,after-effect", "--sample", 4, "--seed", 5)
    tried = []
    for _ in range(2):
        figures = shem("torture", *COUNTER, *chosen, "--recovery-kills", 1, "--json").json
        assert figures["tried"] == 4
        assert figures["kills"] > 4
        tried.append([(point["kind"], point["tried"]) for point in figures["points"]])
    assert tried[0] == tried[1]


def test_a_script_that_comes_to_no_such_point_proves_nothing(shem, here):
    (here / "script.txt").write_text("alice add 1")
    told = shem("torture", *COUNTER, "--points", "before-effect,after-effect")
    assert (told.code, told.out) == (2, "")
    assert "comes to no point of the kinds before-effect, after-effect" in told.err
    for at, who, count in (
        ("before-effect:1", "script", "0"),
        ("append:999", "script", r"\d+"),
        ("before-result:2", "script", "1"),
        ("append:2,append:999", "recovery", r"\d+"),
    ):
        told = shem("torture", *COUNTER, "--at", at)
        assert (told.code, told.out) == (2, "")
        point = at.rpartition(",")[2]
        said = f"the {who} does not come to {point}: undisturbed there are {count} points of"
        assert re.search(said, told.err)
        assert ": script.txt: choose one of them" in told.err
    for timeout in ("0", "1e9"):
        told = shem("torture", *COUNTER, "--timeout", timeout)
        assert (told.code, told.out) == (2, "")
        assert "give --timeout more than 0" in told.err


@pytest.mark.parametrize("script", ["", "# nothing\n\n"])
def test_a_script_without_an_invocation_is_refused(shem, here, script):
    (here / "script.txt").write_text(script)
    told = shem("torture", *COUNTER)
    assert (told.code, told.out) == (2, "")
    assert "the script asks for nothing: script.txt: write lines of" in told.err
    assert shem("torture", *COUNTER, "--sample", "0").code == 2


def test_many_kills_of_recoveries_have_one_folder_and_one_command(shem):
    told = shem(
        "torture", *COUNTER, "--sample", 1, "--points", "append", "--recovery-kills", 30, "--json"
    )
    assert told.code == 0, told.out + told.err


def test_the_script_may_come_by_stdin(here):
    command = (
        sys.executable,
        "-m",
        "executor.cli",
        "torture",
        "counter.wasm",
        "-",
        "--host",
        "bank",
    )
    ran = subprocess.run(
        (*command, "--points", "before-result"),
        input="alice add 1\n", capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("counter: 1 invocation of 1 worker\n")


@pytest.mark.parametrize(
    ("script", "code", "sentence"),
    [
        ("alice add x", 2, 'expected u32, found "x": script.txt:1'),
        ("alice add 1\n\nalice subtract 1", 3, 'called "subtract": script.txt:3'),
        ("alice add", 2, "takes 1 argument, 0 given (missing: n): script.txt:1"),
        ("alice add 1 --key k\nalice add 2 --key k", 2, "script.txt:2: every line has to be"),
        ("alice add 1 --env A=1\nalice get --env A=2", 2, "script.txt:2: every line has to be"),
        ("alice get\nalice spin", 2, "did not end within 2 s: script.txt:2: every line has to end"),
    ],
)
def test_a_line_that_cannot_be_asked_for_is_named(shem, here, script, code, sentence):
    (here / "script.txt").write_text(script)
    told = shem("torture", *COUNTER, "--timeout", 2)
    assert told.code == code
    assert sentence in told.err
    assert told.out == ""
    assert left_behind(here) == []


def test_a_component_that_cannot_be_deployed_is_refused_as_by_deploy(shem, here):
    told = shem("torture", "counter.wasm", "script.txt", "--json")
    assert (told.code, json.loads(told.err)["kind"]) == (2, "component-rejected")
    assert "demo:bank/api" in told.err


# -- interruptions -------------------------------------------------------------------------------


def processes_of(marker):
    """Processes whose environment holds the marker: all that a run has started."""
    found = []
    for path in Path("/proc").iterdir():
        if path.name.isdigit() and int(path.name) != os.getpid():
            try:
                if marker.encode() in (path / "environ").read_bytes():
                    found.append(int(path.name))
            except OSError:
                continue
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_and_sigterm_end_every_process_and_leave_nothing_behind(here, number):
    marker = f"torture-{os.getpid()}-{time.monotonic_ns()}"
    (here / "script.txt").write_text("alice charge-many '\"bob\"' 40\n" * 10)
    process = subprocess.Popen(
        (sys.executable, "-m", "executor.cli", "torture", *COUNTER),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=os.environ | {"SHEM_TEST_MARKER": marker},
    )  # fmt: skip
    with process:
        try:
            deadline = time.monotonic() + 60
            while not list((here.parent / "temporary").glob("*/counter-append-*")):
                assert time.monotonic() < deadline
                assert process.poll() is None, process.communicate()
                time.sleep(0.05)
            process.send_signal(number)
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 130, err
    assert "interrupted: " in out
    assert processes_of(marker) == []
    assert left_behind(here) == []


FULL = """
import resource, signal, sys
from executor.cli.app import main
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), resource.RLIM_INFINITY))
sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.parametrize("room", [20_000, 80_000, 140_000])
def test_a_temporary_directory_without_room_gives_a_sentence(here, room):
    """Too little for a store, for the component, and for what the script adds to it."""
    (here / "script.txt").write_text("alice charge-many '\"bob\"' 200\n" * 3)
    ran = subprocess.run(
        (sys.executable, "-c", FULL, str(room), "torture", *COUNTER, "--points", "after-result"),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 5, ran.stdout + ran.stderr
    assert ran.stdout == ""
    [line] = ran.stderr.splitlines()
    said = "shem: the store of a case cannot be written: .*, or name another place with TMPDIR"
    assert re.fullmatch(said, line)
    assert left_behind(here) == []
