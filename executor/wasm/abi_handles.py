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

from executor.errors import BadHandle
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


class CallerResourceIds(dict[str, int]):
    """The same, for functions that a caller from outside calls: of the host's resources it may use
    only what the guest gave it.
    """


class WrongValue(TypeError):
    """A value that its type does not allow; `abi_mismatch` says where and why."""


class GuestHandles:
    """The handles of guest-exported resources that one instance gave out, by number.

    Of one store, on its lane. Forgetting a handle runs no destructor. A number that is not held, or
    of another resource, is the caller's mistake, which Wasmtime would punish with the instance.
    """

    def __init__(self) -> None:
        self._held: dict[int, tuple[int, str]] = {}
        """Pointer and resource."""
        self._last = 0
        self._lent: set[int] = set()
        self._given: set[int] = set()
        self._of_host: set[tuple[str, int]] = set()
        """Handles of the host's resources that the guest gave to its caller."""

    def __len__(self) -> int:
        return len(self._held)

    def add(self, pointer: int, resource: str) -> int:
        """Take ownership of a pointer to a handle; answers its number."""
        self._last += 1
        self._held[self._last] = pointer, resource
        return self._last

    def lend(self, number: int, resource: str) -> int:
        """The pointer behind a number, for the call that is being made. Raises: BadHandle."""
        pointer = self._find(number, resource)
        self._lent.add(number)
        return pointer

    def give(self, number: int, resource: str) -> int:
        """The same, and the handle is forgotten once `given` is told that the guest has it.

        Raises: BadHandle, also for a handle that the same call lends or gives a second time.
        """
        pointer = self._find(number, resource)
        if number in self._lent:
            raise BadHandle(f"handle {number} is lent and given away in one call")
        self._given.add(number)
        return pointer

    def issue(self, resource: str, number: int) -> None:
        """The guest gave its caller a handle of the host's resources."""
        self._of_host.add((resource, number))

    def take_back(self, resource: str, number: int, *, owned: bool) -> None:
        """The caller gives such a handle back, or lends it. Raises: BadHandle."""
        if (resource, number) not in self._of_host:
            raise BadHandle(f"the guest gave out no {short_name(resource)} with handle {number}")
        if owned:
            self._of_host.remove((resource, number))

    def given(self, *, arrived: bool) -> None:
        """The call that handles went to has begun (or, not `arrived`, never will)."""
        if arrived:
            for number in self._given:
                any_delete(self._held.pop(number)[0])
        self._given.clear()
        self._lent.clear()

    def close(self) -> None:
        """Free all pointers."""
        while self._held:
            _, (pointer, _) = self._held.popitem()
            any_delete(pointer)

    def _find(self, number: int, resource: str) -> int:
        if number in self._given:
            raise BadHandle(f"handle {number} is given away twice in one call")
        held = self._held.get(number)
        wanted = short_name(resource)
        if held is None:
            never = number > self._last or number < 1
            why = "was never issued" if never else "was dropped or given away"
            raise BadHandle(f"there is no {wanted} with handle {number}: it {why}")
        pointer, of = held
        if of != resource:
            raise BadHandle(f"handle {number} is of a {short_name(of)}, not of a {wanted}")
        return pointer


def short_name(resource: str) -> str:
    """The resource's own name: `counter` of `demo:counter/api.counter`."""
    return resource.rpartition(".")[2]


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


def lift_handle(resource: str, resources: ResourceIds) -> Callable[[int, Any], int]:
    """The function that reads a handle of this resource."""

    def lift_issued(at: int, crossing: HandleCrossing) -> int:
        number = _lift_host(at, crossing)
        crossing.guest_handles.issue(resource, number)
        return number

    def lift_guest(at: int, crossing: HandleCrossing) -> int:
        number = crossing.guest_handles.add(u64_at(at + 8).value, resource)
        u64_at(at + 8).value = 0
        u8_at(at).value = _KIND_BOOL
        return number

    if resource not in resources:
        return lift_guest
    return lift_issued if isinstance(resources, CallerResourceIds) else _lift_host


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

    def lower_issued(value: Any, at: int, crossing: HandleCrossing) -> None:
        crossing.guest_handles.take_back(resource, value, owned=owned)
        lower_host(value, at, crossing)

    def lower_guest(value: Any, at: int, crossing: HandleCrossing) -> None:
        handles = crossing.guest_handles
        if type(value) is not int:
            raise WrongValue
        pointer = handles.give(value, resource) if owned else handles.lend(value, resource)
        u64_at(at + 8).value = any_clone(pointer)
        u8_at(at).value = _KIND_RESOURCE

    if host_type is None:
        return lower_guest
    return lower_issued if isinstance(resources, CallerResourceIds) else lower_host
