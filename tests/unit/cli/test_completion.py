"""Shell completion: what is suggested where, and a real bash at a real terminal."""

import json
import os
import pty
import select
import shutil
import subprocess
import sys
import time

import pytest

from executor.cli.app import main
from executor.cli.completion import SHELLS, VARIABLE
from tests.support import guests
from tests.support.children import ROOT

TWO = b"""
(component
  (core module $M (func (export "f")))
  (core instance $m (instantiate $M))
  (func $f (canon lift (core func $m "f")))
  (instance $i (export "run-it" (func $f)))
  (export "x:y/a" (instance $i)) (export "x:y/b" (instance $i)) (export "alone" (func $f))
  (export "x:y/c@1.0.0" (instance $i)) (export "x:y/c@2.0.0" (instance $i)))
"""


@pytest.fixture
def store(tmp_path, monkeypatch, capfd):
    """A store with two components and some workers; the current folder is around it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SHEM_DATA", raising=False)
    (tmp_path / "counter.wat").write_bytes(guests.ADDER)
    (tmp_path / "two.wat").write_bytes(TWO)
    for command in (
        ("deploy", "counter.wat"),
        ("deploy", "two.wat"),
        ("invoke", "counter/alice", "add", "5"),
        ("invoke", "counter/alfred", "add", "5"),
        ("invoke", "counter/bob", "add", "1", "--key", "waiting", "--no-wait"),
        ("invoke", "counter/a b;rm", "add", "1"),
    ):
        assert main(command) == 0
    capfd.readouterr()
    return tmp_path / ".shem"


@pytest.fixture
def suggested(monkeypatch, capfd):
    def ask(*words, **environment):
        monkeypatch.setenv("COMP_WORDS", "\n".join(("shem", *words)))
        monkeypatch.setenv("COMP_CWORD", str(len(words)))
        monkeypatch.setenv(VARIABLE, "bash_complete")
        assert main([]) == 0
        out, err = capfd.readouterr()
        assert err == ""
        return [line.partition(",")[2] for line in out.splitlines() if line]

    return ask


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("work",), ["worker", "workers"]),
        (("worker", "counter/al"), ["counter/alfred", "counter/alice"]),
        (("worker", "count"), ["counter/alfred", "counter/alice", "counter/bob"]),
        (("invoke", "t"), ["two/"]),
        (("invoke", "counter/alice", ""), ["add", "get", "fail", "spin"]),
        (("invoke", "counter/new", "g"), ["get"]),
        (("invoke", "two/x", "a"), ["a.run-it", "alone"]),
        (("invoke", "two/x", "c"), ["c@1.0.0.run-it", "c@2.0.0.run-it"]),
        (("component", ""), ["counter", "two"]),
        (("workers", "co"), ["counter"]),
        (("workers", "--status", "r"), ["running", "retrying"]),
        (("oplog", "counter/alice", "--kind", "invocation"), None),
        (("cancel", "counter/bob", ""), ["waiting"]),
        (("promise", "li"), ["list"]),
        (("promise", "list", "counter/b"), ["counter/bob"]),
        (("worker", "nobody/"), []),
        (("invoke", "nobody/x", ""), []),
        (("completion", ""), list(SHELLS)),
    ],
)
def test_what_may_follow_is_suggested(store, suggested, words, found):
    assert suggested(*words) == (
        found if found is not None else ["invocation-finished", "invocation-started"]
    )


def test_files_are_left_to_the_shell(store, suggested, monkeypatch, capfd):
    monkeypatch.setenv("COMP_WORDS", "shem\ndeploy\ncount")
    monkeypatch.setenv("COMP_CWORD", "2")
    monkeypatch.setenv(VARIABLE, "bash_complete")
    assert main([]) == 0
    assert capfd.readouterr().out == "file,count\n"


def test_names_come_from_the_store_that_the_line_names(store, suggested, tmp_path, monkeypatch):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert suggested("worker", "counter/b") == []
    assert suggested("--data", str(store), "worker", "counter/b") == ["counter/bob"]
    monkeypatch.setenv("SHEM_DATA", str(store))
    assert suggested("worker", "counter/b") == ["counter/bob"]
    assert list(elsewhere.iterdir()) == [], "nothing is made by looking"


def test_a_store_that_cannot_be_read_suggests_nothing_and_says_nothing(store, suggested):
    os.truncate(store / "data.mdb", 100)
    assert suggested("worker", "counter/") == []


TRIED = {
    "bash": ("source {script}; complete -p shem", "-F _shem_completion shem"),
    "zsh": (
        "autoload -U compinit; compinit -D -u; source {script}; echo $_comps[shem]",
        "_shem_completion",
    ),
    "fish": ("source {script}; complete -C 'shem worker counter/al'", "counter/alfred"),
}


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_takes_its_script(store, shell, capfd, tmp_path):
    assert main(["completion", shell]) == 0
    text = capfd.readouterr().out
    found = shutil.which(shell)
    if found is None:
        pytest.skip(f"no {shell} here: its script was made, and not tried")
    script = tmp_path / "script"
    script.write_text(text)
    put_shem(tmp_path / "bin")
    line, says = TRIED[shell]
    ran = subprocess.run(
        (found, "-c", line.format(script=script)),
        env={"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert says in ran.stdout


def put_shem(folder):
    """A `shem` that completes, and otherwise says what it was given."""
    folder.mkdir()
    shem = folder / "shem"
    shem.write_text(
        "#!/bin/sh\n"
        f'if [ -n "${VARIABLE}" ] || [ "$1" = completion ]; then\n'
        f'  PYTHONPATH={ROOT} exec {sys.executable} -m executor.cli "$@"\n'
        'fi\nprintf "RAN"; printf " <%s>" "$@"; echo\n'
    )
    shem.chmod(0o755)


def test_a_script_may_be_had_as_json(capfd):
    assert main(["completion", "zsh"]) == 0
    text = capfd.readouterr().out
    assert main(["completion", "zsh", "--json"]) == 0
    assert json.loads(capfd.readouterr().out) == {"shell": "zsh", "script": text.rstrip("\n")}


def test_a_shell_that_is_unknown_is_refused(capfd):
    assert main(["completion", "tcsh"]) == 2
    assert "'tcsh' is not one of 'bash', 'zsh', 'fish'" in capfd.readouterr().err


def test_bash_completes_at_a_terminal(store, tmp_path, monkeypatch):
    """Tab behind a part of a name; then the line runs, by a `shem` that says what it was given."""
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("no bash here")
    put_shem(tmp_path / "bin")
    environment = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "TERM": "dumb", "PS1": "$ "}
    child, terminal = pty.fork()
    if child == 0:
        os.execve(bash, [bash, "--norc", "--noprofile", "-i"], environment)
    try:
        os.write(terminal, b"source <(shem completion bash); echo READY''\n")
        read_until(terminal, b"READY\r\n")
        os.write(terminal, b"shem worker counter/ali\t\n")
        assert b"RAN <worker> <counter/alice>" in read_until(terminal, b"RAN <", b"\n")
        os.write(terminal, b"shem invoke counter/bob ge\t --key k\n")
        shown = read_until(terminal, b"RAN <invoke", b"\n")
        assert b"RAN <invoke> <counter/bob> <get> <--key> <k>" in shown
    finally:
        os.close(terminal)
        os.kill(child, 9)
        os.waitpid(child, 0)


def read_until(terminal, *wanted):
    """What the terminal shows until it has shown all of these, one behind the other."""
    shown = b""
    deadline = time.monotonic() + 60
    while True:
        at = 0
        for part in wanted:
            at = shown.find(part, at)
            if at < 0:
                break
            at += len(part)
        else:
            return shown
        left = deadline - time.monotonic()
        assert left > 0, shown
        assert select.select([terminal], [], [], left)[0], shown
        shown += os.read(terminal, 65_536)


@pytest.mark.parametrize("variables", [{}, {"COMP_WORDS": "shem worker a", "COMP_CWORD": "x"}])
def test_a_shell_that_asks_for_no_line_is_answered_nothing(monkeypatch, capfd, variables):
    monkeypatch.setenv("_SHEM_COMPLETE", "bash_complete")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert main(["workers"]) == 2
    assert capfd.readouterr() == ("", "")
