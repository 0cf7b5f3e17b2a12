"""What the reference says happens, one event at a time."""

from collections.abc import Generator
from dataclasses import dataclass
from typing import TypeVar

from tests.conformance.model.regions import Entry
from tests.conformance.model.world import Answer, Effect, Refusal


@dataclass(frozen=True, slots=True)
class Append:
    """An entry is ordered; its index is sent back."""

    entry: Entry


@dataclass(frozen=True, slots=True)
class Commit:
    """Nothing goes on before all that is ordered is durable."""


@dataclass(frozen=True, slots=True)
class Perform:
    """An effect leaves; what the world says is sent back."""

    effect: Effect


Event = Append | Commit | Perform
Reply = int | Answer | Refusal | None
T = TypeVar("T")
Steps = Generator[Event, Reply, T]


def append(kind: str, /, **fields: object) -> Steps[tuple[int, Entry]]:
    """One appended entry, with its index."""
    entry = Entry(kind, fields)
    index = yield Append(entry)
    assert isinstance(index, int)
    return index, entry


def perform(effect: Effect) -> Steps[Answer | Refusal]:
    """One effect, with what the world said."""
    said = yield Perform(effect)
    assert isinstance(said, Answer | Refusal)
    return said
