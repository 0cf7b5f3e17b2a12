"""Every refusal in the code says what to do: an error line ends with it."""

import ast
from pathlib import Path

import executor
from executor import errors
from executor.errors import ShemError

ROOT = Path(executor.__file__).parent
ELSEWHERE = {"GuestError", "GuestTrap", "GuestExit", "BadHandle", "Divergence"}
"""Of a recorded failure the kind and the message are kept; what to do is said where it is told. A
divergence says it by itself."""
TRANSLATED = {"wasm/wit_grammar.py"}
"""Whose errors become others, with what to do, where the text comes from."""


def refusals():
    return {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, ShemError)
    } - ELSEWHERE


def test_every_refusal_says_what_to_do():
    names = refusals()
    assert {"UsageError", "StoreError", "WorkerDeleted"} < names
    silent = [
        f"{path}:{node.lineno}: {node.func.id}"
        for path in sorted(ROOT.rglob("*.py"))
        if path.relative_to(ROOT).as_posix() not in TRANSLATED
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in names
        and not {keyword.arg for keyword in node.keywords} & {"hint", None}
    ]
    assert silent == []
