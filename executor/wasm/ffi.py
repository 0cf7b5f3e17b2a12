"""Wasmtime's C functions on raw addresses: the prototypes, and the layout of a component value.

wasmtime-py does not wrap the asynchronous half of the C API, and rebuilds types and values on every
call; so the hot path speaks to the shared library with plain integers as addresses. A component
value is 32 bytes: a kind tag at 0 and the payload at 8. A string, list, record, tuple or flags
payload is `(size, pointer)`; a variant is `(name size, name pointer, value pointer)`, an option a
value pointer, a result `(is ok, value pointer)`. Addresses of Wasmtime are valid on any thread, but
a store and everything in it belong to one lane.

Functions that only build or free plain values keep the interpreter lock (`_short`): they take tens
of nanoseconds, and giving the lock up there would hand it to another lane in mid-value. Functions
that can run a guest or free much memory release it (`_long`).
"""

import ctypes
from collections.abc import Callable
from ctypes import (
    CFUNCTYPE,
    PYFUNCTYPE,
    c_bool,
    c_char_p,
    c_int64,
    c_size_t,
    c_uint8,
    c_uint32,
    c_uint64,
    c_void_p,
)
from typing import Any, Final

from wasmtime import WasmtimeError
from wasmtime import _ffi as wasmtime_ffi

_dll: Final = wasmtime_ffi.dll


def _short(name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
    return PYFUNCTYPE(result, *arguments)((name, _dll))


def _long(name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
    return CFUNCTYPE(result, *arguments)((name, _dll))


VALUE_BYTES: Final = 32
FIELD_BYTES: Final = 48
"""One field of a record: its name (size, pointer), then its value."""

KINDS: Final = [
    "bool",
    "s8",
    "u8",
    "s16",
    "u16",
    "s32",
    "u32",
    "s64",
    "u64",
    "f32",
    "f64",
    "char",
    "string",
    "list",
    "record",
    "tuple",
    "variant",
    "enum",
    "option",
    "result",
    "flags",
    "resource",
]
KIND: Final = {
    name: int(getattr(wasmtime_ffi, f"WASMTIME_COMPONENT_{name.upper()}").value) for name in KINDS
}


class SequenceSlot(ctypes.Structure):
    """A component value that is a string, list, record, tuple or flags, or a variant or enum."""

    _fields_ = (
        ("kind", c_uint8),
        ("count", c_uint64),
        ("first", c_uint64),
        ("box", c_uint64),
    )


sequence_at = SequenceSlot.from_address


class ContinuationSlot(ctypes.Structure):
    """How Wasmtime asks whether a waiting call has its results: `ready(number)`."""

    _fields_ = (("ready", c_uint64), ("number", c_uint64), ("finalizer", c_uint64))


continuation_at = ContinuationSlot.from_address


def number_slot(number: Any) -> Callable[[int], Any]:
    """A component value whose payload is this C number: a function of its address."""

    class NumberSlot(ctypes.Structure):
        _fields_ = (("kind", c_uint8), ("padding", c_uint8 * 7), ("payload", number))

    return NumberSlot.from_address


u8_at = c_uint8.from_address
u32_at = c_uint32.from_address
u64_at = c_uint64.from_address

# Values. `wasm_byte_vec_new` copies the bytes; `*_new_uninit` fills with `bool` false values.
bytes_new = _short("wasm_byte_vec_new", None, c_void_p, c_size_t, c_char_p)
list_new = _short("wasmtime_component_vallist_new_uninit", None, c_void_p, c_size_t)
record_new = _short("wasmtime_component_valrecord_new_uninit", None, c_void_p, c_size_t)
tuple_new = _short("wasmtime_component_valtuple_new_uninit", None, c_void_p, c_size_t)
flags_new = _short("wasmtime_component_valflags_new_uninit", None, c_void_p, c_size_t)
value_new = _short("wasmtime_component_val_new", c_void_p, c_void_p)
value_clone = _short("wasmtime_component_val_clone", None, c_void_p, c_void_p)
value_delete = _short("wasmtime_component_val_delete", None, c_void_p)

# Resources. None of these runs a destructor.
host_new = _short("wasmtime_component_resource_host_new", c_void_p, c_bool, c_uint32, c_uint32)
host_delete = _short("wasmtime_component_resource_host_delete", None, c_void_p)
host_rep = _short("wasmtime_component_resource_host_rep", c_uint32, c_void_p)
host_to_any = _short(
    "wasmtime_component_resource_host_to_any", c_void_p, c_void_p, c_void_p, c_void_p
)
any_to_host = _short(
    "wasmtime_component_resource_any_to_host", c_void_p, c_void_p, c_void_p, c_void_p
)
any_clone = _short("wasmtime_component_resource_any_clone", c_void_p, c_void_p)
any_delete = _short("wasmtime_component_resource_any_delete", None, c_void_p)

# Types of an instance: the n-th export, of which the caller owns the extern and then the item.
instance_type_export_count = _short(
    "wasmtime_component_instance_type_export_count", c_size_t, c_void_p, c_void_p
)
instance_type_export_nth = _short(
    "wasmtime_component_instance_type_export_nth",
    c_bool,
    *(c_void_p, c_void_p, c_size_t, c_void_p, c_void_p, c_void_p),
)
extern_type = _short("wasmtime_component_extern_type", None, c_void_p, c_void_p)
extern_delete = _short("wasmtime_component_extern_delete", None, c_void_p)
item_delete = _short("wasmtime_component_item_delete", None, c_void_p)

# Errors.
error_new = _short("wasmtime_error_new", c_void_p, c_char_p)

# The linker.
ADD_ARGUMENTS = (c_void_p, c_char_p, c_size_t, c_void_p, c_void_p, c_void_p)
linker_add_func = _long("wasmtime_component_linker_instance_add_func", c_void_p, *ADD_ARGUMENTS)
linker_add_func_async = _long(
    "wasmtime_component_linker_instance_add_func_async", c_void_p, *ADD_ARGUMENTS
)
linker_add_resource = _long(
    "wasmtime_component_linker_instance_add_resource",
    c_void_p,
    *(c_void_p, c_char_p, c_size_t, c_void_p, c_void_p, c_void_p, c_void_p),
)

# Stores, instances and calls.
store_new = _long("wasmtime_store_new", c_void_p, c_void_p, c_void_p, c_void_p)
store_context = _short("wasmtime_store_context", c_void_p, c_void_p)
store_delete = _long("wasmtime_store_delete", None, c_void_p)
store_limit = _short(
    "wasmtime_store_limiter", None, c_void_p, c_int64, c_int64, c_int64, c_int64, c_int64
)
store_on_epoch = _short(
    "wasmtime_store_epoch_deadline_callback", None, c_void_p, c_void_p, c_void_p, c_void_p
)
context_set_epoch_deadline = _short("wasmtime_context_set_epoch_deadline", None, c_void_p, c_uint64)
instantiate_async = _long(
    "wasmtime_component_linker_instantiate_async",
    c_void_p,
    *(c_void_p, c_void_p, c_void_p, c_void_p, c_void_p),
)
instance_get_func = _short(
    "wasmtime_component_instance_get_func", c_bool, c_void_p, c_void_p, c_void_p, c_void_p
)
call_async = _short(
    "wasmtime_component_func_call_async",
    c_void_p,
    *(c_void_p, c_void_p, c_void_p, c_size_t, c_void_p, c_size_t, c_void_p),
)
future_poll = _long("wasmtime_call_future_poll", c_bool, c_void_p)
future_delete = _long("wasmtime_call_future_delete", None, c_void_p)

# What Wasmtime calls. An address may be null, which ctypes hands over as None.
HOST_CALLBACK = CFUNCTYPE(
    c_size_t, c_void_p, c_void_p, c_void_p, c_void_p, c_size_t, c_void_p, c_size_t
)
ASYNC_CALLBACK = CFUNCTYPE(
    *(None, c_void_p, c_void_p, c_void_p, c_void_p, c_size_t, c_void_p, c_size_t),
    *(c_void_p, c_void_p),
)
CONTINUATION_CALLBACK = CFUNCTYPE(c_bool, c_void_p)
DROP_CALLBACK = CFUNCTYPE(c_size_t, c_void_p, c_void_p, c_uint32)
EPOCH_CALLBACK = CFUNCTYPE(c_size_t, c_void_p, c_void_p, c_void_p, c_void_p)
EPOCH_CONTINUE: Final = 0
EPOCH_YIELD: Final = 1


def address_of(callback: Any) -> int:
    """The C address of a ctypes function object; the object must outlive every use of it."""
    return c_uint64.from_buffer(callback).value


def pointer_of(managed: Any) -> int:
    """The C address behind an object of wasmtime-py; the object must outlive every use of it."""
    return address_of(managed.ptr())


def take_error(address: int) -> str:
    """The text of an error of Wasmtime, with its causes; frees the error."""
    pointer = ctypes.cast(address, ctypes.POINTER(wasmtime_ffi.wasmtime_error_t))
    return str(WasmtimeError._from_ptr(pointer))


def check_no_error(address: int | None) -> None:
    """Raise what a function of the C API answered, as an error of ours would be.

    Raises: RuntimeError with Wasmtime's text.
    """
    if address:
        raise RuntimeError(take_error(address))
