"""What must hold of a case, however often its processes were killed.

- Nothing accepted is lost: after the last recovery, before anyone asks again, every key that some
  child had reported as accepted has its outcome.
- Nothing happens twice: one pending, one started and one finished entry a key; whatever was once
  reported as an outcome is so ever after; a remote write reaches the receiver once, or once more
  under the same key for each crash that found its `start` committed and its `end` not.
- Nothing leaves before its cause: every request the receiver has got bears the key of a `start`
  that was committed when the process died.
- What was committed stays: each recovery finds the entries of the one before, and then more.
- The results, the queries and the replay are those of an undisturbed run.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from threading import Lock
from typing import NamedTuple

from executor.durable.function_type import REMOTE, WRITE_REMOTE
from executor.durable.keys import call_key
from tests.support.crash_plan import (
    Accepted,
    AnyEvent,
    Ended,
    Found,
    Line,
    Opened,
    Outcome,
    Refused,
    Replayed,
)
from tests.support.crash_scenarios import Answer, Scenario
from tests.support.receiver import Request


class Case(NamedTuple):
    scenario: Scenario
    points: tuple[tuple[str, int], ...]
    events: tuple[AnyEvent, ...]
    requests: tuple[Request, ...]
    """Of this case, in the order of arrival."""
    sent: tuple[int, ...]
    """How many of them had arrived when each but the last child ended."""
    references: dict[str, str]
    """What the receiver answered to each key."""
    errors: str
    """The children's standard error."""

    def told(self, what: str) -> str:
        """A failure in full."""
        events = "\n".join(map(str, self.events))
        return (
            f"{self.scenario.name} killed at {self.points}: {what}\n{events}\n"
            f"{self.requests}\n{self.errors}"
        )

    def found(self, *, verified: bool) -> list[Found]:
        return [
            event
            for event in self.events
            if isinstance(event, Found) and event.verified == verified
        ]

    def outcomes(self) -> list[Outcome]:
        return [event for event in self.events if isinstance(event, Outcome)]


class Charge(NamedTuple):
    """One recorded call of `charge`."""

    key: str
    """Derived."""
    invocation: str
    ended: bool


class Verdict(NamedTuple):
    lost: int
    duplicated: int
    repeated: int
    """Effects that were performed again with the same key, as they may be."""
    wrong: tuple[str, ...]
    """Everything that does not hold, as sentences."""


class Figures:
    """The sum over the cases of one scenario."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.tried = 0
        self.killed = 0
        self.recovered = 0
        self.lost = 0
        self.duplicated = 0
        self.repeated = 0
        self._lock = Lock()

    def count(self, case: Case, *, killed: int) -> None:
        """Checks the case: fails in full at the first that does not hold."""
        verdict = judge(case)
        with self._lock:
            self.tried += 1
            self.killed += killed
            self.lost += verdict.lost
            self.duplicated += verdict.duplicated
            self.repeated += verdict.repeated
            self.recovered += not verdict.wrong
        assert not verdict.wrong, case.told("; ".join(verdict.wrong))

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.tried} cases, {self.killed} kills, {self.recovered} recovered, "
            f"{self.lost} lost, {self.duplicated} duplicated, "
            f"{self.repeated} effects repeated with the same key"
        )


def check_case(case: Case) -> None:
    wrong = judge(case).wrong
    assert not wrong, case.told("; ".join(wrong))


def judge(case: Case) -> Verdict:
    lost = list(lost_keys(case))
    duplicated = [*double_outcomes(case), *double_effects(case)]
    wrong = (
        *lost,
        *duplicated,
        *changed_outcomes(case),
        *effects_without_cause(case),
        *forgotten_entries(case),
        *wrong_answers(case),
        *wrong_replays(case),
    )
    excess = len(case.requests) - len({request.key for request in case.requests})
    return Verdict(len(lost), len(duplicated), excess, wrong)


# -- lost --------------------------------------------------------------------------------------


def lost_keys(case: Case) -> Iterator[str]:
    """Keys that were promised and had no outcome when the last child had resumed."""
    promised: dict[tuple[str, str], None] = {}
    resumed: set[tuple[str, str]] = set()
    last = last_opening(case.events)
    for number, event in enumerate(case.events):
        match event:
            case Accepted() | Outcome(resumed=False) if number < last:
                promised[event.worker, event.key] = None
            case Outcome(resumed=True) if number > last and event.status != "pending":
                resumed.add((event.worker, event.key))
            case Refused(kind="previous-failed") if number > last:
                resumed.add((event.worker, event.key))
            case _:
                pass
    for worker, key in promised:
        if (worker, key) not in resumed:
            yield f"{worker} lost {key}"


def last_opening(events: Sequence[AnyEvent]) -> int:
    return max(number for number, event in enumerate(events) if isinstance(event, Opened))


# -- duplicated --------------------------------------------------------------------------------


def double_outcomes(case: Case) -> Iterator[str]:
    """More than one of anything that a key has once."""
    for found in case.found(verified=True):
        seen: Counter[tuple[str, str]] = Counter()
        current = ""
        for entry in found.lines:
            if entry.kind == "invocation-started":
                current = entry.key
            if entry.kind in ("pending-invocation", "invocation-started"):
                seen[entry.kind, entry.key] += 1
            if entry.kind == "invocation-finished":
                seen[entry.kind, current] += 1
            if entry.kind == "end":
                seen["end", str(entry.start_index)] += 1
        for (kind, key), count in seen.items():
            if count != 1:
                yield f"{found.worker} has {count} entries {kind} of {key}"


def double_effects(case: Case) -> Iterator[str]:
    """Writes that the receiver got under a key of nobody, or more often than crashes explain."""
    expected = [charge.key for found in case.found(verified=True) for charge in charges(found)]
    if len(expected) != case.scenario.charges:
        yield f"{len(expected)} charges are recorded, {case.scenario.charges} were to be made"
    counts = Counter(request.key for request in case.requests)
    if never := set(expected) - set(counts):
        yield f"{sorted(never)} are recorded and never reached the receiver"
    if case.scenario.charge_type != WRITE_REMOTE:
        return
    allowed = Counter(expected)
    for found in case.found(verified=False):
        allowed.update(charge.key for charge in charges(found) if not charge.ended)
    for key, count in counts.items():
        if count > allowed[key]:
            yield f"{key} reached the receiver {count} times, {allowed[key]} were allowed"


def charges(found: Found) -> Iterator[Charge]:
    """Every recorded call of `charge`, with its derived key."""
    ends = {entry.start_index for entry in found.lines if entry.kind == "end"}
    invocation = ""
    for entry in found.lines:
        if entry.kind == "invocation-started":
            invocation = entry.key
        if entry.kind == "start" and entry.type in REMOTE:
            key = call_key(bytes.fromhex(found.id), invocation, entry.index)
            yield Charge(key, invocation, entry.index in ends)


# -- changed -----------------------------------------------------------------------------------


def changed_outcomes(case: Case) -> Iterator[str]:
    """Outcomes that one report tells otherwise than another."""
    first: dict[tuple[str, str], tuple[object, ...]] = {}
    for event in case.outcomes():
        if event.status == "pending":
            continue
        told = (event.status, event.wave, event.error, event.exit_code, event.stdout, event.stderr)
        before = first.setdefault((event.worker, event.key), told)
        if before != told:
            yield f"{event.worker} answered {event.key} with {before} and then with {told}"


def effects_without_cause(case: Case) -> Iterator[str]:
    """Writes of a killed process whose start was not committed when it died."""
    if case.scenario.charge_type != WRITE_REMOTE:
        return
    committed: set[str] = set()
    opened = 0
    for event in case.events:
        if isinstance(event, Found) and not event.verified:
            committed.update(charge.key for charge in charges(event))
        if isinstance(event, Opened):
            sent = case.sent[opened - 1] if opened else 0
            opened += 1
            for request in case.requests[:sent]:
                if request.key not in committed:
                    yield f"{request.key} was sent and its start was not committed"


def forgotten_entries(case: Case) -> Iterator[str]:
    """Committed entries that a later oplog does not have."""
    before: dict[str, tuple[str, tuple[Line, ...]]] = {}
    for event in case.events:
        if not isinstance(event, Found):
            continue
        known_id, known = before.get(event.worker, (event.id, ()))
        if event.id != known_id:
            yield f"{event.worker} is another worker"
        if event.lines[: len(known)] != known:
            yield f"{event.worker} forgot entries: {known} became {event.lines}"
        if [entry.index for entry in event.lines] != list(range(1, len(event.lines) + 1)):
            yield f"{event.worker} has gaps"
        before[event.worker] = event.id, event.lines


# -- wrong -------------------------------------------------------------------------------------


def wrong_answers(case: Case) -> Iterator[str]:
    """Outcomes and queries that an undisturbed run would not have given."""
    references: dict[tuple[str, str], list[str]] = {}
    for found in case.found(verified=True):
        for charge in charges(found):
            reference = case.references.get(charge.key, "never sent")
            references.setdefault((found.worker, charge.invocation), []).append(reference)
    answers: dict[tuple[str, str], Answer] = {}
    last = last_opening(case.events)
    for event in case.events[last:]:
        match event:
            case Outcome(resumed=False):
                made = tuple(references.get((event.worker, event.key), ()))
                answers[event.worker, event.key] = Answer(
                    event.wave or event.error, event.exit_code, event.stdout, event.stderr, made
                )
            case Refused():
                answers[event.worker, event.key] = Answer(event.kind, None, "", "", ())
            case _:
                pass
    yield from case.scenario.judge(answers)
    if not isinstance(case.events[-1], Ended):
        yield "the last child did not end"


def wrong_replays(case: Case) -> Iterator[str]:
    replays = [event for event in case.events if isinstance(event, Replayed)]
    if {event.worker for event in replays} != set(case.scenario.workers):
        yield f"replayed were {replays}"
    for event in replays:
        if event.divergence:
            yield f"{event.worker} diverges: {event.divergence}"
        if not event.replayed:
            yield f"{event.worker} replayed nothing of {event.entries}"
