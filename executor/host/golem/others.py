"""What a guest may read of components and workers by `golem:api/host`: names, ids, metadata.

All are remote reads of the committed store; the worker that asks is in it as well, and runs. An
enumeration goes on behind the last worker that was looked at, which its answers say, so that in
replay it stands where it stood.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from executor.durable.definition import Recorded
from executor.durable.function_type import READ_REMOTE
from executor.host.golem.rpc import uuid_record, uuid_text
from executor.host.state import Directory, FoundWorker, HostState
from executor.wasm.values import Variant

PAGE_WORKERS: Final = 50
SCANNED_MAX: Final = 10_000
"""Workers that one `get-next` looks at; behind so many misses it answers an empty page."""
NS_PER_MS: Final = 1_000_000
STATUSES: Final = (
    "running",
    "idle",
    "suspended",
    "interrupted",
    "retrying",
    "failed",
    "exited",
)
"""In the order that comparisons of statuses go by."""
ORDERED: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "equal": lambda found, wanted: bool(found == wanted),
    "not-equal": lambda found, wanted: bool(found != wanted),
    "greater-equal": lambda found, wanted: bool(found >= wanted),
    "greater": lambda found, wanted: bool(found > wanted),
    "less-equal": lambda found, wanted: bool(found <= wanted),
    "less": lambda found, wanted: bool(found < wanted),
}
TEXTS: Final[dict[str, Callable[[str, str], bool]]] = {
    "equal": lambda found, wanted: found == wanted,
    "not-equal": lambda found, wanted: found != wanted,
    "like": lambda found, wanted: wanted in found,
    "not-like": lambda found, wanted: wanted not in found,
}

Filter = dict[str, Any] | None


class Enumeration(msgspec.Struct):
    """A `get-workers` resource."""

    component: str
    """Its name, "" if there is no such component."""
    wanted: Filter
    after: str = ""
    """The last worker that was looked at, without component."""
    ended: bool = False


def component_record(component_id: str) -> dict[str, object]:
    return {"uuid": uuid_record(component_id)}


def worker_record(component_id: str, name: str) -> dict[str, object]:
    return {"component-id": component_record(component_id), "worker-name": name}


def component_name(directory: Directory, component_id: dict[str, Any]) -> str:
    return directory.component_name(uuid_text(component_id["uuid"])) or ""


def resolve_component(state: HostState, reference: str) -> dict[str, object] | None:
    found = state.directory.component_id(reference)
    return None if found is None else component_record(found)


def resolve_worker(state: HostState, reference: str, name: str) -> dict[str, object] | None:
    found = state.directory.component_id(reference)
    return None if found is None else worker_record(found, name)


def resolve_worker_strict(state: HostState, reference: str, name: str) -> object:
    if state.directory.worker(reference, name) is None:
        return None
    return resolve_worker(state, reference, name)


def read_worker(state: HostState, worker_id: dict[str, Any]) -> dict[str, object] | None:
    component = component_name(state.directory, worker_id["component-id"])
    found = state.directory.worker(component, worker_id["worker-name"]) if component else None
    return None if found is None else metadata(as_seen(state, found))


def as_seen(state: HostState, found: FoundWorker) -> FoundWorker:
    """The worker that asks is running, whatever its last commit says."""
    own = state.identity
    if (found.component_id, found.name) != (own.component_id, own.name):
        return found
    return replace(found, status="running")


def metadata(found: FoundWorker) -> dict[str, object]:
    return {
        "worker-id": worker_record(found.component_id, found.name),
        "args": list(found.arguments),
        "env": list(found.environment),
        "status": known_status(found.status),
        "component-version": found.revision,
        "retry-count": found.retry_count,
    }


def known_status(status: str) -> str:
    """A state that the interface does not have is one of waiting."""
    return status if status in STATUSES else "suspended"


def open_enumeration(
    state: HostState, component_id: dict[str, Any], _wanted: Filter, _precise: bool
) -> str:
    return component_name(state.directory, component_id)


def observe_enumeration(
    state: HostState, component: str, _component_id: object, wanted: Filter, _precise: bool
) -> int:
    return state.handles.add(Enumeration(component=component, wanted=wanted))


def read_next(state: HostState, number: int) -> dict[str, object]:
    """The next matching workers, and how far the search came."""
    stand = state.handles.get(number, Enumeration)
    if stand.ended or not stand.component:
        return {"workers": [], "after": "", "ended": True}
    looked_at = 0
    after = stand.after
    while looked_at < SCANNED_MAX:
        page = [
            as_seen(state, found)
            for found in state.directory.workers(stand.component, after, PAGE_WORKERS)
        ]
        if not page:
            return {"workers": [], "after": after, "ended": True}
        looked_at += len(page)
        after = page[-1].name
        matching = [metadata(found) for found in page if matches(found, stand.wanted)]
        if matching:
            return {"workers": matching, "after": after, "ended": False}
    return {"workers": [], "after": after, "ended": False}


def observe_next(state: HostState, answer: dict[str, Any], number: int) -> list[object] | None:
    stand = state.handles.get(number, Enumeration)
    stand.after, stand.ended = answer["after"], answer["ended"]
    workers: list[object] = answer["workers"]
    return None if stand.ended else workers


def matches(found: FoundWorker, wanted: Filter) -> bool:
    """A filter is any of several, each of which is all of several properties."""
    if wanted is None:
        return True
    return any(all(fits(found, of) for of in every["filters"]) for every in wanted["filters"])


def fits(found: FoundWorker, wanted: Variant) -> bool:
    of: Any = wanted.payload
    match wanted.case:
        case "name":
            return TEXTS[of["comparator"]](found.name, of["value"])
        case "env":
            value = dict(found.environment).get(of["name"])
            return value is not None and TEXTS[of["comparator"]](value, of["value"])
        case "status":
            own = STATUSES.index(known_status(found.status))
            return ORDERED[of["comparator"]](own, STATUSES.index(of["value"]))
        case "version":
            return ORDERED[of["comparator"]](found.revision, of["value"])
        case _:
            return ORDERED[of["comparator"]](found.created_at // NS_PER_MS, of["value"])


ROWS: Final = (
    Recorded(name="resolve-component-id", function_type=READ_REMOTE, action=resolve_component),
    Recorded(name="resolve-worker-id", function_type=READ_REMOTE, action=resolve_worker),
    Recorded(
        name="resolve-worker-id-strict", function_type=READ_REMOTE, action=resolve_worker_strict
    ),
    Recorded(name="get-worker-metadata", function_type=READ_REMOTE, action=read_worker),
    Recorded(
        name="[constructor]get-workers",
        function_type=READ_REMOTE,
        action=open_enumeration,
        observe=observe_enumeration,
        answer="string",
    ),
    Recorded(
        name="[method]get-workers.get-next",
        function_type=READ_REMOTE,
        action=read_next,
        observe=observe_next,
        answer="record { workers: list<worker-metadata>, after: string, ended: bool }",
    ),
)
