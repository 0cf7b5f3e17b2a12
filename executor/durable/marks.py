"""What a guest asks of its own durability: each call is one positional entry, or none.

Inside a zone that persists nothing no entry is written but the one that ends it: a mode is set
without a record, an index or region is that of the zone, and a region does not begin. The guest
makes the same calls again when the zone is replayed, or run again.
"""

from typing import NoReturn

from executor.durable.retry import policy_of
from executor.durable.session import DurableSession
from executor.durable.trace import Span
from executor.errors import GuestError
from executor.replay.spans import PERSIST_NOTHING
from oplog.entry import (
    BeginAtomicRegion,
    EndAtomicRegion,
    NoOp,
    SetIdempotenceMode,
    SetPersistenceLevel,
    SetRetryPolicy,
    SpanAttribute,
    SpanFinished,
    SpanStarted,
)


def read_index(session: DurableSession) -> int:
    """An index of the oplog that a jump may go back to."""
    return session.modes.zone or session.mark(lambda at: NoOp(at=at))


def jump(session: DurableSession, target: int) -> NoReturn:
    """Goes on from entry `target`; whether that can be is found once the guest was left."""
    session.jump(target)


def begin_region(session: DurableSession) -> int:
    """What follows happens as a whole: a failure goes back to here."""
    modes = session.modes
    if modes.zone:
        return modes.zone
    index = session.mark(lambda at: BeginAtomicRegion(at=at))
    modes.begin_region(index)
    return index


def end_region(session: DurableSession, begin: int) -> None:
    """Ends the region that began at `begin`, and those inside it; nothing if it is not open.

    Raises: GuestError.
    """
    modes = session.modes
    if begin not in modes.regions:
        return
    if modes.zone:
        raise GuestError(
            "mark-end-operation: an atomic region cannot end where nothing is persisted",
            where=session.worker,
        )
    session.mark(lambda at: EndAtomicRegion(at=at, begin_index=begin))
    modes.end_region(begin)


def set_persistence_level(session: DurableSession, level: str) -> None:
    modes = session.modes
    if modes.zone and level == PERSIST_NOTHING:
        return
    index = session.mark(lambda at: SetPersistenceLevel(at=at, level=level))
    session.set_level(level, index)


def set_idempotence_mode(session: DurableSession, idempotent: bool) -> None:
    modes = session.modes
    if not modes.zone:
        session.mark(lambda at: SetIdempotenceMode(at=at, idempotent=idempotent))
    modes.idempotent = idempotent


def start_span(session: DurableSession, name: str) -> Span:
    """A span under the current one, which it becomes."""
    trace = session.trace
    span_id, parent = trace.next_id(), trace.current.span_id
    attributes = {"name": name}
    if not session.modes.zone:
        session.mark(
            lambda at: SpanStarted(
                at=at, span_id=span_id, parent=parent, attributes=dict(attributes)
            )
        )
    return trace.begin(session.guest_time_ns, attributes, span_id)


def set_span_attribute(session: DurableSession, span: Span, key: str, value: str) -> None:
    """Raises: GuestError for a span that is finished."""
    if span.finished:
        raise GuestError(f"span {span.span_id} is finished", where=session.worker)
    if not session.modes.zone:
        session.mark(lambda at: SpanAttribute(at=at, span_id=span.span_id, key=key, value=value))
    span.attributes[key] = value


def finish_span(session: DurableSession, span: Span) -> None:
    """Nothing for one that is finished already."""
    if span.finished:
        return
    if not session.modes.zone:
        session.mark(lambda at: SpanFinished(at=at, span_id=span.span_id))
    session.trace.end(span)


def set_retry_policy(
    session: DurableSession,
    *,
    attempts_max: int,
    delays_ns: tuple[int, int],
    multiplier: float,
    max_jitter_factor: float | None,
) -> None:
    """`delays_ns` are the first and the longest delay; the factors are finite, not negative."""

    def make(at: int) -> SetRetryPolicy:
        return SetRetryPolicy(
            at=at,
            attempts_max=attempts_max,
            min_delay_ns=delays_ns[0],
            max_delay_ns=delays_ns[1],
            multiplier=multiplier,
            max_jitter_factor=max_jitter_factor,
        )

    modes = session.modes
    if not modes.zone:
        session.mark(make)
    modes.policy = policy_of(make(0))
