"""`shem promise` on a real store, each command a process's life of its own."""

import pytest

from executor.cli.app import main
from tests.support import guests
from tests.unit.cli.conftest import Ran

W = "approval/w"


@pytest.fixture
def shem(tmp_path, monkeypatch, capfdbinary):
    """Runs `shem` in this process in a folder where the approval workflow is deployed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SHEM_DATA", raising=False)
    (tmp_path / "approval.wasm").write_bytes(guests.approval_component())

    def run(*arguments: str) -> Ran:
        code = main(arguments)
        out, err = capfdbinary.readouterr()
        return Ran(code, out.decode(), err.decode())

    assert run("deploy", "approval.wasm").code == 0
    return run


def made(shem) -> str:
    """The number of a new promise."""
    return str(shem("invoke", W, "create", "--json").json["result"]["oplog-idx"])


def test_a_later_command_completes_what_a_suspended_worker_waits_for(shem):
    asked = ("invoke", W, "request", '"a bridge"', "--key", "k")
    waiting = shem(*asked, "--timeout", "2", "--json")
    assert (waiting.code, waiting.json["status"]) == (0, "pending")
    assert shem("run", "--until-idle").code == 0
    assert shem("worker", W, "--json").json["status"] == "suspended"
    [found] = shem("promise", "list", W, "--json").json["promises"]
    assert (found["status"], found["completed_at"], found["value"]) == ("pending", None, None)
    number = str(found["promise"])
    assert f"a bridge waits for promise {number}\n" in shem("oplog", W).stdout.replace("\\n", "\n")
    done = shem("promise", "complete", W, number, '"yes"')
    assert done == (0, f"{W}: promise {number} completed\n", "")
    assert shem("worker", W, "--json").json["status"] == "idle"
    assert shem(*asked).stdout == '("a bridge", "yes", 1)\n'


def test_a_second_completion_changes_nothing_and_says_so(shem):
    number = made(shem)
    first = shem("promise", "complete", W, number, "[0, 255]", "--json")
    assert first.json == {"worker": W, "promise": int(number), "done": True}
    second = shem("promise", "complete", W, number, '"late"')
    assert second == (0, f"{W}: promise {number} had been completed before\n", "")
    assert shem("promise", "complete", W, number, '"late"', "--json").json["done"] is False
    shown = shem("promise", "show", W, number, "--json").json
    assert (shown["status"], shown["value"]) == ("completed", {"base64": "AP8="})
    assert "value         [0, 255]\n" in shem("promise", "show", W, number).stdout


def test_a_value_is_text_numbers_or_a_file(shem, tmp_path):
    (tmp_path / "raw").write_bytes(b"\xff\n")
    numbers = [made(shem) for _ in range(3)]
    for number, value in zip(numbers, [['"grüß\\n"'], ["[]"], ["--file", "raw"]], strict=True):
        assert shem("promise", "complete", W, number, *value).code == 0
    found = shem("promise", "list", W, "--json").json["promises"]
    assert [item["value"]["base64"] for item in found] == ["Z3LDvMOfCg==", "", "/wo="]
    lines = shem("promise", "list", W).stdout.splitlines()
    assert lines[0].split() == ["PROMISE", "STATUS", "CREATED", "COMPLETED", "VALUE"]
    assert lines[1].endswith('"grüß\\n"')


@pytest.mark.parametrize(
    ("arguments", "code", "kind"),
    [
        (("complete", W, "1"), 2, "usage"),
        (("complete", W, "1", '"a"', "--file", "approval.wasm"), 2, "usage"),
        (("complete", W, "1", "yes"), 2, "bad-arguments"),
        (("complete", W, "1", "[256]"), 2, "bad-arguments"),
        (("complete", W, "1", '"a"'), 3, "unknown-promise"),
        (("complete", W, "0", '"a"'), 2, "usage"),
        (("complete", W, "1", "--file", "large"), 2, "bad-arguments"),
        (("complete", W, "1", "--file", "nowhere"), 2, "usage"),
        (("complete", "approval/nobody", "1", '"a"'), 3, "unknown-worker"),
        (("show", W, "1"), 3, "unknown-promise"),
        (("list", "approval/nobody"), 3, "unknown-worker"),
    ],
)
def test_what_cannot_be_completed_is_refused(shem, tmp_path, arguments, code, kind):
    made(shem)
    with (tmp_path / "large").open("wb") as large:
        large.truncate(10**8)
    refused = shem("promise", *arguments, "--json")
    assert (refused.code, refused.error["kind"]) == (code, kind)
    assert refused.error["hint"]


def test_a_long_list_comes_in_pages(shem):
    numbers = [int(made(shem)) for _ in range(3)]
    first = shem("promise", "list", W, "--limit", "2", "--json").json
    assert [item["promise"] for item in first["promises"]] == numbers[:2]
    rest = shem("promise", "--json", "list", W, "--cursor", str(first["cursor"])).json
    assert ([item["promise"] for item in rest["promises"]], rest["cursor"]) == (numbers[2:], None)
    assert shem("promise", "list", W, "--limit", "2").stderr == f"more: --cursor {numbers[1]}\n"
