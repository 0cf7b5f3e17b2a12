"""One worker as the rules have it: what its log and the world must look like, step by step.

`run` says what happens next, one event at a time, from nothing but the log. Whoever drives it
appends what it says, asks the world what it says, and may stop at any event: that is a loss of the
instance, or a kill; after it `run` begins again, `lose` says from what.
"""

from dataclasses import dataclass, field

from tests.conformance.model.events import Commit, Steps, append
from tests.conformance.model.program import Op, encode
from tests.conformance.model.regions import (
    Entry,
    cancelled,
    current,
    has_work,
    interrupted,
    open_brackets,
    outcomes,
    pending,
    question,
    regions,
    visible,
    within,
)
from tests.conformance.model.session import (
    DivergenceError,
    ExitError,
    FailError,
    JumpError,
    Session,
    Tally,
    UncertainError,
)

QUIET = frozenset({"error", "decision", "pending-invocation"})
"""What may follow a rollback without anything having run since."""


def backwards(log: list[Entry]) -> list[tuple[int, Entry]]:
    """Every entry with its index, the last one first."""
    return list(enumerate(log, 1))[::-1]


class RefusedError(Exception):
    """An owner's request that the rules refuse; the kind is the command line's."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.kind = kind


@dataclass(slots=True)
class Reference:
    """One worker."""

    worker_id: str
    programs: dict[bytes, list[Op]] = field(default_factory=dict)
    log: list[Entry] = field(default_factory=list)
    committed: int = 0
    session: Session | None = None
    tally: Tally = field(default_factory=Tally)
    diverged: bool = False
    """Stands still, and takes nothing new, until it is cut back or its process is another one."""

    def add(self, entry: Entry) -> int:
        """What an `Append` asks for; returns the index."""
        self.log.append(entry)
        return len(self.log)

    def lose(self, kept: int) -> None:
        """The process was killed: the first `kept` entries were durable."""
        assert self.committed <= kept <= len(self.log), (self.committed, kept, len(self.log))
        del self.log[kept:]
        self.committed = kept
        self.session = None
        self.diverged = False

    # ---- what is so -------------------------------------------------------------------------

    def ended(self) -> str | None:
        """`failed` or `exited` if an invocation ended the worker so."""
        for _, entry in reversed(visible(self.log)):
            if entry.kind == "invocation-finished":
                ends = {"failure": "failed", "exit": "exited"}
                return ends.get(entry.text("outcome"))
        return None

    def last_start(self) -> tuple[int, Entry]:
        """The call that was begun last."""
        return [(i, e) for i, e in visible(self.log) if e.kind == "start"][-1]

    def status(self) -> str:
        """The status once nothing goes on by itself."""
        ended = self.ended()
        if ended is not None:
            return ended
        if interrupted(self.log):
            return "interrupted"
        if question(self.log):
            return "uncertain"
        return "running" if current(self.log) else "idle"

    def rests(self) -> bool:
        """Whether nothing goes on by itself."""
        if self.diverged or self.status() not in ("running", "idle"):
            return True
        return not has_work(self.log)

    def accepted(self, key: str) -> Entry | None:
        """The acceptance of a key that is pending, running, done or cancelled."""
        running = current(self.log)
        known = (
            any(e["key"] == key for _, e in pending(self.log))
            or (running is not None and running[1]["key"] == key)
            or key in outcomes(self.log)
            or key in cancelled(self.log)
        )
        if not known:
            return None
        return [e for e in self.log if e.kind == "pending-invocation" and e["key"] == key][-1]

    # ---- what goes on by itself -------------------------------------------------------------

    def run(self) -> Steps[None]:
        """All that happens until nothing goes on by itself."""
        while not self.rests():
            try:
                if self.session is None:
                    yield from self.rebuild()
                if not self.rests() and self.session is not None:
                    yield from self.next()
            except JumpError as jump:
                yield from self.jump(jump.target)
            except UncertainError as asked:
                self.session = None
                yield from append("decision", start_index=asked.start, choice="asked")
                yield Commit()
            except DivergenceError:
                self.session, self.diverged = None, True

    def rebuild(self) -> Steps[None]:
        """A new instance: what was left open is hidden, what is visible is replayed."""
        begin = open_brackets(self.log).begin
        if begin and not self.just_hidden(begin):
            is_scope = self.log[begin - 1].kind == "start"
            yield from self.hide_behind(begin, begin if is_scope else None)
        session = Session(self.worker_id, self.log, self.tally)
        self.session = session
        for index, entry in visible(self.log):
            if entry.kind == "invocation-started":
                yield from self.invoke(session, index, entry)

    def just_hidden(self, begin: int) -> bool:
        """Whether all behind `begin` is hidden already, and nothing ran since."""
        last, entry = next(pair for pair in backwards(self.log) if pair[1].kind not in QUIET)
        unused_scope = last == begin and entry.kind == "start"
        return unused_scope or (entry.kind == "jump" and entry["first"] == begin + 1)

    def hide_behind(self, begin: int, subtree: int | None = None) -> Steps[None]:
        """A jump: all after `begin` is hidden, the jump itself included."""
        yield from append("jump", first=begin + 1, subtree=subtree)
        yield Commit()

    def jump(self, target: int) -> Steps[None]:
        """The guest goes on from `target`, if that is visible, its own and in no call."""
        session = self.session
        assert session is not None
        yield Commit()
        calls = open_brackets(self.log[:target]).calls
        hidden = any(within(target, spans) for spans in regions(self.log))
        if calls or hidden or not session.started <= target <= len(self.log):
            yield from self.fail(session, FailError("guest-error"))
            return
        self.session = None
        begin = open_brackets(self.log[:target]).begin
        if begin and self.log[begin - 1].kind == "start":  # a scope happens as a whole
            yield from self.hide_behind(begin, begin)
        else:
            yield from self.hide_behind(target)

    def next(self) -> Steps[None]:
        """The next pending invocation."""
        session = self.session
        assert session is not None
        _, accepted = pending(self.log)[0]
        index, started = yield from append(
            "invocation-started", key=accepted["key"], arguments=accepted["arguments"]
        )
        yield from self.invoke(session, index, started)

    def invoke(self, session: Session, index: int, started: Entry) -> Steps[None]:
        """One invocation, replayed as far as it is recorded, then live."""
        session.enter(index, started)
        arguments = started["arguments"]
        assert isinstance(arguments, bytes)
        try:
            kind, value = yield from session.guest.run(self.programs[arguments], session)
        except FailError as failure:
            yield from self.fail(session, failure)
            return
        except ExitError as left:
            if not session.live():
                raise DivergenceError(session.tape[0], "exit") from left
            yield from append("exited", code=left.code)
            yield from self.finish(session, "exit", left.code)
            self.session = None
            return
        yield from self.finish(session, kind, value)

    def finish(self, session: Session, outcome: str, value: object) -> Steps[None]:
        """The outcome: compared in replay, recorded and committed live."""
        if session.live():
            yield from append("invocation-finished", outcome=outcome, value=value)
            yield Commit()
        else:
            _, entry = session.take("invocation-finished", outcome=outcome, value=value)
            session.last_at = entry.at

    def fail(self, session: Session, failure: FailError) -> Steps[None]:
        """A failed attempt: another one, or the outcome."""
        if not session.live():
            raise DivergenceError(session.tape[0], failure.kind)
        retry_from = session.begin or failure.start or session.started
        trapped = failure.kind == "guest-trap"
        again = failure.transient or (trapped and bool(session.regions) and session.held_effect)
        self.session = None
        if again:
            last = session.failed_attempts(retry_from) + 1 >= session.attempts
            yield from append("error", retry_from=retry_from, kind=failure.kind, last=last)
            if not last:
                yield Commit()
                return
        yield from self.finish(session, "failure", failure.kind)

    def diverges(self, kept: int) -> bool:
        """Whether a replay of the first `kept` entries asks for something else than is recorded. It
        stops before an invocation that failed or exited: none is run past the last good one.
        """
        past = Reference(self.worker_id, self.programs, self.log[:kept])
        session = Session(self.worker_id, past.log, Tally())
        started = [pair for pair in visible(past.log) if pair[1].kind == "invocation-started"]
        if past.ended() is not None:
            del started[-1]
        try:
            for index, entry in started:
                for _ in past.invoke(session, index, entry):
                    return False
        except (JumpError, UncertainError):
            return False
        except DivergenceError:
            return True
        return False

    # ---- what an owner does -----------------------------------------------------------------

    def submit(self, key: str, program: list[Op]) -> Steps[bool]:
        """An acceptance; False for a key that was known with the same arguments."""
        arguments = encode(program)
        known = self.accepted(key)
        if known is not None:
            if known["arguments"] != arguments:
                raise RefusedError("key-conflict")
            return False
        if self.ended() is not None:
            raise RefusedError("previous-failed")
        if self.diverged:
            raise RefusedError("divergence")
        self.programs[arguments] = program
        if interrupted(self.log):
            yield from append("resumed")
        yield from append("pending-invocation", key=key, arguments=arguments)
        yield Commit()
        return True

    def cancel(self, key: str) -> Steps[bool]:
        """A pending invocation is never started; False if it was cancelled before."""
        if self.accepted(key) is None:
            raise RefusedError("unknown-key")
        if key in outcomes(self.log):
            raise RefusedError("exists")
        if any(entry["key"] == key for _, entry in pending(self.log)):
            yield from append("cancel-pending-invocation", key=key)
            yield Commit()
            return True
        if key in cancelled(self.log):
            return False
        raise RefusedError("busy")

    def interrupt(self) -> Steps[bool]:
        """Stands still until it is resumed; False if it has nothing to do."""
        if self.status() not in ("running", "idle"):
            return False
        if not has_work(self.log):
            return False
        self.session = None
        yield from append("interrupted")
        yield Commit()
        return True

    def resume(self) -> Steps[bool]:
        """An interrupted worker goes on."""
        if self.status() != "interrupted":
            return False
        yield from append("resumed")
        yield Commit()
        return True

    def resolve(self, start: int, choice: str, value: object) -> Steps[None]:
        """An owner's word on a write that may have happened."""
        if self.status() != "uncertain" or start != question(self.log):
            raise RefusedError("usage")
        yield from append("decision", start_index=start, choice=choice)
        if choice == "value":
            yield from append("end", start_index=start, response=value)
        if choice == "fail":
            yield from append("invocation-finished", outcome="failure", value="guest-error")
        yield Commit()

    def legal_cut(self, cut: int) -> bool:
        """Whether a revert may keep exactly the first `cut` entries: no hidden region is kept in
        part, and no call, region or zone is open behind them.
        """
        if not 1 <= cut <= len(self.log):
            return False
        if any(first <= cut < last for spans in regions(self.log) for first, last in spans):
            return False
        brackets = open_brackets(self.log[:cut])
        return not brackets.calls and not brackets.begin

    def revert_to(self, cut: int) -> Steps[bool]:
        """The worker is again what it was at `cut`; False if nothing lies behind it."""
        self.session = None
        if not self.legal_cut(cut):
            raise RefusedError("usage")
        return (yield from self.cut(cut))

    def cut(self, cut: int) -> Steps[bool]:
        """Hides what lies behind `cut`, from outside."""
        if cut == len(self.log):
            return False
        yield from append("revert", first=cut + 1)
        yield Commit()
        self.diverged = False
        return True

    def revert_last(self, count: int) -> Steps[bool]:
        """The last `count` invocations never happened."""
        self.session = None
        starts = [i for i, e in visible(self.log) if e.kind == "invocation-started"]
        if not 1 <= count <= len(starts):
            raise RefusedError("usage")
        return (yield from self.cut(starts[-count] - 1))
