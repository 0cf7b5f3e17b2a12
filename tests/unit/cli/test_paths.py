"""Paths that a locale has no letters for, and paths that nobody has letters for."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from executor.cli.app import prepare_streams
from executor.path_text import legible, system_path
from tests.support import guests

ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0"}
"""Python then takes paths for ASCII."""
HOST = """
from executor import host_function

@host_function("demo:rates/api", "rate: func() -> u32", type="read-local")
def rate(call):
    return 7
"""
ASKING = """
(component
  (import "demo:rates/api" (instance $rates (export "rate" (func (result u32)))))
  (core func $rate (canon lower (func $rates "rate")))
  (core module $code
    (import "rates" "rate" (func $rate (result i32)))
    (func (export "ask") (result i32) (call $rate)))
  (core instance $made (instantiate $code
    (with "rates" (instance (export "rate" (func $rate))))))
  (func (export "ask") (result u32) (canon lift (core func $made "ask"))))
"""


def shem(folder, *arguments, **environment):
    """Bytes in, bytes out."""
    ran = subprocess.run(
        (sys.executable, "-m", "executor.cli", *arguments),
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3]), **environment},
        capture_output=True,
        timeout=60,
        check=False,
    )
    return ran.returncode, ran.stdout, ran.stderr


def test_a_name_with_letters_works_where_the_locale_has_none(tmp_path):
    folder = tmp_path / "größe"
    folder.mkdir()
    (folder / "zähler.wasm").write_bytes(guests.ADDER)
    (folder / "fragt.wat").write_text(ASKING)
    (folder / "rates.py").write_text(HOST)
    for arguments in (
        ("deploy", "größe/zähler.wasm", "--data", "größe/ü"),
        ("invoke", "zähler/ä", "add", "5", "--key", "ö", "--data", "größe/ü"),
    ):
        code, out, err = shem(tmp_path, *(text.encode() for text in arguments), **ASCII)
        assert (code, err) == (0, b"")
    assert out == b"5\n"
    code, out, _ = shem(tmp_path, "worker", "zähler/ä".encode(), SHEM_DATA="größe/ü", **ASCII)
    assert (code, out.decode().splitlines()[0]) == (0, "worker       zähler/ä")
    code, _, err = shem(tmp_path, "workers", "--data", "größe/nicht".encode(), **ASCII)
    assert (code, err.decode()[:42]) == (5, "shem: there is no store: größe/nicht: depl")
    code, _, err = shem(folder, "deploy", "fragt.wat", "--host", "rates", **ASCII)
    assert (code, err) == (0, b"")
    for locale in ({}, ASCII):  # where it was recorded under the one, it is found under the other
        assert shem(folder, "invoke", "fragt/a", "ask", **locale)[:2] == (0, b"7\n")


def test_a_store_may_be_where_no_letters_lead(tmp_path):
    folder = tmp_path / os.fsdecode(b"x\xff")
    folder.mkdir()
    (folder / "adder.wasm").write_bytes(guests.ADDER)
    (folder / "fragt.wat").write_text(ASKING)
    (folder / "rates.py").write_text(HOST)
    store = b"x\xff/store"
    assert shem(tmp_path, "deploy", b"x\xff/adder.wasm", "--data", store)[0] == 0
    code, out, _ = shem(tmp_path, "invoke", "adder/a", "add", "5", "--data", store)
    assert (code, out) == (0, b"5\n")
    code, _, err = shem(folder, "deploy", "fragt.wat", "--host", "rates")
    assert (code, err.count(b"\n")) == (2, 1)
    assert b"cannot be recorded: its path is not UTF-8: " in err
    assert err.endswith(b"/x\\udcff: deploy from another directory\n")


@pytest.mark.parametrize("text", ["a", "ü", "\udcff", "a\udc80ü"])
def test_what_is_legible_or_no_utf8_stays_as_it_is(text):
    assert (legible(text), system_path(text)) == (text, text)
    assert legible("\ud800") == "\ud800"
    read_as_ascii = text.encode(errors="surrogateescape").decode("ascii", "surrogateescape")
    assert legible(read_as_ascii) == text


def test_stdout_takes_any_text_in_any_locale(monkeypatch):
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))
    prepare_streams()
    print("ü\udcff", flush=True)
    assert written.getvalue() == b"\xc3\xbc\\udcff\n"


def test_a_component_with_letters_is_tortured_where_the_locale_has_none(tmp_path):
    (tmp_path / "zähler.wasm").write_bytes(guests.ADDER)
    (tmp_path / "größe.txt").write_text("ä add 5")
    (tmp_path / "ü").mkdir()
    words = ("torture", "zähler.wasm", "größe.txt", "--at", "commit:1", "--jobs", "1")
    arguments = [text.encode() for text in words]
    code, out, err = shem(tmp_path, *arguments, TMPDIR="ü", **ASCII)
    assert (code, err) == (0, b"")
    assert out.decode().splitlines()[-1] == "lost 0, duplicated 0, wrong 0"
    elsewhere = tmp_path / os.fsdecode(b"x\xff")
    elsewhere.mkdir()
    code, _, err = shem(tmp_path, *arguments, TMPDIR=str(elsewhere))
    assert code == 2
    assert err.startswith(b"shem: the path of the temporary directory is not UTF-8: ")
    assert list(elsewhere.iterdir()) == []
