"""What must hold of a case beyond the rules of `executor.torture.verdict`: the receiver's witness.

- Whatever reached the receiver is in the case's own ledger, at least as often, and what is recorded
  as ended has reached it: the ledger by which effects are judged tells the truth.
- The answers are those that the scenario expects, down to the references that the receiver gave.
"""

from collections import Counter
from collections.abc import Iterator

from executor.torture.plan import EffectBegan, Opened, Outcome, Refused
from executor.torture.verdict import Case
from tests.support.crash_scenarios import Answer, Scenario
from tests.support.receiver import Receiver

OWN = "wasi:"
"""Remote calls of these go to the store, and not to the receiver."""


class Witness:
    """Checks the cases of one scenario."""

    def __init__(self, scenario: Scenario, receiver: Receiver) -> None:
        self.scenario = scenario
        self.receiver = receiver

    def __call__(self, case: Case) -> Iterator[str]:
        references: dict[str, str] = {}
        sent: Counter[str] = Counter()
        for request in self.receiver.requests():
            references.setdefault(request.key, f"ref-{len(references) + 1}")
            sent[request.key] += request.path == f"/{case.name}"
        yield from dishonest_ledger(case, +sent)
        charges = [
            call
            for found in case.found(verified=True)
            for call in found.calls
            if not call.function.startswith(OWN)
        ]
        if len(charges) != self.scenario.charges:
            yield f"{len(charges)} charges are recorded, {self.scenario.charges} were to be made"
        for call in charges:
            if call.ended and not sent[call.key]:
                yield f"the receiver has not heard of {call.key}"
        yield from self.scenario.judge(answers(case, references))


def dishonest_ledger(case: Case, sent: Counter[str]) -> Iterator[str]:
    began = Counter(event.key for event in case.events if isinstance(event, EffectBegan))
    for key, count in sent.items():
        if count > began[key]:
            yield f"{key} reached the receiver {count} times, and began {began[key]} times"


def answers(case: Case, references: dict[str, str]) -> dict[tuple[str, str], Answer]:
    """By worker and key, as the last process was told."""
    made: dict[tuple[str, str], list[str]] = {}
    for found in case.found(verified=True):
        for call in found.calls:
            reference = references.get(call.key, "never sent")
            made.setdefault((found.worker, call.invocation), []).append(reference)
    last = max(number for number, event in enumerate(case.events) if isinstance(event, Opened))
    told: dict[tuple[str, str], Answer] = {}
    for event in case.events[last:]:
        match event:
            case Outcome(resumed=False):
                charged = tuple(made.get((event.worker, event.key), ()))
                told[event.worker, event.key] = Answer(
                    event.wave or event.error, event.exit_code, event.stdout, event.stderr, charged
                )
            case Refused():
                told[event.worker, event.key] = Answer(event.kind, None, "", "", ())
            case _:
                pass
    return told
