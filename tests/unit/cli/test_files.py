import json

import pytest

from executor.cli.app import main
from executor.cli.command_line import CommandLine
from executor.errors import UnknownFile
from executor.records import FileRecord, WorkerFile
from tests.unit.cli.conftest import AT_NS, AT_TEXT

WORKER = "counter/alice"
TIMES = {"accessed_at": AT_TEXT, "modified_at": AT_TEXT, "changed_at": AT_TEXT}


def entry(name, kind="regular-file", size=0, **more):
    times = dict.fromkeys(TIMES, AT_NS)
    return FileRecord(name=name, kind=kind, size=size, links=1, writable=True, **times, **more)


@pytest.fixture
def files(store, alice):
    root = entry("/", "directory")
    entries = (
        entry("notes", "directory"),
        entry("rates.csv", size=1234),
        entry("latest", "symbolic-link", 9, target="rates.csv"),
        entry("red\x1b[31m\n", size=5),
    )
    store.files["/"] = WorkerFile(worker=WORKER, path="/", file=root, entries=entries)
    store.files["/empty"] = WorkerFile(
        worker=WORKER, path="/empty", file=entry("empty", "directory"), entries=()
    )
    store.files["/raw"] = WorkerFile(
        worker=WORKER,
        path="/raw",
        file=entry("raw", size=3),
        content=b"\xff\n\n",
        stopped_at="failed: trapped",
    )


def test_a_directory_is_a_table_whose_names_cannot_move_the_cursor(shem, files):
    ran = shem("files", WORKER)
    assert ran.stdout.splitlines() == [
        "KIND           SIZE  MODIFIED                        NAME",
        f"directory         0  {AT_TEXT}  notes",
        f"regular-file   1234  {AT_TEXT}  rates.csv",
        f"symbolic-link     9  {AT_TEXT}  latest -> rates.csv",
        f"regular-file      5  {AT_TEXT}  red\\x1b[31m\\n",
    ]
    assert shem("files", WORKER, "/empty") == (0, "", "")


def test_a_directory_as_json(shem, files):
    found = shem("files", WORKER, "--json").json
    assert found["worker"] == WORKER
    assert found["file"] == {
        "name": "/",
        "kind": "directory",
        "size": 0,
        "links": 1,
        "writable": True,
        **TIMES,
    }
    assert [e["name"] for e in found["entries"][:3]] == ["notes", "rates.csv", "latest"]
    assert found["entries"][2]["target"] == "rates.csv"
    assert "content" not in found


def test_a_file_is_its_bytes_and_nothing_else(store, files, tmp_path, monkeypatch, capfdbinary):
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".shem").mkdir()
    line = CommandLine(store.open_executor, store.open_reader)
    assert main(["files", WORKER, "/raw"], line) == 0
    out, err = capfdbinary.readouterr()
    assert out == b"\xff\n\n"
    note = f"{WORKER}: its files before the invocation that ended it (failed: trapped)\n"
    assert err == note.encode()


def test_a_file_as_json_is_base64(shem, files):
    found = shem("files", WORKER, "/raw", "--json").json
    assert found["content"] == {"base64": "/woK"}
    assert found["stopped_at"] == "failed: trapped"
    assert "entries" not in found


def test_what_is_not_there_is_not_found(shem, store, alice):
    assert shem("files", "counter/nobody").code == 3
    store.files = Refusing()
    ran = shem("files", WORKER, "/x", "--json")
    assert (ran.code, ran.stdout) == (3, "")
    assert json.loads(ran.stderr)["kind"] == "unknown-file"


class Refusing(dict):
    def __missing__(self, path):
        raise UnknownFile(f"no file {path!r}", where=WORKER)
