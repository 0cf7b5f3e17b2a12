"""The sum over the cases of one trial."""

from collections import Counter
from typing import NamedTuple

from executor.torture.lab import Tried, chain_text


class Wrong(NamedTuple):
    """One thing that did not hold."""

    at: str
    what: str


class Figures:
    """Counts cases as they are done. For one thread."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.tried = 0
        self.killed = 0
        """Processes, of which a case may have several."""
        self.recovered = 0
        """Cases of which everything held."""
        self.lost = 0
        self.duplicated = 0
        self.repeated = 0
        self.uncertain = 0
        self.wrong: list[Wrong] = []
        self.cases: Counter[str] = Counter()
        """By the kind of their first point."""
        self.kills: Counter[str] = Counter()

    def count(self, tried: Tried) -> None:
        case, verdict = tried
        kind = case.chain[0][0] if case.chain else ""
        self.tried += 1
        self.killed += case.killed
        self.recovered += not verdict.wrong
        self.lost += verdict.lost
        self.duplicated += verdict.duplicated
        self.repeated += verdict.repeated
        self.uncertain += verdict.uncertain
        self.cases[kind] += 1
        self.kills[kind] += case.killed
        self.wrong.extend(Wrong(chain_text(case.chain), what) for what in verdict.wrong)

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.tried} cases, {self.killed} kills, {self.recovered} recovered, "
            f"{self.lost} lost, {self.duplicated} duplicated, "
            f"{self.repeated} effects repeated with the same key"
        )
