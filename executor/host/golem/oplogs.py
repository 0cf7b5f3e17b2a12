"""`golem:api/oplog@1.1.x`: a guest reads and searches what is committed of a worker's oplog.

Both are remote reads. A resource shows the oplog as it was when it was made, so that a guest which
reads its own comes to an end; what a `get-next` answered says where the next one goes on.
"""

from functools import partial
from typing import Any, Final

import msgspec
import trio

from executor.durable.definition import Awaited, HostFunctionRow, Recorded
from executor.durable.function_type import READ_REMOTE
from executor.host.golem import api, invocation_context
from executor.host.golem.oplog_text import OPLOG
from executor.host.golem.others import component_name
from executor.host.golem.rpc import RPC_TYPES
from executor.host.interface import InterfaceTable, host_interface
from executor.host.state import HostState, OplogSlice
from executor.host.wasi.clocks import WALL_CLOCK

OPENED: Final = "record { oplog: string, last: u64 }"
SLICE: Final = "record { entries: list<tuple<u64, oplog-entry>>, next: u64 }"


class Reading(msgspec.Struct):
    """A `get-oplog` or `search-oplog` resource."""

    oplog: str
    next: int
    """The index that it goes on with, 0 at the end."""
    last: int
    text: str | None = None
    """What is searched for."""


def open_oplog(state: HostState, worker_id: dict[str, Any], _argument: object) -> dict[str, object]:
    component = component_name(state.directory, worker_id["component-id"])
    oplog, last = state.directory.oplogs.end(component, worker_id["worker-name"])
    return {"oplog": oplog, "last": last}


def open_search(state: HostState, worker_id: dict[str, Any], text: str) -> dict[str, object]:
    """Refuses a query that makes no sense before anything is searched."""
    state.directory.oplogs.search("", 1, 0, text)
    return open_oplog(state, worker_id, text)


def observe_opened(state: HostState, opened: dict[str, Any], _worker_id: object, start: int) -> int:
    first = max(start, 1) if opened["last"] else 0
    return state.handles.add(Reading(opened["oplog"], first, opened["last"]))


def observe_search(state: HostState, opened: dict[str, Any], _worker_id: object, text: str) -> int:
    first = 1 if opened["last"] else 0
    return state.handles.add(Reading(opened["oplog"], first, opened["last"], text))


async def read_next(state: HostState, number: int) -> dict[str, object]:
    stand = state.handles.get(number, Reading)
    if not stand.next:
        return answer(OplogSlice([], 0))
    oplogs = state.directory.oplogs
    read = (
        partial(oplogs.read, stand.oplog, stand.next, stand.last)
        if stand.text is None
        else partial(oplogs.search, stand.oplog, stand.next, stand.last, stand.text)
    )
    return answer(await trio.to_thread.run_sync(read))


def answer(found: OplogSlice) -> dict[str, object]:
    return {"entries": found.entries, "next": found.next}


def observe_entries(state: HostState, found: dict[str, Any], number: int) -> list[object] | None:
    indexed = observe_found(state, found, number)
    return None if indexed is None else [entry for _, entry in indexed]


def observe_found(
    state: HostState, found: dict[str, Any], number: int
) -> list[tuple[int, object]] | None:
    """None behind the last one."""
    stand = state.handles.get(number, Reading)
    ended = not stand.next
    stand.next = found["next"]
    entries: list[tuple[int, object]] = found["entries"]
    return None if ended or not (entries or stand.next) else entries


ROWS: Final[tuple[HostFunctionRow, ...]] = (
    Recorded(
        name="[constructor]get-oplog",
        function_type=READ_REMOTE,
        action=open_oplog,
        observe=observe_opened,
        answer=OPENED,
    ),
    Awaited(
        name="[method]get-oplog.get-next",
        function_type=READ_REMOTE,
        action=read_next,
        observe=observe_entries,
        answer=SLICE,
    ),
    Recorded(
        name="[constructor]search-oplog",
        function_type=READ_REMOTE,
        action=open_search,
        observe=observe_search,
        answer=OPENED,
    ),
    Awaited(
        name="[method]search-oplog.get-next",
        function_type=READ_REMOTE,
        action=read_next,
        observe=observe_found,
        answer=SLICE,
    ),
)

TABLES: Final[tuple[InterfaceTable, ...]] = (
    host_interface(
        OPLOG,
        "1.1",
        ROWS,
        uses={
            **WALL_CLOCK.wit.types,
            **RPC_TYPES.wit.types,
            **api.TABLES[0].wit.types,
            **invocation_context.TABLES[0].wit.types,
        },
    ),
)
