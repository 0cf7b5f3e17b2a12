"""Custom durable functions: a guest's library makes a durable call out of a block of its own code.

    begin: start ─▶ the block, where it is live ─▶ persist: start, end ─▶ end of the scope: end

A scope is a `start` without a request. What happens in it is its body: as in an atomic region it
happens as a whole, and its keys are counted from the start, so they are the same in every attempt.

| recorded            | in replay                                                                |
|---------------------|--------------------------------------------------------------------------|
| `start`, `end`      | completed: the guest is told that it is not live, reads what was         |
|                     | persisted, and does not run the block; all else in it is passed over     |
| `start`, something  | a jump hid the body (`worker/cutting.py`); the block runs again, under   |
|                     | the same start. With idempotence mode off that is an error for a remote  |
|                     | write: it may have happened                                              |
| `start`             | the block runs                                                           |

What the block did in a completed scope does not happen in replay, nor does what it left behind in
the guest: that is its author's part, as is whether it may be repeated. What the host counts, the
numbers of handles and of spans, is recorded with the end of the scope if the block made any, so
that what comes behind it has the same ones whether or not the block runs.
"""

import msgspec

from executor.durable.call import AnswerCodec
from executor.durable.function_type import (
    READ_LOCAL,
    WRITE_REMOTE,
    WRITE_REMOTE_BATCHED,
    FunctionType,
)
from executor.durable.session import DurableSession
from executor.errors import Divergence, GuestError
from executor.replay.claims import claim_start, describe
from executor.wasm.types import U8, ListType, WitType
from oplog.codec import decode_value, encode_value
from oplog.entry import ABSENT, End, Raw, Start

SCOPE = "golem:durability/durability.begin-durable-function"
WRITES = (WRITE_REMOTE, WRITE_REMOTE_BATCHED)


def begin(session: DurableSession, function_type: FunctionType, handles: int) -> int:
    """The index of a scope's start; the zone's in a zone that persists nothing. `handles` is the
    number of the last handle.

    Raises: GuestError if the block may not run again.
    """
    modes = session.modes
    if modes.zone:
        return modes.zone
    index = 0
    if not session.live:
        index = session.claim_index(SCOPE, function_type, ABSENT)
    if not index:
        at = session.wall_ns()
        index = session.append(
            Start(at=at, function=SCOPE, function_type=function_type, request=ABSENT)
        )
        session.guest_time_ns = at
    completed_at = 0 if session.live else session.cursor.end_index(index)
    if not completed_at:
        if (
            index in session.cursor.regions.subtrees
            and function_type in WRITES
            and not modes.idempotent
        ):
            raise GuestError(
                "a durable function was interrupted and may have happened or not; with idempotence"
                " mode off it is not run again",
                where=session.worker,
            )
        modes.begin_region(index)
        modes.wrote = modes.wrote or function_type != READ_LOCAL
    session.scopes[index] = completed_at
    session.made[index] = handles, session.trace.count
    return index


class Counts(msgspec.Struct, frozen=True):
    """What the host has counted where a scope ends; recorded as its response."""

    handles: int = 0
    spans: int = 0


def end(session: DurableSession, index: int, handles: int) -> int:
    """Ends the scope that began at `index`, and those inside it; nothing if it is not open. Not
    durable. `handles` is the number of the last handle; answers the one to go on from.
    """
    completed_at = session.scopes.pop(index, None)
    if completed_at is None:
        return handles
    session.scopes = {begin: at for begin, at in session.scopes.items() if begin < index}
    cursor = session.cursor
    if completed_at:
        cursor.skip_before(completed_at)
        terminal = cursor.take_terminal(index)
        assert isinstance(terminal, End)
        session.observed(terminal.at)
        counts = Counts()
        if terminal.response is not ABSENT:
            counts = msgspec.convert(decode_value(terminal.response, index), Counts)
        session.trace.count = max(session.trace.count, counts.spans)
        return max(handles, counts.handles)
    if not session.live:
        session.go_live_for(f"the end of the scope that begins at {index}")
    made = handles, session.trace.count
    counted = ABSENT if made == session.made[index] else Raw(encode_value(Counts(*made)))
    session.append_end(index, counted)
    session.modes.end_region(index)
    return handles


def is_live(session: DurableSession) -> bool:
    """Whether the guest is to run its block, rather than read what it came to."""
    if any(session.scopes.values()):
        return False
    if not session.scopes and not session.live and session.cursor.peek() is None:
        session.go_live()
    return session.live or bool(session.scopes)


class Form:
    """How requests and responses of one WIT type are recorded."""

    def __init__(self, wit_type: WitType) -> None:
        self._codec = AnswerCodec(wit_type)
        self._is_bytes = wit_type == ListType(U8)

    def encode(self, value: object) -> Raw:
        return self._codec.encode(value)

    def decode(self, found: "Persisted") -> object:
        return self._codec.decode(found.response, found.index)

    def is_of(self, found: "Persisted") -> bool:
        """Whether a recorded value has this form: bytes, or anything else."""
        value = decode_value(found.response, found.index)
        return isinstance(value, bytes) == self._is_bytes


class Persisted(msgspec.Struct, frozen=True, kw_only=True):
    """What a completed block came to."""

    index: int
    """Of its start."""
    at: int
    function: str
    function_type: str
    scope: int | None
    response: Raw


def persist(
    session: DurableSession,
    form: Form,
    function: tuple[str, FunctionType],
    request: object,
    response: object,
) -> None:
    """Records what a block came to, by the name and the type of the function that it is. Nothing in
    a zone that persists nothing. Not durable.
    """
    if session.modes.zone:
        return
    name, function_type = function
    asked = Raw(encode_value([decode_value(form.encode(request))]))
    parent = max(session.scopes, default=None)
    if not session.live:
        claimed = claim_start(
            session.cursor,
            session.worker,
            function=name,
            function_type=function_type,
            request=asked,
            parent_start=parent,
        )
        if claimed is not None:
            index, at = claimed
            terminal = session.cursor.take_terminal(index)
            if isinstance(terminal, End):
                session.observed(terminal.at)
                return
            session.go_live_for(f"the end of {name}, whose start at {index} has none")
            session.append_end(index, form.encode(response))
            return
        session.go_live()
    at = session.wall_ns()
    index = session.writer.append(
        Start(
            at=at,
            function=name,
            function_type=function_type,
            request=asked,
            parent_start=parent,
        )
    )
    session.append_end(index, form.encode(response))


def read_persisted(session: DurableSession) -> Persisted:
    """The next completed block's. Raises: GuestError if nothing is there to be read."""
    open_scopes = {index for index, completed_at in session.scopes.items() if completed_at}
    last = max((session.scopes[index] for index in open_scopes), default=0)
    cursor = session.cursor
    while not session.live and (found := cursor.peek()) is not None:
        index, entry = found
        if open_scopes and index > last:
            break
        if not isinstance(entry, Start):
            if not open_scopes:
                raise Divergence(
                    worker=session.worker,
                    index=index,
                    recorded=describe(entry),
                    requested="what a durable function persisted",
                )
        elif entry.parent_start in open_scopes or (not open_scopes and entry.parent_start is None):
            cursor.take()
            terminal = cursor.take_terminal(index)
            if isinstance(terminal, End):
                session.observed(terminal.at)
                return Persisted(
                    index=index,
                    at=terminal.at,
                    function=entry.function,
                    function_type=entry.function_type,
                    scope=entry.parent_start,
                    response=terminal.response,
                )
        cursor.skip_before(index + 1)
    raise GuestError("no durable function persisted anything here", where=session.worker)
