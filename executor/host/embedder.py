"""Host functions of the embedder: Python functions that satisfy a component's custom imports.

    @host_function("demo:bank/api",
                   "charge: func(who: string, cents: u64) -> result<string, string>",
                   type="write-remote")
    async def charge(call, who, cents):
        ...  # call.key is the derived idempotency key: the same in every attempt

`async def` runs in trio, a plain `def` in a worker thread; neither holds up a guest's lane. What it
returns is checked against the signature. `raise Transient(...)` is tried again by policy, which a
deployment's rules choose by its text, and by `status=` and `kind=` if it has them; `retry_after_s=`
is a pause that is kept. Any other exception fails the invocation with its text, whatever class it
has, `SystemExit` and `KeyboardInterrupt` too: to the executor it is never an error of its own
(`host/foreign_errors.py`). Only the cancellation of the call and a Ctrl-C of the user pass through.
The signature may be preceded by the WIT types that it names.

Modules of host functions are imported as Python does, once a process. Only where another module of
the name is loaded already, from elsewhere, a single file is loaded a second time, under a name of
its own; what such files import in their turn has to differ in name.
"""

import importlib
import importlib.util
import inspect
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from hashlib import sha256
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, Final, TypeVar

import msgspec
import trio

from executor.durable.definition import Awaited
from executor.durable.function_type import READ_LOCAL, READ_REMOTE, WRITE_REMOTE, FunctionType
from executor.errors import GuestError, HostBindingError, UsageError
from executor.host.foreign_errors import error_text, raise_as_told
from executor.host.interface import InterfaceTable, host_interface
from executor.host.state import HostState
from executor.path_text import system_path
from executor.wasm.types import FuncType
from executor.wasm.wit import parse_interface

TYPES = (READ_LOCAL, READ_REMOTE, WRITE_REMOTE)
Function = TypeVar("Function", bound=Callable[..., Any])
SIGNATURE_HINT: Final = (
    "write the WIT of one function, as"
    " charge: func(who: string, cents: u64) -> result<string, string>"
)
OURS: Final = __name__.partition(".")[0]
"""Shem's own package is the one that runs, also in the directory of another copy of it."""
_importing = threading.RLock()
"""Python's import path is the process's; one thread at a time changes it."""


class HostCall(msgspec.Struct, frozen=True):
    """What a host function of the embedder knows of its caller."""

    key: str
    """The derived idempotency key: equal in every attempt of this call, in no other call."""
    worker: str


class EmbedderFunction(msgspec.Struct, frozen=True, kw_only=True):
    """One decorated function."""

    interface: str
    """With or without a version."""
    signature: str
    name: str
    """Of the one function that the signature is of."""
    type: FunctionType
    function: Callable[..., Any]


def host_function(
    interface: str,
    signature: str,
    *,
    type: FunctionType = WRITE_REMOTE,  # noqa: A002  # the public name
) -> Callable[[Function], Function]:
    """Binds the decorated function to an import.

    Raises: UsageError for an unknown type, a signature that is not the WIT of one function, and
    what cannot be called by it.
    """
    where = f"{interface} {signature}"
    if type not in TYPES:
        raise UsageError(
            f"{type!r} is not a type of host function",
            where=where,
            hint=f"use one of {', '.join(TYPES)}",
        )
    name, wit = read_signature(interface, signature, where)

    def bind(function: Function) -> Function:
        check_parameters(function, [parameter for parameter, _ in wit.params], where)
        bound = EmbedderFunction(
            interface=interface, signature=signature, name=name, type=type, function=function
        )
        try:
            function.__shem_host_function__ = bound  # type: ignore[attr-defined]
        except AttributeError as error:
            raise UsageError(
                f"what is bound takes no attribute: {error}",
                where=where,
                hint="decorate a function; it may call a method",
            ) from error
        return function

    return bind


def read_signature(interface: str, signature: str, where: str) -> tuple[str, FuncType]:
    """The name and the type of the function. Raises: UsageError."""
    try:
        functions = parse_interface(interface_text(interface, signature)).functions
    except UsageError as error:
        raise UsageError(
            f"the signature cannot be read: {error.message}", where=where, hint=SIGNATURE_HINT
        ) from error
    if len(functions) != 1:
        raise UsageError(
            f"the signature is of {len(functions)} functions", where=where, hint=SIGNATURE_HINT
        )
    return next(iter(functions.items()))


def check_parameters(function: object, parameters: Sequence[str], where: str) -> None:
    """Raises: UsageError if the function cannot be called by its signature."""
    if not callable(function):
        raise UsageError(f"{function!r} is no function", where=where, hint="decorate a function")
    try:
        inspect.signature(function).bind("call", *parameters)
    except TypeError as error:
        raise UsageError(
            f"the function cannot be called with (call, {', '.join(parameters)}): {error}",
            where=where,
            hint="its parameters are the call, and then those of the signature",
        ) from error
    except ValueError:
        return  # a callable that does not tell its parameters


def bound_functions(value: object) -> list[EmbedderFunction]:
    """The bindings in a function, a module, or an iterable of these; empty if there are none."""
    found = binding_of(value)
    if found is not None:
        return [found]
    if isinstance(value, EmbedderFunction):
        return [value]
    if isinstance(value, ModuleType):
        members = [vars(value)[name] for name in sorted(vars(value)) if not name.startswith("__")]
        return [found for found in map(binding_of, members) if found is not None]
    return [found for item in held(value) or () for found in bound_functions(item)]


def given_functions(value: object) -> list[EmbedderFunction]:
    """As `bound_functions`, of what the embedder gives himself.

    Raises: UsageError, also where only a part of it is no host function.
    """
    members = held(value)
    if members is not None:
        return [found for item in members for found in given_functions(item)]
    found = bound_functions(value)
    if not found:
        raise UsageError(
            f"{value!r:.100} is no host function and holds none",
            where="host",
            hint="give functions decorated with @host_function(interface, signature, type=...);"
            " names as MODULE:ATTR are for `deploy`",
        )
    return found


def held(value: object) -> Iterable[object] | None:
    """What a collection holds; None for all else."""
    if isinstance(value, dict):
        return value.values()
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return value if binding_of(value) is None else None
    return None


def binding_of(value: object) -> EmbedderFunction | None:
    """What was decorated. A module holds whatever it has imported: objects that have any attribute,
    or raise when they are asked for one.
    """
    try:
        found = getattr(value, "__shem_host_function__", None)
    except Exception:
        return None
    return found if type(found) is EmbedderFunction else None


def find_bindings(names: Sequence[str], directory: str) -> list[EmbedderFunction]:
    """Imports every `MODULE:ATTR` (or `MODULE`) from `directory`, as when they were deployed.

    Raises: HostBindingError, also for a signature that has become unreadable.
    """
    try:
        return [found for name in names for found in find_binding(name, directory)]
    except UsageError as error:
        raise HostBindingError(error.message, where=error.where, hint=error.hint) from error


def check_binding(name: str) -> None:
    """Raises: UsageError unless the name is `MODULE:ATTR` or `MODULE`."""
    if not all(part.isidentifier() for part in name.replace(":", ".", 1).split(".")):
        raise UsageError(
            f"{name!r} is not MODULE:ATTR",
            where="--host",
            hint="name a module as Python imports it, and what it holds: bank:charge",
        )


def find_binding(name: str, directory: str) -> list[EmbedderFunction]:
    """Raises: UsageError for a name or a signature that makes no sense; HostBindingError."""
    check_binding(name)
    module_name, _, attribute = name.partition(":")
    where = f"{name} in {directory or Path.cwd()}"
    hint = "make the module importable from that directory, or deploy again from another"
    try:
        with importable(directory):
            value: object = import_from(module_name)
            hint = f"name what is in the module {module_name}, or put it there"
            for part in attribute.split(".") if attribute else ():
                value = getattr(value, part)
            found = bound_functions(value)
    except (HostBindingError, UsageError):
        raise
    except BaseException as error:  # whatever a module of the embedder raises, on a worker thread
        raise HostBindingError(
            f"host function cannot be imported: {error_text(error)}",
            where=where,
            hint=hint,
        ) from error
    if not found:
        raise UsageError(
            f"{name} holds no host function",
            where=where,
            hint="decorate it with @host_function(interface, signature, type=...)",
        )
    return found


@contextmanager
def importable(directory: str) -> Iterator[None]:
    """Puts `directory` first on the import path for a moment."""
    if not directory:
        yield
        return
    with _importing:
        path = system_path(directory)
        sys.path.insert(0, path)
        importlib.invalidate_caches()
        try:
            yield
        finally:
            sys.path.remove(path)


def import_from(name: str) -> ModuleType:
    """The module that the import path gives now, whatever else is loaded under its name.

    Raises: HostBindingError for a package or a part of one that is loaded from elsewhere.
    """
    path: Sequence[str] | None = None
    parts = name.split(".")
    if parts[0] == OURS:
        return importlib.import_module(name)
    for count in range(1, len(parts) + 1):
        outer = ".".join(parts[:count])
        spec = find_spec(outer, path)
        if spec is None:
            break
        loaded = sys.modules.get(outer)
        if loaded is not None and is_elsewhere(loaded, spec):
            if len(parts) == 1 and spec.submodule_search_locations is None:
                return import_beside(name, str(spec.origin))
            raise HostBindingError(
                f"another package {outer} is loaded from {loaded.__file__}",
                where=f"{name} in {spec.origin}",
                hint="give one of the two another name: a package is loaded once a process",
            )
        path = spec.submodule_search_locations
        if path is None or count == len(parts):
            break
        importlib.import_module(outer)  # a folder without __init__ finds its parts only then
    return importlib.import_module(name)


def find_spec(name: str, path: Sequence[str] | None) -> ModuleSpec | None:
    """What would be imported if nothing were loaded; `path` is that of the package around it."""
    for finder in sys.meta_path:
        spec = finder.find_spec(name, path)
        if spec is not None:
            return spec
    return None


def is_elsewhere(loaded: ModuleType, spec: ModuleSpec) -> bool:
    """Whether the loaded module comes from another file than the one that is found."""
    file = getattr(loaded, "__file__", None)
    if file is None or not spec.has_location or spec.origin is None:
        return False
    return Path(file).resolve() != Path(spec.origin).resolve()


def import_beside(name: str, file: str) -> ModuleType:
    """The module in `file`, loaded once, under a name that no other file gets."""
    own = f"{name}_{sha256(file.encode(errors='surrogateescape')).hexdigest()[:16]}"
    if own in sys.modules:
        return sys.modules[own]
    spec = importlib.util.spec_from_file_location(own, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is not a Python module", name=name, path=file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[own] = module
    with ExitStack() as undo:
        undo.callback(sys.modules.pop, own, None)
        spec.loader.exec_module(module)
        undo.pop_all()
    return module


def embedder_interfaces(functions: Sequence[EmbedderFunction]) -> list[InterfaceTable]:
    """One table an interface. A function bound twice: the last one counts."""
    by_interface: dict[str, dict[str, EmbedderFunction]] = {}
    for bound in functions:
        by_interface.setdefault(bound.interface, {})[bound.name] = bound
    return [
        embedder_interface(interface, list(bound.values()))
        for interface, bound in by_interface.items()
    ]


def embedder_interface(interface: str, functions: Sequence[EmbedderFunction]) -> InterfaceTable:
    """Each signature is read by itself: several may declare the same type."""
    track = semver_track(interface.partition("@")[2])
    tables = [
        host_interface(interface_text(interface, bound.signature), track, [awaited(bound)])
        for bound in functions
    ]
    wit = tables[-1].wit
    every = {name: found for table in tables for name, found in table.wit.functions.items()}
    return msgspec.structs.replace(
        tables[-1],
        wit=msgspec.structs.replace(wit, functions=every),
        functions=tuple(row for table in tables for row in table.functions),
        drops={name: drop for table in tables for name, drop in table.drops.items()},
    )


def interface_text(interface: str, signature: str) -> str:
    """The signature begins a line, so that the columns of an error are its own."""
    function = f"{signature}".rstrip("; \n")
    return f"interface {interface} {{\n{function};\n}}"


def semver_track(version: str) -> str:
    """Versions that are compatible with this one: `1` of 1.2.3, `0.2` of 0.2.9, `0.0.3` itself."""
    parts = version.split(".")
    for place, part in enumerate(parts):
        if part != "0":
            return ".".join(parts[: place + 1])
    return version


def awaited(bound: EmbedderFunction) -> Awaited:
    """The row of one function: performed in trio, or in a thread if it is synchronous."""
    function = bound.function

    async def action(state: HostState, *arguments: object) -> object:
        call = HostCall(key=state.session.call_key, worker=state.session.worker)
        try:
            return await function(call, *arguments)
        except BaseException as error:
            raise_as_told(error)

    def call_in_thread(call: HostCall, *arguments: object) -> object:
        try:
            answer = function(call, *arguments)
        except BaseException as error:
            raise_as_told(error)
        if not inspect.iscoroutine(answer):
            return answer
        answer.close()
        raise GuestError("a plain function answered a coroutine: bind an `async def`")

    async def action_in_thread(state: HostState, *arguments: object) -> object:
        call = HostCall(key=state.session.call_key, worker=state.session.worker)
        assert state.outside is not None
        return await trio.to_thread.run_sync(
            call_in_thread, call, *arguments, abandon_on_cancel=True, limiter=state.outside.threads
        )

    called = type(function).__call__  # of an object that is called
    if not (inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)):
        action = action_in_thread
    keyed = bound.type != READ_LOCAL
    return Awaited(name=bound.name, function_type=bound.type, action=action, keyed=keyed)
