"""What becomes of each component of a folder: deployed, run if it is a command, and compared.

A command (`wasi:cli/run`) runs on Wasmtime's own host and here, in the same surroundings: its stem
as the one argument, no input, no files. What is compared is exit code and standard output, here
also after a replay, and when the run is replayed up to its outcome.

| fate           | means                                                                        |
|----------------|------------------------------------------------------------------------------|
| same           | a command that does the same on both                                         |
| differs        | a command that does not, or does another thing in replay                     |
| varies         | a command that does one thing and another on Wasmtime itself                 |
| only here      | a command that Wasmtime's own host does not take                             |
| endless        | a command that had not ended in time on Wasmtime, nor here                   |
| library        | deployed; it exports functions, and no command                               |
| no exports     | deployed; there is nothing to call                                           |
| needs a host   | refused: it imports what is nobody's standard, so a host function must serve |
| not offered    | refused: it imports an interface of WASI that is not offered                 |
| no component   | refused, by its bytes                                                        |
"""

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import msgspec

from executor.errors import ComponentRejected, ShemError
from executor.executor import Executor
from executor.records import Deployed
from tests.support.commands import (
    RUN,
    WORKER,
    Command,
    Ended,
    Hangs,
    NotLinked,
    after_cut,
    deploy,
    on_shem,
    on_wasmtime,
)

STANDARD: Final = re.compile(r"wasi:|golem:")
IMPORT: Final = re.compile(r"[\w-]+:[\w-]+/[\w-]+")
TIMEOUT_S: Final = 20
VARIES_IN: Final = 8
"""Further runs on Wasmtime of a command that does another thing here."""


class Fate(msgspec.Struct, frozen=True):
    component: str
    fate: str
    details: str = ""


def components(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.wasm"))


async def survey(folder: Path, store: Path) -> AsyncIterator[Fate]:
    """A fate for each `.wasm` below the folder, in the order of names."""
    async with Executor.open(store) as shem:
        for number, wasm in enumerate(components(folder)):
            name = str(wasm.relative_to(folder).with_suffix(""))
            yield await fate_of(shem, f"c{number}", name, Command(wasm, args=(wasm.stem,)))


async def fate_of(shem: Executor, deployed: str, name: str, command: Command) -> Fate:
    try:
        component = await deploy(shem, deployed, command)
    except ComponentRejected as refusal:
        return Fate(name, *refused(refusal))
    if not component.exports:
        return Fate(name, "no exports")
    if not any(export.startswith(RUN) for export in component.exports):
        return Fate(name, "library", f"{len(component.exports)} functions")
    return Fate(name, *await ran(shem, component, command))


def refused(refusal: ComponentRejected) -> tuple[str, str]:
    if not refusal.imports:
        return "no component", refusal.message
    missing = sorted({found for text in refusal.imports for found in IMPORT.findall(text)[:1]})
    packages = sorted({interface.partition("/")[0] for interface in missing})
    foreign = [package for package in packages if not STANDARD.match(package)]
    if foreign or not packages:
        bare = [text for text in refusal.imports if not IMPORT.search(text)]
        return "needs a host", ", ".join(foreign or bare[:3])
    return "not offered", ", ".join(packages)


async def ran(shem: Executor, component: Deployed, command: Command) -> tuple[str, str]:
    try:
        live: Ended | str = await on_shem(shem, component.component, command, timeout_s=TIMEOUT_S)
    except (Hangs, ShemError) as error:
        live = str(error)
    try:
        reference = await on_wasmtime(command, component.id, timeout_s=TIMEOUT_S)
        if isinstance(live, str):
            return "differs", live
        if seen(live) != seen(reference):
            for _ in range(VARIES_IN):
                again = await on_wasmtime(command, component.id, timeout_s=TIMEOUT_S)
                if seen(again) != seen(reference):
                    return "varies", difference(reference, again)
            return "differs", difference(reference, live)
    except NotLinked as error:
        here = live if isinstance(live, str) else f"exit {live.exit_code}"
        return "only here", f"{here}; there: {str(error).splitlines()[-1].strip()}"
    except Hangs:
        return ("endless", "") if isinstance(live, str) else ("differs", "ends only here")
    try:
        amiss = await in_replay(shem, component.component, live)
    except (Hangs, ShemError) as error:
        amiss = str(error)
    return ("differs", amiss) if amiss else ("same", f"exit {live.exit_code}")


async def in_replay(shem: Executor, component: str, live: Ended) -> str:
    """What a replay does otherwise, "" if nothing."""
    divergence = (await shem.replay(f"{component}/{WORKER}")).divergence
    if divergence is not None:
        return f"replay: {divergence}"
    cut = await after_cut(shem, component, timeout_s=TIMEOUT_S)
    return "" if cut == live else f"after a cut: {difference(live, cut)}"


def seen(ended: Ended) -> tuple[int, bytes]:
    return ended.exit_code, ended.stdout


def difference(one: Ended, other: Ended) -> str:
    if one.exit_code != other.exit_code:
        told = other.stderr.decode(errors="replace").strip().splitlines()[-1:]
        return f"exit {one.exit_code} and then {other.exit_code}: {' '.join(told)}"
    return f"{one.stdout[-200:]!r} and then {other.stdout[-200:]!r}"
