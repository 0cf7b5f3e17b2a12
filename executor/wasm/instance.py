"""One instance of a component: its store, its memory, and at most one call at a time.

An instance is disposable. It lives on one lane; its methods may be called on any thread and only
post work to that lane. A call's outcome is a value. After any outcome but `Returned` the instance
is gone: its future and its store are deleted and no destructor of the guest runs, so what the host
holds for it hangs off the worker's own state. Nothing here is durable.
"""

import ctypes
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

import msgspec
from wasmtime import _ffi as wasmtime_ffi

from executor.errors import BadHandle, InternalError
from executor.wasm import ffi
from executor.wasm.abi_mismatch import explain_mismatch
from executor.wasm.boundary import Codec, Crossing
from executor.wasm.component import ExportedFunction
from executor.wasm.host_function import LeaveGuest
from executor.wasm.lane import Lane
from executor.wasm.linker import Linker
from executor.wasm.traps import PASSED_TOO_MUCH, Trapped, too_much, trapped


class Returned(msgspec.Struct, frozen=True):
    """The function returned; an `Err` value is a result like any other."""

    value: object = None


class Left(msgspec.Struct, frozen=True):
    """The guest was left in mid-call: interrupted, or a host function raised `LeaveGuest`."""

    reason: object


class Raised(msgspec.Struct, frozen=True):
    """A host function failed; the guest never saw it."""

    error: BaseException


Outcome: TypeAlias = Returned | Trapped | Left | Raised
Done: TypeAlias = Callable[[Outcome], None]

UNLIMITED = -1


class Instance:
    """Close it: an instance that is only forgotten keeps its memory."""

    def __init__(
        self,
        linker: Linker,
        lane: Lane,
        state: object,
        *,
        memory_bytes_max: int | None = None,
        table_elements_max: int | None = None,
    ) -> None:
        """Prepare an instance on a lane; nothing runs before `start`.

        `state` is what host functions get as their first argument. `memory_bytes_max` bounds each
        linear memory and `table_elements_max` each table: beyond it `memory.grow` and `table.grow`
        answer -1.
        """
        self._linker = linker
        self._lane = lane
        self._memory_bytes_max = memory_bytes_max
        self._table_elements_max = table_elements_max
        self._crossing = Crossing(state, partial(lane.post, self._poll), lane.has_work)
        self._store = 0
        self._handle = wasmtime_ffi.wasmtime_component_instance_t()
        self._functions: dict[str, Any] = {}
        self._future = 0
        self._call: _Call | None = None
        self._gone = False
        self._closing = False

    # On any thread.

    def start(self, done: Done) -> None:
        """Instantiate; `done` is called on the lane, with `Returned(None)` if all went well."""
        self._lane.post(lambda: self._start(done))

    def call(self, function: ExportedFunction, arguments: Sequence[object], done: Done) -> None:
        """Call an export; `done` is called on the lane.

        Arguments that the function's type does not allow are `Raised(TypeError)`, handles that are
        not held `Raised(BadHandle)`; both leave the instance as it was. One call at a time.
        """
        self._lane.post(lambda: self._begin(function, arguments, done))

    def interrupt(self, reason: object) -> None:
        """Leave the call in progress, or queued: its outcome is `Left(reason)`.

        A waiting guest is left at once, a computing one at its next epoch check; other guests go
        on. Without a call there is nothing to interrupt.
        """
        self._crossing.interrupt = (reason,)
        self._linker.engine.increment_epoch()
        self._lane.post(self._interrupt_waiting)

    def pause(self) -> None:
        """Have the guest give way at its next epoch check and not run on until `resume`."""
        self._crossing.paused = True
        self._linker.engine.increment_epoch()

    def resume(self) -> None:
        """Let a paused guest run on."""
        self._crossing.paused = False
        self._lane.post(self._poll)

    def close(self, done: Callable[[], None] | None = None) -> None:
        """Delete future, instance and store; `done` is called on the lane afterwards.

        A call in progress has no outcome: its `done` is never called. A computing guest is left
        at its next epoch check.
        """
        self._closing = True
        self._crossing.interrupt = (None,)
        self._linker.engine.increment_epoch()
        self._lane.post(lambda: self._close(done))

    # On the lane.

    def _start(self, done: Done) -> None:
        if self._store or self._gone:
            done(Raised(InternalError("an instance is started once")))
            return
        linker = self._linker
        engine = ffi.pointer_of(linker.component.wasmtime_engine)
        self._store = ffi.store_new(engine, None, None)
        store_at = ffi.store_context(self._store)
        bounds = (self._memory_bytes_max, self._table_elements_max)
        if bounds != (None, None):
            given = (UNLIMITED if bound is None else bound for bound in bounds)
            ffi.store_limit(self._store, *given, *(UNLIMITED,) * 3)
        ffi.store_on_epoch(self._store, linker.boundary.epoch_address, None, None)
        linker.boundary.enter(store_at, self._crossing)
        call = _Call(done, None, 0)
        component = ffi.pointer_of(linker.component.wasmtime_component)
        self._run(
            call,
            lambda: ffi.instantiate_async(
                linker.address,
                store_at,
                component,
                ctypes.addressof(self._handle),
                call.error_at,
            ),
        )

    def _begin(self, function: ExportedFunction, arguments: Sequence[object], done: Done) -> None:
        if self._gone or not self._store or self._call is not None:
            why = "is gone" if self._gone else "is not ready for a call"
            done(Raised(InternalError(f"an instance {why}: {function.path}")))
            return
        try:
            codec = self._linker.codec(function)
            callee = self._function(function)
        except KeyError:
            done(Raised(InternalError(f"no such export: {function.path}")))
            return
        call = _Call(done, codec, len(arguments))
        try:
            call.lower_arguments(function.path, arguments, self._crossing)
        except (TypeError, BadHandle) as error:
            self._crossing.guest_handles.given(arrived=False)
            done(Raised(error))
            return
        self._crossing.guest_handles.given(arrived=True)
        self._run(
            call,
            lambda: ffi.call_async(
                ctypes.addressof(callee),
                self._crossing.store_at,
                call.arguments_at,
                call.arguments_count,
                call.result_at,
                call.results_count,
                call.error_at,
            ),
        )

    def _function(self, function: ExportedFunction) -> Any:
        key = f"{function.interface}@{function.version}.{function.name}"
        found = self._functions.get(key)
        if found is None:
            index = self._linker.component.export_index(function)
            found = wasmtime_ffi.wasmtime_component_func_t()
            if not ffi.instance_get_func(
                ctypes.addressof(self._handle),
                self._crossing.store_at,
                ffi.pointer_of(index),
                ctypes.addressof(found),
            ):
                raise KeyError(function.path)
            self._functions[key] = found
        return found

    def _run(self, call: "_Call", begin: Callable[[], int]) -> None:
        """Begin a call whose arguments are in place, unless it is to be left already."""
        crossing = self._crossing
        # The deadline before the flag: an interrupt after the look finds a deadline it passes.
        ffi.context_set_epoch_deadline(crossing.store_at, 1)
        self._call = call
        if crossing.interrupt is not None:
            self._end(Left(crossing.interrupt[0]))
            return
        self._future = begin()
        self._poll()

    def _poll(self) -> None:
        """Let the guest run on; a stray wake-up finds no future, or a guest that still waits."""
        crossing = self._crossing
        if not self._future or self._is_paused():
            return
        crossing.yielded = False
        self._lane.mark_busy()
        finished = ffi.future_poll(self._future)
        self._lane.busy = False
        if finished:
            try:
                outcome = self._outcome()
            except Exception as error:  # a result that cannot be lifted, for want of memory
                outcome = Raised(error)
            self._end(outcome)
        elif crossing.failed is not None:
            self._end(_raised(crossing.failed))
        elif (crossing.yielded or not crossing.waits) and not self._is_paused():
            self._lane.post(self._poll)

    def _is_paused(self) -> bool:
        return self._crossing.paused

    def _outcome(self) -> Outcome:
        crossing, call = self._crossing, self._call
        assert call is not None
        if not call.error:
            return Returned(call.take_result(crossing))
        text = ffi.take_error(call.error)
        if crossing.raised is not None:
            return _raised(crossing.raised)
        if crossing.interrupt is not None:
            return Left(crossing.interrupt[0])
        if PASSED_TOO_MUCH in text:
            return Raised(too_much())
        return trapped(text, self._memory_bytes_max)

    def _end(self, outcome: Outcome) -> None:
        call = self._call
        assert call is not None
        self._call = None
        if isinstance(outcome, Returned):
            self._delete_future()
        else:
            self._delete()
        call.free()
        if not self._closing:
            call.done(outcome)

    def _interrupt_waiting(self) -> None:
        interrupt, self._crossing.interrupt = self._crossing.interrupt, None
        if self._call is not None and interrupt is not None:
            self._end(Left(interrupt[0]))

    def _close(self, done: Callable[[], None] | None) -> None:
        call, self._call = self._call, None
        self._delete()
        if call is not None:
            call.free()
        if done is not None:
            done()

    def _delete_future(self) -> None:
        future, self._future = self._future, 0
        if future:
            ffi.future_delete(future)

    def _delete(self) -> None:
        self._gone = True
        self._delete_future()
        self._linker.boundary.leave(self._crossing)
        store, self._store = self._store, 0
        if store:
            ffi.store_delete(store)
        self._functions.clear()


def _raised(error: BaseException) -> Outcome:
    return Left(error.reason) if isinstance(error, LeaveGuest) else Raised(error)


class _Call:
    """The memory of one call: arguments, result and error, which Wasmtime reads and writes."""

    def __init__(self, done: Done, codec: Codec | None, arguments_count: int) -> None:
        self.done = done
        self.codec = codec
        self.arguments_count = arguments_count
        self.results_count = 0 if codec is None or codec.result is None else 1
        values = arguments_count + self.results_count
        self._memory = ctypes.create_string_buffer(ffi.VALUE_BYTES * values + 8)
        self.error_at = ctypes.addressof(self._memory)
        self.arguments_at = self.error_at + 8
        self.result_at = self.arguments_at + ffi.VALUE_BYTES * arguments_count

    @property
    def error(self) -> int:
        """Address of Wasmtime's error, or 0."""
        return ffi.u64_at(self.error_at).value

    def lower_arguments(self, path: str, arguments: Sequence[object], crossing: Crossing) -> None:
        """Put the arguments in place, or nothing. Raises: TypeError, BadHandle."""
        assert self.codec is not None
        parameters = self.codec.type.params
        if len(parameters) != self.arguments_count:
            raise TypeError(f"{path} takes {len(parameters)} arguments, got {self.arguments_count}")
        at = self.arguments_at
        for index, (lower, value) in enumerate(
            zip(self.codec.lower_params, arguments, strict=True)
        ):
            try:
                lower(value, at, crossing)
            except Exception as error:
                self.free()
                name, type_ = parameters[index]
                if isinstance(error, BadHandle):
                    raise BadHandle(f"argument {name} of {path}: {error.message}") from error
                why = explain_mismatch(type_, value)
                raise TypeError(f"{path}: argument {name}: {why}") from error
            at += ffi.VALUE_BYTES

    def take_result(self, crossing: Crossing) -> object:
        """The result as a Python value."""
        if self.codec is None or self.codec.result is None:
            return None
        return self.codec.result(self.result_at, crossing)

    def free(self) -> None:
        """Free what the values hold; they are defaults afterwards, so freeing twice is harmless."""
        count = self.arguments_count + self.results_count
        for index in range(count):
            ffi.value_delete(self.arguments_at + ffi.VALUE_BYTES * index)
        ctypes.memset(self.arguments_at, 0, ffi.VALUE_BYTES * count)
