"""Compiling and loading: what is taken, what is refused and in which words."""

import faulthandler
import subprocess
import sys

import pytest

from executor.errors import ComponentRejected, InternalError
from executor.wasm import ffi, self_check
from executor.wasm.engine import Engine, StaleArtifact
from executor.wasm.instance import Returned
from tests.support.guest_wat import ASYNC_LIFTED, BUSY
from tests.support.machine import machine

NAN = """(component
  (core module $m (func (export "nan") (param i64) (result i64)
    (i64.reinterpret_f64 (f64.add (f64.reinterpret_i64 (local.get 0)) (f64.const 1)))))
  (core instance $i (instantiate $m))
  (func (export "nan") (param "bits" u64) (result u64) (canon lift (core func $i "nan"))))"""

RELAXED = """(component
  (core module $m (func (export "swizzle") (param i32) (result i32)
    (i8x16.extract_lane_u 0 (i8x16.relaxed_swizzle
      (v128.const i8x16 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7) (i8x16.splat (local.get 0))))))
  (core instance $i (instantiate $m))
  (func (export "swizzle") (param "index" u32) (result u32)
    (canon lift (core func $i "swizzle"))))"""

ASYNC_IMPORT = """(component
  (import "a:b/c@0.3.0" (instance $c (export "fetch" (func async (param "x" u32) (result u32)))))
  (import "sleep" (func async)))"""

MISMATCHED = b"""(component
  (core module $m (import "a" "f" (func (param i32))))
  (core module $n (func (export "f")))
  (core instance $n (instantiate $n))
  (core instance (instantiate $m (with "a" (instance $n)))))"""
THREADS = "(component (core module (memory 1 1 shared)))"


@pytest.fixture(scope="module")
def engine():
    return Engine.open()


@pytest.fixture(scope="module")
def binary():
    wat2wasm = "import sys, wasmtime; sys.stdout.buffer.write(wasmtime.wat2wasm(sys.stdin.read()))"
    command = [sys.executable, "-c", wat2wasm]
    return subprocess.run(command, input=BUSY.encode(), capture_output=True, check=True).stdout


def printed_by(program):
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_process_has_one_engine_and_faulthandler_is_on_before_it(engine):
    assert Engine.open() is engine
    assert faulthandler.is_enabled()
    assert "50.0.1" in engine.settings_tag


def test_nothing_is_made_at_import():
    program = (
        "import faulthandler, executor.wasm.instance, executor.wasm.engine as e;"
        "assert e.Engine._opened is None; assert not faulthandler.is_enabled();"
        "e.Engine.open(); assert faulthandler.is_enabled(); print('made')"
    )
    assert printed_by(program) == "made\n"


def test_a_trap_does_not_end_the_process_when_standard_error_is_closed():
    program = (
        "import sys, os; sys.stderr = None; sys.__stderr__ = None\n"
        "from tests.support.machine import machine\n"
        "with machine() as made:\n"
        '    i = made.start(made.linker(\'(component (core module $m (func (export "f")'
        ' unreachable)) (core instance $i (instantiate $m)) (func (export "f")'
        ' (canon lift (core func $i "f"))))\'))\n'
        "    print(made.call(i, 'f').message)"
    )
    assert printed_by(program) == "trapped (unreachable)\n"


def test_text_and_binary_compile_to_artifacts_that_load_from_bytes_and_files(
    engine, binary, tmp_path
):
    artifact = engine.compile(binary)
    path = tmp_path / "busy.cwasm"
    path.write_bytes(artifact)
    paths = [export.path for export in engine.load(artifact).exports]
    assert paths == [export.path for export in engine.load(path).exports]
    assert paths == [export.path for export in engine.load(engine.compile(BUSY.encode())).exports]


def test_a_component_with_async_exports_compiles_and_loads(engine, tmp_path):
    path = tmp_path / "async.cwasm"
    path.write_bytes(engine.compile(ASYNC_LIFTED.encode()))
    assert [export.name for export in engine.load(path).exports] == ["run"]


@pytest.mark.parametrize(
    ("wasm", "sentence"),
    [
        (b"", "the file is cut short: it has 0 bytes"),
        (b"\0as", "the file is cut short: it has 3 bytes"),
        (b"\0asm\x0d\0", "the file is cut short: it has 6 bytes"),
        (b"\x7fELF....", "not WebAssembly: it begins with b'\\x7fELF'"),
        (b"hello", "not WebAssembly: it begins with b'hell'"),
        (b"(component", "the WAT text does not parse: expected `)` (line and column 1:11)"),
        (b"(compon\xff)", "the WAT text does not parse"),
        (b"\0asm\x01\0\0\0", "a core WebAssembly module, not a component"),
        (b"(module)", "a core WebAssembly module, not a component"),
        (b"\0asm\x0c\0\x01\0", "a component of a format before the final one (binary version 0xc)"),
        (b"\0asm\x0e\0\x01\0", "WebAssembly of an unknown version (0e 00 01 00)"),
        (b"\0asm\x0d\0\x01\0\xff\x01\0", "not a valid component"),
        (MISMATCHED, "expected: (func (param i32)); found: (func)"),
        (THREADS.encode(), "not a valid component: threads must be enabled for shared memories"),
        (ASYNC_IMPORT.encode(), "imports asynchronous functions of WASI 0.3"),
    ],
)
def test_what_is_no_component_is_refused_with_a_sentence_of_its_own(engine, wasm, sentence):
    with pytest.raises(ComponentRejected) as rejected:
        engine.compile(wasm)
    assert sentence in rejected.value.message
    assert "\n" not in rejected.value.message


def test_all_asynchronous_imports_are_named(engine):
    with pytest.raises(ComponentRejected) as rejected:
        engine.compile(ASYNC_IMPORT.encode())
    assert rejected.value.imports == ("a:b/c@0.3.0.{fetch}", "sleep")


def test_a_truncated_component_is_refused_wherever_it_is_cut(engine, binary):
    for cut in range(9, len(binary) - 1, 37):
        with pytest.raises(ComponentRejected, match=r"^the file is cut short: [a-z]"):
            engine.compile(binary[:cut])


def test_an_artifact_of_something_else_is_stale(engine, tmp_path):
    path = tmp_path / "wrong.cwasm"
    path.write_bytes(b"not an artifact")
    for artifact in (b"", b"not an artifact", path, tmp_path / "missing.cwasm"):
        with pytest.raises(StaleArtifact):
            engine.load(artifact)


def test_nan_has_one_bit_pattern():
    with machine() as made:
        instance = made.start(made.linker(NAN))
        for bits in (0x7FF8_0000_0000_0001, 0xFFF8_1234_0000_0000, 0x7FF0_0000_0000_0001):
            assert made.call(instance, "nan", bits) == Returned(0x7FF8_0000_0000_0000)


def test_relaxed_simd_has_one_answer():
    with machine() as made:
        instance = made.start(made.linker(RELAXED))
        for index, lane in ((15, 7), (16, 0), (127, 0), (128, 0)):
            assert made.call(instance, "swizzle", index) == Returned(lane)


def test_the_self_check_passes_and_names_what_differs(monkeypatch):
    self_check.check_layout()
    monkeypatch.setattr(self_check, "WASMTIME_VERSION", "1.2.3")
    with pytest.raises(InternalError, match=r"version is '50\.0\.1' instead of '1\.2\.3'"):
        self_check.check_layout()
    monkeypatch.undo()
    monkeypatch.setitem(ffi.KIND, "u8", 99)
    with pytest.raises(InternalError, match="kind tags"):
        self_check.check_layout()


def test_a_python_that_misjudges_the_stacks_of_fibers_is_refused(monkeypatch):
    self_check.check_python()
    monkeypatch.setattr(sys, "version_info", (3, 14, 0, "final", 0))
    with pytest.raises(InternalError, match="139653"):
        self_check.check_python()
