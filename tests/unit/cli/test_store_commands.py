import io

import msgspec
import pytest
from rich.console import Console

from executor import RetryPolicy, RetryRule, WaveArguments
from executor.cli.deploy import shown_progress
from executor.cli.output import table
from executor.cli.retry_text import retry_option, retry_text
from executor.durable.retry import NEVER
from executor.durable.retry_rules import recorded_retry_rules
from executor.records import DivergenceRecord, InitialFile, Rebuild
from executor.worker.reader import WORKERS_PER_PAGE
from oplog.entry import Retry
from tests.unit.cli.conftest import AT_TEXT

ID = "8d2f9c1e-0000-4000-8000-000000000001"


def test_deploy_hands_over_every_option_and_prints_the_exports(shem, store, tmp_path):
    (tmp_path / "counter.wasm").write_bytes(b"\0asm")
    (tmp_path / "rates.csv").write_bytes(b"a,b")
    ran = shem(
        "deploy", "counter.wasm", "--env", "A=1", "--env", "B=", "--file", "rates.csv:/etc/rates",
        "--file", "rates.csv:/tmp/r:rw", "--host", "bank:api", "--limit", "memory=64MiB",
        "--config", "rate=7", "--retry", "max-attempts=5,min-delay=20ms,jitter=0",
        "--allow-net", "example.com:443", "--allow-net", "*.example.com",
    )  # fmt: skip
    assert ran == (0, "counter revision 0\n  demo:counter/api.{add}: func(n: u32) -> u32\n", "")
    [(_, wasm, options)] = store.calls
    assert wasm == b"\0asm"
    assert options == {
        "name": "counter",
        "env": {"A": "1", "B": ""},
        "files": (
            InitialFile(path="/etc/rates", content=b"a,b", writable=False),
            InitialFile(path="/tmp/r", content=b"a,b", writable=True),
        ),
        "host": ("bank:api",),
        "limits": {"memory": 64 << 20},
        "config": {"rate": "7"},
        "retry": (RetryPolicy(attempts_max=5, min_delay_s=0.02, max_jitter_factor=0.0),),
        "allow_net": ("example.com:443", "*.example.com"),
    }


def test_deploy_as_json(shem, tmp_path):
    (tmp_path / "counter.wasm").write_bytes(b"")
    assert shem("deploy", "counter.wasm", "--name", "c", "--json").json == {
        "component": "c",
        "id": ID,
        "revision": 0,
        "digest": "ab" * 32,
        "imports": ["wasi:clocks/wall-clock@0.2.0"],
        "exports": ["demo:counter/api.{add}: func(n: u32) -> u32"],
    }


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("nothing.wasm",), "nothing.wasm: No such file or directory"),
        (("c.wasm", "--limit", "memory=lots"), "'memory=lots' is not of the form NAME=SIZE"),
        (("c.wasm", "--limit", "=1"), "'=1' is not of the form NAME=SIZE"),
        (("c.wasm", "--file", "c.wasm:relative"), "is not SRC:DST[:ro|rw]"),
        (("c.wasm", "--file", "missing:/x"), "missing: No such file"),
        (("c.wasm", "--env", "=x"), "is not of the form K=V"),
        (("c.wasm", "--config", "x"), "is not of the form K=V"),
        (("c.wasm", "--retry", "max-attempts"), "'max-attempts' is none of max-attempts, min-"),
        (("c.wasm", "--retry", "tries=3"), "'tries=3' is none of max-attempts, min-delay,"),
        (("c.wasm", "--retry", ""), "'' is none of max-attempts"),
        (("c.wasm", "--retry", "min-delay=5"), "'5' is not a duration, as 100ms, 1.5s or 2m"),
        (("c.wasm", "--retry", "max-attempts=2.5"), "'2.5' is not a number, for max-attempts"),
        (("c.wasm", "--retry", "jitter=1,jitter=2"), "column 10: jitter is given twice"),
        (("c.wasm", "--retry", "a:tries=3"), "column 3: 'tries=3' is none of function, error,"),
    ],
)
def test_bad_input_of_deploy_is_a_usage_error(shem, store, tmp_path, options, says):
    (tmp_path / "c.wasm").write_bytes(b"")
    ran = shem("deploy", *options)
    assert (ran.code, ran.stdout) == (2, "")
    assert says in ran.stderr
    assert ran.stderr.count("\n") == 1
    assert store.calls == []


@pytest.mark.parametrize(
    "text",
    [
        "max-attempts=3,min-delay=100ms,max-delay=1s,multiplier=3,jitter=0.15",
        "max-attempts=1,min-delay=0ms,max-delay=7200s,multiplier=1.5,jitter=0",
    ],
)
def test_a_retry_policy_is_written_as_it_is_read(text):
    assert retry_text(retry_option(text)) == text
    assert retry_option(" max-delay=2h ") == RetryPolicy(max_delay_s=7_200.0)


def test_a_component_shows_with_which_options_each_revision_was_deployed(shem, store, counter):
    first = counter.revisions[0]
    second = msgspec.structs.replace(
        first,
        revision=1,
        env={"CURRENCY": "EUR"},
        config={"rate": "7"},
        files=(("/etc/rates", False), ("/tmp/r", True)),
        limits={"memory_bytes": 1 << 20, "of a later version": 3},
        host=("bank:charge",),
        host_directory="/srv/bank",
        allow_net=("*.example.com", "10.0.0.0/8"),
        retry=Retry(attempts_max=5, min_delay_ns=10**8, max_delay_ns=2 * 10**9, multiplier=1.0),
        retry_rules=recorded_retry_rules(
            [
                RetryRule(name="rates", statuses=(429, "5xx")),
                RetryRule(name="gone", errors=("no such, sorry",), policy=NEVER),
            ]
        ),
    )
    store.components["counter"] = msgspec.structs.replace(counter, revisions=(first, second))
    shown = shem("component", "counter").stdout.splitlines()
    at = next(n for n, line in enumerate(shown) if line.startswith("         1"))
    assert shown[at + 1 : at + 14] == [
        "    --env CURRENCY=EUR",
        "    --config rate=7",
        "    --file …:/etc/rates:ro",
        "    --file …:/tmp/r:rw",
        "    --limit memory=1048576",
        "    --limit of a later version=3",
        "    --host bank:charge, of /srv/bank",
        "    --allow-net *.example.com",
        "    --allow-net 10.0.0.0/8",
        "    --retry max-attempts=5,min-delay=100ms,max-delay=2s,multiplier=1,jitter=0",
        f"    --retry 'rates:status=429|5xx,{retry_text(RetryPolicy())}'",
        """    --retry 'gone:error="no such, sorry",never'""",
        "imports",
    ]
    plain, full = shem("component", "counter", "--json").json["revisions"]
    assert plain.keys() == {"revision", "digest", "bytes", "deployed_at"}
    policy = {"attempts_max": 3, "min_delay_ns": 10**8, "max_delay_ns": 10**9, "multiplier": 3.0}
    assert {name: value for name, value in full.items() if name not in plain} == {
        "env": {"CURRENCY": "EUR"},
        "config": {"rate": "7"},
        "files": [
            {"path": "/etc/rates", "writable": False},
            {"path": "/tmp/r", "writable": True},
        ],
        "limits": {"memory_bytes": 1 << 20, "of a later version": 3},
        "host": ["bank:charge"],
        "host_directory": "/srv/bank",
        "allow_net": ["*.example.com", "10.0.0.0/8"],
        "retry": {
            "attempts_max": 5, "min_delay_ns": 10**8, "max_delay_ns": 2 * 10**9, "multiplier": 1.0
        },
        "retry_rules": [
            {
                "name": "rates", "functions": [], "errors": [], "statuses": ["429", "5xx"],
                "policy": policy | {"max_jitter_factor": 0.15},
            },
            {
                "name": "gone", "functions": [], "errors": ["no such, sorry"], "statuses": [],
                "policy": policy | {"attempts_max": 1, "max_jitter_factor": 0.15},
            },
        ],
    }  # fmt: skip


def test_components_are_a_table_or_a_list(shem, counter, alice):
    assert shem("components").stdout.splitlines() == [
        "COMPONENT  REVISION  WORKERS  ID",
        f"counter           0        1  {ID}",
    ]
    assert shem("components", "--json").json == [
        {"component": "counter", "id": ID, "revision": 0, "workers": 1}
    ]


def test_an_empty_store_lists_nothing(shem):
    assert shem("components") == (0, "", "")
    assert shem("components", "--json").json == []
    assert shem("workers") == (0, "", "")
    assert shem("workers", "--json").json == {"workers": [], "cursor": None}


def test_one_component_in_full(shem, counter):
    assert shem("component", "counter", "--json").json == {
        "component": "counter",
        "id": ID,
        "revisions": [{"revision": 0, "digest": "ab" * 32, "bytes": 1234, "deployed_at": AT_TEXT}],
        "imports": ["wasi:clocks/wall-clock@0.2.0"],
        "exports": ["demo:counter/api.{add}: func(n: u32) -> u32"],
    }
    assert "demo:counter/api.{add}: func(n: u32) -> u32" in shem("component", "counter").stdout


def test_what_is_not_there_is_exit_3(shem):
    assert shem("component", "none", "--json").error["kind"] == "unknown-component"
    for command in ("worker", "oplog", "crash", "replay", "revert --last 1", "delete"):
        ran = shem(*command.split(), "no/body", "--json")
        assert (ran.code, ran.stdout, ran.error["kind"]) == (3, "", "unknown-worker")


def test_workers_are_filtered_and_paged(shem, store, alice):
    ran = shem("workers", "counter", "--status", "idle", "--limit", "5", "--cursor", "c", "--json")
    assert store.calls == [("workers", "counter", "idle", 5, "c")]
    assert ran.json == {
        "workers": [
            {
                "worker": "counter/alice",
                "component": "counter",
                "revision": 0,
                "status": "idle",
                "pending": 0,
                "entries": 0,
                "created_at": AT_TEXT,
                "last_error": None,
            }
        ],
        "cursor": None,
    }
    assert "counter/alice  idle" in shem("workers").stdout
    assert store.calls[-1] == ("workers", None, None, WORKERS_PER_PAGE, None)
    assert shem("workers", "--status", "asleep").code == 2


def test_one_worker_in_full(shem, alice):
    assert shem("worker", "counter/alice", "--json").json == {
        "worker": "counter/alice",
        "id": "00112233445566778899aabbccddeeff",
        "component": "counter",
        "revision": 0,
        "status": "idle",
        "env": {"COLOUR": "blue"},
        "args": ["counter", "-v"],
        "allow_net": ["example.com:443"],
        "pending": [],
        "current_key": None,
        "entries": 7,
        "bytes": 812,
        "retries": 0,
        "last_error": None,
        "created_at": AT_TEXT,
        "loaded": False,
    }
    assert "env          COLOUR=blue" in shem("worker", "counter/alice").stdout.splitlines()


def test_crash_and_replay_report_the_rebuild(shem, store, alice):
    store.rebuild = Rebuild(
        worker="counter/alice", entries=7, replayed=5, ms=1.23456, divergence=None
    )
    assert shem("crash", "counter/alice", "--json").json == {
        "worker": "counter/alice",
        "entries": 7,
        "replayed": 5,
        "ms": 1.235,
        "divergence": None,
    }
    ran = shem("replay", "counter/alice", "--to", "4")
    assert (ran.code, ran.stderr) == (0, "")
    assert ran.stdout == (
        "counter/alice: 5 recorded steps replayed in 1.2 ms of an oplog of 7 entries,"
        " no divergence\n"
    )
    assert store.calls == [("crash", "counter/alice", False), ("replay", "counter/alice", 4)]


def test_a_rebuild_that_stops_at_a_failure_says_so(shem, store, alice):
    store.rebuild = Rebuild(
        worker="counter/alice", entries=9, replayed=5, ms=1, divergence=None, stopped_at="k3 failed"
    )
    assert shem("replay", "counter/alice", "--json").json["stopped_at"] == "k3 failed"
    assert shem("replay", "counter/alice").stdout.endswith("no divergence, stopped: k3 failed\n")


def test_a_divergence_is_reported_and_exit_5(shem, store, alice):
    store.rebuild = Rebuild(
        worker="counter/alice",
        entries=7,
        replayed=3,
        ms=1,
        divergence=DivergenceRecord(index=4, recorded="now", requested="random"),
    )
    ran = shem("replay", "counter/alice", "--json")
    assert (ran.code, ran.stderr) == (5, "")
    assert ran.json["divergence"] == {"index": 4, "recorded": "now", "requested": "random"}
    ran = shem("crash", "counter/alice")
    assert ran.code == 5
    assert "diverged" in ran.stdout
    assert ran.stderr.startswith("shem: replay diverged at entry 4: recorded now, requested random")


def test_delete_says_what_was_done(shem, store, alice):
    assert shem("delete", "counter/alice", "--json").json == {
        "worker": "counter/alice",
        "done": True,
        "status": "deleted",
    }
    assert shem("delete", "counter/alice") == (0, "counter/alice: deleted\n", "")


def test_revert_names_the_last_entry_or_the_number_of_invocations(shem, store, alice):
    assert shem("revert", "counter/alice", "--to", "5") == (0, "counter/alice: idle\n", "")
    assert shem("revert", "counter/alice", "--last", "2", "--json").json == {
        "worker": "counter/alice",
        "done": True,
        "status": "idle",
    }
    assert store.calls == [
        ("revert", "counter/alice", 5, None, False),
        ("revert", "counter/alice", None, 2, False),
    ]
    for options in ((), ("--to", "5", "--last", "2"), ("--to", "0")):
        assert shem("revert", "counter/alice", *options).code == 2


@pytest.mark.parametrize(
    ("options", "choice", "value"),
    [
        (("--repeat",), "repeat", None),
        (("--fail",), "fail", None),
        (("--value", 'ok("x")'), "value", WaveArguments(('ok("x")',))),
    ],
)
def test_resolve_says_one_word_on_one_call(shem, store, alice, options, choice, value):
    assert shem("resolve", "counter/alice", "4", *options) == (0, "counter/alice: running\n", "")
    assert store.calls == [("resolve", "counter/alice", 4, choice, value)]


def test_resolve_wants_just_one_word(shem, store, alice):
    for options in ((), ("--repeat", "--fail"), ("--fail", "--value", "1")):
        assert shem("resolve", "counter/alice", "4", *options).code == 2
    assert store.calls == []


def test_run_takes_up_all_workers_and_the_others_only_those_they_name(
    shem, store, alice, capfdbinary
):
    assert shem("run", "--until-idle") == (0, "", "")
    assert store.calls[0] == ("run", True)
    shem("delete", "counter/alice")
    assert [options.get("recover") for _, options in store.opened] == ["named", "named"]
    store.opened[0][1]["report"]("a/b: diverged\nat 7")
    assert capfdbinary.readouterr().err == b"shem: a/b: diverged; at 7\n"


def test_columns_of_a_table_are_aligned_by_their_width_on_a_terminal():
    assert table([("NAME", "N"), ("日本", 5), ("abc", 100)]) == [
        "NAME    N",
        "日本    5",
        "abc   100",
    ]


def test_progress_shows_the_name_of_a_file_as_it_is(monkeypatch):
    """Neither as markup nor as what moves a cursor."""
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=True, width=60)
    monkeypatch.setattr("executor.cli.deploy.stderr_console", lambda: console)
    with shown_progress("running [/x]\x1b[2J.wat"):
        pass
    assert r"running [/x]\x1b[2J.wat" in shown.getvalue()
    with shown_progress("begun") as progress:
        assert progress is not None
        progress("storing [/]")
    assert "storing [/]" in shown.getvalue()
