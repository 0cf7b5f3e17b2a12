"""One store, several terminals: who runs it is asked by the others, and may be lost at any time."""

import json
import signal
import socket
import stat
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import pytest
import trio

from executor import Executor
from executor.errors import HostBindingError
from executor.server.door import short_path
from guests import recipes
from tests.support import guests
from tests.support.terminals import Terminals


@pytest.fixture
def terminals(tmp_path):
    (tmp_path / "adder.wasm").write_bytes(guests.ADDER)
    opened = Terminals(tmp_path)
    assert opened.shem("deploy", "adder.wasm").code == 0
    yield opened
    opened.close()


def test_a_command_asks_the_process_that_runs_the_store_and_answers_the_same(terminals):
    alone = terminals.shem("invoke", "adder/w", "add", "5", "--key", "k1", "--json")
    server = terminals.serve()
    assert stat.S_IMODE((terminals.store / "control.sock").stat().st_mode) == 0o600
    asked = terminals.shem("invoke", "adder/w", "add", "2", "--key", "k2", "--json")
    assert asked.json == alone.json | {"key": "k2", "result": 7, "wave": "7"}
    refusals = {
        ("invoke", "adder/w", "add", "2", "--key", "k1"): 4,
        ("invoke", "adder/w", "adt"): 3,
        ("invoke", "adder/w", "add", '"x"'): 2,
        ("invoke", "nobody/w", "add", "2"): 3,
        ("delete", "nothing/nobody"): 3,
        ("invoke", "adder/w", "add", "2", "--key", ""): 2,
        ("cancel", "adder/w", "\udcff"): 3,
        ("replay", "adder/w", "--to", "9" * 30): 2,
    }
    said = {arguments: terminals.shem(*arguments) for arguments in refusals}
    assert [ended.code for ended in said.values()] == list(refusals.values())
    rebuilt = terminals.shem("crash", "adder/w", "--json")
    assert (rebuilt.code, rebuilt.json["divergence"]) == (0, None)
    assert terminals.shem("replay", "adder/w", "--json").json["replayed"] == 4
    assert terminals.shem("delete", "adder/\udcff").code == 3
    assert terminals.shem("invoke", "adder/\udcff", "add", "1").code == 2
    failed = terminals.shem("invoke", "adder/bad", "fail")
    assert failed.code == 1
    assert "unreachable" in failed.stderr
    assert terminals.shem("deploy", "adder.wasm", "--name", "other").code == 0
    assert server.press_ctrl_c().code == 130
    assert not (terminals.store / "control.sock").exists()
    assert {key: terminals.shem(*key) for key in refusals} == said
    assert terminals.shem("components", "--json").json[1]["component"] == "other"


BANK = """
from executor import Ok, host_function
@host_function("demo:bank/api", "charge: func(who: string, cents: u64) -> result<string, string>")
async def charge(call, who, cents):
    return Ok("")
"""


def test_run_says_once_of_each_worker_why_it_stands_still(terminals, tmp_path):
    (tmp_path / "counter.wasm").write_bytes(guests.counter_component())
    (tmp_path / "bank.py").write_text(BANK)
    assert terminals.shem("deploy", "counter.wasm", "--host", "bank:charge").code == 0
    for worker in ("counter/a", "counter/b"):
        assert terminals.shem("invoke", worker, "add", "1", "--no-wait").code == 0
    (tmp_path / "bank.py").unlink()
    ran = terminals.shem("run", "--until-idle")
    *reports, error = [line.split(": ") for line in ran.stderr.splitlines()]
    assert sorted(report[1] for report in reports) == ["counter/a", "counter/b"]
    assert (ran.code, error[1]) == (5, "host function cannot be imported")


def test_what_was_accepted_for_a_missing_host_function_is_told_and_runs_once_it_is_there(
    terminals, tmp_path
):
    (tmp_path / "counter.wasm").write_bytes(guests.counter_component())
    (tmp_path / "bank.py").write_text(BANK)
    assert terminals.shem("deploy", "counter.wasm", "--host", "bank:charge").code == 0
    (tmp_path / "bank.py").unlink()
    told = "accepted as k1, continues when its host functions can be imported"
    for _ in range(2):
        refused = terminals.shem("invoke", "counter/a", "add", "1", "--key", "k1")
        assert (refused.code, refused.stderr.count(told)) == (5, 1), refused.stderr

    async def asked_by_the_library():
        async with Executor.open(terminals.store) as shem:
            with pytest.raises(HostBindingError, match="accepted as k2, continues when"):
                await shem.invoke("counter/a", "add", [1], key="k2")

    trio.run(asked_by_the_library)
    assert terminals.shem("worker", "counter/a", "--json").json["pending"] == ["k1", "k2"]
    (tmp_path / "bank.py").write_text(BANK)
    assert terminals.shem("invoke", "counter/a", "add", "1", "--key", "k1").stdout == "1\n"


def test_a_worker_is_loaded_where_the_process_that_runs_the_store_has_it(terminals):
    def loaded():
        return terminals.shem("worker", "adder/w", "--json").json["loaded"]

    assert terminals.shem("invoke", "adder/w", "add", "5").code == 0
    assert loaded() is False
    server = terminals.serve()
    assert loaded() is False, "an idle worker is not loaded before it is needed"
    assert terminals.shem("invoke", "adder/w", "add", "1").code == 0
    assert loaded() is True
    assert "loaded       yes" in terminals.shem("worker", "adder/w").stdout
    server.kill()
    assert loaded() is False, "a killed process leaves its socket"


def test_an_oplog_is_followed_from_another_terminal_until_its_worker_is_deleted(terminals):
    assert terminals.shem("invoke", "adder/w", "add", "5", "--key", "first").code == 0
    alone = terminals.start("oplog", "adder/w", "--follow")
    assert "create" in alone.process.stdout.readline()
    server = terminals.serve()
    searching = terminals.start(
        "oplog", "adder/w", "--follow", "--json", "--search", "key:second OR result:7"
    )
    assert terminals.shem("invoke", "adder/w", "add", "2", "--key", "second").code == 0
    found = [json.loads(searching.process.stdout.readline()) for _ in range(3)]
    assert [entry["kind"] for entry in found] == [
        "pending-invocation",
        "invocation-started",
        "invocation-finished",
    ]
    limited = terminals.shem("oplog", "adder/w", "--follow", "--limit", "2")
    assert (limited.code, limited.stderr) == (0, "")
    ended = alone.press_ctrl_c()
    assert ended.code == 130
    assert ended.stdout.endswith("  invocation-finished   7\n")
    assert ended.stderr.startswith("shem: interrupted")
    assert terminals.shem("delete", "adder/w").code == 0
    told = searching.ended()
    assert (told.code, told.stdout) == (1, "")
    assert json.loads(told.stderr) == {
        "kind": "deleted",
        "message": "the worker was deleted",
        "where": "adder/w",
        "hint": "it has no more entries",
    }
    assert server.press_ctrl_c().code == 130


def test_workers_are_listed_page_by_page_while_others_come_and_go(terminals):
    server = terminals.serve()
    for name in "abcde":
        assert terminals.shem("invoke", f"adder/{name}", "add", "1").code == 0
    assert terminals.shem("invoke", "adder/broken", "fail").code == 1

    def page(*options):
        listed = terminals.shem("workers", "adder", "--limit", "2", "--json", *options).json
        return [worker["worker"] for worker in listed["workers"]], listed["cursor"]

    first, cursor = page()
    assert first == ["adder/a", "adder/b"]
    for gone in ("adder/b", "adder/broken", "adder/c"):
        assert terminals.shem("delete", gone).code == 0
    assert page("--cursor", cursor) == (["adder/d", "adder/e"], page("--cursor", cursor)[1])
    assert page("--status", "failed") == ([], None)
    refused = terminals.shem("workers", "--cursor", "12xy")
    assert (refused.code, refused.stdout) == (2, "")
    assert "'12xy' is no cursor" in refused.stderr
    assert server.press_ctrl_c().code == 130


def test_output_of_the_guest_reaches_the_terminal_that_asked(terminals):
    recipes.build("printer")
    printer = str(recipes.GUESTS / "build" / "printer.wasm")
    assert terminals.shem("deploy", printer).code == 0
    server = terminals.serve()
    asked = terminals.shem("invoke", "printer/w", "print", '"hello"', "--key", "k")
    assert (asked.code, asked.stdout, asked.stderr) == (0, "1\n", "hello\n")
    other = terminals.shem("invoke", "printer/x", "print", '"other"')
    key, _, output = other.stderr.partition("\n")
    assert key.startswith("key: ")
    assert output == "other\n"
    assert server.press_ctrl_c().stderr.startswith("hello\nother\n")


def test_files_are_read_from_any_terminal(terminals):
    assert terminals.shem("deploy", str(recipes.build("scribe"))).code == 0
    wrote = terminals.shem("invoke", "scribe/w", "write", '"a"', '"hello\\n"')
    assert (wrote.code, wrote.stdout) == (0, "ok\n")
    alone = terminals.shem("files", "scribe/w", "--json")
    assert [entry["name"] for entry in alone.json["entries"]] == ["a"]
    server = terminals.serve()
    assert terminals.shem("files", "scribe/w", "--json") == alone
    assert terminals.shem("files", "scribe/w", "/a").stdout == "hello\n"
    missing = terminals.shem("files", "scribe/w", "/b")
    assert (missing.code, missing.stdout) == (3, "")
    assert missing.stderr.startswith("shem: no file '/b': there is nothing: scribe/w: ")
    assert server.press_ctrl_c().code == 130


def test_ctrl_c_ends_the_command_and_not_the_work(terminals):
    server = terminals.serve()
    asked = terminals.start("invoke", "adder/w", "spin", "--key", "k")
    terminals.until(lambda: terminals.has_work("adder/w"))
    assert asked.press_ctrl_c().code == 130
    assert terminals.has_work("adder/w")
    waited = terminals.shem("invoke", "adder/w", "spin", "--key", "k", "--timeout", "0.2", "--json")
    assert (waited.code, waited.json["status"]) == (0, "pending")
    assert terminals.shem("invoke", "adder/other", "add", "1").code == 0
    assert server.press_ctrl_c().code == 130


def test_a_command_whose_server_is_killed_says_so_and_the_next_one_runs_the_store(terminals):
    server = terminals.serve()
    asked = terminals.start("invoke", "adder/w", "spin", "--key", "k", "--json")
    terminals.until(lambda: terminals.has_work("adder/w"))
    # It is accepted; a whole command later the asking one has heard so, and it runs.
    assert terminals.shem("worker", "adder/w", "--json").json["status"] == "running"
    server.kill()
    ended = asked.ended()
    assert (ended.code, ended.json["status"]) == (5, "pending")
    assert ended.json["error"]["message"].endswith("ended before it answered")
    assert (terminals.store / "control.sock").exists()
    assert terminals.shem("invoke", "adder/x", "add", "1").stdout == "1\n"
    assert not (terminals.store / "control.sock").exists()
    assert terminals.shem("delete", "adder/w").code == 0


@pytest.mark.parametrize("ends", [signal.SIGKILL, signal.SIGINT])
def test_a_second_run_says_who_runs_the_store_and_takes_over_when_that_one_is_gone(terminals, ends):
    server = terminals.serve()
    second = terminals.start("run")
    said = second.process.stderr.readline()
    assert said.startswith(f"shem: the store is in use by process {server.process.pid} (")
    assert said.endswith("shows what is run there, and takes over when that one ends\n")
    assert terminals.shem("invoke", "adder/w", "add", "1").stdout == "1\n"
    server.process.send_signal(ends)
    server.ended()
    lock = terminals.store / "executor.lock"
    terminals.until(lambda: str(second.process.pid) in lock.read_text())
    assert terminals.shem("invoke", "adder/w", "add", "1").stdout == "2\n"
    second.process.send_signal(signal.SIGINT)
    assert second.process.stderr.read().startswith("shem: that process has ended: this one takes")
    assert second.ended().code == 130


def test_a_run_until_idle_finishes_the_work_of_a_process_that_is_killed(terminals):
    server = terminals.serve()
    spinning = terminals.start("invoke", "adder/w", "spin")
    terminals.until(lambda: terminals.status("adder/w") == "running")  # its command waits for it
    second = terminals.start("run", "--until-idle")
    assert second.process.stderr.readline().endswith("waits until nothing is left to run\n")
    server.kill()
    assert spinning.ended().code == 5
    assert terminals.shem("interrupt", "adder/w").code == 0
    second.process.stderr.read()
    assert second.ended().code == 0


def test_a_command_goes_on_by_itself_when_its_server_ends_in_order(terminals):
    server = terminals.serve()
    asked = terminals.start("invoke", "adder/w", "spin")
    terminals.until(lambda: terminals.has_work("adder/w"))
    assert server.press_ctrl_c().code == 130
    lock = terminals.store / "executor.lock"
    terminals.until(lambda: str(asked.process.pid) in lock.read_text())
    assert terminals.shem("invoke", "adder/x", "add", "1").stdout == "1\n"
    ended = asked.press_ctrl_c()
    assert ended.code == 130
    assert ended.stderr.count("key: ") == 1


def test_commands_that_start_at_the_same_moment_all_have_their_answer(terminals):
    with ThreadPoolExecutor(8) as pool:
        ended = list(pool.map(lambda _: terminals.shem("invoke", "adder/w", "add", "1"), range(16)))
    assert [one.code for one in ended] == [0] * 16, [one.stderr for one in ended]
    assert sorted(int(one.stdout) for one in ended) == list(range(1, 17))


def test_every_invocation_runs_once_though_whoever_runs_the_store_is_killed_again_and_again(
    terminals,
):
    def insist(key):
        """As a user would: the same key, until there is an answer."""
        codes = []
        while not codes or codes[-1] == 5:
            codes.append(terminals.shem("invoke", "adder/w", "add", "1", "--key", key).code)
        return codes

    with ThreadPoolExecutor(3) as pool:
        asked = [pool.submit(insist, f"k{number}") for number in range(9)]
        while not all(one.done() for one in asked):
            server = terminals.start("run")
            wait(asked, timeout=1.5)
            server.kill()
        assert {one.result()[-1] for one in asked} == {0}
    assert terminals.shem("invoke", "adder/w", "get").stdout == "9\n"
    assert terminals.shem("replay", "adder/w", "--json").json["divergence"] is None


def test_crash_points_are_refused_while_another_process_runs_the_store(terminals):
    server = terminals.serve()
    refused = terminals.shem("invoke", "adder/w", "add", "1", "--crash-at", "append:1")
    assert refused.code == 4
    assert str(server.process.pid) in refused.stderr


def test_what_only_is_accepted_runs_in_a_process_that_runs_everything(terminals):
    terminals.serve()
    accepted = terminals.shem("invoke", "adder/w", "add", "3", "--no-wait", "--key", "k", "--json")
    assert (accepted.code, accepted.json["key"]) == (0, "k")
    terminals.until(lambda: not terminals.has_work("adder/w"))
    assert terminals.shem("run", "--until-idle").code == 0
    assert terminals.shem("invoke", "adder/w", "add", "3", "--key", "k").stdout == "3\n"


def test_a_worker_is_interrupted_and_resumed_from_other_terminals(terminals):
    server = terminals.serve()
    asked = terminals.start("invoke", "adder/w", "spin", "--key", "k", "--json")
    terminals.until(lambda: terminals.has_work("adder/w"))
    waiting = ("adder/w", "add", "1", "--key", "k2", "--json")
    terminals.shem("invoke", *waiting, "--no-wait")
    done = terminals.shem("interrupt", "adder/w", "--json")
    assert done.json == {"worker": "adder/w", "done": True, "status": "interrupted"}
    ended = asked.ended()
    assert (ended.code, ended.json["status"]) == (130, "pending")
    assert (ended.json["error"]["kind"], ended.stderr) == ("interrupted", "")
    assert server.press_ctrl_c().code == 130
    assert terminals.shem("run", "--until-idle").code == 0
    assert terminals.status("adder/w") == "interrupted"
    assert terminals.shem("invoke", *waiting).code == 130
    assert terminals.shem("cancel", "adder/w", "k2").stdout == "adder/w: k2 cancelled\n"
    assert terminals.shem("invoke", *waiting).json["error"]["kind"] == "cancelled"
    assert terminals.shem("cancel", "adder/w", "nobody's").code == 3
    terminals.serve()
    assert terminals.shem("resume", "adder/w", "--json").json["status"] == "running"
    assert terminals.shem("cancel", "adder/w", "k").code == 4
    assert terminals.shem("interrupt", "adder/other").code == 3


def test_followers_and_deletions_from_other_terminals(terminals):
    terminals.serve()
    asked = terminals.start("invoke", "adder/w", "spin", "--json")
    terminals.until(lambda: terminals.has_work("adder/w"))
    follower = terminals.start("oplog", "adder/w", "--follow", "--json")
    assert '"kind": "create"' in follower.process.stdout.readline()
    assert terminals.shem("delete", "adder/w").code == 0
    ended = asked.ended()
    assert (ended.code, ended.json["error"]["kind"]) == (1, "deleted")
    assert '"kind": "pending-invocation"' in follower.process.stdout.read()
    followed = follower.ended()
    assert (followed.code, json.loads(followed.stderr)["kind"]) == (1, "deleted")


def test_a_store_with_a_long_path_is_reached(tmp_path):
    folder = tmp_path / ("a" * 120)
    folder.mkdir()
    (folder / "adder.wasm").write_bytes(guests.ADDER)
    opened = Terminals(folder)
    try:
        assert opened.shem("deploy", "adder.wasm").code == 0
        server = opened.serve()
        assert opened.shem("invoke", "adder/w", "add", "1").stdout == "1\n"
        server.kill()
    finally:
        opened.close()


def test_a_connection_ends_with_its_request_where_the_store_is_run(terminals):
    server = terminals.serve()

    def descriptors():
        return len(list(Path(f"/proc/{server.process.pid}/fd").iterdir()))

    assert terminals.shem("invoke", "adder/w", "add", "1").code == 0
    before = descriptors()
    for _ in range(5):
        assert terminals.shem("invoke", "adder/w", "add", "1").code == 0
        assert terminals.shem("worker", "adder/w").code == 0
    with socket.socket(socket.AF_UNIX) as empty, short_path(terminals.store) as short:
        empty.connect(short)
    terminals.until(lambda: descriptors() <= before)
