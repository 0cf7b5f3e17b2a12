"""Handles across the canonical ABI: `own` and `borrow` as Python ints.

A handle of a host resource crosses as its representation, the number the host chose. A handle of a
resource that the guest itself exports crosses as a number from the store's `GuestHandles`, allotted
in order from 1, so a replay allots the same numbers.

Wasmtime counts borrows: a borrowed argument must be taken (`any_to_host`) on every path, or the
instance refuses to go on; so a handle is taken the moment it is lifted. Making one, in order: a
host handle, an owned pointer to it written into the value, the host handle freed, the kind written.
Runs on the lane of the store.
"""

import ctypes
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeAlias

from executor.wasm.ffi import (
    KIND,
    any_clone,
    any_delete,
    any_to_host,
    check_no_error,
    host_delete,
    host_new,
    host_rep,
    host_to_any,
    u8_at,
    u64_at,
)

ResourceIds: TypeAlias = Mapping[str, int]
"""Host resources by identity (`wasi:io/poll.pollable`), each with the number of its host type. A
resource that is not in it belongs to the guest."""


class WrongValue(TypeError):
    """A value that its type does not allow; `abi_mismatch` says where and why."""


class GuestHandles:
    """The handles of guest-exported resources that one instance gave out, by number.

    Of one store, on its lane. Forgetting a handle runs no destructor.
    """

    def __init__(self) -> None:
        self._pointers: dict[int, int] = {}
        self._last = 0
        self._given: list[int] = []

    def add(self, pointer: int) -> int:
        """Take ownership of a pointer to a handle; answers its number."""
        self._last += 1
        self._pointers[self._last] = pointer
        return self._last

    def lend(self, number: int) -> int:
        """The pointer behind a number. Raises: KeyError."""
        return self._pointers[number]

    def give(self, number: int) -> int:
        """The same, and the handle is forgotten once `given` is told that the guest has it."""
        pointer = self._pointers[number]
        if number in self._given:
            raise KeyError(number)
        self._given.append(number)
        return pointer

    def given(self, *, arrived: bool) -> None:
        """The call that handles were given to has begun (or, not `arrived`, never will)."""
        if arrived:
            for number in self._given:
                any_delete(self._pointers.pop(number))
        self._given.clear()

    def close(self) -> None:
        """Free all pointers."""
        while self._pointers:
            _, pointer = self._pointers.popitem()
            any_delete(pointer)


class HandleCrossing(Protocol):
    """What a codec of handles needs to know of the store that a value crosses into or out of."""

    store_at: int
    """Address of the store's context."""
    out: int
    """Address of a pointer-sized slot of this store, for what Wasmtime answers."""
    guest_handles: GuestHandles


def new_out_slot() -> ctypes.c_void_p:
    """A slot for `HandleCrossing.out`; it must outlive its address."""
    return ctypes.c_void_p()


_KIND_BOOL = KIND["bool"]
_KIND_RESOURCE = KIND["resource"]


def _lift_host(at: int, crossing: HandleCrossing) -> int:
    out = crossing.out
    check_no_error(any_to_host(crossing.store_at, u64_at(at + 8).value, out))
    host = u64_at(out).value
    number: int = host_rep(host)
    host_delete(host)
    return number


def _lift_guest(at: int, crossing: HandleCrossing) -> int:
    number = crossing.guest_handles.add(u64_at(at + 8).value)
    u64_at(at + 8).value = 0
    u8_at(at).value = _KIND_BOOL
    return number


def lift_handle(resource: str, resources: ResourceIds) -> Callable[[int, Any], int]:
    """The function that reads a handle of this resource."""
    return _lift_host if resource in resources else _lift_guest


def lower_handle(
    resource: str, resources: ResourceIds, *, owned: bool
) -> Callable[[Any, int, Any], None]:
    """The function that writes a handle of this resource."""
    host_type = resources.get(resource)

    def lower_host(value: Any, at: int, crossing: HandleCrossing) -> None:
        if type(value) is not int or value >> 32:
            raise WrongValue
        host = host_new(owned, value, host_type)
        error = host_to_any(crossing.store_at, host, at + 8)
        host_delete(host)
        check_no_error(error)
        u8_at(at).value = _KIND_RESOURCE

    def lower_guest(value: Any, at: int, crossing: HandleCrossing) -> None:
        handles = crossing.guest_handles
        if type(value) is not int:
            raise WrongValue
        pointer = handles.give(value) if owned else handles.lend(value)
        u64_at(at + 8).value = any_clone(pointer)
        u8_at(at).value = _KIND_RESOURCE

    return lower_guest if host_type is None else lower_host
