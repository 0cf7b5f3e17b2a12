"""`wasi:keyvalue@0.1.0`: buckets, values as resources, batches, numbers.

Reads are remote reads whose answer, the values, is recorded; writes are remote writes, each one
transaction and applied once however often it is repeated. A bucket is named and not made: it holds
what was put under its name, whichever worker did.
"""

from typing import Any, Final

from executor.durable.definition import HostFunctionRow, Local
from executor.host.held import Held, HeldValue
from executor.host.interface import InterfaceTable, host_interface
from executor.host.state import HostState
from executor.host.wasi.keyvalue_values import Body, BodyInput, BodyOutput
from executor.host.wasi.store_rows import caller, drop_value, many_row, read_row, write_row
from executor.services.environment import ROWS_AT_ONCE, VALUE_BYTES_MAX, Refused
from executor.wasm.values import Err, Ok

U64_MAX: Final = 2**64 - 1
CURSOR_BYTES: Final = 100


class Bucket(HeldValue):
    """A `bucket` resource."""

    def __init__(self, held: Held, name: str) -> None:
        """Raises: LimitError."""
        super().__init__(held, len(name))
        self.name = name
        self._cursors: list[str] = []
        """The last key of each page that was listed, for cursors that are numbers."""

    def new_cursor(self, key: str) -> int:
        """The number of the cursor behind that key. Raises: LimitError."""
        if not self._cursors or self._cursors[-1] != key:
            self.take_more(CURSOR_BYTES + len(key))
            self._cursors.append(key)
        return len(self._cursors)

    def behind(self, cursor: int) -> str:
        """Raises: Refused."""
        if not 1 <= cursor <= len(self._cursors):
            raise Refused(f"{cursor} is no cursor that this bucket has given")
        return self._cursors[cursor - 1]


class Trace:
    """An `error` resource."""

    def __init__(self, text: str) -> None:
        self.text = text


def named(state: HostState, number: int) -> str:
    return state.handles.get(number, Bucket).name


def traced(state: HostState, answer: Ok | Err) -> Ok | Err:
    """What the guest gets: an error is a resource."""
    return answer if isinstance(answer, Ok) else Err(state.handles.add(Trace(str(answer.value))))


def observed(state: HostState, answer: Ok | Err, *_: object) -> Ok | Err:
    return traced(state, answer)


def incoming(state: HostState, value: bytes | None) -> int | None:
    return None if value is None else state.handles.add(Body(state.held, value))


def observe_value(state: HostState, answer: Ok | Err, *_: object) -> Ok | Err:
    if isinstance(answer, Err):
        return traced(state, answer)
    value: Any = answer.value
    return Ok(incoming(state, value))


def observe_values(state: HostState, answer: Ok | Err, *_: object) -> Ok | Err:
    if isinstance(answer, Err):
        return traced(state, answer)
    values: Any = answer.value
    return Ok([incoming(state, value) for value in values])


# -- the store -------------------------------------------------------------------------------------


def get(state: HostState, bucket: int, key: str) -> bytes | None:
    return state.stores.keyvalue.get(named(state, bucket), key)


def exists(state: HostState, bucket: int, key: str) -> bool:
    return state.stores.keyvalue.exists(named(state, bucket), key)


def get_many(state: HostState, bucket: int, keys: list[str]) -> list[bytes | None]:
    return state.stores.keyvalue.get_many(named(state, bucket), keys)


def all_keys(state: HostState, bucket: int) -> list[str]:
    return state.stores.keyvalue.all_keys(named(state, bucket))


def few_keys(_state: HostState, _bucket: int, keys: list[str]) -> bool:
    return len(keys) <= ROWS_AT_ONCE


def has_few_keys(state: HostState, bucket: int) -> bool:
    found = state.stores.keyvalue.list_keys(named(state, bucket), limit=ROWS_AT_ONCE)
    return not found.more


async def set_one(state: HostState, bucket: int, key: str, value: int) -> None:
    await set_all(state, bucket, [(key, value)])


async def set_all(state: HostState, bucket: int, pairs: list[tuple[str, int]]) -> None:
    values = {key: bytes(state.handles.get(value, Body).content) for key, value in pairs}
    await put(state, bucket, values)


async def put(state: HostState, bucket: int, values: dict[str, bytes]) -> None:
    await state.stores.keyvalue.set_many(caller(state), named(state, bucket), values)


async def delete_one(state: HostState, bucket: int, key: str) -> None:
    await delete_all(state, bucket, [key])


async def delete_all(state: HostState, bucket: int, keys: list[str]) -> None:
    await state.stores.keyvalue.delete_many(caller(state), named(state, bucket), keys)


async def increment(
    state: HostState, bucket: int, key: str, delta: int, bounds: tuple[int, int] = (0, U64_MAX)
) -> int | None:
    """Raises: Refused beyond the bounds."""

    def change(number: int | None) -> int:
        total = (number or 0) + delta
        if not bounds[0] <= total <= bounds[1]:
            raise Refused(f"{key[:100]!r} would be {total}, which its type does not have")
        return total

    changed = state.stores.keyvalue.change_number
    request = ["increment", delta]
    return await changed(caller(state), named(state, bucket), key, request, change)


async def compare_and_swap(state: HostState, bucket: int, key: str, old: int, new: int) -> bool:
    def change(number: int | None) -> int | None:
        return new if number == old else None

    changed = state.stores.keyvalue.change_number
    request = ["compare-and-swap", old, new]
    swapped = await changed(caller(state), named(state, bucket), key, request, change)
    return swapped is not None


# -- resources that the guest holds ----------------------------------------------------------------


def open_bucket(state: HostState, name: str) -> Ok:
    return Ok(state.handles.add(Bucket(state.held, name)))


def trace(state: HostState, error: int) -> str:
    return state.handles.get(error, Trace).text


def new_outgoing(state: HostState) -> int:
    return state.handles.add(Body(state.held))


def write_body(state: HostState, value: int) -> Ok:
    body = state.handles.get(value, Body)
    return Ok(state.handles.add(BodyOutput(body, VALUE_BYTES_MAX)))


def write_body_at_once(state: HostState, value: int, content: bytes) -> Ok | Err:
    body = state.handles.get(value, Body)
    if len(body.content) + len(content) > VALUE_BYTES_MAX:
        return Err(state.handles.add(Trace(f"a value has at most {VALUE_BYTES_MAX} bytes")))
    body.append(content)
    return Ok()


def consume_at_once(state: HostState, value: int) -> Ok:
    body = state.handles.get(value, Body)
    return Ok(body.take(body.size))


def consume(state: HostState, value: int) -> Ok:
    return Ok(state.handles.add(BodyInput(state.handles.get(value, Body))))


def size(state: HostState, value: int) -> Ok:
    return Ok(state.handles.get(value, Body).size)


ERROR: Final = host_interface(
    """
    interface wasi:keyvalue/wasi-keyvalue-error {
        resource error {
            trace: func() -> string;
        }
    }
    """,
    "0.1",
    [Local("[method]error.trace", trace)],
)

TYPES: Final = host_interface(
    """
    interface wasi:keyvalue/types {
        use wasi:io/streams@0.2.0.{input-stream, output-stream};
        use wasi-keyvalue-error.{error};

        resource bucket {
            open-bucket: static func(name: string) -> result<bucket, error>;
        }
        type key = string;
        resource outgoing-value {
            new-outgoing-value: static func() -> outgoing-value;
            outgoing-value-write-body-async: func() -> result<output-stream, error>;
            outgoing-value-write-body-sync: func(value: list<u8>) -> result<_, error>;
        }
        resource incoming-value {
            incoming-value-consume-sync: func() -> result<list<u8>, error>;
            incoming-value-consume-async: func() -> result<input-stream, error>;
            incoming-value-size: func() -> result<u64, error>;
        }
    }
    """,
    "0.1",
    [
        Local("[static]bucket.open-bucket", open_bucket),
        Local("[static]outgoing-value.new-outgoing-value", new_outgoing),
        Local("[method]outgoing-value.outgoing-value-write-body-async", write_body),
        Local("[method]outgoing-value.outgoing-value-write-body-sync", write_body_at_once),
        Local("[method]incoming-value.incoming-value-consume-sync", consume_at_once),
        Local("[method]incoming-value.incoming-value-consume-async", consume),
        Local("[method]incoming-value.incoming-value-size", size),
    ],
    drops=dict.fromkeys(("bucket", "outgoing-value", "incoming-value"), drop_value),
)


def over_buckets(name: str, text: str, rows: list[HostFunctionRow]) -> InterfaceTable:
    """An interface of functions over the types above."""
    used = "use types.{bucket, error, key, incoming-value, outgoing-value};"
    return host_interface(
        f"interface wasi:keyvalue/{name} {{ {used} {text} }}", "0.1", rows, uses=TYPES.wit.types
    )


EVENTUAL: Final = over_buckets(
    "eventual",
    """
    get: func(bucket: borrow<bucket>, key: key) -> result<option<incoming-value>, error>;
    set: func(bucket: borrow<bucket>, key: key, outgoing-value: borrow<outgoing-value>)
        -> result<_, error>;
    delete: func(bucket: borrow<bucket>, key: key) -> result<_, error>;
    exists: func(bucket: borrow<bucket>, key: key) -> result<bool, error>;
    """,
    [
        read_row("get", get, "option<list<u8>>", observe_value),
        read_row("exists", exists, "bool", observed),
        write_row("set", set_one, "_", observed),
        write_row("delete", delete_one, "_", observed),
    ],
)

BATCH: Final = over_buckets(
    "eventual-batch",
    """
    get-many: func(bucket: borrow<bucket>, keys: list<key>)
        -> result<list<option<incoming-value>>, error>;
    keys: func(bucket: borrow<bucket>) -> result<list<key>, error>;
    set-many: func(
        bucket: borrow<bucket>, key-values: list<tuple<key, borrow<outgoing-value>>>
    ) -> result<_, error>;
    delete-many: func(bucket: borrow<bucket>, keys: list<key>) -> result<_, error>;
    """,
    [
        many_row(
            "get-many",
            get_many,
            few_keys,
            "list<option<list<u8>>>",
            observe_values,
        ),
        many_row("keys", all_keys, has_few_keys, "list<string>", observed),
        write_row("set-many", set_all, "_", observed),
        write_row("delete-many", delete_all, "_", observed),
    ],
)

ATOMIC: Final = over_buckets(
    "atomic",
    """
    increment: func(bucket: borrow<bucket>, key: key, delta: u64) -> result<u64, error>;
    compare-and-swap: func(bucket: borrow<bucket>, key: key, old: u64, new: u64)
        -> result<bool, error>;
    """,
    [
        write_row("increment", increment, "u64", observed),
        write_row("compare-and-swap", compare_and_swap, "bool", observed),
    ],
)

TABLES: Final = (ERROR, TYPES, EVENTUAL, BATCH, ATOMIC)
