"""The command line on a real store with a real component; what is killed are child processes."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from executor.cli.app import main
from executor.worker.rows import read_worker_id
from oplog.engine import Batch
from oplog.lmdb_engine import LmdbEngine
from tests.unit.cli.conftest import Ran

COUNTER = """
(component
  (import "demo:bank/api" (instance $bank
    (export "charge" (func (param "cents" u32) (result u32)))))
  (core func $charge (canon lower (func $bank "charge")))
  (core module $code
    (import "bank" "charge" (func $charge (param i32) (result i32)))
    (global $sum (mut i32) (i32.const 0))
    (func (export "add") (param i32) (result i32)
      (global.set $sum (i32.add (global.get $sum) (call $charge (local.get 0))))
      (global.get $sum))
    (func (export "negate") (param i32) (result i32)
      (i32.sub (i32.const 0) (local.get 0)))
    (func (export "fail") unreachable))
  (core instance $made (instantiate $code
    (with "bank" (instance (export "charge" (func $charge))))))
  (func $add (param "n" u32) (result u32) (canon lift (core func $made "add")))
  (func $negate (param "n" s32) (result s32) (canon lift (core func $made "negate")))
  (func $fail (canon lift (core func $made "fail")))
  (instance $api
    (export "add" (func $add)) (export "negate" (func $negate)) (export "fail" (func $fail)))
  (export "demo:counter/api" (instance $api)))
"""

BANK = """
from pathlib import Path
from executor import host_function

@host_function("demo:bank/api", "charge: func(cents: u32) -> u32", type="write-remote")
def charge(call, cents):
    with Path(__file__).with_name("charges").open("a") as file:
        file.write(call.key + "\\n")
    return cents
"""


@pytest.fixture
def shem(tmp_path, monkeypatch, capfdbinary):
    """Runs `shem` in this process in a folder with a deployed counter."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SHEM_DATA", raising=False)
    name = f"bank_of_{abs(hash(tmp_path))}"
    (tmp_path / "counter.wat").write_text(COUNTER)
    (tmp_path / f"{name}.py").write_text(BANK)

    def run(*arguments: str) -> Ran:
        code = main(arguments)
        out, err = capfdbinary.readouterr()
        return Ran(code, out.decode(), err.decode())

    deployed = run("deploy", "counter.wat", "--host", f"{name}:charge", "--json")
    assert deployed.code == 0, deployed.stderr
    assert deployed.json["exports"][0] == "demo:counter/api.{add}: func(n: u32) -> u32"
    return run


def child(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = (sys.executable, "-m", "executor.cli", *arguments)
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def charges(tmp_path) -> list[str]:
    file = tmp_path / "charges"
    return file.read_text().splitlines() if file.exists() else []


@pytest.mark.parametrize(
    ("point", "asked"),
    [
        ("append:1", {1}),
        ("append:4", {1, 2}),  # the effect's end was ordered, and may not be committed
        ("commit:2", {1}),
        ("before-effect:1", {1}),
        ("after-effect:1", {2}),
        ("before-result", {1, 2}),
        ("after-result", {1}),
    ],
)
def test_a_killed_invocation_is_finished_by_the_same_command(shem, tmp_path, point, asked):
    killed = child("invoke", "counter/a", "add", "5", "--key", "k", "--crash-at", point)
    assert (killed.returncode, killed.stdout) == (-signal.SIGKILL, "")
    assert shem("invoke", "counter/a", "add", "5", "--key", "k") == (0, "5\n", "")
    assert shem("invoke", "counter/a", "add", "5", "--key", "k", "--json").json["deduplicated"]
    made = charges(tmp_path)
    assert len(set(made)) == 1
    assert len(made) in asked
    finished = shem("oplog", "counter/a", "--kind", "invocation-finished").stdout
    assert len(finished.splitlines()) == 1


@pytest.mark.parametrize("point", ["append:3", "before-effect:1"])
def test_a_generated_key_is_known_before_anything_runs(shem, point):
    killed = child("invoke", "counter/a", "add", "5", "--crash-at", point)
    assert killed.returncode == -signal.SIGKILL
    assert killed.stderr.startswith("key: ")
    key = killed.stderr.split()[1]
    assert shem("invoke", "counter/a", "add", "5", "--key", key) == (0, "5\n", "")


def test_a_damaged_entry_is_a_damaged_store_to_every_command_that_meets_it(shem, tmp_path):
    assert shem("invoke", "counter/a", "add", "5", "--key", "k").code == 0
    engine = LmdbEngine.open(tmp_path / ".shem")
    worker_id = read_worker_id(engine, "counter/a")
    entries = [(worker_id, *found) for found in engine.read_entries(worker_id, 1, 100)]
    entries[3] = (worker_id, 4, b"\x81\xa1t")
    written = engine.write([Batch(deletes=(worker_id,)), Batch(entries=entries)])
    engine.close()
    assert written == [None, None]
    for command in (
        ("oplog", "counter/a"),
        ("replay", "counter/a"),
        ("crash", "counter/a"),
    ):
        ran = shem(*command, "--json")
        assert (ran.code, ran.error["kind"]) == (5, "store-corrupt")
        assert f"worker {worker_id.hex()}: entry 4 is damaged" in ran.error["message"]
        assert ran.error["hint"]
    asked = shem("invoke", "counter/a", "add", "5", "--key", "k2", "--json")
    assert (asked.code, asked.json["error"]["kind"]) == (5, "store-corrupt")


def test_the_commands_agree_about_a_worker(shem):
    assert shem("invoke", "counter/a", "add", "5", "--key", "k1").stdout == "5\n"
    assert shem("invoke", "counter/a", "add", "6", "--key", "k2").stdout == "11\n"
    assert shem("invoke", "counter/a", "negate", "7").stdout == "-7\n"
    assert shem("invoke", "counter/a", "negate", "-7").stdout == "7\n"
    worker = shem("worker", "counter/a", "--json").json
    lines = shem("oplog", "counter/a", "--json").stdout.splitlines()
    assert worker["entries"] == len(lines)
    assert (worker["status"], worker["pending"], worker["current_key"]) == ("idle", [], None)
    [listed] = shem("workers", "counter", "--json").json["workers"]
    assert listed["entries"] == worker["entries"]
    rebuilt = shem("crash", "counter/a", "--json").json
    assert (rebuilt["entries"], rebuilt["divergence"]) == (len(lines), None)
    replayed = shem("replay", "counter/a", "--json")
    assert (replayed.code, replayed.json["divergence"]) == (0, None)
    assert shem("components", "--json").json[0]["workers"] == 1
    assert shem("delete", "counter/a", "--json").json["done"] is True
    assert shem("worker", "counter/a").code == 3


NONE = type(None)
TYPES = {
    name: types
    for types, names in (
        ((int,), "index revision attempts entries bytes retries replayed start_index"),
        ((bool,), "hidden deduplicated loaded done"),
        ((bool, str), "hint"),
        ((list,), "imports exports revisions request arguments args allow_net"),
        ((list, int), "workers pending"),
        ((str, NONE), "current_key cursor last_error"),
        ((dict,), "env outcome"),
        ((dict, NONE), "error divergence"),
        ((int, NONE), "result response"),
        ((float,), "ms"),
    )
    for name in names.split()
}
"""Of all that are no text."""
INVOCATION = "worker function key status result wave error attempts deduplicated stdout stderr"
ENTRY = "index at kind hint hidden"
WORKER = (
    "worker id component revision status env args allow_net pending current_key entries bytes"
    " retries last_error created_at loaded"
)
REBUILD = "worker entries replayed ms divergence"
DONE = "worker done status"
ANSWERS = (
    ("components", "component id revision workers"),
    ("component counter", "component id revisions imports exports"),
    ("workers", "workers cursor"),
    ("invoke counter/a add 5 --key k", INVOCATION),
    ("invoke counter/a negate 5 --key later --no-wait", INVOCATION),
    ("run --until-idle", "done"),
    ("oplog counter/a --kind no-op", ""),
    ("oplog counter/a --kind start", f"{ENTRY} function function_type request"),
    ("oplog counter/a --kind end", f"{ENTRY} start_index response"),
    ("oplog counter/a --kind invocation-started", f"{ENTRY} key function arguments"),
    ("oplog counter/a --kind invocation-finished", f"{ENTRY} outcome"),
    ("oplog counter/a --kind pending-invocation", f"{ENTRY} key function arguments"),
    ("worker counter/a", WORKER),
    ("crash counter/a", REBUILD),
    ("replay counter/a", REBUILD),
    ("interrupt counter/a", DONE),
    ("resume counter/a", DONE),
    ("revert counter/a --last 1", DONE),
    ("invoke counter/a fail --key trap", INVOCATION),
    ("invoke counter/a add 5 --key behind", INVOCATION),
    ("replay counter/a", f"{REBUILD} stopped_at"),
    ("cancel counter/a trap", "kind message where hint"),
    ("delete counter/a", DONE),
)


def test_every_answer_has_the_fields_that_scripts_depend_on_in_their_order(shem):
    for command, fields in ANSWERS:
        ran = shem(*command.split(), "--json")
        lines = (ran.stderr if "hint" in fields.split()[-1:] else ran.stdout).splitlines()
        found = [json.loads(line) for line in lines if line.startswith(("{", "["))]
        answer = next(iter(found), {})
        if isinstance(answer, list):
            [answer] = answer
        assert list(answer) == fields.split(), command
        for name, value in answer.items():
            assert type(value) in TYPES.get(name, (str,)), (command, name, value)


def test_what_is_accepted_without_waiting_is_run_by_run(shem, tmp_path):
    accepted = shem("invoke", "counter/a", "add", "5", "--key", "k", "--no-wait", "--json")
    assert (accepted.code, accepted.json["status"]) == (0, "pending")
    assert shem("run", "--until-idle").code == 0
    assert shem("invoke", "counter/a", "add", "5", "--key", "k").stdout == "5\n"
    assert len(set(charges(tmp_path))) == 1


def test_bytes_that_were_deployed_before_a_newer_revision_say_which_one_new_workers_take(
    shem, tmp_path
):
    (tmp_path / "next.wat").write_text(f"(;;){COUNTER}")
    host = ("--host", f"bank_of_{abs(hash(tmp_path))}:charge", "--name", "counter")
    newer = shem("deploy", "next.wat", *host, "--json").json
    assert (newer["revision"], "newest" in newer) == (1, False)
    older = shem("deploy", "counter.wat", *host)
    assert (older.code, older.stderr) == (0, "")
    assert older.stdout.splitlines()[0] == (
        "counter revision 0 is there already; new workers take revision 1"
    )
    assert shem("deploy", "next.wat", *host).stdout.startswith("counter revision 1\n")
    again = shem("deploy", "counter.wat", *host, "--json").json
    assert (again["revision"], again["newest"]) == (0, 1)


def test_run_until_idle_names_whom_it_leaves_behind(shem):
    shem("invoke", "counter/a", "add", "5")
    assert shem("run", "--until-idle").stderr == ""
    shem("invoke", "counter/a", "fail", "--key", "k", "--no-wait")
    for options, out in ((), ""), (("--json",), '{"done": true}\n'):
        ran = shem("run", "--until-idle", *options)
        assert (ran.code, ran.stdout, ran.stderr.count("\n")) == (0, out, 1)
        assert ran.stderr.startswith("shem: counter/a failed: ")
        assert ran.stderr.endswith(": shem revert counter/a --last 1, or delete it\n")


def test_a_failure_and_what_comes_after_it_have_their_exit_codes(shem):
    failed = shem("invoke", "counter/a", "fail", "--key", "k1", "--json")
    assert (failed.code, failed.stderr) == (1, "")
    assert (failed.json["status"], failed.json["error"]["kind"]) == ("failed", "guest-trap")
    assert shem("invoke", "counter/a", "fail", "--key", "k1").code == 1
    after = shem("invoke", "counter/a", "add", "5", "--key", "k2", "--json")
    assert (after.code, after.json["error"]["kind"]) == (1, "previous-failed")
    assert shem("invoke", "counter/a", "add", "5", "--key", "k1", "--json").error["kind"] == (
        "key-conflict"
    )


@pytest.mark.parametrize(
    ("arguments", "code", "kind"),
    [
        (("counter/a", "add"), 2, "bad-arguments"),
        (("counter/a", "add", "-5"), 2, "bad-arguments"),
        (("counter/a", "add", '"five"'), 2, "bad-arguments"),
        (("counter/a", "ad", "5"), 3, "unknown-function"),
        (("kounter/a", "add", "5"), 3, "unknown-component"),
        (("counter", "add", "5"), 2, "usage"),
        (("counter/a", "add", "5", "--key", ""), 2, "usage"),
    ],
)
def test_a_request_that_cannot_be_accepted_says_why_and_records_nothing(
    shem, arguments, code, kind
):
    ran = shem("invoke", *arguments, "--json")
    assert (ran.code, ran.stdout, ran.error["kind"]) == (code, "", kind)
    assert shem("workers", "--json").json["workers"] == []


def test_readers_and_every_other_command_work_beside_the_process_that_runs_the_store(
    shem, tmp_path
):
    first = shem("invoke", "counter/a", "add", "5", "--key", "k", "--json").json
    command = (sys.executable, "-m", "executor.cli", "run")
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        try:
            lock = tmp_path / ".shem" / "executor.lock"
            deadline = time.monotonic() + 20
            while str(process.pid) not in lock.read_text():
                assert process.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.01)
            again = shem("invoke", "counter/a", "add", "5", "--key", "k", "--json")
            assert shem("worker", "counter/a").code == 0
            assert shem("oplog", "counter/a", "--limit", "1").stdout.count("\n") == 1
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=20) == 130
        finally:
            process.kill()
        assert process.stderr.read().startswith(b"shem: interrupted: ")
    assert (again.code, again.json) == (0, first | {"deduplicated": True})
    assert not (tmp_path / ".shem" / "control.sock").exists()


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_sigterm_ends_what_runs_the_store_as_a_ctrl_c_does_and_by_that_signal(
    shem, tmp_path, options
):
    """Also where a script has started it in the background, which ignores Ctrl-C."""
    command = (sys.executable, "-m", "executor.cli", "run", *options)
    ignoring = ("sh", "-c", 'trap "" INT; exec "$@"', "sh", *command)
    with subprocess.Popen(
        ignoring, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            deadline = time.monotonic() + 60
            while not (tmp_path / ".shem" / "control.sock").exists():
                assert process.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.01)
            assert shem("invoke", "counter/a", "add", "5").stdout == "5\n"
            process.terminate()
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert (process.returncode, out) == (-signal.SIGTERM, "")
    assert err.count("\n") == 1
    assert ("ended by SIGTERM: what was accepted" in err) == (not options)
    if options:
        assert json.loads(err)["kind"] == "interrupted"
    assert not (tmp_path / ".shem" / "control.sock").exists()
    assert shem("invoke", "counter/a", "add", "1").stdout == "6\n"


INTERRUPTED_IMPORT = """
import signal, sys
class Interrupting:
    def find_spec(self, name, path, target=None):
        if name == "executor.cli.app":
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Interrupting())
sys.argv = ["shem", *sys.argv[1:]]
from executor.cli import main
"""


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_ctrl_c_while_the_command_is_imported_is_one_line(options):
    ran = subprocess.run(
        (sys.executable, "-c", INTERRUPTED_IMPORT, "components", *options),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ran.returncode, ran.stdout) == (130, "")
    if options:
        assert json.loads(ran.stderr)["kind"] == "interrupted"
    else:
        assert ran.stderr == "shem: interrupted: run it again\n"


@pytest.mark.parametrize(
    ("arguments", "stdout", "stderr", "code"),
    [
        (("components",), "/dev/full", subprocess.PIPE, 5),
        (("invoke", "--help"), "/dev/full", subprocess.PIPE, 5),
        (("invoke", "counter/a", "add", "5"), "/dev/full", "/dev/full", 5),
        (("invoke", "counter/a", "add", "5"), subprocess.PIPE, "/dev/full", 0),
        (("invoke", "counter/a"), subprocess.PIPE, "/dev/full", 2),
    ],
)
def test_an_output_that_cannot_be_written_is_a_sentence_or_at_least_an_exit_code(
    shem, arguments, stdout, stderr, code
):
    with ExitStack() as stack:
        out, err = (
            stack.enter_context(Path(to).open("w")) if isinstance(to, str) else to
            for to in (stdout, stderr)
        )
        ran = subprocess.run(
            (sys.executable, "-m", "executor.cli", *arguments),
            stdout=out,
            stderr=err,
            text=True,
            timeout=60,
            check=False,
        )
    assert ran.returncode == code
    if ran.stderr is not None:
        assert ran.stderr == (
            "shem: the output cannot be written: No space left on device:"
            " what the command did is done; write its output elsewhere\n"
        )
    if "add" in arguments:
        assert shem("invoke", "counter/a", "add", "0").stdout == "5\n", "it was done"


STUCK = """
from pathlib import Path
from executor import host_function

@host_function("demo:bank/api", "charge: func(cents: u32) -> u32", type="read-remote")
async def charge(call, cents):
    Path(__file__).with_name("stuck").touch()
    while True:
        pass
"""


@pytest.mark.parametrize("told", [True, False], ids=["told", "stderr takes nothing"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_ends_what_a_host_function_holds_up(shem, tmp_path, number, told):
    """One that should wait and does not; to the worker it is a crash."""
    (tmp_path / "stuck_bank.py").write_text(STUCK)
    host = ("--host", "stuck_bank:charge", "--name", "stuck")
    assert shem("deploy", "counter.wat", *host).code == 0
    command = (sys.executable, "-m", "executor.cli", "invoke", "stuck/a", "add", "1", "--key", "k")
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            if not told:
                process.stderr.close()
                process.stderr = None
            deadline = time.monotonic() + 60
            while not (tmp_path / "stuck").exists():
                assert process.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.01)
            process.send_signal(number)
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(timeout=0.2)
            process.send_signal(number)
            _, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == (130 if number == signal.SIGINT else -signal.SIGTERM)
    if told:
        assert err.count("\n") == 1
        assert err.startswith("shem: ")
        assert "what was accepted goes on" in err
    assert shem("worker", "stuck/a", "--json").json["current_key"] == "k"


@pytest.mark.parametrize("closed", [">&- 2>&-", "<&- >&- 2>&-"])
def test_no_file_of_the_store_takes_the_place_of_a_stream_that_is_closed(shem, tmp_path, closed):
    command = (sys.executable, "-m", "executor.cli", "run")
    with subprocess.Popen(("sh", "-c", f'exec "$@" {closed}', "sh", *command)) as process:
        try:
            deadline = time.monotonic() + 60
            while not (tmp_path / ".shem" / "control.sock").exists():
                assert process.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.01)
            streams = [Path(f"/proc/{process.pid}/fd/{number}").readlink() for number in (1, 2)]
            process.terminate()
            assert process.wait(timeout=60) == -signal.SIGTERM
        finally:
            process.kill()
    assert streams == [Path(os.devnull)] * 2
