"""wasi:filesystem over the worker's own tree, whose root is the one preopened directory, `/`.

No operation is recorded: the tree is deterministic, and replay performs them all again.
"""

from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Concatenate, Final, ParamSpec, TypeVar, cast

from executor.durable.definition import Local
from executor.host.files import Descriptor, FileInput, FileOutput, Listing, descriptor_flags
from executor.host.interface import host_interface
from executor.host.state import HostState
from executor.host.streams import TRANSFER_BYTES_MAX, IoError
from executor.host.wasi.clocks import NANOSECONDS, WALL_CLOCK, Datetime, datetime_of
from executor.host.wasi.filesystem_text import TYPES_TEXT
from executor.services.files import OpenMode
from executor.services.files_nodes import OFFSET_MAX, ROOT, FileError, FileStat
from executor.wasm.values import Err, Ok, Variant

P = ParamSpec("P")
T = TypeVar("T")

PREOPENED_FLAGS: Final = ("read", "mutate-directory")


def refusable(
    operation: Callable[Concatenate[HostState, Descriptor, P], T],
) -> Callable[Concatenate[HostState, int, P], Ok | Err]:
    """A method of `descriptor` that answers the tree's refusal as its `error-code`."""

    def method(state: HostState, number: int, /, *rest: P.args, **named: P.kwargs) -> Ok | Err:
        descriptor = state.handles.get(number, Descriptor)
        try:
            return Ok(operation(state, descriptor, *rest, **named))
        except FileError as refusal:
            return Err(refusal.code)

    return method


def check_offset(offset: int) -> None:
    if offset > OFFSET_MAX:
        raise FileError("invalid")


def follows(path_flags: Sequence[str]) -> bool:
    return "symlink-follow" in path_flags


# -- preopens ------------------------------------------------------------------------------------


def open_root(state: HostState) -> list[tuple[int, str]]:
    root = Descriptor(state.files.retain(ROOT), PREOPENED_FLAGS)
    return [(state.handles.add(root), "/")]


# -- streams and bytes ---------------------------------------------------------------------------


@refusable
def read_via_stream(state: HostState, descriptor: Descriptor, offset: int) -> int:
    descriptor.check_flag("read")
    check_offset(offset)
    state.files.read(descriptor.inode, offset, 0)
    return state.handles.add(FileInput(state.files.retain(descriptor.inode), offset))


@refusable
def write_via_stream(state: HostState, descriptor: Descriptor, offset: int) -> int:
    descriptor.check_flag("write")
    check_offset(offset)
    return state.handles.add(FileOutput(state.files.retain(descriptor.inode), offset))


@refusable
def append_via_stream(state: HostState, descriptor: Descriptor) -> int:
    descriptor.check_flag("write")
    return state.handles.add(FileOutput(state.files.retain(descriptor.inode), None))


@refusable
def read(state: HostState, descriptor: Descriptor, length: int, offset: int) -> tuple[bytes, bool]:
    descriptor.check_flag("read")
    count = min(length, TRANSFER_BYTES_MAX)
    contents = state.files.read(descriptor.inode, offset, count)
    return contents, offset + len(contents) >= state.files.size(descriptor.inode)


@refusable
def write(state: HostState, descriptor: Descriptor, contents: bytes, offset: int) -> int:
    descriptor.check_flag("write")
    state.files.write(descriptor.inode, offset, contents, state.session.guest_time_ns)
    return len(contents)


@refusable
def set_size(state: HostState, descriptor: Descriptor, size: int) -> None:
    descriptor.check_flag("write")
    state.files.set_size(descriptor.inode, size, state.session.guest_time_ns)


@refusable
def advise(
    _state: HostState, _descriptor: Descriptor, offset: int, length: int, _advice: str
) -> None:
    check_offset(offset)
    check_offset(length)


@refusable
def sync(_state: HostState, _descriptor: Descriptor) -> None:
    """What is written is there already; it becomes durable with the worker's oplog."""


# -- attributes ----------------------------------------------------------------------------------


@refusable
def get_flags(_state: HostState, descriptor: Descriptor) -> list[str]:
    return list(descriptor.flags)


@refusable
def get_type(state: HostState, descriptor: Descriptor) -> str:
    return state.files.kind(descriptor.inode)


@refusable
def stat(state: HostState, descriptor: Descriptor) -> dict[str, object]:
    return stat_record(state.files.stat(descriptor.inode))


@refusable
def stat_at(
    state: HostState, descriptor: Descriptor, path_flags: list[str], path: str
) -> dict[str, object]:
    inode = state.files.lookup(descriptor.inode, path, follow=follows(path_flags))
    return stat_record(state.files.stat(inode))


def stat_record(stat: FileStat) -> dict[str, object]:
    return {
        "type": stat.kind,
        "link-count": stat.links,
        "size": stat.size,
        "data-access-timestamp": datetime_of(stat.accessed_ns),
        "data-modification-timestamp": datetime_of(stat.modified_ns),
        "status-change-timestamp": datetime_of(stat.changed_ns),
    }


@refusable
def set_times(
    state: HostState, descriptor: Descriptor, accessed: Variant, modified: Variant
) -> None:
    change_times(state, descriptor.inode, accessed, modified)


@refusable
def set_times_at(
    state: HostState,
    descriptor: Descriptor,
    path_flags: list[str],
    path: str,
    accessed: Variant,
    modified: Variant,
) -> None:
    inode = state.files.lookup(descriptor.inode, path, follow=follows(path_flags))
    change_times(state, inode, accessed, modified)


def change_times(state: HostState, inode: int, accessed: Variant, modified: Variant) -> None:
    now_ns = state.session.guest_time_ns
    state.files.set_times(inode, new_time(accessed, now_ns), new_time(modified, now_ns), now_ns)


def new_time(timestamp: Variant, now_ns: int) -> int | None:
    """The time that a `new-timestamp` asks for, None for no change."""
    if timestamp.case == "no-change":
        return None
    if timestamp.case == "now":
        return now_ns
    datetime = cast("Datetime", timestamp.payload)
    if datetime["nanoseconds"] >= NANOSECONDS:
        raise FileError("invalid")
    return datetime["seconds"] * NANOSECONDS + datetime["nanoseconds"]


def is_same_object(state: HostState, number: int, other: int) -> bool:
    handles = state.handles
    return handles.get(number, Descriptor).inode == handles.get(other, Descriptor).inode


@refusable
def metadata_hash(_state: HostState, descriptor: Descriptor) -> dict[str, int]:
    return inode_hash(descriptor.inode)


@refusable
def metadata_hash_at(
    state: HostState, descriptor: Descriptor, path_flags: list[str], path: str
) -> dict[str, int]:
    return inode_hash(state.files.lookup(descriptor.inode, path, follow=follows(path_flags)))


def inode_hash(inode: int) -> dict[str, int]:
    """A node's own, whatever happens to it: guests built on a libc take it for `st_ino`."""
    digest = blake2b(inode.to_bytes(8, "little"), digest_size=16).digest()
    return {
        "lower": int.from_bytes(digest[:8], "little"),
        "upper": int.from_bytes(digest[8:], "little"),
    }


# -- directories ---------------------------------------------------------------------------------


@refusable
def open_at(
    state: HostState,
    descriptor: Descriptor,
    path_flags: list[str],
    path: str,
    open_flags: list[str],
    flags: list[str],
) -> int:
    mode = OpenMode(
        create="create" in open_flags,
        exclusive="exclusive" in open_flags,
        directory="directory" in open_flags,
        truncate="truncate" in open_flags,
        write="write" in flags,
        follow=follows(path_flags),
    )
    now_ns = state.session.guest_time_ns
    inode, created = state.files.open_at(descriptor.inode, path, mode, now_ns)
    return state.handles.add(Descriptor(inode, descriptor_flags(flags, created=created)))


@refusable
def read_directory(state: HostState, descriptor: Descriptor) -> int:
    return state.handles.add(Listing(state.files.listing(descriptor.inode)))


def read_directory_entry(state: HostState, number: int) -> Ok:
    return Ok(state.handles.get(number, Listing).read_entry())


@refusable
def create_directory_at(state: HostState, descriptor: Descriptor, path: str) -> None:
    state.files.create_directory_at(descriptor.inode, path, state.session.guest_time_ns)


@refusable
def remove_directory_at(state: HostState, descriptor: Descriptor, path: str) -> None:
    state.files.remove_directory_at(descriptor.inode, path, state.session.guest_time_ns)


@refusable
def unlink_file_at(state: HostState, descriptor: Descriptor, path: str) -> None:
    state.files.unlink_at(descriptor.inode, path, state.session.guest_time_ns)


@refusable
def link_at(
    state: HostState,
    descriptor: Descriptor,
    path_flags: list[str],
    old_path: str,
    new_directory: int,
    new_path: str,
) -> None:
    files = state.files
    old = files.lookup(descriptor.inode, old_path, follow=follows(path_flags))
    base = state.handles.get(new_directory, Descriptor).inode
    files.link_at(old, base, new_path, state.session.guest_time_ns)


@refusable
def symlink_at(state: HostState, descriptor: Descriptor, target: str, path: str) -> None:
    state.files.symlink_at(target, descriptor.inode, path, state.session.guest_time_ns)


@refusable
def readlink_at(state: HostState, descriptor: Descriptor, path: str) -> str:
    return state.files.readlink_at(descriptor.inode, path)


@refusable
def rename_at(
    state: HostState, descriptor: Descriptor, old_path: str, new_directory: int, new_path: str
) -> None:
    base = state.handles.get(new_directory, Descriptor).inode
    now_ns = state.session.guest_time_ns
    state.files.rename_at(descriptor.inode, old_path, base, new_path, now_ns)


def error_code(state: HostState, error: int) -> str | None:
    return state.handles.get(error, IoError).file_error or None


def drop_descriptor(state: HostState, number: int) -> None:
    state.files.release(state.handles.get(number, Descriptor).inode)
    state.handles.drop(number)


PREOPENS = host_interface(
    """
    interface wasi:filesystem/preopens {
        use types.{descriptor};
        get-directories: func() -> list<tuple<descriptor, string>>;
    }
    """,
    "0.2",
    [Local("get-directories", open_root)],
)

TYPES = host_interface(
    TYPES_TEXT,
    "0.2",
    [
        Local("[method]descriptor.read-via-stream", read_via_stream),
        Local("[method]descriptor.write-via-stream", write_via_stream),
        Local("[method]descriptor.append-via-stream", append_via_stream),
        Local("[method]descriptor.advise", advise),
        Local("[method]descriptor.sync-data", sync),
        Local("[method]descriptor.get-flags", get_flags),
        Local("[method]descriptor.get-type", get_type),
        Local("[method]descriptor.set-size", set_size),
        Local("[method]descriptor.set-times", set_times),
        Local("[method]descriptor.read", read),
        Local("[method]descriptor.write", write),
        Local("[method]descriptor.read-directory", read_directory),
        Local("[method]descriptor.sync", sync),
        Local("[method]descriptor.create-directory-at", create_directory_at),
        Local("[method]descriptor.stat", stat),
        Local("[method]descriptor.stat-at", stat_at),
        Local("[method]descriptor.set-times-at", set_times_at),
        Local("[method]descriptor.link-at", link_at),
        Local("[method]descriptor.open-at", open_at),
        Local("[method]descriptor.readlink-at", readlink_at),
        Local("[method]descriptor.remove-directory-at", remove_directory_at),
        Local("[method]descriptor.rename-at", rename_at),
        Local("[method]descriptor.symlink-at", symlink_at),
        Local("[method]descriptor.unlink-file-at", unlink_file_at),
        Local("[method]descriptor.is-same-object", is_same_object),
        Local("[method]descriptor.metadata-hash", metadata_hash),
        Local("[method]descriptor.metadata-hash-at", metadata_hash_at),
        Local("[method]directory-entry-stream.read-directory-entry", read_directory_entry),
        Local("filesystem-error-code", error_code),
    ],
    drops={"descriptor": drop_descriptor},
    uses=WALL_CLOCK.wit.types,
)

TABLES: Final = (PREOPENS, TYPES)
