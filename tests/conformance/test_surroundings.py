"""The command line and what surrounds it: modules that print, variables, few files to be open."""

import json
import os
import subprocess
import sys

import pytest

from executor.cli.app import main
from tests.support.bad_files import FILES
from tests.support.children import ROOT


@pytest.fixture
def shem(tmp_path, monkeypatch, capfdbinary):
    """Runs a command in this process, in a folder with a store: exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SHEM_DATA", raising=False)
    for name in ("adder.wat", "relay.wat"):
        (tmp_path / name).write_bytes(FILES[name])

    def run(*arguments):
        code = main(arguments)
        out, err = capfdbinary.readouterr()
        return code, out.decode(), err.decode()

    assert run("deploy", "adder.wat")[0] == 0
    return run


def test_what_a_module_of_host_functions_prints_is_no_part_of_the_answer(shem, tmp_path):
    (tmp_path / "talks.py").write_text(f"{FILES['hosts.py'].decode()}\nprint('imported')\n")
    code, out, err = shem("--json", "deploy", "relay.wat", "--host", "talks:raises")
    assert (code, err) == (0, "imported\n")
    assert json.loads(out)["component"] == "relay"


def test_of_a_variable_that_is_given_twice_the_last_one_counts(shem):
    twice = ("--env", "A=1", "--env", "A=2")
    assert shem("deploy", "adder.wat", "--name", "again", *twice, "--config", "B=1")[0] == 0
    assert "--env A=2\n" in shem("component", "again")[1]
    assert shem("invoke", "again/w", "add", "1", *twice)[0] == 0
    assert json.loads(shem("worker", "again/w", "--json")[1])["env"] == {"A": "2"}
    for command in ("deploy", "invoke"):
        assert "the last one of a name counts" in " ".join(shem(command, "-h")[1].split())


@pytest.mark.parametrize("files_max", [8, 10, 12, 14, 16])
def test_too_many_open_files_are_called_so(shem, tmp_path, files_max):
    """Whichever file it is that cannot be opened."""
    command = [sys.executable, "-m", "executor.cli", "invoke", "adder/w", "add", "1"]
    script = f'ulimit -n {files_max}; exec "$@"'
    ran = subprocess.run(
        ["bash", "-c", script, "bash", *command],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stdout) == (5, "")
    assert "Too many open files: " in ran.stderr
    assert "have more files open at a time (`ulimit -n`)" in ran.stderr
    assert "readable" not in ran.stderr
