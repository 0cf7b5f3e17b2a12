"""A disk that fills while a worker runs: its invocation is kept and goes on when there is room
again, by itself or in another process after a kill.
"""

import json
import time

import pytest

from tests.support import guests
from tests.support.small_disk import fill, small_disk
from tests.support.terminals import Terminals

BANK = """
import time
from pathlib import Path

from executor import Ok, host_function

HERE = Path(__file__).parent

@host_function("demo:bank/api", "charge: func(who: string, cents: u64) -> result<string, string>",
               type="write-remote")
def charge(call, who, cents):
    with (HERE / "charges").open("a") as file:
        file.write(call.key + "\\n")
    while not (HERE / "gate").exists():
        time.sleep(0.01)
    return Ok(who)
"""
LARGE = f'"{"x" * 60_000}"'
"""Recorded with each charge and its answer: no commit finds room for it by chance."""
CHARGE = ("invoke", "counter/alice", "charge-many", LARGE, "3", "--key", "k")
HELD_S = 2.5


@pytest.fixture
def terminals(tmp_path):
    (tmp_path / "small_disk_bank.py").write_text(BANK)
    (tmp_path / "counter.wasm").write_bytes(guests.counter_component())
    with small_disk(tmp_path / ".shem", "4m"):
        opened = Terminals(tmp_path)
        try:
            deployed = opened.shem("deploy", "counter.wasm", "--host", "small_disk_bank:charge")
            assert deployed.code == 0, deployed.stderr
            yield opened
        finally:
            opened.close()


def charges(terminals):
    file = terminals.folder / "charges"
    return file.read_text().split() if file.exists() else []


def fill_while_charging(terminals):
    """How an invocation ends whose disk fills during its first charge."""
    asked = terminals.start(*CHARGE)
    terminals.until(lambda: charges(terminals))
    fill(terminals.store / "ballast")
    (terminals.folder / "gate").touch()
    ended = asked.ended()
    assert (ended.code, ended.stdout) == (5, "")
    assert "accepted as k, continues when there is space: counter/alice: make" in ended.stderr
    assert ended.stderr.count("\n") == 1, "it is told once"
    return ended


def check_done(terminals):
    """The invocation is done, and nothing was charged twice but what the full disk has lost."""
    done = terminals.shem(*CHARGE, "--json")
    assert (done.code, done.json["deduplicated"]) == (0, True)
    keys = charges(terminals)
    assert len(set(keys)) == 3
    assert all(keys.count(key) == 1 for key in set(keys) - {keys[0]}), keys
    assert terminals.shem("replay", "counter/alice", "--json").json["divergence"] is None


def test_a_command_that_runs_the_store_itself_tells_a_full_disk_once(terminals):
    fill_while_charging(terminals)
    (terminals.store / "ballast").unlink()
    assert terminals.shem("run", "--until-idle").code == 0
    check_done(terminals)


@pytest.mark.parametrize("killed", [False, True], ids=["goes on", "killed"])
def test_what_was_accepted_before_a_disk_filled_is_done_when_there_is_room(terminals, killed):
    server = terminals.serve()
    ended = fill_while_charging(terminals)
    time.sleep(HELD_S)  # the disk is looked at meanwhile
    assert len(charges(terminals)) == 1, "no write is repeated while there is no room"
    assert terminals.has_work("counter/alice")
    again = terminals.shem(*CHARGE)
    assert (again.code, again.stdout, again.stderr) == (5, "", ended.stderr)
    if killed:
        server.kill()
        assert terminals.has_work("counter/alice"), "it can be read"
        assert terminals.shem("oplog", "counter/alice").code == 0
        refused = terminals.shem("run", "--until-idle", "--json")
        assert refused.code == 5
        assert json.loads(refused.stderr.splitlines()[-1])["kind"] == "disk-full"
        assert terminals.has_work("counter/alice")
    (terminals.store / "ballast").unlink()
    if killed:
        assert terminals.shem("run", "--until-idle").code == 0
    terminals.until(lambda: not terminals.has_work("counter/alice"))
    check_done(terminals)
