"""Runs one `wasi:cli/run` component on Wasmtime's own host, as a process of its own.

    python -m tests.support.wasmtime_command [--root DIR] [--env K=V]... -- COMPONENT [ARG...]

Its output and exit code are the component's: 1 if `run` returned an error, 134 after a trap, as the
`wasmtime` command has it. Standard input is empty. 125 says that Wasmtime did not link it.
"""

import argparse
import sys
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
    engine = Engine(own_config())
    store = Store(engine)
    store.set_wasi(wasi_config(asked))
    linker = Linker(engine)
    linker.add_wasip2()
    try:
        component = Component(engine, asked.component.read_bytes())
        name = next(name for name in component.type.exports(engine) if name.startswith(RUN_PREFIX))
        instance = linker.instantiate(store, component)
        interface = instance.get_export_index(store, name)
        function = instance.get_func(store, instance.get_export_index(store, "run", interface))
    except ExitTrap as exited:
        return exited.code
    except Trap as trap:
        print(trap, file=sys.stderr)
        return TRAPPED
    except WasmtimeError as error:
        print(error, file=sys.stderr)
        return NOT_LINKED
    try:
        returned = function(store)
    except ExitTrap as exited:
        return exited.code
    except (Trap, WasmtimeError) as trap:
        print(trap, file=sys.stderr)
        return TRAPPED
    return 1 if isinstance(returned, Variant) and returned.tag == "err" else 0


def own_config() -> Config:
    config = Config()
    # With it, Wasmtime 50.0 fails every call that lends two handles to the host.
    _ffi.wasmtime_config_concurrency_support_set(config.ptr(), False)
    return config


def wasi_config(asked: argparse.Namespace) -> WasiConfig:
    wasi = WasiConfig()
    wasi.argv = asked.args
    wasi.env = [tuple(variable.split("=", 1)) for variable in asked.env]
    wasi.inherit_stdout()
    wasi.inherit_stderr()
    if asked.root is not None:
        wasi.preopen_dir(asked.root, "/")
    return wasi


if __name__ == "__main__":
    sys.exit(main())
