"""The 72 preview-1 programs of WebAssembly/wasi-testsuite, adapted to components, on this executor.

Every program that passes on Wasmtime's own host, in the same surroundings, passes here: live, after
a replay, and when the run is replayed up to its outcome. Surroundings are arguments, environment,
files and one preopened directory, `/`, which every worker has, as it has three variables.

`SHEM_WASI_TESTSUITE` names the folder that `prepare.py` makes; without it nothing is run.
"""

import json
import os
from pathlib import Path
from typing import NamedTuple

import pytest
import trio

from executor.executor import Executor
from tests.conformance.wasi_testsuite.prepare import PROGRAM_COUNT
from tests.support.commands import Command, Ended, after_cut, deploy, on_shem, on_wasmtime

VARIABLE = "SHEM_WASI_TESTSUITE"
FAIL_ON_WASMTIME = {
    "args_get-multiple-arguments": "an assertion of the adapter fails",
    "environ_get-multiple-variables": "the same of variables",
    "environ_sizes_get-multiple-variables": "counts variables, and a worker has three of its own",
    "environ_sizes_get-no-variables": "the same",
    "fd_write-to-invalid-fd": "the adapter does not look whither nothing is written",
    "proc_exit-failure": "the adapter exits with 1, whatever the code",
    "sock_shutdown-invalid_fd": "counts descriptors, and a worker has a preopened directory",
}
"""Programs that do not pass there, and so need not here, each with its reason."""


class Specification(NamedTuple):
    """What the suite says of a program, with its own defaults."""

    command: Command
    exit_code: int
    stdout: bytes | None

    def passed(self, ended: Ended) -> bool:
        return ended.exit_code == self.exit_code and self.stdout in (None, ended.stdout)


def programs() -> list[Path]:
    named = os.environ.get(VARIABLE)
    return sorted(Path(named).rglob("*.wasm")) if named else []


if not programs():
    pytest.skip(f"{VARIABLE} does not name a folder of programs", allow_module_level=True)


def specification(wasm: Path) -> Specification:
    file = wasm.with_suffix(".json")
    read = json.loads(file.read_text()) if file.exists() else {}
    root, stdout = read.get("root"), read.get("stdout")
    return Specification(
        command=Command(
            wasm,
            args=(wasm.name, *read.get("args", ())),
            env=read.get("env", {}),
            root=None if root is None else wasm.parent / root,
        ),
        exit_code=read.get("exit_code", 0),
        stdout=None if stdout is None else stdout.encode(),
    )


def test_the_folder_holds_the_whole_suite() -> None:
    assert len(programs()) == PROGRAM_COUNT
    assert FAIL_ON_WASMTIME.keys() <= {program.stem for program in programs()}


@pytest.mark.parametrize("wasm", programs(), ids=lambda wasm: f"{wasm.parent.name}-{wasm.stem}")
def test_what_passes_on_wasmtime_passes_here(wasm: Path, tmp_path: Path) -> None:
    wanted = specification(wasm)

    async def run() -> None:
        async with Executor.open(tmp_path) as shem:
            deployed = await deploy(shem, "program", wanted.command)
            reference = await on_wasmtime(wanted.command, deployed.id)
            assert wanted.passed(reference) == (wasm.stem not in FAIL_ON_WASMTIME), reference
            live = await on_shem(shem, "program", wanted.command)
            assert live.exit_code == reference.exit_code, live
            assert wanted.passed(live) == wanted.passed(reference), live
            assert (await shem.replay("program/w")).divergence is None
            assert await after_cut(shem, "program") == live

    trio.run(run)
