"""The outside that both the store's worker and the reference talk to, and what happens there.

The world answers from what was performed before, so that a repeated effect is told by its answer.
"""

from collections import Counter
from dataclasses import dataclass, field
from enum import IntEnum


class Behaviour(IntEnum):
    """What the embedder's function does, by the low byte of its argument; others are answered."""

    ANSWER = 0
    TRANSIENT_ONCE = 1
    TRANSIENT_TWICE = 2
    TRANSIENT_EVER = 3
    BROKEN = 4


FAILURES: dict[int, int] = {
    Behaviour.TRANSIENT_ONCE: 1,
    Behaviour.TRANSIENT_TWICE: 2,
    Behaviour.TRANSIENT_EVER: 1 << 30,
}


@dataclass(frozen=True, slots=True)
class Effect:
    """One thing that the world was asked to do."""

    function: str
    argument: int
    key: str | None
    """The derived key; None where the rules leave it open (reads)."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The effect happened."""

    value: int


@dataclass(frozen=True, slots=True)
class Refusal:
    """The effect failed; a transient failure may be tried again."""

    transient: bool
    text: str


@dataclass(slots=True)
class World:
    """What was performed, in order; the answers follow from it."""

    performed: list[Effect] = field(default_factory=list)
    times: Counter[tuple[str, int]] = field(default_factory=Counter)

    def perform(self, effect: Effect) -> Answer | Refusal:
        """Do it and answer."""
        call = (effect.function, effect.argument)
        before = self.times[call]
        self.times[call] += 1
        self.performed.append(effect)
        if effect.function == "gate":
            return Answer((effect.argument & 0xFF) >> before & 1)
        behaviour = effect.argument & 0xFF
        if behaviour == Behaviour.BROKEN:
            return Refusal(transient=False, text=f"broken {effect.argument}")
        if before < FAILURES.get(behaviour, 0):
            return Refusal(transient=True, text=f"not now {effect.argument}")
        return Answer(len(self.performed))
