"""The rules of the tree, kept by a test: sizes, names, who may import what, and what is never said.

Each rule is a table or a number at the top and one test below that lists every place where it is
broken, as `file:line: what`. The standard library's `ast` reads the code; nothing is imported.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PRODUCT = ("oplog", "executor")
CODE = (*PRODUCT, "guests", "tests", "benches")

FILE_LINES_MAX = 500
FUNCTION_LINES_MAX = 70
ARGUMENTS_MAX = 6

# Functions whose arguments somebody else fixes: click passes one an option, Wasmtime calls back.
SIGNATURES_OF_OTHERS: dict[str, tuple[str, ...]] = {
    "executor.cli.deploy": ("deploy",),
    "executor.cli.invoke": ("invoke",),
    "executor.wasm.boundary": ("callback",),
}

# What each part may import of the product, besides itself. A part is named by its module prefix,
# and a module belongs to the longest prefix that fits.
MAY_IMPORT: dict[str, tuple[str, ...]] = {
    "oplog": (),
    "executor.errors": (),
    "executor.path_text": (),
    "executor.records": ("oplog.entry",),
    "executor.sources": (),
    "executor.replay": ("executor.errors", "oplog.codec", "oplog.entry", "oplog.errors"),
    "executor.wasm": ("executor.errors",),
    "executor.durable": (
        "executor.errors",
        "executor.replay",
        "executor.sources",
        "executor.wasm.check",
        "executor.wasm.host_function",
        "executor.wasm.plain",
        "executor.wasm.types",
        "executor.wasm.values",
        "executor.wasm.weight",
        "executor.wasm.wit",
        "oplog",
    ),
    "executor.host": (
        "executor.durable.deferred",
        "executor.durable.deferred_function",
        "executor.durable.definition",
        "executor.durable.frames",
        "executor.durable.function_type",
        "executor.durable.marks",
        "executor.durable.reasons",
        "executor.durable.retry",
        "executor.durable.scopes",
        "executor.durable.signal",
        "executor.durable.trace",
        "executor.errors",
        "executor.path_text",
        "executor.services",
        "executor.sources",
        "executor.wasm.types",
        "executor.wasm.values",
        "executor.wasm.wit",
    ),
    "executor.services": (
        "executor.durable.signal",
        "executor.errors",
        "executor.records",
        "executor.wasm",
        "oplog",
    ),
    "executor.worker": (
        "executor.durable",
        "executor.errors",
        "executor.host",
        "executor.records",
        "executor.replay",
        "executor.services",
        "executor.sources",
        "executor.wasm",
        "oplog",
    ),
    "executor.server": (
        "executor.deployment",
        "executor.durable.retry",
        "executor.durable.retry_rules",
        "executor.errors",
        "executor.executor",
        "executor.records",
        "executor.requests",
        "executor.wasm.plain",
        "executor.worker",
        "executor.world",
        "oplog",
    ),
    "executor.torture": (
        "executor.deployment",
        "executor.durable",
        "executor.errors",
        "executor.executor",
        "executor.path_text",
        "executor.records",
        "executor.replay",
        "executor.requests",
        "executor.services",
        "executor.sources",
        "executor.wasm.engine",
        "executor.worker",
        "oplog",
    ),
    "executor.cli": ("executor", "oplog"),
    # The modules at the top of the package, `executor/executor.py` among them: the library.
    "executor": (
        "executor.durable",
        "executor.errors",
        "executor.host",
        "executor.path_text",
        "executor.records",
        "executor.replay",
        "executor.services",
        "executor.sources",
        "executor.wasm",
        "executor.worker",
        "oplog",
    ),
}

# Where each package that is not ours may be imported; any other package is refused.
CONFINED: dict[str, tuple[str, ...]] = {
    "certifi": ("executor.services.http_client_connect",),
    "click": ("executor.cli",),
    "h11": ("executor.server.exchange", "executor.services"),
    "h2": ("executor.services",),
    "httpx": ("executor.cli",),
    "hypercorn": ("executor.server.serving",),
    "lmdb": ("oplog.lmdb_engine",),
    "msgspec": ("executor", "oplog"),
    "rich": ("executor.cli",),
    "starlette": ("executor.server",),
    "trio": ("executor",),
    "wasmtime": ("executor.wasm",),
}
# Parts of those places that stay free of it nevertheless.
NEVER_IN: dict[str, tuple[str, ...]] = {"trio": ("executor.replay", "executor.wasm")}

# A BaseException stops here and nowhere else: the boundary stores it and raises it again outside;
# one that the embedder's own code raised is a failure of the call.
CATCHES_EVERYTHING = (
    "executor.wasm.boundary",
    "executor.host.embedder",
    "executor.host.foreign_errors",
)
# Where code that is not ours may fail in any way (a guest's call, an effect, an answer or a module
# of the embedder, a callback on a lane), or a worker's loop or a command ends: an Exception becomes
# an outcome here.
CATCHES_EXCEPTION = (
    *CATCHES_EVERYTHING,
    "executor.cli.app",
    "executor.durable.call",
    "executor.durable.deferred",
    "executor.durable.effects",
    "executor.durable.session",
    "executor.opened",
    "executor.server.application",
    "executor.server.serving",
    "executor.services.beside",
    "executor.torture.child",
    "executor.wasm.check",
    "executor.wasm.instance",
    "executor.wasm.lane",
    "executor.worker",
    "executor.world",
)

BANNED_WORDS = frozenset(
    {
        "manager",
        "handler",
        "helper",
        "helpers",
        "util",
        "utils",
        "common",
        "misc",
        "data",
        "info",
        "base",
        "journal",
        "history",
    }
)
BANNED_NAMES = frozenset({"context"})
BANNED_FUNCTIONS = re.compile(r"^_*(process|do)_[a-z]")

# Written in pieces, so that this file keeps its own rules.
PROMISES = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X|HA" + r"CK)\b")
WORKPLACE = re.compile(r"(?<![\w.])/(wo" + r"rk|ho" + r"me|ro" + r"ot|Us" + r"ers)/\w")
PRIVATE = re.compile(
    r"\b(DES" + r"IGN|STY" + r"LE|GUE" + r"STS|GOL" + r"EM|PE" + r"ERS|CONT" + r"RACTS)\.md\b"
    r"|\bsee" + r"ds?/|\bproto" + r"types?/|\bissue #?\d"
)
REGISTRY = re.compile(r"--(extra-)?index" + r"-url|pythonhosted" + r"\.org|pypi" + r"\.org")
TEXT_SUFFIXES = frozenset(
    {".py", ".md", ".toml", ".txt", ".wit", ".c", ".h", ".wat", ".yaml", ".yml", ".cfg", ".json"}
)
TEXT_NAMES = frozenset({"Makefile", "run"})
NOT_OURS = frozenset(
    {".venv", ".git", "build", "dist", "__pycache__", ".shem", ".hypothesis"}
    | {".pytest_cache", ".mypy_cache", ".ruff_cache"}
)


class Module(NamedTuple):
    name: str
    path: Path
    tree: ast.Module

    def at(self, line: int) -> str:
        return f"{self.path.relative_to(ROOT)}:{line}"


class Import(NamedTuple):
    target: str
    line: int


Function = ast.FunctionDef | ast.AsyncFunctionDef


def refuse(places: list[str]) -> None:
    assert not places, "\n" + "\n".join(places)


def our_files(*folders: str) -> Iterator[Path]:
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and not NOT_OURS.intersection(path.relative_to(ROOT).parts):
                yield path


def modules(*folders: str) -> list[Module]:
    return [
        Module(module_name(path), path, ast.parse(path.read_text(), str(path)))
        for path in our_files(*folders)
        if path.suffix == ".py"
    ]


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(module: Module) -> Iterator[Import]:
    """Absolute names; `from a import b` counts as `a.b`, which is a module or a name in one."""
    for node in ast.walk(module.tree):
        match node:
            case ast.Import():
                yield from (Import(alias.name, node.lineno) for alias in node.names)
            case ast.ImportFrom():
                source = node.module or ""
                if node.level:
                    package = module.name.split(".")
                    if module.path.name != "__init__.py":
                        package = package[:-1]
                    kept = package[: len(package) - node.level + 1]
                    source = ".".join([*kept, source] if source else kept)
                yield from (Import(f"{source}.{alias.name}", node.lineno) for alias in node.names)
            case _:
                pass


def functions(module: Module) -> Iterator[Function]:
    return (node for node in ast.walk(module.tree) if isinstance(node, Function))


def within(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(prefix + ".")


def within_any(name: str, prefixes: tuple[str, ...]) -> bool:
    return any(within(name, prefix) for prefix in prefixes)


def part_of(name: str) -> str:
    return max((part for part in MAY_IMPORT if within(name, part)), key=len)


def words_of(identifier: str) -> set[str]:
    split = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", identifier)
    return set(split.lower().split("_"))


def texts() -> Iterator[tuple[Path, int, str]]:
    top = (path for path in sorted(ROOT.iterdir()) if path.is_file())
    for path in (*top, *our_files(*CODE, ".ci")):
        if path.suffix in TEXT_SUFFIXES or path.name in TEXT_NAMES:
            for number, line in enumerate(path.read_text().splitlines(), 1):
                yield path, number, line


def places_of(pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path, number, line in texts()
        if pattern.search(line)
    ]


def test_no_file_is_longer_than_500_lines() -> None:
    long = []
    for path in our_files(*CODE):
        if path.suffix in {".py", ".c", ".h", ".wit"}:
            count = len(path.read_text().splitlines())
            if count > FILE_LINES_MAX:
                long.append(f"{path.relative_to(ROOT)}: {count} lines")
    refuse(long)


def test_no_function_is_longer_than_70_lines() -> None:
    long = [
        f"{module.at(function.lineno)}: {function.name} has {lines} lines"
        for module in modules(*CODE)
        for function in functions(module)
        if (lines := (function.end_lineno or 0) - function.lineno + 1) > FUNCTION_LINES_MAX
    ]
    refuse(long)


def test_no_function_takes_more_than_6_arguments() -> None:
    many = []
    for module in modules(*CODE):
        exempt = SIGNATURES_OF_OTHERS.get(module.name, ())
        for function in functions(module):
            if function.name in exempt:
                continue
            arguments = function.args
            named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
            count = len([name for name in named if name.arg not in {"self", "cls"}])
            if count > ARGUMENTS_MAX:
                many.append(f"{module.at(function.lineno)}: {function.name} takes {count}")
    refuse(many)


def test_no_function_imports() -> None:
    inside = {
        f"{module.at(node.lineno)}: import inside {function.name}"
        for module in modules(*CODE)
        for function in functions(module)
        for node in ast.walk(function)
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    refuse(sorted(inside))


def test_no_modules_import_one_another_in_a_circle() -> None:
    known = {module.name: module for module in modules(*PRODUCT)}
    edges = {
        name: sorted({target for target in targets_in(known, module) if target != name})
        for name, module in known.items()
    }
    refuse(circles(edges))


def targets_in(known: dict[str, Module], module: Module) -> Iterator[str]:
    for found in imports(module):
        if found.target in known:
            yield found.target
        elif (source := found.target.rpartition(".")[0]) in known:
            yield source


def circles(edges: dict[str, list[str]]) -> list[str]:
    """One line a circle, found by walking depth first."""
    done: set[str] = set()
    found: list[str] = []

    def walk(name: str, trail: list[str]) -> None:
        if name in trail:
            found.append(" -> ".join([*trail[trail.index(name) :], name]))
        elif name not in done:
            for target in edges[name]:
                walk(target, [*trail, name])
            done.add(name)

    for name in edges:
        walk(name, [])
    return found


def test_dependencies_point_one_way() -> None:
    wrong = []
    for module in modules(*PRODUCT):
        part = part_of(module.name)
        for found in imports(module):
            if found.target.split(".")[0] not in PRODUCT or part_of(found.target) == part:
                continue
            if not within_any(found.target, MAY_IMPORT[part]):
                wrong.append(f"{module.at(found.line)}: {part} imports {found.target}")
    refuse(wrong)


def test_each_foreign_package_is_confined_to_its_modules() -> None:
    wrong = []
    for module in modules(*PRODUCT):
        for found in imports(module):
            package = found.target.split(".")[0]
            if package in PRODUCT or package in sys.stdlib_module_names:
                continue
            allowed, never = CONFINED.get(package, ()), NEVER_IN.get(package, ())
            if not within_any(module.name, allowed) or within_any(module.name, never):
                wrong.append(f"{module.at(found.line)}: {module.name} imports {package}")
    refuse(wrong)


def test_the_tables_of_this_test_name_only_what_there_is() -> None:
    names = {module.name for module in modules(*PRODUCT)}
    prefixes = {*MAY_IMPORT, *CATCHES_EXCEPTION, *SIGNATURES_OF_OTHERS}
    prefixes.update(*MAY_IMPORT.values(), *CONFINED.values(), *NEVER_IN.values())
    unknown = [p for p in sorted(prefixes) if not any(within(name, p) for name in names)]
    refuse(unknown)


def test_everything_is_caught_only_at_the_boundary() -> None:
    refuse(places_that_catch("BaseException", CATCHES_EVERYTHING))


def test_any_exception_is_caught_only_where_it_becomes_an_outcome() -> None:
    refuse(places_that_catch("Exception", CATCHES_EXCEPTION))


def places_that_catch(name: str, allowed: tuple[str, ...]) -> list[str]:
    """An `except` without a type counts as catching a BaseException."""
    return [
        f"{module.at(node.lineno)}: catches {name}"
        for module in modules(*PRODUCT)
        if not within_any(module.name, allowed)
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ExceptHandler)
        and name in (names_in(node.type) if node.type else {"BaseException"})
    ]


def names_in(node: ast.expr) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def test_no_name_is_one_that_says_nothing() -> None:
    empty = []
    for module in modules(*PRODUCT, "benches"):
        last = module.name.rpartition(".")[2]
        classes = [node for node in ast.walk(module.tree) if isinstance(node, ast.ClassDef)]
        for name, line in [(last, 1), *((node.name, node.lineno) for node in classes)]:
            if BANNED_WORDS & words_of(name) or name.lower() in BANNED_NAMES:
                empty.append(f"{module.at(line)}: {name}")
        empty += [
            f"{module.at(function.lineno)}: {function.name}"
            for function in functions(module)
            if BANNED_FUNCTIONS.match(function.name)
        ]
    refuse(empty)


def test_no_text_promises_work() -> None:
    refuse(places_of(PROMISES))


def test_no_text_names_a_path_of_somebodys_machine() -> None:
    refuse(places_of(WORKPLACE))


def test_no_text_mentions_a_document_that_is_not_here() -> None:
    refuse(places_of(PRIVATE))


def test_no_text_names_the_address_of_a_registry() -> None:
    refuse(places_of(REGISTRY))


def test_the_circle_finder_finds_a_circle() -> None:
    assert circles({"a": ["b"], "b": ["c"], "c": ["b"]}) == ["b -> c -> b"]
    assert circles({"a": ["b", "c"], "b": ["c"], "c": []}) == []
