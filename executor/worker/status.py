"""A worker's status: one pure fold over its oplog, with a checkpoint in the store.

`fold` takes the status before an entry and changes it to the status after; large arguments have to
be in their place, since a key's digest is taken of them. Nothing that is resident
is asked, so a fold over the whole oplog and a checkpoint continued from its index agree (a test
compares them at every prefix). The index rows of the store follow from the same fold: `KeyState`
says what became of one idempotency key.

The eight states: idle, running (an invocation started and has not finished, whether or not a
process has it), suspended, interrupted, retrying, uncertain, failed, exited.
"""

from hashlib import blake2b
from typing import Final, Literal

import msgspec

from executor.errors import BadHandle
from executor.replay.regions import HiddenRanges, Regions
from executor.replay.spans import PERSIST_NOTHING, is_begin
from oplog.entry import (
    BeginAtomicRegion,
    CancelPendingInvocation,
    Create,
    Decision,
    Entry,
    Error,
    Exited,
    Failure,
    Interrupted,
    InvocationFinished,
    InvocationStarted,
    Jump,
    Log,
    PendingInvocation,
    Raw,
    Resumed,
    Retry,
    RetryRule,
    Revert,
    SetPersistenceLevel,
    Start,
    Suspend,
)

State = Literal[
    "idle", "running", "suspended", "interrupted", "retrying", "uncertain", "failed", "exited"
]
STATES: Final[tuple[State, ...]] = (
    "idle",
    "running",
    "suspended",
    "interrupted",
    "retrying",
    "uncertain",
    "failed",
    "exited",
)
REFUSING: Final[frozenset[str]] = frozenset({"failed", "exited"})
"""States in which a worker takes no new invocation and is never run."""
PAUSED: Final[frozenset[str]] = frozenset({"retrying", "suspended"})
"""States in which an invocation is to go on later, by itself."""

Cuts = list[tuple[int, Jump | Revert]]

CANCELLED: Final = "the invocation was cancelled before it began"
RESTING: Final[frozenset[str]] = REFUSING | {"interrupted", "uncertain"}
"""States in which a worker is not run, whatever waits."""


class KeyState(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What is known of one idempotency key; a row of the `results` table."""

    key: str
    function: str
    digest: bytes
    """Of the canonical function and arguments: another one under the same key is a conflict."""
    started_index: int = 0
    finished_index: int = 0
    exit_code: int | None = None
    failed: bool = False
    attempts: int = 0
    logs: bool = False
    """Whether the invocation wrote output: only then its entries are searched for it."""


class Status(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Everything the executor needs to know of a worker without its oplog. Mutable."""

    name: str = ""
    component: str = ""
    component_id: str = ""
    revision: int = 0
    env: dict[str, str] = {}
    args: tuple[str, ...] = ()
    limits: dict[str, int] = {}
    config: dict[str, str] = {}
    retry: Retry | None = None
    allow_net: tuple[str, ...] = ()
    retry_rules: tuple[RetryRule, ...] = ()
    created_at: int = 0
    state: State = "idle"
    last_index: int = 0
    bytes: int = 0
    """Of the encoded entries, without large payloads."""
    pending: int = 0
    current: KeyState | None = None
    attempts: dict[int, int] = {}
    """Failed attempts by `retry_from`, of what may fail again; a jump does not reset them, a new
    invocation does."""
    due: dict[int, tuple[int, int]] = {}
    """When each of those is followed by another: wall time, and the delay in nanoseconds."""
    retries: int = 0
    """Failed attempts of the current invocation, or of the last one."""
    retry_at: int = 0
    retry_delay: int = 0
    """Nanoseconds from the failed attempt to the next one."""
    last_error: Failure | None = None
    failed_key: str = ""
    cuts: list[tuple[int, Jump | Revert]] = []
    """The jumps and reverts that count, with their indices: the hidden regions."""
    marked: bool = False
    """Whether the current invocation opened an atomic region or a zone that persists nothing."""
    decision: tuple[int, str] = (0, "")
    """Of the last decision: the start of the call, and the choice."""
    decisions: dict[int, str] = {}
    """The last choice for each call of the current invocation that was decided upon."""
    decided_index: int = 0
    """The index of the last decision."""
    wake_at: int | None = None
    """Wall time at which a suspended worker goes on by itself."""
    promises: tuple[str, ...] = ()
    """What else a suspended worker waits for."""


class Change(msgspec.Struct, frozen=True):
    """What one entry changed of the keys: the key's state, and its place in the queue."""

    key: KeyState
    queued: bool
    """Whether the key waits in the queue after the entry."""


def fold(status: Status, index: int, entry: Entry) -> Change | None:
    """Applies one entry. Answers what it changed of a key, if anything."""
    status.last_index = index
    match entry:
        case Create():
            fold_create(status, entry)
        case PendingInvocation():
            status.pending += 1
            return Change(
                KeyState(
                    key=entry.key,
                    function=entry.function,
                    digest=request_digest(entry.function, entry.arguments),
                ),
                queued=True,
            )
        case InvocationStarted():
            status.pending -= 1
            status.state = "running"
            status.attempts = {}
            status.due = {}
            status.retries = 0
            status.retry_at = 0
            status.marked = False
            status.decisions = {}
            status.current = KeyState(
                key=entry.key,
                function=entry.function,
                digest=request_digest(entry.function, entry.arguments),
                started_index=index,
                attempts=1,
            )
            return Change(status.current, queued=False)
        case InvocationFinished():
            return fold_finished(status, index, entry)
        case Error():
            fold_error(status, entry)
        case Decision():
            fold_decision(status, index, entry)
        case BeginAtomicRegion() | Start() if is_begin(entry):
            fold_progress(status)
            status.marked = True
        case SetPersistenceLevel():
            fold_progress(status)
            status.marked = status.marked or entry.level == PERSIST_NOTHING
        case CancelPendingInvocation():
            return fold_cancelled(status, index, entry)
        case Interrupted():
            status.state = "interrupted"
        case Resumed():
            status.state = "idle" if status.current is None else "running"
        case Suspend():
            status.state = "suspended"
            status.wake_at = entry.wake_at
            status.promises = entry.promises
        case Exited():
            pass  # a hint: the outcome beside it is what ends the worker
        case Log():
            fold_progress(status)
            if status.current is not None:
                status.current.logs = True
        case Jump() | Revert():
            fold_progress(status)
            status.cuts = with_cut(status.cuts, index, entry)
        case _:
            fold_progress(status)
    return None


def fold_decision(status: Status, index: int, entry: Decision) -> None:
    status.decision = entry.start_index, entry.choice
    status.decisions = status.decisions | {entry.start_index: entry.choice}
    status.decided_index = index
    status.state = "uncertain" if entry.choice == "asked" else "running"


def fold_error(status: Status, entry: Error) -> None:
    attempts = status.attempts.get(entry.retry_from, 0) + 1
    invocation = 0 if status.current is None else status.current.started_index
    status.attempts = {
        index: count
        for index, count in status.attempts.items()
        if index == invocation or index >= entry.oldest_open
    } | {entry.retry_from: attempts}
    status.due = {index: due for index, due in status.due.items() if index in status.attempts}
    if entry.retry_at is not None:
        status.due[entry.retry_from] = entry.retry_at, entry.retry_at - entry.at
    status.retries += 1
    status.last_error = Failure(kind=entry.kind, message=entry.details)
    if entry.retry_at is not None:
        status.state = "retrying"
        status.retry_at = entry.retry_at
        status.retry_delay = entry.retry_at - entry.at
        if status.current is not None:
            status.current.attempts += 1


def fold_cancelled(status: Status, index: int, entry: CancelPendingInvocation) -> Change:
    status.pending -= 1
    if status.state == "interrupted" and not is_held_up(status):
        status.state = "idle"
    cancelled = KeyState(
        key=entry.key, function=entry.function, digest=entry.digest, finished_index=index
    )
    return Change(cancelled, queued=False)


class RevertedFold:
    """The status that a revert leaves: the fold of what it leaves, from the first entry on.

    An invocation that a revert hides has taken its pending entry out of the queue for good. Keys
    that were started inside are unknown again (`forgotten`); attempts are counted anew.
    """

    def __init__(self, cuts: Cuts) -> None:
        """`cuts`: those that count once the revert does."""
        self._regions = Regions(cuts)
        self.status = Status()

    def add(self, index: int, entry: Entry) -> None:
        regions = self._regions
        if index in regions.reverted and regions.hides(index, entry):
            self.status.last_index = index
            if isinstance(entry, InvocationStarted):
                self.status.pending -= 1
        else:
            fold(self.status, index, entry)

    def finished(self, cuts: Cuts) -> Status:
        """The status; `cuts` as above, now that the revert's own index is known."""
        self.status.cuts = cuts
        self.status.attempts = {}
        self.status.due = {}
        self.status.retries = 0
        return self.status


def with_cut(cuts: Cuts, index: int, cut: Jump | Revert) -> Cuts:
    """The cuts that are needed once `cut` counts: not those whose whole region lies in its own.

    A revert in the region of a jump stays: it hides hints, and makes keys unknown, as no jump does.
    """
    first = cut.region.first
    hides_all = isinstance(cut, Revert)
    needed = [
        (at, known)
        for at, known in cuts
        if at < first or known.region.first < first or not (hides_all or isinstance(known, Jump))
    ]
    return [*needed, (index, cut)]


def forgotten(state: KeyState, reverted: HiddenRanges) -> bool:
    """Whether a revert made the key unknown again."""
    return state.started_index in reverted


def is_held_up(status: Status) -> bool:
    """Whether an interrupt finds or leaves something that would go on."""
    return status.current is not None or status.pending > 0


def fold_progress(status: Status) -> None:
    """Any entry of the guest's own after an error, or a suspension: it runs again."""
    if status.state in PAUSED:
        status.state = "running"


def request_digest(function: str, arguments: Raw) -> bytes:
    """16 bytes that name a function and its canonical arguments."""
    return blake2b(function.encode() + b"\0" + bytes(arguments), digest_size=16).digest()


def fold_create(status: Status, entry: Create) -> None:
    status.name = entry.name
    status.component = entry.component
    status.component_id = entry.component_id
    status.revision = entry.revision
    status.env = entry.env
    status.args = entry.args
    status.limits = entry.limits
    status.retry = entry.retry
    status.allow_net = entry.allow_net
    status.retry_rules = entry.retry_rules
    status.config = entry.config
    status.created_at = entry.at


def fold_finished(status: Status, index: int, entry: InvocationFinished) -> Change | None:
    current = status.current
    outcome = entry.outcome
    status.state = "idle"
    status.retry_at = 0
    if outcome.failure is not None and outcome.failure.kind == BadHandle.kind:
        pass  # the guest was not called: it is as good as before
    elif outcome.failure is not None:
        status.state = "failed"
        status.last_error = msgspec.structs.replace(outcome.failure, backtrace="")
        status.failed_key = current.key if current is not None else ""
    elif outcome.exit is not None:
        status.state = "exited"
        status.failed_key = current.key if current is not None else ""
    else:
        status.last_error = None
    status.current = None
    status.marked = False
    if current is None:
        return None
    current.finished_index = index
    current.failed = outcome.failure is not None
    current.exit_code = outcome.exit
    return Change(current, queued=False)
