"""Finds the exported function that a caller means.

An export's path is `pkg:name/api.{add}`, or `add` for a function that the component exports by
itself; of an interface that it exports in several versions `pkg:name/api@1.0.0.{add}`. A caller may
leave out whatever is not needed to tell one export from another:

    add · api.add · api.{add} · pkg:name/api.add · pkg:name/api.{add} · pkg:name/api@1.0.0.{add}

A function of a resource is `counter.increment` for `[method]counter.increment`, likewise for
`[static]`, `counter.new` for `[constructor]counter`, and `counter.drop` or `[drop]counter` for
`[resource-drop]counter`. A full path always means itself. Pure.
"""

import difflib
import re
from collections.abc import Sequence
from typing import Final

from executor.errors import UnknownFunction, UsageError

_NEAR_MAX: Final = 3
_LISTED_MAX: Final = 12

_VERSION: Final = re.compile(
    r"@(?P<version>\d+(?:\.\d+)*(?:-[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?(?:\+[0-9A-Za-z.-]+)?)"
    r"(?=\.[{\[%A-Za-z]|$)"
)
_RESOURCE_FUNCTION: Final = re.compile(
    r"\[(?P<kind>constructor|method|static|resource-drop)\](?P<name>.+)"
)


def resolve(exports: Sequence[str], asked: str, where: str = "") -> str:
    """The path among `exports` that `asked` means. `where` names the component for the error.

    Raises UnknownFunction with near names, or UsageError naming all that `asked` could mean.
    """
    if asked in exports:
        return asked
    wanted, version = _without_version(asked.strip())
    found = [
        path
        for path in exports
        if wanted in _spellings(path) and _same_version(version, _without_version(path)[1])
    ]
    if len(found) == 1:
        return found[0]
    if found:
        raise UsageError(
            f'"{asked}" is ambiguous: {", ".join(found)}',
            where=where,
            hint="write one of them in full",
        )
    raise UnknownFunction(
        f'no exported function is called "{asked}"', where=where, hint=_hint(exports, wanted)
    )


def _without_version(path: str) -> tuple[str, str]:
    match = _VERSION.search(path)
    if match is None:
        return path, ""
    return path[: match.start()] + path[match.end() :], match["version"]


def _same_version(asked: str, exported: str) -> bool:
    return not asked or not exported or asked == exported


def _spellings(path: str) -> set[str]:
    """Everything that may be written for an export, without version."""
    path, _ = _without_version(path)
    interface, braced, name = path.partition(".{")
    if not braced:
        return _names(path)
    short = interface.rpartition("/")[2]
    return {
        spelling
        for function in _names(name.removesuffix("}"))
        for spelling in (
            function,
            f"{{{function}}}",
            *(
                f"{prefix}.{form}"
                for prefix in (short, interface)
                for form in (function, f"{{{function}}}")
            ),
        )
    }


def _names(function: str) -> set[str]:
    match = _RESOURCE_FUNCTION.fullmatch(function)
    if match is None:
        return {function}
    name = match["name"]
    match match["kind"]:
        case "constructor":
            return {function, f"{name}.new"}
        case "resource-drop":
            return {function, f"[drop]{name}", f"{name}.drop"}
        case _:
            return {function, name}


def _hint(exports: Sequence[str], wanted: str) -> str:
    if not exports:
        return "the component exports no functions"
    paths = {spelling: path for path in exports for spelling in _spellings(path)}
    close = difflib.get_close_matches(wanted, paths, n=2 * _NEAR_MAX)
    near = list(dict.fromkeys(paths[spelling] for spelling in close))[:_NEAR_MAX]
    if near:
        return f"did you mean {' or '.join(near)}?"
    more = f" and {len(exports) - _LISTED_MAX} more" if len(exports) > _LISTED_MAX else ""
    return f"it exports {', '.join(exports[:_LISTED_MAX])}{more}"
