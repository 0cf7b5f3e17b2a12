"""`wasi:keyvalue/store`, `batch` and `atomics`, as the drafts of 0.2.0 have them.

| version       | a cursor of `list-keys` | numbers | compare and swap |
|---------------|-------------------------|---------|------------------|
| 0.2.0-draft   | u64                     | u64     | not there        |
| 0.2.0-draft2  | string                  | s64     | `cas`, `swap`    |

The buckets are those of `wasi:keyvalue@0.1.0`. Values cross as lists of bytes.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from executor.durable.definition import Awaited, HostFunctionRow, Local
from executor.durable.function_type import WRITE_REMOTE
from executor.host.held import Held, HeldValue
from executor.host.interface import Drop, InterfaceTable, host_interface
from executor.host.state import HostState
from executor.host.wasi.keyvalue import (
    Bucket,
    delete_all,
    delete_one,
    exists,
    few_keys,
    get,
    get_many,
    increment,
    named,
    open_bucket,
    put,
)
from executor.host.wasi.store_rows import caller, drop_value, many_row, read_row, write_row
from executor.services.environment import Refused
from executor.services.keyvalue import Seen
from executor.wasm.values import Err, Ok, Variant

S64: Final = (-(2**63), 2**63 - 1)


class Comparison(HeldValue):
    """A `cas` resource: a key as it was seen."""

    def __init__(self, held: Held, bucket: str, key: str, seen: Seen) -> None:
        """Raises: LimitError."""
        super().__init__(held, len(bucket) + len(key) + len(seen.value or b""))
        self.bucket = bucket
        self.key = key
        self.seen = seen


def other(answer: Ok | Err) -> Ok | Err:
    """An error as the interface has it."""
    return answer if isinstance(answer, Ok) else Err(Variant("other", answer.value))


def observed(_state: HostState, answer: Ok | Err, *_: object) -> Ok | Err:
    return other(answer)


# -- store -----------------------------------------------------------------------------------------


async def set_one(state: HostState, bucket: int, key: str, value: bytes) -> None:
    await put(state, bucket, {key: value})


def list_behind(state: HostState, number: int, cursor: str | None) -> dict[str, object]:
    """A page of keys, and whether more follow."""
    page = state.stores.keyvalue.list_keys(named(state, number), cursor)
    return {"keys": page.keys, "more": page.more}


def list_at(state: HostState, number: int, cursor: int | None) -> dict[str, object]:
    """The same, behind the page that was given this number."""
    bucket = state.handles.get(number, Bucket)
    return list_behind(state, number, None if cursor is None else bucket.behind(cursor))


def observe_listed(_state: HostState, answer: Ok | Err, *_: object) -> Ok | Err:
    if isinstance(answer, Err):
        return other(answer)
    page: Any = answer.value
    return Ok({"keys": page["keys"], "cursor": page["keys"][-1] if page["more"] else None})


def observe_numbered(state: HostState, answer: Ok | Err, number: int, *_: object) -> Ok | Err:
    if isinstance(answer, Err):
        return other(answer)
    page: Any = answer.value
    cursor = None
    if page["more"]:
        cursor = state.handles.get(number, Bucket).new_cursor(page["keys"][-1])
    return Ok({"keys": page["keys"], "cursor": cursor})


Listed = tuple[Callable[..., Any], str, Callable[..., Any]]


def store(version: str, cursor: str, listed: Listed) -> InterfaceTable:
    return host_interface(
        f"""
        interface wasi:keyvalue/store {{
            variant error {{ no-such-store, access-denied, other(string) }}
            record key-response {{ keys: list<string>, cursor: option<{cursor}> }}
            open: func(identifier: string) -> result<bucket, error>;
            resource bucket {{
                get: func(key: string) -> result<option<list<u8>>, error>;
                set: func(key: string, value: list<u8>) -> result<_, error>;
                delete: func(key: string) -> result<_, error>;
                exists: func(key: string) -> result<bool, error>;
                list-keys: func(cursor: option<{cursor}>) -> result<key-response, error>;
            }}
        }}
        """,
        version,
        [
            Local("open", open_bucket),
            read_row("[method]bucket.get", get, "option<list<u8>>", observed),
            read_row("[method]bucket.exists", exists, "bool", observed),
            write_row("[method]bucket.set", set_one, "_", observed),
            write_row("[method]bucket.delete", delete_one, "_", observed),
            read_row("[method]bucket.list-keys", *listed),
        ],
        drops={"bucket": drop_value},
    )


PAGE: Final = "record { keys: list<string>, more: bool }"
STORE: Final = store("0.2.0-draft", "u64", (list_at, PAGE, observe_numbered))
STORE_2: Final = store("0.2.0-draft2", "string", (list_behind, PAGE, observe_listed))


# -- batch -----------------------------------------------------------------------------------------


def read_pairs(state: HostState, bucket: int, keys: list[str]) -> list[tuple[str, bytes] | None]:
    values = get_many(state, bucket, keys)
    return [
        None if value is None else (key, value) for key, value in zip(keys, values, strict=True)
    ]


async def set_all(state: HostState, bucket: int, pairs: list[tuple[str, bytes]]) -> None:
    await put(state, bucket, dict(pairs))


def over_buckets(
    of: InterfaceTable, name: str, text: str, rows: list[HostFunctionRow], **drops: Drop
) -> InterfaceTable:
    """An interface of functions over the types of a `store`."""
    return host_interface(
        f"interface wasi:keyvalue/{name} {{ use store.{{bucket, error}}; {text} }}",
        of.versions,
        rows,
        drops=drops,
        uses=of.wit.types,
    )


def batch(of: InterfaceTable) -> InterfaceTable:
    return over_buckets(
        of,
        "batch",
        """
        get-many: func(bucket: borrow<bucket>, keys: list<string>)
            -> result<list<option<tuple<string, list<u8>>>>, error>;
        set-many: func(bucket: borrow<bucket>, key-values: list<tuple<string, list<u8>>>)
            -> result<_, error>;
        delete-many: func(bucket: borrow<bucket>, keys: list<string>) -> result<_, error>;
        """,
        [
            many_row(
                "get-many", read_pairs, few_keys, "list<option<tuple<string, list<u8>>>>", observed
            ),
            write_row("set-many", set_all, "_", observed),
            write_row("delete-many", delete_all, "_", observed),
        ],
    )


# -- atomics ---------------------------------------------------------------------------------------


def see(state: HostState, bucket: int, key: str) -> dict[str, object]:
    seen = state.stores.keyvalue.see(named(state, bucket), key)
    return {"value": seen.value, "version": seen.version}


def compared(state: HostState, bucket: str, key: str, seen: Any) -> int:
    found = Seen(seen["value"], seen["version"])
    return state.handles.add(Comparison(state.held, bucket, key, found))


def observe_new(state: HostState, answer: Ok | Err, number: int, key: str) -> Ok | Err:
    if isinstance(answer, Err):
        return other(answer)
    return Ok(compared(state, named(state, number), key, answer.value))


def current(state: HostState, number: int) -> Ok:
    return Ok(state.handles.get(number, Comparison).seen.value)


async def swap(state: Any, number: int, value: bytes) -> Ok | Err:
    """Whether it could be swapped, or what there is instead."""
    cas = state.handles.get(number, Comparison)
    keyvalue = state.stores.keyvalue
    try:
        if await keyvalue.swap(caller(state), cas.bucket, cas.key, value, cas.seen.version):
            return Ok()
        seen = keyvalue.see(cas.bucket, cas.key)
    except Refused as refused:
        return Err(Variant("refused", str(refused)))
    return Err(Variant("changed", {"value": seen.value, "version": seen.version}))


def observe_swap(state: HostState, answer: Ok | Err, number: int, _value: bytes) -> Ok | Err:
    cas = state.handles.get(number, Comparison)
    drop_value(state, number)
    if isinstance(answer, Ok):
        return answer
    failed: Any = answer.value
    if failed.case == "refused":
        return Err(Variant("store-error", Variant("other", failed.payload)))
    return Err(Variant("cas-failed", compared(state, cas.bucket, cas.key, failed.payload)))


ATOMICS: Final = over_buckets(
    STORE,
    "atomics",
    "increment: func(bucket: borrow<bucket>, key: string, delta: u64) -> result<u64, error>;",
    [write_row("increment", increment, "u64", observed)],
)

SEEN: Final = "record { value: option<list<u8>>, version: list<u8> }"
ATOMICS_2: Final = over_buckets(
    STORE_2,
    "atomics",
    """
    variant cas-error { store-error(error), cas-failed(cas) }
    resource cas {
        new: static func(bucket: borrow<bucket>, key: string) -> result<cas, error>;
        current: func() -> result<option<list<u8>>, error>;
    }
    increment: func(bucket: borrow<bucket>, key: string, delta: s64) -> result<s64, error>;
    swap: func(cas: cas, value: list<u8>) -> result<_, cas-error>;
    """,
    [
        read_row("[static]cas.new", see, SEEN, observe_new),
        Local("[method]cas.current", current),
        write_row("increment", partial(increment, bounds=S64), "s64", observed),
        Awaited(
            name="swap",
            function_type=WRITE_REMOTE,
            action=swap,
            observe=observe_swap,
            answer=f"result<_, variant {{ refused(string), changed({SEEN}) }}>",
        ),
    ],
    cas=drop_value,
)

TABLES: Final = (STORE, STORE_2, batch(STORE), batch(STORE_2), ATOMICS, ATOMICS_2)
