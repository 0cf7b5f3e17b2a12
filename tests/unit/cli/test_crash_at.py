"""`shem invoke --crash-at`: where the points come from the command line."""

import subprocess
import sys

from tests.support.fake_executor import FakeStore


def test_a_crash_point_is_refused_while_another_process_runs_the_store(shem, tmp_path):
    holder = "import sys, pathlib; from oplog.lmdb_engine import LmdbEngine;"
    holder += "engine = LmdbEngine.open(pathlib.Path(sys.argv[1])); print(); sys.stdin.read()"
    command = (sys.executable, "-c", holder, str(tmp_path / ".shem"))
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, **pipes) as process:
        try:
            process.stdout.readline()
            ran = shem("invoke", "a/b", "f", "--crash-at", "append:1", "--json")
        finally:
            process.kill()
    assert (ran.code, ran.stdout, ran.error["kind"]) == (4, "", "busy")
    assert str(process.pid) in ran.error["message"]


def test_without_a_crash_point_nothing_is_wrapped(shem, store: FakeStore):
    store.outcomes["k"] = KeyboardInterrupt()
    shem("invoke", "a/b", "f", "--key", "k")
    [(_, world)] = store.opened
    assert set(world) == {"recover", "on_output", "on_silence"}
