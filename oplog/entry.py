"""Every entry of a worker's oplog.

An oplog is a dense sequence of entries, indexed from 1. An entry is either *positional* (replay
consumes it in order) or a *hint* (the cursor skips it; it satisfies no claim). The bytes of an
entry are one MessagePack map whose key `t` holds the tag below and whose absent fields have their
defaults. Rules that are never broken: a tag never changes meaning and is never used again, a field
is only ever added (with a default), and the golden bytes under `tests/unit/oplog/golden` are never
regenerated.

`at` is wall time in nanoseconds since the Unix epoch. `request`, `response`, `arguments` and
`result` hold a value of the guest as raw MessagePack, self-describing: a variant is `{case: v}` or
its bare case, a result `{"ok": v}` or `{"err": e}`, bytes are bin.
"""

from typing import Final, TypeAlias

import msgspec

Raw: TypeAlias = msgspec.Raw
EMPTY_ARRAY: Final = msgspec.Raw(b"\x90")
ABSENT: Final = msgspec.Raw(b"")
"""A raw field that is not there; compared by identity, omitted when encoded."""

TAGS: Final[dict[str, str]] = {
    # positional
    "create": "C",
    "start": "s",
    "end": "e",
    "cancelled": "x",
    "invocation-started": "I",
    "invocation-finished": "F",
    "no-op": "n",
    "jump": "j",
    "begin-atomic-region": "a",
    "end-atomic-region": "b",
    "set-retry-policy": "rp",
    "remove-retry-policy": "rr",
    "set-persistence-level": "pl",
    "set-idempotence-mode": "im",
    "set-limits": "sl",
    "span-started": "ss",
    "span-finished": "sf",
    "span-attribute": "sa",
    "remote-transaction-begin": "tb",
    "remote-transaction-pre-commit": "tc",
    "remote-transaction-pre-rollback": "tr",
    "remote-transaction-committed": "td",
    "remote-transaction-rolled-back": "tx",
    # hints
    "pending-invocation": "P",
    "completion-delivered": "d",
    "completion-discarded": "D",
    "host-stream-frame": "f",
    "stream-registered": "Sr",
    "stream-items": "Si",
    "stream-end": "Se",
    "stream-cancel": "Sc",
    "stream-session": "Ss",
    "suspend": "su",
    "interrupted": "in",
    "resumed": "re",
    "restart": "rs",
    "exited": "ex",
    "error": "er",
    "log": "l",
    "decision": "de",
    "pending-update": "pu",
    "successful-update": "us",
    "failed-update": "uf",
    "snapshot": "sn",
    "snapshot-rejected": "sj",
    "revert": "rv",
    "cancel-pending-invocation": "cp",
    "create-resource": "rc",
    "drop-resource": "rd",
    "processor-checkpoint": "pc",
}
"""Kind to tag, of every kind there will ever be a need for; reserved once and for all."""


class Region(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Indices first..last, both hidden."""

    first: int
    last: int


class Parent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Where a forked worker was cut."""

    worker_id: bytes
    cut: int


class Retry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """How often, and how soon, a failed attempt is followed by another."""

    attempts_max: int
    """With the first."""
    min_delay_ns: int
    max_delay_ns: int
    multiplier: float
    max_jitter_factor: float | None = None


class RetryRule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Which failures have a policy of their own. What is empty is not asked for; of several
    alternatives one is enough.
    """

    name: str
    functions: tuple[str, ...] = ()
    """`demo:bank/*`: a function's name as in `start`, in which `*` stands for anything."""
    errors: tuple[str, ...] = ()
    """The kind of an error, or a part of its text."""
    statuses: tuple[str, ...] = ()
    """`503`, `5xx`."""
    policy: Retry


class Failure(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Why an invocation failed: a `kind` of the error list, and the sentence."""

    kind: str
    message: str
    backtrace: str = ""
    """Of a trap: the guest's functions, innermost first, a line each."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Exactly one of the three is set. A returned `err(…)` is a `result`."""

    result: Raw = ABSENT
    failure: Failure | None = None
    exit: int | None = None


class Recorded(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag_field="t"
):
    """What every entry has."""

    at: int


class Create(Recorded, frozen=True, kw_only=True, tag=TAGS["create"]):
    name: str
    """The worker's name, `component/name`, so that every index row can be built from the oplog."""
    component: str
    component_id: str = ""
    revision: int = 0
    env: dict[str, str] = {}
    """The worker's own environment, without the component's."""
    args: tuple[str, ...] = ()
    config: dict[str, str] = {}
    limits: dict[str, int] = {}
    """Limits in force, by name and in their unit: `memory_bytes`."""
    flags: tuple[str, ...] = ()
    """Names of replay behaviours that differ from the first format."""
    parent: Parent | None = None
    retry: Retry | None = None
    """The policy until the guest sets one; absent for the default one."""
    allow_net: tuple[str, ...] = ()
    """What the worker may reach besides what its revision may: rules of `--allow-net`."""
    retry_rules: tuple[RetryRule, ...] = ()
    """Policies that hold whatever the guest sets; the first rule that fits a failure counts."""


class Start(Recorded, frozen=True, kw_only=True, tag=TAGS["start"]):
    function: str
    """`wasi:clocks/wall-clock.now`: interface without version, a dot, the function."""
    function_type: str
    request: Raw = ABSENT
    """The arguments as one array; absent for a scope."""
    parent_start: int | None = None


class End(Recorded, frozen=True, kw_only=True, tag=TAGS["end"]):
    start_index: int
    response: Raw = ABSENT


class Cancelled(Recorded, frozen=True, kw_only=True, tag=TAGS["cancelled"]):
    start_index: int
    partial: Raw = ABSENT


class InvocationStarted(Recorded, frozen=True, kw_only=True, tag=TAGS["invocation-started"]):
    key: str
    function: str
    """`pkg:name/api.{add}`, or the bare name of a function of the component itself."""
    arguments: Raw = EMPTY_ARRAY
    context: dict[str, str] | None = None


class InvocationFinished(Recorded, frozen=True, kw_only=True, tag=TAGS["invocation-finished"]):
    outcome: Outcome


class NoOp(Recorded, frozen=True, kw_only=True, tag=TAGS["no-op"]):
    pass


class Jump(Recorded, frozen=True, kw_only=True, tag=TAGS["jump"]):
    region: Region
    subtree: int | None = None
    """If set, only this call and its descendants are hidden."""


class BeginAtomicRegion(Recorded, frozen=True, kw_only=True, tag=TAGS["begin-atomic-region"]):
    pass


class EndAtomicRegion(Recorded, frozen=True, kw_only=True, tag=TAGS["end-atomic-region"]):
    begin_index: int


class SetRetryPolicy(Recorded, frozen=True, kw_only=True, tag=TAGS["set-retry-policy"]):
    attempts_max: int
    """With the first."""
    min_delay_ns: int
    max_delay_ns: int
    multiplier: float
    max_jitter_factor: float | None = None


class SetPersistenceLevel(Recorded, frozen=True, kw_only=True, tag=TAGS["set-persistence-level"]):
    level: str
    """`persist-nothing`, `persist-remote-side-effects` or `smart`."""


class SetIdempotenceMode(Recorded, frozen=True, kw_only=True, tag=TAGS["set-idempotence-mode"]):
    idempotent: bool


class SpanStarted(Recorded, frozen=True, kw_only=True, tag=TAGS["span-started"]):
    span_id: str
    """8 bytes as hex."""
    parent: str = ""
    attributes: dict[str, str] = {}


class SpanFinished(Recorded, frozen=True, kw_only=True, tag=TAGS["span-finished"]):
    span_id: str


class SpanAttribute(Recorded, frozen=True, kw_only=True, tag=TAGS["span-attribute"]):
    span_id: str
    key: str
    value: str


class PendingInvocation(Recorded, frozen=True, kw_only=True, tag=TAGS["pending-invocation"]):
    key: str
    function: str
    arguments: Raw = EMPTY_ARRAY
    origin: str | None = None
    context: dict[str, str] | None = None


class CompletionDelivered(Recorded, frozen=True, kw_only=True, tag=TAGS["completion-delivered"]):
    start_index: int
    missed_reads: int = 0


class CompletionDiscarded(Recorded, frozen=True, kw_only=True, tag=TAGS["completion-discarded"]):
    start_index: int


class HostStreamFrame(Recorded, frozen=True, kw_only=True, tag=TAGS["host-stream-frame"]):
    parent_start: int
    """The call that the stream belongs to."""
    stream: str
    """Which of the call's streams: `request-body`."""
    payload: Raw = ABSENT
    """The bytes, as bin; absent at the end of the stream."""


class Suspend(Recorded, frozen=True, kw_only=True, tag=TAGS["suspend"]):
    """The worker waits without an instance, for the first of these."""

    wake_at: int | None = None
    """Wall time from which it goes on by itself; absent if time alone does not wake it."""
    promises: tuple[str, ...] = ()
    """Names of the promises whose completion wakes it."""


class Interrupted(Recorded, frozen=True, kw_only=True, tag=TAGS["interrupted"]):
    """The worker stands still until it is resumed."""


class Resumed(Recorded, frozen=True, kw_only=True, tag=TAGS["resumed"]):
    """By its owner, or by a new invocation."""


class Exited(Recorded, frozen=True, kw_only=True, tag=TAGS["exited"]):
    code: int = 0


class Error(Recorded, frozen=True, kw_only=True, tag=TAGS["error"]):
    retry_from: int
    """Attempts are counted by this index."""
    kind: str
    details: str = ""
    retry_at: int | None = None
    """Wall time of the next attempt; absent if there is none."""
    policy: str = ""
    """The rule that chose the policy; "" for the worker's own."""
    oldest_open: int = 0
    """No call of the invocation that began before this index will fail any more; 0 if it is not
    known."""


class Log(Recorded, frozen=True, kw_only=True, tag=TAGS["log"]):
    level: str
    """`stdout`, `stderr`, or a level of wasi:logging."""
    text: str = ""
    octets: bytes | None = None
    """What was written, where it is not UTF-8; `text` is then its lossy reading."""
    context: str = ""
    """What a message of wasi:logging is about."""


class Decision(Recorded, frozen=True, kw_only=True, tag=TAGS["decision"]):
    start_index: int
    choice: str
    """`asked`: recovery found the call uncertain. `repeat`, `value`, `fail`: what the owner said.
    `begun`: the one attempt that `repeat` allows is under way. `unbegun`: its instance was left
    before it began, so that it may."""
    value: Raw = ABSENT


class CancelPendingInvocation(
    Recorded, frozen=True, kw_only=True, tag=TAGS["cancel-pending-invocation"]
):
    key: str
    function: str = ""
    digest: bytes = b""
    """Of the canonical function and arguments, as the key's pending entry has them."""


class Revert(Recorded, frozen=True, kw_only=True, tag=TAGS["revert"]):
    region: Region


Entry: TypeAlias = (
    Create
    | Start
    | End
    | Cancelled
    | InvocationStarted
    | InvocationFinished
    | NoOp
    | Jump
    | BeginAtomicRegion
    | EndAtomicRegion
    | SetRetryPolicy
    | SetPersistenceLevel
    | SetIdempotenceMode
    | SpanStarted
    | SpanFinished
    | SpanAttribute
    | PendingInvocation
    | CompletionDelivered
    | CompletionDiscarded
    | HostStreamFrame
    | Suspend
    | Interrupted
    | Resumed
    | Exited
    | Error
    | Log
    | Decision
    | CancelPendingInvocation
    | Revert
)

HINTS: Final[frozenset[type]] = frozenset(
    {
        PendingInvocation,
        CompletionDelivered,
        CompletionDiscarded,
        HostStreamFrame,
        Suspend,
        Interrupted,
        Resumed,
        Exited,
        Error,
        Log,
        Decision,
        CancelPendingInvocation,
        Revert,
    }
)
"""The kinds that the cursor skips and that satisfy no claim."""

KIND_OF: Final[dict[type, str]] = {
    struct: next(kind for kind, tag in TAGS.items() if tag == struct.__struct_config__.tag)
    for struct in Entry.__args__
}
"""The kebab-case kind of each struct, as shown to people."""
