"""One entry of each kind with nothing but what it must have, and one with every field set."""

from typing import Final

from oplog.codec import encode_value
from oplog.entry import (
    BeginAtomicRegion,
    Cancelled,
    CancelPendingInvocation,
    CompletionDelivered,
    CompletionDiscarded,
    Create,
    Decision,
    End,
    EndAtomicRegion,
    Entry,
    Error,
    Exited,
    Failure,
    HostStreamFrame,
    Interrupted,
    InvocationFinished,
    InvocationStarted,
    Jump,
    Log,
    NoOp,
    Outcome,
    Parent,
    PendingInvocation,
    Raw,
    Region,
    Resumed,
    Retry,
    RetryRule,
    Revert,
    SetIdempotenceMode,
    SetPersistenceLevel,
    SetRetryPolicy,
    SpanAttribute,
    SpanFinished,
    SpanStarted,
    Start,
    Suspend,
)

AT: Final = 1_700_000_000_123_456_789
VALUE: Final = Raw(encode_value([{"ok": 5}, "zwölf", b"\x00\xff", None, True, -1, 1.5]))
NOW: Final = "wasi:clocks/wall-clock.now"

SAMPLES: Final[dict[str, Entry]] = {
    "create": Create(at=AT, name="counter/alice", component="counter"),
    "create, full": Create(
        at=AT,
        name="counter/alice",
        component="counter",
        component_id="0b3c2a8e-5a35-4f0a-9f0c-7f2a4b7d1e55",
        revision=3,
        env={"A": "1"},
        args=("x", "y"),
        config={"k": "v"},
        limits={"memory_bytes": 67108864},
        flags=("second-format",),
        parent=Parent(worker_id=bytes(range(16)), cut=17),
    ),
    "create, with rules": Create(
        at=AT, name="counter/alice", component="counter", allow_net=("[::1]:80", "example.com:443")
    ),
    "create, with retries": Create(
        at=AT,
        name="counter/alice",
        component="counter",
        retry=Retry(attempts_max=5, min_delay_ns=1, max_delay_ns=2, multiplier=1.5),
        retry_rules=(
            RetryRule(
                name="rates",
                functions=("demo:rates/*", NOW),
                errors=("busy", "zwölf"),
                statuses=("429", "5xx"),
                policy=Retry(
                    attempts_max=9,
                    min_delay_ns=10**8,
                    max_delay_ns=10**9,
                    multiplier=3.0,
                    max_jitter_factor=0.15,
                ),
            ),
            RetryRule(
                name="gone",
                statuses=("410",),
                policy=Retry(attempts_max=1, min_delay_ns=0, max_delay_ns=0, multiplier=1.0),
            ),
        ),
    ),
    "start": Start(at=AT, function=NOW, function_type="read-local"),
    "start, full": Start(
        at=AT, function=NOW, function_type="write-remote", request=VALUE, parent_start=9
    ),
    "end": End(at=AT, start_index=4),
    "end, full": End(at=AT, start_index=4, response=VALUE),
    "cancelled": Cancelled(at=AT, start_index=4),
    "cancelled, full": Cancelled(at=AT, start_index=4, partial=VALUE),
    "invocation-started": InvocationStarted(at=AT, key="order-1", function="add"),
    "invocation-started, full": InvocationStarted(
        at=AT, key="order-1", function="demo:counter/api.{add}", arguments=VALUE, context={"t": "1"}
    ),
    "invocation-finished": InvocationFinished(at=AT, outcome=Outcome(exit=3)),
    "invocation-finished, result": InvocationFinished(at=AT, outcome=Outcome(result=VALUE)),
    "invocation-finished, failure": InvocationFinished(
        at=AT, outcome=Outcome(failure=Failure(kind="guest-trap", message="unreachable"))
    ),
    "no-op": NoOp(at=AT),
    "jump": Jump(at=AT, region=Region(first=3, last=7)),
    "jump, full": Jump(at=AT, region=Region(first=3, last=7), subtree=4),
    "begin-atomic-region": BeginAtomicRegion(at=AT),
    "end-atomic-region": EndAtomicRegion(at=AT, begin_index=5),
    "set-retry-policy": SetRetryPolicy(
        at=AT, attempts_max=3, min_delay_ns=1, max_delay_ns=2, multiplier=1.5
    ),
    "set-retry-policy, full": SetRetryPolicy(
        at=AT,
        attempts_max=3,
        min_delay_ns=1,
        max_delay_ns=2,
        multiplier=1.5,
        max_jitter_factor=0.25,
    ),
    "set-persistence-level": SetPersistenceLevel(at=AT, level="persist-nothing"),
    "set-idempotence-mode": SetIdempotenceMode(at=AT, idempotent=False),
    "span-started": SpanStarted(at=AT, span_id="00f067aa0ba902b7"),
    "span-started, full": SpanStarted(
        at=AT,
        span_id="00f067aa0ba902b7",
        parent="b9c7c989f97918e1",
        attributes={"name": "charge"},
    ),
    "span-finished": SpanFinished(at=AT, span_id="00f067aa0ba902b7"),
    "span-attribute": SpanAttribute(at=AT, span_id="00f067aa0ba902b7", key="currency", value="EUR"),
    "pending-invocation": PendingInvocation(at=AT, key="order-1", function="add"),
    "pending-invocation, full": PendingInvocation(
        at=AT, key="order-1", function="add", arguments=VALUE, origin="rpc", context={"t": "1"}
    ),
    "completion-delivered": CompletionDelivered(at=AT, start_index=4),
    "completion-delivered, full": CompletionDelivered(at=AT, start_index=4, missed_reads=2),
    "completion-discarded": CompletionDiscarded(at=AT, start_index=4),
    "host-stream-frame": HostStreamFrame(at=AT, parent_start=4, stream="request-body"),
    "host-stream-frame, full": HostStreamFrame(
        at=AT, parent_start=4, stream="request-body", payload=VALUE
    ),
    "suspend": Suspend(at=AT),
    "suspend, full": Suspend(at=AT, wake_at=AT + 1, promises=("00-4", "00-7")),
    "interrupted": Interrupted(at=AT),
    "resumed": Resumed(at=AT),
    "cancel-pending-invocation": CancelPendingInvocation(at=AT, key="order-1"),
    "cancel-pending-invocation, full": CancelPendingInvocation(
        at=AT, key="order-1", function="add", digest=bytes(range(16))
    ),
    "exited": Exited(at=AT),
    "exited, full": Exited(at=AT, code=2),
    "error": Error(at=AT, retry_from=4, kind="guest-trap"),
    "error, full": Error(
        at=AT, retry_from=4, kind="guest-trap", details="unreachable", retry_at=AT + 1
    ),
    "error, by a rule": Error(
        at=AT, retry_from=4, kind="guest-error", details="busy", retry_at=AT + 1, policy="rates"
    ),
    "error, of an open call": Error(
        at=AT, retry_from=4, kind="guest-error", details="busy", retry_at=AT + 1, oldest_open=3
    ),
    "log": Log(at=AT, level="stdout", text="hello\n"),
    "log, full": Log(at=AT, level="stderr", text="\ufffd", octets=b"\xff", context="main"),
    "decision": Decision(at=AT, start_index=4, choice="repeat"),
    "decision, full": Decision(at=AT, start_index=4, choice="value", value=VALUE),
    "revert": Revert(at=AT, region=Region(first=3, last=7)),
}
