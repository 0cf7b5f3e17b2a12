"""The resources that a worker's guest holds, by number.

Numbers are allotted in order from 1 and never used again, so that a replay, which runs the same
calls in the same order, allots the same ones. Wasmtime has checked the resource type before a
number arrives here: a wrong one is our fault.
"""

from collections.abc import Callable
from typing import Any, Final, TypeVar

from executor.errors import InternalError, LimitError

T = TypeVar("T")

HANDLES_MAX: Final = 1_000_000
"""Resources that a guest may hold at a time: what they refer to lives in the host's memory."""


class HandleTable:
    """Used on the worker's lane only; never blocks."""

    def __init__(self, handles_max: int = HANDLES_MAX) -> None:
        self._objects: dict[int, object] = {}
        self.last = 0
        """The number that was allotted last."""
        self._handles_max = handles_max

    def __len__(self) -> int:
        return len(self._objects)

    def add(self, held: object) -> int:
        """The number of a new resource. Raises LimitError if the guest holds too many."""
        if len(self._objects) >= self._handles_max:
            message = f"the guest holds {self._handles_max} resources, which is the limit"
            raise LimitError(message, hint="the guest has to drop what it no longer uses")
        self.last += 1
        self._objects[self.last] = held
        return self.last

    def get(self, number: int, kind: Callable[..., T]) -> T:
        """What the guest holds as `number`, which is of the class `kind`, maybe an abstract one."""
        held: Any = self._objects.get(number)
        if not isinstance(held, kind):  # type: ignore[arg-type]  # `type[T]` is concrete to mypy
            raise InternalError(f"handle {number} is {type(held).__name__}, not {kind.__name__}")
        found: T = held
        return found

    def drop(self, number: int) -> object:
        """Takes the resource from the table and returns it."""
        if number not in self._objects:
            raise InternalError(f"handle {number} was dropped, and is not in the table")
        return self._objects.pop(number)
