import json

import pytest
from click import BadParameter

from executor.cli import command_line
from executor.cli.app import shem as shem_group
from executor.cli.output import (
    EXIT_CODES,
    error_record,
    exit_code,
    leaf_error,
    printable,
    table,
)
from executor.errors import (
    ComponentRejected,
    GuestError,
    InternalError,
    StoreError,
    UsageError,
)
from oplog.errors import OplogBusyError, OplogFullError

KINDS = {
    1: "guest-trap guest-error guest-exit previous-failed deleted cancelled",
    2: "usage bad-arguments component-rejected",
    3: "unknown-component unknown-worker unknown-function unknown-key unknown-file unknown-promise",
    4: "key-conflict exists busy uncertain",
    5: "limit divergence disk-full store-corrupt store-format store-error host-binding internal",
    130: "interrupted",
}
"""By the exit code that a script sees."""

COMMANDS = (
    """deploy components component invoke oplog workers worker files crash replay resolve revert"""
    """ interrupt resume cancel promise delete run torture demo completion"""
)


def test_every_kind_of_error_has_its_exit_code():
    assert {kind: exit_code(kind) for kind in EXIT_CODES} == {
        kind: code for code, kinds in KINDS.items() for kind in kinds.split()
    }


def test_help_lists_every_command_on_stdout(shem):
    ran = shem("--help")
    assert (ran.code, ran.stderr) == (0, "")
    assert sorted(shem_group.commands) == sorted(COMMANDS.split())
    for command in COMMANDS.split():
        assert f"\n  {command} " in ran.stdout
        shown = shem(command, "-h")
        assert (shown.code, shown.stderr) == (0, "")
        assert "Commands:" in shown.stdout or f"  shem {command}" in shown.stdout
        assert "\n  --json " in shown.stdout


def test_no_command_at_all_is_bad_usage(shem):
    ran = shem()
    assert (ran.code, ran.stdout) == (2, "")
    assert "Usage: shem" in ran.stderr


def test_an_unknown_command_is_one_line(shem):
    ran = shem("depoly")
    assert (ran.code, ran.stdout) == (2, "")
    assert ran.stderr.startswith("shem: No such command 'depoly'")
    assert ran.stderr.count("\n") == 1


def test_options_of_every_command_stand_before_or_after_its_name(shem, store, tmp_path, counter):
    (tmp_path / "other").mkdir()
    seen = []
    store.open_reader = lambda path, original=store.open_reader: (
        seen.append(path),
        original(path),
    )[1]
    assert shem("--json", "--data", str(tmp_path / "other"), "components").json
    assert shem("components", "--json", "--data", str(tmp_path / "other")).json
    assert seen == [tmp_path / "other"] * 2


def test_the_store_is_the_option_else_the_variable_else_the_folder(tmp_path, monkeypatch):
    line = command_line.CommandLine()
    monkeypatch.delenv("SHEM_DATA", raising=False)
    assert str(line.store) == ".shem"
    monkeypatch.setenv("SHEM_DATA", "/elsewhere")
    assert str(line.store) == "/elsewhere"
    line.data = "/named"
    assert str(line.store) == "/named"


def test_without_a_store_only_a_deployment_makes_one(shem, store, tmp_path):
    missing = str(tmp_path / "missing")
    for command in (
        ("components",),
        ("worker", "a/b"),
        ("invoke", "a/b", "f"),
        ("invoke", "a/b", "f", "--crash-at", "append:1"),
        ("run",),
        ("delete", "a/b"),
    ):
        ran = shem(*command, "--data", missing, "--json")
        assert (ran.code, ran.stdout, ran.error["kind"]) == (5, "", "store-error")
    assert store.opened == []
    (tmp_path / "c.wasm").write_bytes(b"")
    assert shem("deploy", "c.wasm", "--data", missing).code == 0


@pytest.mark.parametrize(
    ("raised", "code", "kind"),
    [
        (ValueError("odd"), 5, "internal"),
        (InternalError("an invariant broke"), 5, "internal"),
        (OplogBusyError("process 12 runs this store"), 4, "busy"),
        (OplogFullError("no room"), 5, "disk-full"),
        (StoreError("format 7", kind="store-format"), 5, "store-format"),
    ],
)
def test_any_error_is_one_line_and_never_a_traceback(shem, store, raised, code, kind):
    def fail(_path):
        raise raised

    store.open_reader = fail
    ran = shem("components")
    assert (ran.code, ran.stdout) == (code, "")
    assert ran.stderr.startswith("shem: ")
    assert ran.stderr.count("\n") == 1
    assert shem("components", "--json").error["kind"] == kind


def test_debug_shows_the_traceback_before_the_line(shem, store):
    def fail(_path):
        raise ValueError("odd")

    store.open_reader = fail
    ran = shem("components", "--debug")
    assert "Traceback (most recent call last)" in ran.stderr
    assert ran.stderr.splitlines()[-1].startswith("shem: ValueError: odd: ")


def test_a_rejected_component_lists_every_import_in_one_line(shem, store, tmp_path):
    (tmp_path / "c.wasm").write_bytes(b"\0asm")
    store.refusal = ComponentRejected(
        "2 imports are missing", hint="bind them with --host", imports=("a:b/c.{d}", "e:f/g.{h}")
    )
    ran = shem("deploy", "c.wasm")
    assert ran == (
        2,
        "",
        "shem: 2 imports are missing; a:b/c.{d}; e:f/g.{h}: c.wasm: bind them with --host\n",
    )
    assert shem("deploy", "c.wasm", "--json").error == {
        "kind": "component-rejected",
        "message": "2 imports are missing\na:b/c.{d}\ne:f/g.{h}",
        "where": "c.wasm",
        "hint": "bind them with --host",
    }


def test_of_a_group_of_errors_the_one_that_counts_is_told():
    refusal = UsageError("no")
    group = ExceptionGroup("", [ValueError("x"), ExceptionGroup("", [refusal])])
    assert leaf_error(group) is refusal
    interrupt = KeyboardInterrupt()
    assert leaf_error(BaseExceptionGroup("", [refusal, interrupt])) is interrupt


def test_output_without_a_reader_ends_quietly(shem, store, monkeypatch, counter):
    def gone(_line):
        raise BrokenPipeError

    monkeypatch.setattr("executor.cli.deploy.write_line", gone)
    monkeypatch.setattr("executor.cli.app.discard_stdout", lambda: None)
    assert shem("components") == (0, "", "")


def test_of_a_very_long_refusal_the_middle_is_left_out_but_never_of_a_list_of_imports():
    long = "x" * 10_000
    for error in (UsageError(f"{long} is wrong", hint=long), BadParameter(f"{long} is wrong")):
        told = error_record(error)
        assert len(told.message) < 600
        assert told.message.endswith("is wrong")
        assert len(told.hint) < 600
    assert error_record(ComponentRejected(long)).message == long
    assert error_record(GuestError(long)).message == long, "what the guest said"


def test_what_moves_a_cursor_is_escaped_and_other_languages_are_not():
    assert printable("a\r\x07\x7f\x85\u2028\u2067b") == r"a\r\x07\x7f\x85\u2028\u2067b"
    for text in (
        "grüß dich",
        "日本\u3000語",
        "\u0645\u06cc\u200c\u062e",
        "👩\u200d🚀",
        "\\n",
        "1\xa0000",
    ):
        assert printable(text) == text
    [_, line] = table([("NAME",), ("a\tb",)])
    assert line == r"a\tb"


def test_the_version_is_told(shem):
    ran = shem("--version")
    assert ran.code == 0
    assert ran.stdout.startswith("shem, version ")


def test_json_lines_are_utf8_in_any_locale(shem, store, counter):
    store.components["zähler"] = type(counter)(
        **{**{f: getattr(counter, f) for f in counter.__struct_fields__}, "component": "zähler"}
    )
    ran = shem("components", "--json")
    assert "zähler" in ran.stdout
    assert len(json.loads(ran.stdout)) == 2
