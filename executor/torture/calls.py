"""The remote calls that an oplog records, each with the idempotency key that it must have borne.

The keys are derived a second time here, from the entries alone, so that what was performed can be
held against what is recorded. Pure.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from copy import deepcopy
from typing import Any, Final

import msgspec

from executor.durable.function_type import REMOTE, WRITE_REMOTE
from executor.durable.keys import call_namespace
from executor.durable.modes import Modes
from executor.replay.regions import Regions
from executor.torture.plan import Call
from oplog.codec import decode_value
from oplog.entry import (
    BeginAtomicRegion,
    Cancelled,
    Decision,
    End,
    EndAtomicRegion,
    Entry,
    Error,
    InvocationFinished,
    InvocationStarted,
    Jump,
    PendingInvocation,
    Raw,
    Revert,
    SetIdempotenceMode,
    SetPersistenceLevel,
    Start,
)

HTTP_REQUEST: Final = "wasi:http/outgoing-handler.handle"
TEXT_MAX: Final = 4_000
"""A longer request or response is told by its beginning; all of it is recorded."""

History = Sequence[tuple[int, Entry]]


class Derivation:
    """The state from which keys are derived, after each entry in turn."""

    def __init__(self, worker_id: bytes) -> None:
        self._worker_id = worker_id
        self._namespace = b""
        self._modes = Modes()
        self.invocation = ""
        self._indices: list[int] = []
        self._states: list[tuple[str, bytes, Modes]] = []
        """After the entries of `_indices`: where a jump or revert goes back to."""

    def add(self, index: int, entry: Entry) -> tuple[str, bool] | None:
        """The key of the remote call that begins with this entry, and whether its owner is asked
        before it is repeated.
        """
        modes = self._modes
        derived = None
        match entry:
            case InvocationStarted():
                self.invocation = entry.key
                self._namespace = call_namespace(self._worker_id, entry.key)
                modes.leave_invocation()
            case InvocationFinished():
                modes.leave_invocation()
            case BeginAtomicRegion():
                modes.begin_region(index)
            case EndAtomicRegion():
                modes.end_region(entry.begin_index)
            case SetPersistenceLevel():
                modes.set_level(entry.level, index, self._namespace)
            case SetIdempotenceMode():
                modes.idempotent = entry.idempotent
            case Start() if entry.function_type in REMOTE:
                derived = self._derive(index, entry.function_type)
            case Jump() if entry.subtree is None:
                self._go_back(entry.region.first - 1)
            case Revert():
                self._go_back(entry.region.first - 1)
            case _:
                return None
        self._indices.append(index)
        self._states.append((self.invocation, self._namespace, deepcopy(self._modes)))
        return derived

    def _derive(self, index: int, function_type: str) -> tuple[str, bool]:
        modes = self._modes
        if function_type != WRITE_REMOTE:
            return modes.read_key(self._namespace, index), False
        asked = not modes.idempotent and not modes.begin
        return modes.key(self._namespace, index), asked

    def _go_back(self, index: int) -> None:
        at = bisect_right(self._indices, index) - 1
        if at >= 0:
            self.invocation, self._namespace, modes = self._states[at]
            self._modes = deepcopy(modes)


def recorded_calls(worker_id: bytes, history: History) -> list[Call]:
    """Every remote call of the oplog, hidden ones too."""
    regions = Regions(cuts_of(history))
    derivation = Derivation(worker_id)
    ends = {entry.start_index: entry for _, entry in history if isinstance(entry, End)}
    cancelled = {entry.start_index for _, entry in history if isinstance(entry, Cancelled)}
    begun = Counter(
        entry.start_index
        for _, entry in history
        if isinstance(entry, Decision) and entry.choice == "begun"
    )
    calls = []
    for index, entry in history:
        derived = derivation.add(index, entry)
        if derived is None or not isinstance(entry, Start):
            continue
        end = ends.get(index)
        calls.append(
            Call(
                index=index,
                key=derived[0],
                invocation=derivation.invocation,
                function=entry.function,
                type=entry.function_type,
                request=value_text(entry.request),
                response="" if end is None else value_text(end.response),
                ended=end is not None,
                cancelled=index in cancelled,
                hidden=regions.hides(index, entry),
                asked=derived[1] and not is_idempotent(entry),
                begun=begun[index],
                asked_on=end is not None and is_asked_on(entry.function, end.response),
            )
        )
    return calls


def cuts_of(history: History) -> list[tuple[int, Jump | Revert]]:
    return [(index, entry) for index, entry in history if isinstance(entry, Jump | Revert)]


def doubles(history: History) -> list[str]:
    """What a key has once and has here more often, as sentences."""
    seen: Counter[tuple[str, str]] = Counter()
    current = ""
    for _, entry in history:
        match entry:
            case PendingInvocation():
                seen["acceptances", f"key {entry.key}"] += 1
            case InvocationStarted():
                current = entry.key
                seen["starts", f"key {entry.key}"] += 1
            case InvocationFinished():
                seen["outcomes", f"key {current}"] += 1
            case End():
                seen["ends", f"the call at entry {entry.start_index}"] += 1
            case _:
                pass
    return [f"{whose} has {count} {kind}" for (kind, whose), count in seen.items() if count > 1]


def setbacks(history: History) -> int:
    """After how many entries something that was open may have had to be opened again."""
    return sum(isinstance(entry, Decision | Error | Jump | Revert) for _, entry in history)


def is_idempotent(start: Start) -> bool:
    """Whether it is a write that may be repeated by its definition (RFC 9110, 9.2.2)."""
    if start.function != HTTP_REQUEST:
        return False
    request: Any = decode_value(start.request)
    return request[0] in {"PUT", "DELETE"}


def is_asked_on(function: str, response: Raw) -> bool:
    """Whether the answer is an HTTP response whose body did not come whole with its head: if the
    rest is lost, the request is sent again.
    """
    if function != HTTP_REQUEST:
        return False
    answer: Any = decode_value(response)
    return "ok" in answer and not answer["ok"]["body"]["ended"]


def value_text(raw: Raw) -> str:
    """A recorded value as JSON; "" if there is none."""
    if len(raw) == 0:
        return ""
    return msgspec.json.encode(decode_value(raw)).decode()[:TEXT_MAX]
