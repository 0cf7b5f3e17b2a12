"""What the README shows runs as it stands: its commands in their order, its Python, its torture."""

import os
import re
import shutil
import subprocess
import sys
import textwrap

import pytest

from tests.support import guests
from tests.support.children import ROOT

TIMEOUT_S = 120
pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
BLOCK = re.compile(r"(?:^    .*\n(?:^\n(?=    ))*)+", re.MULTILINE)
GUESTS = {
    "printer": guests.printer_component,
    "counter": guests.counter_component,
    "command": guests.command_component,
    "approval": guests.approval_component,
}


def blocks():
    text = (ROOT / "README.md").read_text()
    return [textwrap.dedent(found.group()) for found in BLOCK.finditer(text)]


def block_with(text):
    [found] = [block for block in blocks() if text in block]
    return found


@pytest.fixture
def folder(tmp_path):
    """Where a reader of the README is: built guests, `bank.py`, and `shem` on the path."""
    built = tmp_path / "guests" / "build"
    built.mkdir(parents=True)
    for name, wasm in GUESTS.items():
        (built / f"{name}.wasm").write_bytes(wasm())
    (tmp_path / "bank.py").write_text(block_with("from executor import Ok, Transient"))
    command = tmp_path / "bin" / "shem"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m executor.cli "$@"\n')
    command.chmod(0o755)
    return tmp_path


def run_in(folder, *command):
    path = {"PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(
        command,
        cwd=folder,
        env=os.environ | path,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    return ran.returncode, ran.stdout, ran.stderr


def shell(folder, block):
    """Runs a block as a script that stops at the first command that fails."""
    lines = [line for line in block.splitlines() if not line.startswith(("make ", "export "))]
    script = "\n".join(["set -e", *lines])
    code, out, err = run_in(folder, "bash", "-c", script)
    assert code == 0, f"{out}\n{err}"
    assert "Traceback" not in err
    return out


def test_the_first_commands_say_what_they_are_said_to(folder):
    out = shell(folder, block_with("shem deploy guests/build/printer.wasm"))
    assert "invocation-finished" in out
    assert "no divergence" in out
    code, answer, _ = run_in(
        folder, "shem", "invoke", "printer/first", "print", '"x"', "--key", "after"
    )
    assert (code, answer) == (0, "3\n"), "what was killed before its result was taken up"


def test_one_terminal_runs_everything_and_others_ask_it(folder):
    shell(folder, "shem deploy guests/build/printer.wasm")
    block = block_with("shem run &").replace("some-key", "some-key || test $? = 3")
    out = shell(folder, f"{block}\nwait || true")
    assert out.splitlines()[0] == "1"


def test_a_command_is_run_with_its_arguments(folder):
    out = shell(folder, block_with("shem deploy guests/build/command.wasm"))
    assert out.splitlines()[-1] == "err"


def test_a_promise_is_completed_from_outside(folder):
    out = shell(folder, block_with("shem deploy guests/build/approval.wasm"))
    assert out.splitlines()[-1] == '("a bridge", "yes", 1)'


def test_custom_imports_and_the_library(folder):
    out = shell(folder, block_with("shem invoke counter/alice charge-many '\"alice\"' 3"))
    assert out.splitlines()[-1].count("alice paid") == 3
    code, out, err = run_in(folder, sys.executable, "-c", block_with("import trio"))
    assert (code, out) == (0, "5\n"), err


def test_the_component_of_the_reader_is_proved(folder):
    out = shell(folder, block_with("shem torture guests/build/counter.wasm"))
    assert "lost 0, duplicated 0, wrong 0" in out
