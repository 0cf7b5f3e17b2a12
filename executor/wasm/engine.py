"""The one Wasmtime engine of the process: how components are compiled and loaded.

Settings make guests deterministic: NaN is canonicalised, relaxed SIMD has one answer, there are no
threads. Epoch interruption is on: a guest's loops look whether it should be left or give way. The
engine is made when it is first asked for, never at import, since `faulthandler` must be enabled
before the first engine of a process (afterwards any trap would kill it).

There are two engines inside. Wasmtime 50.0.1 with support for concurrent tasks traps when a guest
lends two handles in one call of a host function (`wasi:io/poll.poll` with two pollables: "deferred
host scope has no call context"). So the plain engine has it off; a component that needs it, since
its exports are lifted `async`, is compiled for the other one and has that flaw.
"""

import faulthandler
import os
import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Final

import wasmtime
from wasmtime import _ffi as wasmtime_ffi
from wasmtime.component import Component as WasmtimeComponent

from executor.errors import ComponentRejected
from executor.wasm.binary import (
    COMPONENT,
    MAGIC,
    UnknownShape,
    defines_resources,
    memory_min,
    read_prologue,
    table_min,
)
from executor.wasm.component import Component
from executor.wasm.component_types import async_imports
from executor.wasm.self_check import WASMTIME_VERSION, check_layout, check_python
from executor.wasm.wrapping import OWN_NAMES, ExportedResource, wrap

SETTINGS_VERSION: Final = 2
"""Raised whenever the settings below change, or what a component is wrapped in: artifacts of
others are compiled anew."""

CORE_MODULE: Final = b"\x01\x00\x00\x00"
CAUSE: Final = re.compile(r"Caused by:\n|^ +\d+: ", re.MULTILINE)
"""Where Wasmtime begins to tell a cause."""
SIGNS_OF_A_CUT: Final = ("unexpected end", "unexpected-end", "is out of bounds (bound = ")
BUILD_HINT: Final = (
    "build a component for WASI 0.2, for example with `wasm-tools component new` or cargo-component"
)


class StaleArtifact(Exception):
    """An artifact of another Wasmtime or other settings, or damaged: compile anew."""


class Engine:
    """Compiles and loads components. All methods may be called on any thread."""

    _opened: ClassVar["Engine | None"] = None
    _opening: ClassVar[threading.Lock] = threading.Lock()

    settings_tag: Final[str]
    """Names Wasmtime's version and the settings; part of the key of a stored artifact."""

    def __init__(self) -> None:
        """Use `Engine.open`: a process has one engine."""
        check_python()
        check_layout()
        _enable_faulthandler()
        self._plain = _wasmtime_engine(concurrent=False)
        self._concurrent = _wasmtime_engine(concurrent=True)
        self.settings_tag = f"wasmtime-{WASMTIME_VERSION}-{SETTINGS_VERSION}"

    @classmethod
    def open(cls) -> "Engine":
        """The engine of this process, made at the first call.

        Raises: InternalError if this Python or this Wasmtime cannot be used.
        """
        with cls._opening:
            if cls._opened is None:
                cls._opened = Engine()
            return cls._opened

    def increment_epoch(self) -> None:
        """Have every busy guest look, at its next loop or call, whether it is to give way."""
        self._plain.increment_epoch()
        self._concurrent.increment_epoch()

    def compile(self, wasm: bytes) -> bytes:
        """Compile a component, binary or WAT text, to an artifact for `load`.

        Blocks for about 0.2 seconds a megabyte and releases the interpreter lock.

        Raises: ComponentRejected, with a sentence of its own for each thing that is no component.
        """
        binary = _binary(wasm)
        _check_header(binary)
        component, engine = self._wrapped(binary) or self._compiled(binary)
        asynchronous = async_imports(component, engine)
        if asynchronous:
            names = ", ".join(asynchronous)
            raise ComponentRejected(
                f"the component imports asynchronous functions of WASI 0.3: {names}",
                hint="build it for WASI 0.2: only plain functions can be imported",
                imports=tuple(asynchronous),
            )
        return bytes(component.serialize())

    def load(self, artifact: bytes | Path) -> Component:
        """Load what `compile` answered; from a file it is mapped, not read. Takes milliseconds.

        Raises: StaleArtifact.
        """
        try:
            return _loaded(artifact, self._plain)
        except wasmtime.WasmtimeError:
            try:
                return _loaded(artifact, self._concurrent)
            except wasmtime.WasmtimeError as error:
                raise StaleArtifact(str(error)) from error

    def _wrapped(self, binary: bytes) -> tuple[Any, Any] | None:
        """The component in its wrapping; None if it needs none, or is not as wrapping knows it.

        One that needs support for concurrent tasks, or is not valid, is not wrapped.
        """
        try:
            prologue = read_prologue(binary)
            own = tuple(of.name for of in prologue.imports if of.name.startswith(OWN_NAMES))
            has_resources = defines_resources(binary)
        except UnknownShape:
            return None
        if own:
            raise ComponentRejected(
                f"the component imports {', '.join(own)}: such names are the executor's own",
                hint="name its package in another way",
                imports=own,
            )
        try:
            resources: tuple[ExportedResource, ...] = ()
            if has_resources:
                inner = WasmtimeComponent(self._plain, binary)
                resources = Component(inner, self._plain).exported_resources
            outer = wrap(binary, prologue, resources)
            return None if outer is None else (WasmtimeComponent(self._plain, outer), self._plain)
        except wasmtime.WasmtimeError:
            return None

    def _compiled(self, binary: bytes) -> tuple[Any, Any]:
        try:
            return WasmtimeComponent(self._plain, binary), self._plain
        except wasmtime.WasmtimeError:
            pass  # the other engine takes all that this one does, and says better what is wrong
        try:
            return WasmtimeComponent(self._concurrent, binary), self._concurrent
        except wasmtime.WasmtimeError as error:
            raise _rejected_by_wasmtime(str(error)) from error


def _wasmtime_engine(*, concurrent: bool) -> Any:
    config = wasmtime.Config()
    config.epoch_interruption = True
    config.cranelift_nan_canonicalization = True
    config.wasm_relaxed_simd_deterministic = True
    config.wasm_threads = False
    config.shared_memory = False
    wasmtime_ffi.wasmtime_config_concurrency_support_set(config.ptr(), concurrent)
    return wasmtime.Engine(config)


def _loaded(artifact: bytes | Path, engine: Any) -> Component:
    if isinstance(artifact, Path):
        try:
            path = os.fsencode(artifact).decode()
        except UnicodeDecodeError:  # Wasmtime takes no such path
            artifact = artifact.read_bytes()
        else:
            return Component(WasmtimeComponent.deserialize_file(engine, path), engine)
    return Component(WasmtimeComponent.deserialize(engine, artifact), engine)


def _enable_faulthandler() -> None:
    if faulthandler.is_enabled():
        return
    for stream in (sys.stderr, sys.__stderr__):
        if stream is not None:
            try:
                faulthandler.enable(stream)
            except (OSError, ValueError, AttributeError):
                continue
            return
    faulthandler.enable(os.open(os.devnull, os.O_WRONLY))


def memory_bytes_min(wasm: bytes) -> int:
    """The largest size that a linear memory of the component begins with, 0 if nobody can tell.

    `wasm` is one that `compile` takes, as bytes or as text.
    """
    return _least(memory_min, wasm)


def table_elements_min(wasm: bytes) -> int:
    """As `memory_bytes_min`: the elements that the largest table begins with."""
    return _least(table_min, wasm)


def _least(read: Callable[[bytes], int], wasm: bytes) -> int:
    try:
        return read(_binary(wasm))
    except UnknownShape:
        return 0


def _binary(wasm: bytes) -> bytes:
    if wasm.startswith(MAGIC):
        return wasm
    if MAGIC.startswith(wasm):
        raise ComponentRejected(
            f"the file is cut short: it has {len(wasm)} bytes", hint="copy or build it again"
        )
    text = wasm.lstrip()
    if not text.startswith((b"(", b";;")):
        raise ComponentRejected(
            f"not WebAssembly: it begins with {bytes(wasm[:4])!r}", hint=BUILD_HINT
        )
    try:
        return bytes(wasmtime.wat2wasm(bytes(wasm)))
    except (wasmtime.WasmtimeError, UnicodeDecodeError) as error:
        raise ComponentRejected(
            f"the WAT text does not parse: {_in_one_line(error)}",
            hint="correct it there; `wasm-tools parse` draws the place",
        ) from error


def _in_one_line(error: Exception) -> str:
    """What the text's parser says, and where; it draws the place over several lines."""
    lines = str(error).splitlines()
    places = [line.rpartition("<anon>:")[2] for line in lines if "<anon>:" in line]
    return f"{lines[0]} (line and column {places[0]})" if places else lines[0]


def _check_header(binary: bytes) -> None:
    version = bytes(binary[4:8])
    if len(version) < len(COMPONENT):
        raise ComponentRejected(
            f"the file is cut short: it has {len(binary)} bytes", hint="copy or build it again"
        )
    if version == CORE_MODULE:
        raise ComponentRejected(
            "a core WebAssembly module, not a component",
            hint="wrap it with `wasm-tools component new` and an adapter for its imports",
        )
    if version[2:] == COMPONENT[2:] and version < COMPONENT:
        raise ComponentRejected(
            f"a component of a format before the final one (binary version {version[0]:#x})",
            hint="build it again with a toolchain of 2024 or later",
        )
    if version != COMPONENT:
        raise ComponentRejected(
            f"WebAssembly of an unknown version ({version.hex(' ')})", hint=BUILD_HINT
        )


def _rejected_by_wasmtime(message: str) -> ComponentRejected:
    """Its last cause, whole: a signature that differs is told in several lines."""
    causes = CAUSE.split(message)
    reason = "; ".join(" ".join(line.split()) for line in causes[-1].splitlines() if line.strip())
    if any(sign in message for sign in SIGNS_OF_A_CUT):
        return ComponentRejected(f"the file is cut short: {reason}", hint="copy or build it again")
    return ComponentRejected(f"not a valid component: {reason}", hint=BUILD_HINT)
