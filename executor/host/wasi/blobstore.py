"""`wasi:blobstore`, without a version: containers, and the objects in them.

A write is whole or not there, and is made once however often it is repeated. A container is shared
by all workers of the store. What is read and written are values: `blobstore_values.py`.
"""

from typing import Any, Final

from executor.durable.definition import Local
from executor.host.interface import host_interface
from executor.host.state import HostState
from executor.host.wasi.blobstore_values import TYPES, Incoming, Outgoing
from executor.host.wasi.store_rows import caller, read_row, write_row
from executor.services.blobs import PAGE_NAMES
from executor.services.environment import Refused
from executor.wasm.values import Err, Ok

NS_PER_MS: Final = 1_000_000


class Container:
    """A `container` resource: a name, and when it was made."""

    def __init__(self, name: str, created_at: int) -> None:
        self.name = name
        self.created_at = created_at
        """Nanoseconds since the Unix epoch."""
        self.opened: object = None
        """The pin of what was read last, until its incoming value has one of its own."""


class Names:
    """A `stream-object-names`: how far it has come."""

    def __init__(self, container: str) -> None:
        self.container = container
        self.after: str | None = None
        self.ended = False


def named(state: HostState, number: int) -> str:
    return state.handles.get(number, Container).name


# -- container -------------------------------------------------------------------------------------


def name(state: HostState, number: int) -> Ok:
    return Ok(named(state, number))


def info(state: HostState, number: int) -> Ok:
    found = state.handles.get(number, Container)
    return Ok({"name": found.name, "created-at": found.created_at // NS_PER_MS})


def open_data(
    state: HostState, number: int, object_name: str, start: int, end: int
) -> dict[str, object]:
    """A range of an object; both ends are of it."""
    container = state.handles.get(number, Container)
    found, container.opened = state.stores.blobs.open(container.name, object_name)
    if start > end or start > found.size:
        raise Refused(f"{start} to {end} is no range of an object of {found.size} bytes")
    return {"content": found.content, "start": start, "end": min(end + 1, found.size)}


def observe_data(state: HostState, answer: Ok | Err, number: int, *_: object) -> Ok | Err:
    if isinstance(answer, Err):
        return answer
    opened: Any = answer.value
    pin = state.stores.blobs.garbage.pin(opened["content"])
    state.handles.get(number, Container).opened = None
    return Ok(state.handles.add(Incoming(pin, opened["start"], opened["end"])))


async def write_data(state: HostState, number: int, object_name: str, value: int) -> None:
    source = state.handles.get(value, Outgoing)
    await state.stores.blobs.write(caller(state), named(state, number), object_name, source)


def list_objects(state: HostState, number: int) -> None:
    state.stores.blobs.container(named(state, number))


def observe_list(state: HostState, answer: Ok | Err, number: int) -> Ok | Err:
    if isinstance(answer, Err):
        return answer
    return Ok(state.handles.add(Names(named(state, number))))


def read_names(state: HostState, number: int, count: int) -> dict[str, object]:
    """The next names, at most a page of them."""
    stand = state.handles.get(number, Names)
    if stand.ended or not count:
        return {"names": [], "ended": stand.ended}
    limit = min(count, PAGE_NAMES)
    page = state.stores.blobs.list_objects(stand.container, stand.after, limit)
    return {"names": page.names, "ended": not page.more}


def observe_names(state: HostState, answer: Ok | Err, number: int, _count: int) -> Ok | Err:
    if isinstance(answer, Err):
        return answer
    found: Any = answer.value
    stand = state.handles.get(number, Names)
    names: list[str] = found["names"]
    if names:
        stand.after = names[-1]
    stand.ended = found["ended"]
    return Ok((names, stand.ended))


def observe_skipped(state: HostState, answer: Ok | Err, number: int, count: int) -> Ok | Err:
    read = observe_names(state, answer, number, count)
    if isinstance(read, Err):
        return read
    skipped: Any = read.value
    return Ok((len(skipped[0]), skipped[1]))


async def delete_object(state: HostState, number: int, object_name: str) -> None:
    await delete_objects(state, number, [object_name])


async def delete_objects(state: HostState, number: int, names: list[str]) -> None:
    await state.stores.blobs.delete_objects(caller(state), named(state, number), names)


async def clear(state: HostState, number: int) -> None:
    await state.stores.blobs.clear(caller(state), named(state, number))


def has_object(state: HostState, number: int, object_name: str) -> bool:
    return state.stores.blobs.find_object(named(state, number), object_name) is not None


def object_info(state: HostState, number: int, object_name: str) -> dict[str, object]:
    container = named(state, number)
    found = state.stores.blobs.stored_object(container, object_name)
    return {
        "name": object_name,
        "container": container,
        "created-at": found.created_at // NS_PER_MS,
        "size": found.size,
    }


NAMES: Final = "record { names: list<string>, ended: bool }"
CONTAINER: Final = host_interface(
    """
    interface wasi:blobstore/container {
        use types.{
            container-metadata, error, incoming-value, object-metadata, object-name, outgoing-value
        };
        resource container {
            name: func() -> result<string, error>;
            info: func() -> result<container-metadata, error>;
            get-data: func(name: object-name, start: u64, end: u64)
                -> result<incoming-value, error>;
            write-data: func(name: object-name, data: borrow<outgoing-value>) -> result<_, error>;
            list-objects: func() -> result<stream-object-names, error>;
            delete-object: func(name: object-name) -> result<_, error>;
            delete-objects: func(names: list<object-name>) -> result<_, error>;
            has-object: func(name: object-name) -> result<bool, error>;
            object-info: func(name: object-name) -> result<object-metadata, error>;
            clear: func() -> result<_, error>;
        }
        resource stream-object-names {
            read-stream-object-names: func(len: u64)
                -> result<tuple<list<object-name>, bool>, error>;
            skip-stream-object-names: func(num: u64) -> result<tuple<u64, bool>, error>;
        }
    }
    """,
    "",
    [
        Local("[method]container.name", name),
        Local("[method]container.info", info),
        read_row(
            "[method]container.get-data",
            open_data,
            "record { content: list<u8>, start: u64, end: u64 }",
            observe_data,
        ),
        write_row("[method]container.write-data", write_data),
        read_row("[method]container.list-objects", list_objects, "_", observe_list),
        write_row("[method]container.delete-object", delete_object),
        write_row("[method]container.delete-objects", delete_objects),
        read_row("[method]container.has-object", has_object, "bool"),
        read_row("[method]container.object-info", object_info, "object-metadata"),
        write_row("[method]container.clear", clear),
        read_row(
            "[method]stream-object-names.read-stream-object-names",
            read_names,
            NAMES,
            observe_names,
        ),
        read_row(
            "[method]stream-object-names.skip-stream-object-names",
            read_names,
            NAMES,
            observe_skipped,
        ),
    ],
    uses=TYPES.wit.types,
)


# -- blobstore -------------------------------------------------------------------------------------


async def create_container(state: HostState, container: str) -> int:
    return await state.stores.blobs.create_container(caller(state), container)


def find_container(state: HostState, container: str) -> int:
    return state.stores.blobs.container(container).created_at


def observe_container(state: HostState, answer: Ok | Err, container: str) -> Ok | Err:
    if isinstance(answer, Err):
        return answer
    created_at: Any = answer.value
    return Ok(state.handles.add(Container(container, created_at)))


async def delete_container(state: HostState, container: str) -> None:
    await state.stores.blobs.delete_container(caller(state), container)


def container_exists(state: HostState, container: str) -> bool:
    return state.stores.blobs.find_container(container) is not None


def object_of(object_id: dict[str, str]) -> tuple[str, str]:
    return object_id["container"], object_id["object"]


async def copy_object(state: HostState, src: dict[str, str], dest: dict[str, str]) -> None:
    await state.stores.blobs.copy(caller(state), object_of(src), object_of(dest))


async def move_object(state: HostState, src: dict[str, str], dest: dict[str, str]) -> None:
    await state.stores.blobs.move(caller(state), object_of(src), object_of(dest))


BLOBSTORE: Final = host_interface(
    """
    interface wasi:blobstore/blobstore {
        use container.{container};
        use types.{error, container-name, object-id};

        create-container: func(name: container-name) -> result<container, error>;
        get-container: func(name: container-name) -> result<container, error>;
        delete-container: func(name: container-name) -> result<_, error>;
        container-exists: func(name: container-name) -> result<bool, error>;
        copy-object: func(src: object-id, dest: object-id) -> result<_, error>;
        move-object: func(src: object-id, dest: object-id) -> result<_, error>;
    }
    """,
    "",
    [
        write_row("create-container", create_container, "u64", observe_container),
        read_row("get-container", find_container, "u64", observe_container),
        write_row("delete-container", delete_container),
        read_row("container-exists", container_exists, "bool"),
        write_row("copy-object", copy_object),
        write_row("move-object", move_object),
    ],
    uses=TYPES.wit.types,
)

TABLES: Final = (TYPES, CONTAINER, BLOBSTORE)
