"""What must hold of a case, however often its processes were killed.

- Nothing accepted is lost: after the last recovery, before anyone asks again, every key that some
  process had reported as accepted has its outcome; every recorded remote write was performed; and
  none is missing that an undisturbed run makes.
- Nothing happens twice: one pending, one started and one finished entry a key; whatever was once
  reported as an outcome is so ever after; a remote write is performed once, or once more under the
  same key for each attempt that ended without an answer and each crash that found its `start`
  committed and its `end` not; where its owner has to be asked, once more for each time that he was.
  An HTTP request whose response did not come whole with its head may be repeated for the rest: once
  by each process that found its `end`, and once more for each setback that its worker recorded.
- Nothing leaves before its cause: every remote write bears the key of a `start` that was committed
  when the process died.
- What was committed stays: each recovery finds the entries of the one before, and then more.
- Answers, output, effects and states are those on which undisturbed runs agree, and every worker
  replays to the end of its oplog.

Pure.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from executor.durable.function_type import WRITE_REMOTE
from executor.torture.account import Difference
from executor.torture.crash_points import Point
from executor.torture.plan import (
    Accepted,
    AnyEvent,
    EffectBegan,
    EffectEnded,
    Found,
    Opened,
    Outcome,
    Refused,
    Replayed,
    Resolved,
    Trouble,
)


class Case(NamedTuple):
    """A chain of processes that used one store after another."""

    name: str
    """Of its own among all cases of a lab."""
    chain: tuple[Point, ...]
    """Where they were to die; the last process has no point."""
    killed: int
    """How many of them did."""
    events: tuple[AnyEvent, ...]
    failure: str = ""
    """What ended a process otherwise than by its end or by its point."""

    def found(self, *, verified: bool) -> list[Found]:
        return [
            event
            for event in self.events
            if isinstance(event, Found) and event.verified == verified
        ]


class Verdict(NamedTuple):
    lost: int
    duplicated: int
    repeated: int
    """Effects that were performed again with the same key after a crash, as they may be."""
    uncertain: int
    """Effects of which an owner was asked."""
    wrong: tuple[str, ...]
    """Everything that does not hold, as sentences."""


def judge(case: Case, differences: Sequence[Difference] = ()) -> Verdict:
    """`differences` are those between the case's account and the undisturbed runs'."""
    if case.failure:
        return Verdict(0, 0, 0, 0, (case.failure,))
    lost = [*lost_keys(case), *lost_effects(case)]
    duplicated = [*doubles(case), *double_effects(case)]
    wrong = (
        *lost,
        *duplicated,
        *effects_without_cause(case),
        *changed_outcomes(case),
        *forgotten_entries(case),
        *wrong_replays(case),
        *map(str, differences),
    )
    began = [event.key for event in case.events if isinstance(event, EffectBegan)]
    unanswered = sum(isinstance(e, EffectEnded) and not e.answered for e in case.events)
    return Verdict(
        lost=len(lost) + sum(difference.lost for difference in differences),
        duplicated=len(duplicated) + sum(difference.duplicated for difference in differences),
        repeated=max(len(began) - unanswered - len(set(began)), 0),
        uncertain=sum(isinstance(event, Resolved) for event in case.events),
        wrong=wrong,
    )


# -- lost --------------------------------------------------------------------------------------


def lost_keys(case: Case) -> Iterator[str]:
    """Keys that were promised and had no outcome when the last process had resumed."""
    openings = [number for number, event in enumerate(case.events) if isinstance(event, Opened)]
    if len(openings) < 2:
        return
    promised: dict[tuple[str, str], None] = {}
    resumed: set[tuple[str, str]] = set()
    for number, event in enumerate(case.events):
        match event:
            case Accepted() | Outcome(resumed=False) if number < openings[-1]:
                promised[event.worker, event.key] = None
            case Outcome(resumed=True) if number > openings[-1] and event.status != "pending":
                resumed.add((event.worker, event.key))
            case Refused(kind="previous-failed") if number > openings[-1]:
                resumed.add((event.worker, event.key))
            case _:
                pass
    for worker, key in promised:
        if (worker, key) not in resumed:
            yield f"key {key} of {worker} was accepted and is lost"


def lost_effects(case: Case) -> Iterator[str]:
    """Recorded writes that nobody performed."""
    performed = {event.key for event in case.events if isinstance(event, EffectBegan)}
    for found in case.found(verified=True):
        for call in found.calls:
            if call.type == WRITE_REMOTE and call.ended and call.key not in performed:
                yield f"{found.worker}: {call.function} is recorded and was never performed"


# -- duplicated --------------------------------------------------------------------------------


def doubles(case: Case) -> Iterator[str]:
    for found in case.found(verified=True):
        for double in found.doubles:
            yield f"{found.worker}: {double}"


def double_effects(case: Case) -> Iterator[str]:
    """Writes under a key of nobody, or performed more often than crashes and failures explain."""
    allowed: Counter[str] = Counter()
    asked: set[str] = set()
    for found in case.found(verified=True):
        for call in found.calls:
            allowed[call.key] += 1 + call.begun
            if call.asked:
                asked.add(call.key)
    for found in case.found(verified=False):
        for call in found.calls:
            if not (call.ended or call.cancelled or call.key in asked):
                allowed[call.key] += 1
    functions: dict[str, str] = {}
    performed: Counter[str] = Counter()
    for event in case.events:
        match event:
            case EffectBegan(type="write-remote"):
                functions[event.key] = event.function
                performed[event.key] += 1
            case EffectEnded(answered=False):
                allowed[event.key] += 1
            case _:
                pass
    allowed += rests_asked_for(case)
    recorded = {call.key for found in case.found(verified=True) for call in found.calls}
    for key, count in performed.items():
        if key not in recorded:
            yield f"{functions[key]} was performed under {key}, which is the key of no call"
        elif count > allowed[key]:
            yield (
                f"{functions[key]} was performed {count} times under {key},"
                f" {allowed[key]} were allowed"
            )


def rests_asked_for(case: Case) -> Counter[str]:
    """How often each request may have been repeated for the rest of its response. An instance that
    is lost loses what it had not read; a process has one for each worker, and another after each
    setback. What must not be repeated without its owner's word is not repeated for that either.
    """
    allowed: Counter[str] = Counter()
    for found in (*case.found(verified=False), *case.found(verified=True)):
        keys = {call.key for call in found.calls if call.asked_on and not call.asked}
        for key in keys:
            allowed[key] += found.setbacks if found.verified else 1
    return allowed


# -- changed -----------------------------------------------------------------------------------


def effects_without_cause(case: Case) -> Iterator[str]:
    """Writes of a killed process whose start was not committed when it died."""
    committed: set[str] = set()
    sent: dict[str, str] = {}
    for event in case.events:
        match event:
            case Found(verified=False):
                committed.update(call.key for call in event.calls)
            case EffectBegan(type="write-remote"):
                sent[event.key] = event.function
            case Opened():
                for key, function in sent.items():
                    if key not in committed:
                        yield f"{function} was performed and its start was not committed"
                sent.clear()
            case _:
                pass


def changed_outcomes(case: Case) -> Iterator[str]:
    """Outcomes that one report tells otherwise than another."""
    first: dict[tuple[str, str], tuple[object, ...]] = {}
    for event in case.events:
        if not isinstance(event, Outcome) or event.status == "pending":
            continue
        told = (event.status, event.wave, event.error, event.exit_code, event.stdout, event.stderr)
        before = first.setdefault((event.worker, event.key), told)
        if before != told:
            yield f"key {event.key} of {event.worker} was answered {before} and then {told}"


def forgotten_entries(case: Case) -> Iterator[str]:
    """Committed entries that a later oplog does not have."""
    before: dict[str, tuple[str, tuple[str, ...]]] = {}
    for event in case.events:
        if not isinstance(event, Found):
            continue
        known_id, known = before.get(event.worker, (event.id, ()))
        if event.id != known_id:
            yield f"{event.worker} is another worker"
        elif event.entries[: len(known)] != known:
            yield f"{event.worker} has not the {len(known)} entries that it had committed"
        before[event.worker] = event.id, event.entries
    for worker in before.keys() - {found.worker for found in case.found(verified=True)}:
        yield f"{worker} is gone"


def wrong_replays(case: Case) -> Iterator[str]:
    for event in case.events:
        match event:
            case Replayed() if event.divergence:
                yield f"{event.worker} diverges: {event.divergence}"
            case Replayed() if not event.replayed:
                yield f"{event.worker} replayed nothing of {event.entries} entries"
            case Trouble():
                yield f"{event.kind}: {event.message}"
            case _:
                pass
    replayed = {event.worker for event in case.events if isinstance(event, Replayed)}
    for found in case.found(verified=True):
        if found.worker not in replayed:
            yield f"{found.worker} was not replayed"
