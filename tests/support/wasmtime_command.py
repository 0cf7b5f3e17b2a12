"""Runs one `wasi:cli/run` component on Wasmtime's own host, as a process of its own.

    python -m tests.support.wasmtime_command [--root DIR] [--env K=V]... -- COMPONENT [ARG...]

Its output, which comes when it has ended, and its exit code are the component's: 1 if `run`
returned an error, 134 after a trap, as the `wasmtime` command has it. Standard input is empty. 125
says that Wasmtime did not link it.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from wasmtime import Config, Engine, ExitTrap, Store, Trap, WasiConfig, WasmtimeError, _ffi
from wasmtime.component import Component, Linker, Variant

TRAPPED = 134
NOT_LINKED = 125
RUN_PREFIX = "wasi:cli/run@"


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("component", type=Path)
    parser.add_argument("--root", help="a directory that the guest sees as /")
    parser.add_argument("--env", action="append", default=[])
    parser.add_argument("args", nargs="*")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        # What is inherited is written by a thread, which the end of the process cuts off.
        out, err = Path(folder, "stdout"), Path(folder, "stderr")
        wasi = WasiConfig()
        wasi.argv = asked.args
        wasi.env = [tuple(variable.split("=", 1)) for variable in asked.env]
        wasi.stdout_file = str(out)
        wasi.stderr_file = str(err)
        if asked.root is not None:
            wasi.preopen_dir(asked.root, "/")
        code, error = run(asked.component.read_bytes(), wasi)
        sys.stdout.buffer.write(out.read_bytes())
        sys.stderr.buffer.write(err.read_bytes() + error.encode())
    return code


def run(wasm: bytes, wasi: WasiConfig) -> tuple[int, str]:
    """The exit code, and what Wasmtime says besides."""
    config = Config()
    # With it, Wasmtime 50.0 fails every call that lends two handles to the host.
    _ffi.wasmtime_config_concurrency_support_set(config.ptr(), False)
    engine = Engine(config)
    store = Store(engine)
    store.set_wasi(wasi)
    linker = Linker(engine)
    linker.add_wasip2()
    linked = False
    try:
        component = Component(engine, wasm)
        name = next(name for name in component.type.exports(engine) if name.startswith(RUN_PREFIX))
        instance = linker.instantiate(store, component)
        linked = True
        interface = instance.get_export_index(store, name)
        function = instance.get_func(store, instance.get_export_index(store, "run", interface))
        returned = function(store)
    except ExitTrap as exited:
        return exited.code, ""
    except (Trap, WasmtimeError) as error:
        trapped = linked or "wasm trap" in str(error)
        return TRAPPED if trapped else NOT_LINKED, str(error)
    return 1 if isinstance(returned, Variant) and returned.tag == "err" else 0, ""


if __name__ == "__main__":
    sys.exit(main())
