"""The help: every command is listed and has examples, and each does what it stands there for."""

import json
import re
import shlex

import click
import pytest

from executor.cli.app import SECTIONS, START, main, shem
from executor.cli.command_line import CommandLine
from executor.cli.examples import EXAMPLES
from tests.support import guests, programs

BANK = (
    b"""
(component
  (import "demo:rates/api" (instance $rates (export "lookup" (func (result u32)))))
  (core func $lookup (canon lower (func $rates "lookup")))
"""
    + programs.MEMORY
    + b"""
  (core module $Main
    (import "rates" "lookup" (func $lookup (result i32)))
    (func (export "transfer") (param i32 i32 i32) (result i32)
      (i32.mul (call $lookup) (local.get 2))))
  (core instance $main (instantiate $Main
    (with "rates" (instance (export "lookup" (func $lookup))))))
  (func (export "transfer") (param "to" string) (param "cents" u32) (result u32)
    (canon lift (core func $main "transfer")
      (memory $mem) (realloc $realloc) string-encoding=utf8)))
"""
)

RATES = """
from executor import host_function

@host_function("demo:rates/api", "lookup: func() -> u32")
def lookup(call):
    return 2
"""

ENDLESS = ("shem run", "--follow")
KILLS = ("--crash-at", "shem torture", "shem demo")
PARSED_ONLY = (*ENDLESS, *KILLS)
"""Parts of examples that do not end by themselves, kill this process, or run for minutes."""

REFUSED = {
    "promise show": "unknown-promise",
    "promise complete": "unknown-promise",
    "resolve": "usage",
}
"""Commands whose examples need a worker in a state of its own: they are understood, and refused."""

OUTPUT = {
    "shem invoke counter/alice add 5 --key order-17": "5\n",
    """shem invoke bank/alice transfer '"bob"' 250""": "500\n",
    "shem files bank/alice /etc/rates": "EUR,2\n",
    "shem cancel counter/alice order-18": "counter/alice: order-18 cancelled\n",
    "shem revert bank/alice --last 1": "bank/alice: idle\n",
}


def commands(group=shem, before=()):
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, (*before, name))
        else:
            yield " ".join((*before, name)), command


def shem_part(example):
    """The command of a line that may also be a shell's: `source <(shem …)`, `shem … > FILE`."""
    return re.search(r"shem [^()>]*", example)[0].strip()


def parsed(arguments):
    """What click reads; raises where the command line would refuse."""
    command = shem
    while isinstance(command, click.Group):
        name, *arguments = arguments
        command = command.commands[name]
    return command.make_context(name, arguments, obj=CommandLine()).params


def test_every_command_is_listed_once_and_has_examples():
    listed = [str(command.name) for group in SECTIONS.values() for command in group]
    assert len(listed) == len(set(listed)) == len(shem.commands)
    assert set(EXAMPLES) == {name for name, _ in commands()}
    for name, command in commands():
        assert all(f"\n  {example}" in command.epilog for example in EXAMPLES[name])
        assert all(example.find(f"shem {name}") >= 0 for example in EXAMPLES[name])
        assert command.help, name


def test_the_help_says_where_to_start_and_lists_the_commands_by_what_they_are_for(capsys):
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    headings = [
        line.removesuffix(":") for line in shown.splitlines() if re.match(r"[A-Z].*:$", line)
    ]
    assert headings == ["Options", *SECTIONS]
    assert "  Start with `shem demo`" in shown
    assert "..." not in shown.replace("[ARGS]...", "")
    assert main(["promise", "--help"]) == 0
    assert "..." not in capsys.readouterr().out.replace("[ARGS]...", "")
    for example in START.splitlines()[2:-1]:
        assert f"\n  {example}\n" in shown
        assert parsed(shlex.split(example)[1:])


@pytest.mark.parametrize(
    ("command", "example"),
    [(name, example) for name, group in EXAMPLES.items() for example in group],
)
def test_an_example_is_understood(command, example, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rates.csv").write_text("")
    arguments = shlex.split(shem_part(example))[1:]
    assert arguments[: len(command.split())] == command.split()
    parsed(arguments)


def test_the_examples_work_one_after_another(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SHEM_DATA", raising=False)
    (tmp_path / "counter.wasm").write_bytes(guests.ADDER)
    (tmp_path / "bank.wasm").write_bytes(BANK)
    (tmp_path / "rates.py").write_text(RATES)
    (tmp_path / "rates.csv").write_text("EUR,2\n")
    outputs = dict(OUTPUT)
    for command, examples in EXAMPLES.items():
        for example in examples:
            if any(part in example for part in PARSED_ONLY) and "until-idle" not in example:
                continue
            code = main(shlex.split(shem_part(example))[1:])
            out, err = capfd.readouterr()
            if command in REFUSED:
                assert code != 0, example
                assert main([*shlex.split(shem_part(example))[1:], "--json"]) == code
                error = json.loads(capfd.readouterr().err)
                assert error["kind"] == REFUSED[command], example
                assert error["where"] == "bank/alice", "refused by the library, not for its form"
            else:
                assert code == 0, f"{example}: {err}"
            assert out == outputs.pop(example, out), example
    assert outputs == {}
