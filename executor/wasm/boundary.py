"""The one place where Wasmtime calls Python, and its rule: no exception crosses it.

Wasmtime-py lets an exception that is not an `Exception` (a cancellation, Ctrl-C) kill the
interpreter, and ctypes drops any other. So every callable that is handed to Wasmtime is made here.
It catches `BaseException`, keeps it on the running call (`Crossing.raised`), and tells the guest
only that the host failed, which traps it; whoever polls the guest raises it again outside.

A host function that waits returns a continuation. The C API cannot trap in a continuation: a
failure there is kept in `Crossing.failed`, the continuation stays unready, and the lane deletes the
future and the instance. A continuation is known by a number that is never used twice, so a late
wake-up cannot reach another call.

Everything here runs on the lane of the store in question, but for what `Pending` says of itself.
"""

import itertools
from collections.abc import Callable
from ctypes import CDLL, addressof
from typing import Any, Final

from executor.wasm import ffi
from executor.wasm.abi import Lift, Lower, compile_lift, compile_lower
from executor.wasm.abi_handles import GuestHandles, ResourceIds, WrongValue, new_out_slot
from executor.wasm.abi_mismatch import explain_mismatch
from executor.wasm.ffi import VALUE_BYTES, continuation_at, u8_at, u64_at
from executor.wasm.host_function import PENDING, HostFunction, Pending
from executor.wasm.types import FuncType

_HOST_FAILED: Final = b"the host function failed"
_LEFT: Final = b"the guest was left"

_libc: Final = CDLL(None)
_READY: Final = ffi.address_of(_libc.abs)
"""A continuation that is ready at once, without the cost of calling Python: `abs(1)` is true."""


class HostValueError(TypeError):
    """A host function answered with a value that its declared type does not allow."""


class Crossing:
    """What the boundary keeps of one store, and how it finds the state of its worker."""

    __slots__ = (
        "_out_slot",
        "failed",
        "guest_handles",
        "interrupt",
        "out",
        "paused",
        "raised",
        "should_yield",
        "state",
        "store_at",
        "waits",
        "wake",
        "yielded",
    )

    def __init__(
        self, state: Any, wake: Callable[[], None], should_yield: Callable[[], bool]
    ) -> None:
        self.store_at = 0
        """Address of the store's context, once there is one."""
        self.state = state
        self.wake = wake
        """Has the lane poll the guest again; any thread."""
        self.should_yield = should_yield
        """Whether a busy guest lets others of its lane run."""
        self.raised: BaseException | None = None
        """What a host function raised; the guest is trapping because of it."""
        self.failed: BaseException | None = None
        """What failed after a wait; the guest can only be deleted."""
        self.interrupt: tuple[object] | None = None
        """Why the guest is to be left, as a 1-tuple, or None. Written by any thread."""
        self.paused = False
        """The guest yields at its next epoch check and is not polled. Written by any thread."""
        self.yielded = False
        """The guest gave way at an epoch check: nothing but a poll will wake it."""
        self.waits: dict[int, Pending] = {}
        """The continuations of this store that are not ready yet, by number."""
        self.guest_handles = GuestHandles()
        self._out_slot = new_out_slot()
        self.out = addressof(self._out_slot)


class _Wait:
    """One continuation: where its answer goes, and how."""

    __slots__ = ("codec", "crossing", "pending", "results", "where")

    def __init__(
        self, crossing: Crossing, pending: Pending, where: str, codec: "Codec", results: int
    ) -> None:
        self.crossing = crossing
        self.pending = pending
        self.where = where
        self.codec = codec
        self.results = results


class Boundary:
    """The callables of one linker and the stores that they serve."""

    def __init__(self) -> None:
        self._crossings: dict[int, Crossing] = {}
        self._waits: dict[int, _Wait] = {}
        self._numbers = itertools.count(1)
        self._continue = ffi.CONTINUATION_CALLBACK(self._is_ready)
        self._continue_address = ffi.address_of(self._continue)
        self._epoch = ffi.EPOCH_CALLBACK(self._on_epoch)
        self.epoch_address = ffi.address_of(self._epoch)
        """For `ffi.store_on_epoch`."""

    def enter(self, store: int, crossing: Crossing) -> None:
        """Serve this store from now on."""
        crossing.store_at = store
        self._crossings[store] = crossing

    def leave(self, crossing: Crossing) -> None:
        """Forget the store: nothing of it may run any more."""
        self.abandon_waits(crossing)
        # Only its own: the address of a deleted store is soon that of another one.
        if self._crossings.get(crossing.store_at) is crossing:
            del self._crossings[crossing.store_at]
        crossing.guest_handles.close()

    def abandon_waits(self, crossing: Crossing) -> None:
        """The store's future is deleted: answers to its waiting calls reach nobody."""
        while crossing.waits:
            number, pending = crossing.waits.popitem()
            self._waits.pop(number, None)
            pending.abandon()

    # What Wasmtime calls.

    def host_callback(
        self, where: str, function: HostFunction, codec_of: Callable[[], "Codec"]
    ) -> Any:
        """A ctypes callback for `ffi.linker_add_func`, or `_async` if the function waits.

        `where` names it in errors: `wasi:io/poll.poll`. `codec_of` is called at the first call,
        since most imports of a large component are never called. The callback must outlive the
        linker's instances.
        """
        if function.waits:
            return ffi.ASYNC_CALLBACK(self._waiting(where, function, codec_of))
        return ffi.HOST_CALLBACK(self._plain(where, function, codec_of))

    def drop_callback(self, drop: Callable[[Any, int], None]) -> Any:
        """A ctypes callback for `ffi.linker_add_resource`."""
        crossings = self._crossings

        def callback(_env: int | None, store: int, number: int) -> int:
            crossing = crossings[store]
            try:
                drop(crossing.state, number)
            except BaseException as error:
                return _fail(crossing, error)
            return 0

        return ffi.DROP_CALLBACK(callback)

    def _plain(
        self, where: str, function: HostFunction, codec_of: Callable[[], "Codec"]
    ) -> Callable[..., int]:
        if not function.type.params:
            return self._plain_without_parameters(where, function, codec_of)
        crossings = self._crossings
        codec: Codec | None = None
        lower: Lower = _lower_nothing
        answer_of: Callable[[int, Crossing], Any]

        def first_answer(args: int, crossing: Crossing) -> Any:
            nonlocal answer_of, codec, lower
            codec = codec_of()
            lower = codec.lower_result
            answer_of = _answer_of(function.call, codec.params)
            return answer_of(args, crossing)

        answer_of = first_answer

        def callback(
            _env: int, store: int, _type: int, args: int, _count: int, results: int, _n: int
        ) -> int:
            crossing = crossings[store]
            try:
                answer = answer_of(args, crossing)
            except BaseException as error:
                return _fail(crossing, error)
            try:
                lower(answer, results, crossing)
            except BaseException as error:
                return _fail(crossing, _wrong_answer(where, codec, answer, error))
            return 0

        return callback

    def _plain_without_parameters(
        self, where: str, function: HostFunction, codec_of: Callable[[], "Codec"]
    ) -> Callable[..., int]:
        """A clock or a random number is asked for more often than all else together."""
        crossings = self._crossings
        call = function.call
        codec: Codec | None = None
        lower: Lower = _lower_nothing

        def callback(
            _env: int, store: int, _type: int, _args: int, _count: int, results: int, _n: int
        ) -> int:
            nonlocal codec, lower
            crossing = crossings[store]
            try:
                if codec is None:
                    codec = codec_of()
                    lower = codec.lower_result
                answer = call(crossing.state)
            except BaseException as error:
                return _fail(crossing, error)
            try:
                lower(answer, results, crossing)
            except BaseException as error:
                return _fail(crossing, _wrong_answer(where, codec, answer, error))
            return 0

        return callback

    def _waiting(
        self, where: str, function: HostFunction, codec_of: Callable[[], "Codec"]
    ) -> Callable[..., None]:
        crossings = self._crossings
        call = function.call
        codec: Codec | None = None

        def callback(_env: int, store: int, _type: int, args: int, *rest: int) -> None:
            nonlocal codec
            _count, results, _n, trap, continuation = rest
            # First of all: without a continuation Wasmtime aborts the process.
            slot = continuation_at(continuation)
            slot.ready = _READY
            slot.number = 1
            slot.finalizer = 0
            crossing = crossings[store]
            try:
                if codec is None:
                    codec = codec_of()
                pending = Pending()
                answer = call(crossing.state, pending, *codec.lift_all(args, crossing))
                if answer is PENDING:
                    if not pending.arm(crossing.wake):
                        number = next(self._numbers)
                        self._waits[number] = _Wait(crossing, pending, where, codec, results)
                        crossing.waits[number] = pending
                        slot.ready = self._continue_address
                        slot.number = number
                        return
                    answer = pending.take()
            except BaseException as error:
                u64_at(trap).value = _fail(crossing, error)
                return
            try:
                codec.lower_result(answer, results, crossing)
            except BaseException as error:
                u64_at(trap).value = _fail(crossing, _wrong_answer(where, codec, answer, error))

        return callback

    def _is_ready(self, number: int | None) -> bool:
        """Called while a future is polled, so its results still have their place."""
        wait = self._waits.get(number or 0)
        if wait is None or not wait.pending.settled:
            return False
        crossing, codec, answer = wait.crossing, wait.codec, wait.pending.value
        del self._waits[number or 0]
        del crossing.waits[number or 0]
        if wait.pending.error is not None:
            crossing.failed = wait.pending.error
            return False
        try:
            codec.lower_result(answer, wait.results, crossing)
        except BaseException as error:
            crossing.failed = _wrong_answer(wait.where, codec, answer, error)
            return False
        return True

    def _on_epoch(self, store: int, _env: int, delta: int, kind: int) -> int:
        u64_at(delta).value = 1
        u8_at(kind).value = ffi.EPOCH_CONTINUE
        crossing = self._crossings[store]
        try:
            if crossing.interrupt is not None:
                return int(ffi.error_new(_LEFT))
            if crossing.paused or crossing.should_yield():
                crossing.yielded = True
                u8_at(kind).value = ffi.EPOCH_YIELD
        except BaseException as error:
            return _fail(crossing, error)
        return 0


class Codec:
    """One function's type, compiled: how its parameters and its result cross."""

    __slots__ = (
        "lift_all",
        "lower_params",
        "lower_result",
        "params",
        "result",
        "result_type",
        "type",
    )

    def __init__(self, type_: FuncType, resources: ResourceIds) -> None:
        self.type = type_
        self.params: tuple[Lift, ...] = tuple(compile_lift(of, resources) for _, of in type_.params)
        self.lift_all = _lift_all(self.params)
        self.lower_params: tuple[Lower, ...] = tuple(
            compile_lower(of, resources) for _, of in type_.params
        )
        self.result_type = type_.result
        self.result: Lift | None = None
        self.lower_result: Lower = _lower_nothing
        if type_.result is not None:
            self.result = compile_lift(type_.result, resources)
            self.lower_result = compile_lower(type_.result, resources)


def _fail(crossing: Crossing, error: BaseException) -> int:
    crossing.raised = error
    return int(ffi.error_new(_HOST_FAILED))


def _wrong_answer(
    where: str, codec: Codec | None, answer: object, cause: BaseException
) -> BaseException:
    """What to report of an answer that could not be lowered."""
    if not isinstance(cause, Exception):
        return cause
    if codec is None or codec.result_type is None:
        why = f"$: expected no result, got {answer!r}"
    else:
        why = explain_mismatch(codec.result_type, answer)
    error = HostValueError(f"{where} answered with a wrong value: {why}")
    error.__cause__ = cause
    return error


def _lower_nothing(value: object, _at: int, _crossing: Crossing) -> None:
    if value is not None:
        raise WrongValue


def _answer_of(
    call: Callable[..., Any], params: tuple[Lift, ...]
) -> Callable[[int, Crossing], Any]:
    """Lift the arguments and call: the hot path, so a function of its own for few parameters."""
    if len(params) == 1:
        first = params[0]
        return lambda args, crossing: call(crossing.state, first(args, crossing))
    lift_all = _lift_all(params)
    return lambda args, crossing: call(crossing.state, *lift_all(args, crossing))


def _lift_all(params: tuple[Lift, ...]) -> Callable[[int, Crossing], list[Any]]:
    if len(params) == 1:
        first = params[0]
        return lambda args, crossing: [first(args, crossing)]
    placed = [(param, VALUE_BYTES * index) for index, param in enumerate(params)]

    def lift_all(args: int, crossing: Crossing) -> list[Any]:
        return [param(args + offset, crossing) for param, offset in placed]

    return lift_all
