"""Bad input to the command line, on a real store: each gets its kind, exit code and sentence, in
one line and as JSON, and nothing in the store is lost or changed.
"""

import hashlib
import json
import resource
import socket
import subprocess
import sys

import pytest

from executor.cli.app import main
from executor.cli.output import exit_code
from executor.worker.rows import read_worker_id
from oplog.engine import TABLES, Batch, Row
from oplog.lmdb_engine import LmdbEngine
from tests.support import guests
from tests.support.bad_files import FILES
from tests.support.children import ROOT


class Ran:
    def __init__(self, code, stdout, stderr):
        self.code = code
        self.stdout = stdout
        self.stderr = stderr


@pytest.fixture
def shem(tmp_path, monkeypatch, capfdbinary):
    """Runs a command in this process, in a folder with the files above and a store: one component,
    one worker with an oplog.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SHEM_DATA", raising=False)
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)

    def run(*arguments):
        code = main(arguments)
        out, err = capfdbinary.readouterr()
        return Ran(code, out.decode(), err.decode())

    assert run("deploy", "adder.wat").code == 0
    assert run("invoke", "adder/w", "add", "5", "--key", "k1").stdout == "5\n"
    return run


def content(path):
    """A digest of everything in the store but the number of its openings."""
    digest = hashlib.sha256()
    engine = LmdbEngine.open(path, readonly=True)
    for table in TABLES:
        for key, value in engine.read_rows(table, limit=100_000):
            if (table, key) != ("meta", b"epoch"):
                digest.update(repr((table, key, value)).encode())
            if table == "workers":
                digest.update(repr(engine.read_entries(key, 1, 100_000)).encode())
    engine.close()
    return digest.hexdigest()


def refused(shem, arguments, *, kind, says, path=None):
    """The command is refused just so, twice; the store at `path` is what it was and goes on."""
    before = path and content(path)
    code = exit_code(kind)
    ran = shem(*arguments)
    assert (ran.code, ran.stdout) == (code, "")
    assert ran.stderr.startswith("shem: ")
    assert ran.stderr.count("\n") == 1
    assert says in ran.stderr
    as_json = shem(*arguments, "--json")
    assert (as_json.code, as_json.stdout) == (code, "")
    error = json.loads(as_json.stderr)
    assert error.keys() == {"kind", "message", "where", "hint"}
    assert error["hint"], "what to do"
    assert len(ran.stderr) < 2_000
    assert error["kind"] == kind
    if path:
        assert content(path) == before
        again = shem("invoke", "adder/w", "add", "5", "--key", "k1", "--json")
        assert json.loads(again.stdout)["result"] == 5


@pytest.mark.parametrize(
    ("arguments", "kind", "says"),
    [
        (("nowhere.wasm",), "usage", "nowhere.wasm: No such file or directory"),
        ((".",), "usage", "Is a directory"),
        (("empty.wasm",), "component-rejected", "cut short: it has 0 bytes: empty.wasm"),
        (("script.wasm",), "component-rejected", "not WebAssembly: it begins with b'#!/b'"),
        (("core.wasm",), "component-rejected", "a core WebAssembly module, not a component"),
        (("cut.wasm",), "component-rejected", "cut short: section range"),
        (("torn.wat",), "component-rejected", "the WAT text does not parse"),
        (("preview3.wat",), "component-rejected", "asynchronous functions of WASI 0.3"),
        (("missing.wat",), "component-rejected", "a:b/c@1.0.0: this interface is not offered;"),
        (("missing.wat",), "component-rejected", "offered: wasi:clocks/wall-clock@0.2"),
        (
            ("differs.wat",),
            "component-rejected",
            "the component wants func() -> string, the host has func() -> u64",
        ),
        (("relay.wat",), "component-rejected", "demo:relay/peer"),
        (("relay.wat", "--host", "nothing:call"), "host-binding", "make the module importable"),
        (("relay.wat", "--host", "hosts:HOST"), "host-binding", "name what is in the module hosts"),
        (("relay.wat", "--host", ""), "usage", "'' is not MODULE:ATTR: --host: name a module"),
        (("relay.wat", "--host", ":call"), "usage", "':call' is not MODULE:ATTR"),
        (("relay.wat", "--host", "hosts:"), "usage", "'hosts:' is not MODULE:ATTR"),
        (("relay.wat", "--host", "unsigned:f"), "usage", "the signature cannot be read: WIT line"),
        (("adder.wat", "--host", "hosts:wrong"), "usage", "imports nothing of --host hosts:wr"),
        (("adder.wat", "--name", "a/b"), "usage", "'a/b' cannot name a component"),
        (("adder.wat", "--name", ""), "usage", "'' cannot name a component"),
        (("adder.wat", "--name", "a\udcff"), "usage", r"'a\udcff' cannot name a component"),
        (("adder.wat", "--name", "a\nb"), "usage", r"'a\nb' cannot name a component"),
        (("adder.wat", "--name", "a\x1b[2Jb"), "usage", r"'a\x1b[2Jb' cannot name a component"),
        (("adder.wat", "--name", "a\x9bb"), "usage", r"'a\x9bb' cannot name a component"),
        (("adder.wat", "--name", "x" * 10_000), "usage", "x' cannot name a component: deploy"),
        (("adder.wat", "--limit", "memory=" + "9" * 10_000), "usage", "is not of the form"),
        (("tables.wat", "--limit", "tables=0"), "usage", "begins with 3 elements, and its limit"),
        (("adder.wat", "--file", "adder.wat:/x/"), "usage", "its DST names a directory"),
        (("adder.wat", "--file", "adder.wat:/\udcff"), "usage", "is not Unicode text"),
        (("",), "usage", "'': Is a directory"),
        (("relay.wat", "--host", "os:path"), "usage", "os:path holds no host function"),
        (("adder.wat", "--limit", "memory=1"), "usage", "less than one page"),
        (("adder.wat", "--limit", "memory=99999999999TiB"), "usage", "is too large: limit memory"),
        (("adder.wat", "--limit", "speed=1"), "usage", "there is no limit 'speed'"),
        (("adder.wat", "--env", "A=\udcff"), "usage", "not Unicode text"),
        (("adder.wat", "--retry", "max-attempts=0"), "usage", "max-attempts is from 1"),
        (("adder.wat", "--file", "adder.wat:/a/../../b"), "usage", "no worker could begin"),
    ],
)
def test_what_cannot_be_deployed_says_why(shem, tmp_path, arguments, kind, says):
    arguments = ("deploy", *arguments)
    refused(shem, arguments, kind=kind, says=says, path=tmp_path / ".shem")


@pytest.mark.parametrize(
    ("arguments", "kind", "says"),
    [
        (
            ("adder/w", "add"),
            "bad-arguments",
            "takes 1 argument, 0 given (missing: n): demo:adder/api.{add}: it is a func(n: u32)",
        ),
        (("adder/w", "add", "1", "2"), "bad-arguments", "2 given (1 too many)"),
        (("adder/w", "add", '"x"'), "bad-arguments", 'column 1: expected u32, found "x"'),
        (("adder/w", "add", "-1"), "bad-arguments", "expected u32 (0 to 4294967295)"),
        (("adder/w", "add", "5x"), "bad-arguments", "column 2: expected the end"),
        (("adder/w", "add", "\udcff"), "bad-arguments", "found a lone surrogate"),
        (("adder/w", "ad", "1"), "unknown-function", "did you mean demo:adder/api.{add}?"),
        (("adder/w", "\udcff", "1"), "unknown-function", r'is called "\udcff"'),
        (("addr/w", "add", "1"), "unknown-component", "no component 'addr': store: did you"),
        (("\udcff/w", "add", "1"), "usage", "does not name a worker"),
        (("adder", "add", "1"), "usage", "write COMPONENT/NAME"),
        (("adder/", "add", "1"), "usage", "write COMPONENT/NAME"),
        (("adder/a/b", "add", "1"), "usage", "write COMPONENT/NAME"),
        (("adder/" + "x" * 257, "add", "1"), "usage", "1 to 256 Unicode characters"),
        (("adder/\udcff", "add", "1"), "usage", r"'adder/\udcff' does not name a worker"),
        (("adder/" + "x" * 10_000, "add", "1"), "usage", "x…xxx"),
        (("adder/w", "y" * 10_000, "1"), "unknown-function", "y…yyy"),
        (("adder/w", "add", "z" * 10_000), "bad-arguments", "column 1: expected u32, found "),
        (
            ("adder/w", "add", "1", "--timeout", "z" * 10_000),
            "usage",
            "is not a number of seconds, 0",
        ),
        (("adder/w", "add", "1", "--key", ""), "usage", "key has 1 to 1024 bytes"),
        (("adder/w", "add", "1", "--key", "k" * 4_096), "usage", "key has 1 to 1024 bytes"),
        (("adder/w", "add", "1", "--key", "é" * 513), "usage", "key has 1 to 1024 bytes"),
        (("adder/w", "add", "1", "--key", "\udcff"), "usage", "is not Unicode text"),
        (("adder/w", "add", "2", "--key", "k1"), "key-conflict", "with other arguments"),
        (("adder/w", "get", "--key", "k1"), "key-conflict", "not for demo:adder/api.{get}"),
        (("adder/w", "add", "1", "--env", "A=1"), "exists", "with another environment"),
        (("adder/w", "add", "1", "--env", "A=\udcff"), "usage", "is not Unicode text"),
        (("adder/w", "add", "1", "--timeout", "-1"), "usage", "is not a number of seconds, 0"),
        (("adder/w", "add", "1", "--crash-at", "x"), "usage", "is not a crash point"),
    ],
)
def test_what_cannot_be_invoked_says_why(shem, tmp_path, arguments, kind, says):
    arguments = ("invoke", *arguments)
    refused(shem, arguments, kind=kind, says=says, path=tmp_path / ".shem")


@pytest.mark.parametrize(
    ("arguments", "kind", "says"),
    [
        (("worker", "adder/x"), "unknown-worker", "no worker 'adder/x': store: did you mean a"),
        (("worker", "addr/w"), "unknown-worker", "no component 'addr' either: did you mean adder?"),
        (("oplog", "other/w"), "unknown-worker", "see `shem workers`"),
        (("oplog", "adder/w", "--search", 'a "b'), "usage", "not closed: search, column 3"),
        (("component", "adde"), "unknown-component", "did you mean adder?"),
        (("workers", "adde"), "unknown-component", "did you mean adder?"),
        (("workers", "--cursor", "zz"), "usage", "'zz' is no cursor"),
        (("workers", "--status", "bad"), "usage", "is not one of 'idle'"),
        (
            ("oplog", "adder/w", "--search", "x" * 4_097),
            "usage",
            "4096 characters, not 4097",
        ),
        (("worker", "adder/" + "x" * 10_000), "unknown-worker", "no worker 'adder/xxx"),
        (("worker", "adder/x\n\x1b[2J"), "unknown-worker", r"no worker 'adder/x\n\x1b[2J'"),
        (("worker", ""), "unknown-worker", "no worker ''"),
        (("oplog", ""), "unknown-worker", "no worker ''"),
        (("delete", ""), "unknown-worker", "no worker ''"),
        (("cancel", "adder/w", "\udcff"), "unknown-key", r"with key '\udcff'"),
        (("revert", "adder/w", "--last", "9" * 30), "usage", "has 1 invocations to revert"),
        (("promise", "list", "adder/w", "--cursor", "9" * 30), "usage", "is not in the range"),
        (("components", "--data", "a\udcff"), "store-error", r"no store: a\udcff: deploy a comp"),
        (("completion",), "usage", "Choose from: bash, zsh, fish: shem completion"),
        (("workers", "--status", "x" * 10_000), "usage", "is not one of 'idle'"),
        (
            ("replay", "adder/w", "--to", "99"),
            "usage",
            "no entry 99 to replay to: adder/w: ",
        ),
        (("crash", "adder/x"), "unknown-worker", "did you mean adder/w?"),
        (("delete", "adder/\udcff"), "unknown-worker", r"no worker 'adder/\udcff'"),
        (("interrupt", "adder/x"), "unknown-worker", "no worker"),
        (("revert", "adder/w", "--to", "99"), "usage", "entry 99 is not one of them"),
        (("revert", "adder/w", "--last", "9"), "usage", "1 invocations to revert"),
        (("cancel", "adder/w", "nobody"), "unknown-key", "no invocation with key 'nobody'"),
        (("cancel", "adder/w", "k1"), "exists", "has its outcome"),
        (("resolve", "adder/w", "3", "--fail"), "usage", "no call of it is uncertain"),
        (("files", "adder/w", "/x"), "unknown-file", "no file '/x'"),
        (("files", "adder/w", "\udcff"), "unknown-file", "no file '\N{REPLACEMENT CHARACTER}'"),
        (("invok", "adder/w"), "usage", "Did you mean 'invoke'?"),
        (("oplog",), "usage", "Missing argument 'WORKER'"),
    ],
)
def test_what_cannot_be_asked_says_why(shem, tmp_path, arguments, kind, says):
    refused(shem, arguments, kind=kind, says=says, path=tmp_path / ".shem")


@pytest.mark.parametrize(
    ("deployed", "invoked", "kind", "says"),
    [
        (("adder.wat",), ("a/w", "fail"), "guest-trap", "unreachable"),
        (("exits.wat",), ("a/w", "leave"), "guest-exit", "exited with code 3"),
        (
            ("relay.wat", "--host", "hosts:raises"),
            ("a/w", "relay", '"x"'),
            "guest-error",
            "ValueError: no such account",
        ),
        (
            ("relay.wat", "--host", "hosts:wrong"),
            ("a/w", "relay", '"x"'),
            "guest-error",
            "demo:relay/peer.call",
        ),
        (
            ("relay.wat", "--host", "hosts:surrogate"),
            ("a/w", "relay", '"x"'),
            "guest-error",
            "surrogate",
        ),
        (("relay.wat", "--host", "hosts:own"), ("a/w", "relay", '"x"'), "guest-error", "Own: gone"),
        (
            ("relay.wat", "--host", "hosts:stops"),
            ("a/w", "relay", '"x"'),
            "guest-error",
            "SystemExit: 3",
        ),
        (
            ("relay.wat", "--host", "hosts:interrupts"),
            ("a/w", "relay", '"x"'),
            "guest-error",
            "KeyboardInterrupt",
        ),
        (("ill.wat", "--host", "hosts:wrong"), ("a/w", "send"), "guest-trap", "utf-8"),
        (("ill.wat", "--host", "hosts:wrong"), ("a/w", "text"), "guest-trap", "utf-8"),
        (("ill.wat", "--host", "hosts:wrong"), ("a/w", "char"), "guest-trap", "char"),
        (("two.wat",), ("a/w", "run-it"), "usage", "ambiguous: x:y/a.{run-it}, x:y/b.{run-it}"),
    ],
)
def test_what_fails_in_the_guest_or_at_its_host_is_a_sentence_too(
    shem, deployed, invoked, kind, says
):
    assert shem("deploy", *deployed, "--name", "a").code == 0
    ran = shem("invoke", *invoked, "--key", "k")
    assert (ran.code, ran.stdout) == (exit_code(kind), "")
    assert ran.stderr.startswith("shem: ")
    assert says in ran.stderr
    assert ran.stderr.count("\n") == 1
    again = shem("invoke", *invoked, "--key", "k", "--json")
    assert again.code == ran.code
    answer = json.loads(again.stdout or again.stderr)
    assert answer.get("error", answer)["hint"]
    assert answer.get("error", answer)["kind"] == kind
    assert shem("invoke", "adder/w", "add", "0").stdout == "5\n", "others go on"


ODD = "a\nb\x1b[2J\x9b\u202e"
SHOWN = r"a\nb\x1b[2J\x9b\u202e"


def test_names_and_keys_move_no_cursor_and_begin_no_line(shem):
    """Those of workers and keys may hold anything; JSON has them as they are."""
    worker = f"adder/{ODD}"
    assert shem("invoke", worker, "add", "1", "--key", ODD).stdout == "1\n"
    lines = shem("workers").stdout.splitlines()
    assert len(lines) == 3
    assert lines[1].startswith(f"adder/{SHOWN}  idle")
    columns = zip(lines, ("STATUS", "idle", "idle"), strict=True)
    assert len({line.index(what) for line, what in columns}) == 1
    found = shem("workers", "--json").stdout
    assert [item["worker"] for item in json.loads(found)["workers"]] == [worker, "adder/w"]
    for command in (
        ("worker", worker),
        ("oplog", worker),
        ("crash", worker),
        ("interrupt", worker),
        ("files", worker),
        ("cancel", worker, ODD),
        ("invoke", worker, "add", "2", "--key", ODD),
        ("invoke", worker, ODD),
        ("delete", worker),
        ("delete", worker),
    ):
        ran = shem(*command)
        text = ran.stdout + ran.stderr
        assert not {"\x1b", "\x9b", "\u202e"} & set(text), command
        assert not any(line.startswith("b\\") for line in text.splitlines()), command
        if command[0] != "files" and command[2:] != (ODD,):
            assert SHOWN in text, command


# -- stores ----------------------------------------------------------------------------------------


def test_a_corrupt_entry_is_named_and_every_other_worker_goes_on(shem, tmp_path):
    assert shem("invoke", "adder/bad", "add", "1", "--key", "k").code == 0
    engine = LmdbEngine.open(tmp_path / ".shem")
    worker_id = read_worker_id(engine, "adder/bad")
    last = engine.last_index(worker_id)
    damaged = Batch(entries=[(worker_id, last + 1, b"\xc1")])
    assert engine.write([damaged]) == [None]
    engine.close()
    for command in ("oplog", "worker", "crash", "delete"):
        refused(
            shem,
            (command, "adder/bad"),
            kind="store-corrupt",
            says=f"worker {worker_id.hex()}: entry {last + 1} is damaged",
            path=tmp_path / ".shem",
        )
    assert shem("invoke", "adder/w", "add", "1").stdout == "6\n"


def test_a_component_whose_bytes_are_damaged_is_named_and_is_back_with_its_file(shem, tmp_path):
    """As long as it is compiled nobody needs its bytes."""
    store = tmp_path / ".shem"
    digest = json.loads(shem("component", "adder", "--json").stdout)["revisions"][0]["digest"]
    engine = LmdbEngine.open(store)
    damaged = Row(table="component_bytes", key=bytes.fromhex(digest), value=b"\1\2\3\4")
    assert engine.write([Batch(rows=(damaged,))]) == [None]
    engine.close()
    assert shem("invoke", "adder/w", "add", "1").stdout == "6\n"
    for artifact in (store / "artifacts").iterdir():
        artifact.unlink()
    damage = f"the bytes of {digest} are damaged"
    accepted = ("invoke", "adder/w", "add", "1", "--key", "accepted")
    told = shem(*accepted, "--json")
    error = json.loads(told.stdout)["error"]
    assert (told.code, error["kind"], damage in error["message"]) == (5, "store-corrupt", True)
    refused(shem, ("crash", "adder/w"), kind="store-corrupt", says=damage)
    assert shem("deploy", "adder.wat").code == 0
    assert shem(*accepted).stdout == "7\n"


@pytest.mark.parametrize(
    ("row", "kind", "says"),
    [
        (("meta", b"format", b"7"), "store-format", "was written by format 7, this Shem reads 1"),
        (("component_names", b"adder", b"\xc1"), "store-corrupt", "row of a component is damaged"),
    ],
)
@pytest.mark.parametrize("command", [("component", "adder"), ("invoke", "adder/x", "get")])
def test_a_store_that_is_damaged_or_newer_is_left_as_it_is(
    shem, tmp_path, row, kind, says, command
):
    engine = LmdbEngine.open(tmp_path / ".shem")
    table, key, value = row
    assert engine.write([Batch(rows=[Row(table=table, key=key, value=value)])]) == [None]
    engine.close()
    refused(shem, command, kind=kind, says=says)


@pytest.mark.parametrize(
    ("place", "command", "kind", "says"),
    [
        ("nowhere", ("components",), "store-error", "there is no store: nowhere"),
        ("nowhere", ("invoke", "a/w", "f"), "store-error", "there is no store: nowhere"),
        ("nowhere/deep/store", ("deploy", "adder.wat"), "store-error", "nowhere/deep"),
        ("mounted", ("components",), "store-error", "there is no store: mounted: deploy"),
        ("mounted", ("invoke", "adder/w", "get"), "unknown-component", "no component 'adder'"),
        ("adder.wat", ("components",), "store-error", "there is no store: adder.wat"),
        ("adder.wat", ("deploy", "adder.wat"), "store-error", "no directory: adder.wat: name a"),
        ("/dev/null", ("deploy", "adder.wat"), "store-error", "no directory: /dev/null: name a"),
        ("/dev/null", ("run",), "store-error", "there is no store: /dev/null: deploy"),
        (
            "/proc/self",
            ("deploy", "adder.wat"),
            "store-error",
            "No such file or directory: /proc/s",
        ),
        ("/proc/self", ("workers",), "store-error", "there is no store: /proc/self: deploy"),
        ("x" * 300, ("workers",), "store-error", f"there is no store: {'x' * 300}: deploy"),
        ("x" * 300, ("deploy", "adder.wat"), "store-error", f"too long: {'x' * 300}: see that ."),
        ("", ("workers",), "usage", "'--data': it names no directory: shem workers: see"),
        ("", ("deploy", "adder.wat"), "usage", "'--data': it names no directory: shem deploy: se"),
    ],
)
def test_a_place_that_is_no_store_is_named(shem, tmp_path, place, command, kind, says):
    """An empty folder stands for the point at which nothing is mounted; the directory of this
    process in /proc for any that cannot be written.
    """
    (tmp_path / "mounted").mkdir()
    refused(shem, (*command, "--data", place), kind=kind, says=says)
    assert (tmp_path / "adder.wat").read_bytes() == guests.ADDER


def test_what_a_killed_process_has_left_is_taken_over(shem, tmp_path):
    store = tmp_path / ".shem"
    (store / "executor.lock").write_text("999999 shem run")
    with socket.socket(socket.AF_UNIX) as left:
        left.bind("left.sock")
    (tmp_path / "left.sock").rename(store / "control.sock")
    assert shem("invoke", "adder/w", "add", "1").stdout == "6\n"
    assert not (store / "control.sock").exists()


def test_a_store_that_another_process_holds_without_serving_it_is_busy(shem, tmp_path):
    held = LmdbEngine.open(tmp_path / ".shem")
    try:
        ran = subprocess.run(
            (sys.executable, "-m", "executor.cli", "invoke", "adder/w", "get", "--json"),
            env={"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        held.close()
    assert (ran.returncode, ran.stdout) == (4, "")
    assert json.loads(ran.stderr)["kind"] == "busy"
    assert shem("invoke", "adder/w", "get").stdout == "5\n"


@pytest.mark.parametrize(
    "command",
    [
        ("deploy", "two.wat", "--env", "A=" + "y" * 100_000),
        ("invoke", "adder/new", "add", "1", "--key", "k", "--env", "A=" + "y" * 100_000),
    ],
    ids=["deploy", "invoke"],
)
def test_a_full_disk_is_told_once_and_nothing_is_lost(shem, tmp_path, command):
    """The process may not make the file longer: that is as good as a disk without room."""
    before = content(tmp_path / ".shem")
    size = (tmp_path / ".shem" / "data.mdb").stat().st_size

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    ran = subprocess.run(
        (sys.executable, "-m", "executor.cli", *command),
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        preexec_fn=limit,
    )
    assert (ran.returncode, ran.stdout) == (5, "")
    assert ran.stderr.startswith("shem: ")
    assert ran.stderr.count("no room on the disk of the store") == 1
    assert ran.stderr.count("\n") == 1
    assert content(tmp_path / ".shem") == before
    assert shem("invoke", "adder/w", "add", "1").stdout == "6\n"


def test_a_component_that_serves_http_is_deployed_and_listed_and_cannot_be_invoked(shem, tmp_path):
    export = (
        "wasi:http/incoming-handler.{handle}:"
        " func(request: own<incoming-request>, response-out: own<response-outparam>)"
    )
    assert export in shem("deploy", "server.wat").stdout
    assert json.loads(shem("component", "server", "--json").stdout)["exports"] == [export]
    for arguments in (("1", "2"), (), ("{}",)):
        refused(
            shem,
            ("invoke", "server/w", "handle", *arguments),
            kind="bad-arguments",
            says="a request that came in over HTTP, and none comes in to a worker",
            path=tmp_path / ".shem",
        )
