"""What a script came to, as texts that can be compared; and what of it undisturbed runs agree on.

An account has a text for each answer, output and remote call, and for each worker's state and each
of its files. Some of it differs from one run to the next though nothing went wrong: times, random
numbers, what a peer made up. So the script runs undisturbed more than once, with clocks years
apart; a word in which two of these runs differ is not compared. Pure.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Final, NamedTuple, TypeAlias

from executor.torture.plan import AnyEvent, Files, Found, Opened, Outcome, Refused
from executor.worker.status import REFUSING

PIECES: Final = "wasi:io/streams."
"""What comes of a stream comes in as many pieces as the network makes of it."""
WORD: Final = re.compile(r"[\w.:+/=-]+|.", re.DOTALL)
SHOWN_MAX: Final = 200


class Label(NamedTuple):
    of: str
    """`key K of WORKER`, or a worker."""
    what: str

    def __str__(self) -> str:
        return f"{self.of}: {self.what}"


Account: TypeAlias = dict[Label, str | None]
"""None: there is a text, and it need not be as in an undisturbed run."""
Pattern: TypeAlias = tuple[str | None, ...] | None
"""Words; None is any word, or any text at all."""


def account_of(events: Sequence[AnyEvent]) -> Account:
    """Of the last process of a case, which asked for everything and verified."""
    last = [number for number, event in enumerate(events) if isinstance(event, Opened)]
    own = events[last[-1] :] if last else ()
    account: Account = {}
    rolled_back: set[str] = set()
    for event in own:
        match event:
            case Found(verified=True):
                account.update(worker_account(event))
                if event.rolled_back:
                    rolled_back.add(event.worker)
            case Files():
                account.update(
                    (Label(event.worker, f"file {path}"), text)
                    for path, text in event.texts.items()
                )
            case Refused():
                account[key_label(event, "answer")] = f"refused, {event.kind}"
            case _:
                pass
    for event in own:
        if isinstance(event, Outcome) and not event.resumed:
            loose = event.worker in rolled_back
            account[key_label(event, "answer")] = answer_text(event)
            account[key_label(event, "stdout")] = None if loose else event.stdout
            account[key_label(event, "stderr")] = None if loose else event.stderr
    return account


def key_label(event: Outcome | Refused, what: str) -> Label:
    return Label(f"key {event.key} of {event.worker}", what)


def answer_text(event: Outcome) -> str:
    if event.exit_code is not None:
        return f"exit {event.exit_code}"
    return event.error or (event.wave if event.status == "completed" else event.status)


def worker_account(found: Found) -> Account:
    """State, queue and the remote calls that count, by invocation and in their order."""
    account: Account = {Label(found.worker, "status"): found.status}
    if found.status not in REFUSING:  # else it is a matter of time what came before the end
        account[Label(found.worker, "waiting invocations")] = str(found.pending)
    counts: dict[str, int] = defaultdict(int)
    for call in found.calls:
        if not call.hidden and not call.function.startswith(PIECES):
            counts[call.invocation] += 1
            label = Label(
                f"key {call.invocation} of {found.worker}", f"effect {counts[call.invocation]}"
            )
            account[label] = f"{call.function} {call.request} -> {call.response}"
    return account


class Difference(NamedTuple):
    label: Label
    text: str | None
    """None: it is not there."""
    wanted: str | None

    @property
    def lost(self) -> bool:
        return self.text is None and self.label.what.startswith("effect")

    @property
    def duplicated(self) -> bool:
        return self.wanted is None and self.label.what.startswith("effect")

    def __str__(self) -> str:
        if self.text is None:
            return f"{self.label} is missing; undisturbed it is {self.wanted}"
        if self.wanted is None:
            return f"{self.label} is there, and not undisturbed: {shown(self.text)}"
        return f"{self.label} is {shown(self.text)}; undisturbed it is {self.wanted}"


class Reference:
    """What undisturbed runs agree on. Not thread-safe."""

    def __init__(self, account: Account) -> None:
        self._patterns: dict[Label, Pattern] = {
            label: None if text is None else words(text) for label, text in account.items()
        }
        self.count = 1

    def add(self, account: Account) -> None:
        """One more undisturbed run."""
        self.count += 1
        for label in self._patterns.keys() | account.keys():
            text = account.get(label)
            self._patterns[label] = (
                None if text is None else common(self._patterns.get(label), words(text))
            )

    def differences(self, account: Account) -> Iterator[Difference]:
        """In an account of a run that was disturbed."""
        for label in sorted(self._patterns.keys() | account.keys()):
            if label not in self._patterns:
                yield Difference(label, account[label] or "", None)
                continue
            pattern = self._patterns[label]
            if pattern is None:
                continue
            if label not in account:
                yield Difference(label, None, shown(pattern))
                continue
            text = account[label]
            if text is not None and not fits(pattern, words(text)):
                yield Difference(label, text, shown(pattern))

    def not_compared(self) -> list[str]:
        """What differs between undisturbed runs, as phrases."""
        found = []
        for label, pattern in sorted(self._patterns.items()):
            if pattern is None:
                found.append(f"{label}, at all")
            elif None in pattern:
                found.append(f"{label}, in part: {shown(pattern)}")
        return found


def words(text: str) -> tuple[str, ...]:
    """Words with the signs that numbers, dates and identifiers hold; everything else by itself."""
    return tuple(WORD.findall(text))


def common(pattern: Pattern, text: tuple[str, ...]) -> Pattern:
    """What both have, word by word; anything if they have not the same number of words."""
    if pattern is None or len(pattern) != len(text):
        return None
    return tuple(word if word == other else None for word, other in zip(pattern, text, strict=True))


def fits(pattern: tuple[str | None, ...], text: tuple[str, ...]) -> bool:
    return len(pattern) == len(text) and all(
        wanted in (None, word) for wanted, word in zip_longest(pattern, text)
    )


def shown(text: str | tuple[str | None, ...]) -> str:
    """One line, not too long, with `*` for any word."""
    whole = "".join("*" if word is None else word for word in text)
    line = " ".join(whole.split()) or '""'
    return line if len(line) <= SHOWN_MAX else line[: SHOWN_MAX - 1] + "…"
