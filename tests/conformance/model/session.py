"""One instance in the reference: the guest's host, replaying what is recorded and then live.

Only calls that finish before the guest goes on are here: one lane, one call at a time. A replaying
session takes the visible guest-driven entries in order and asks for nothing else; with none left
it is live.
"""

import uuid
from collections import deque
from dataclasses import dataclass
from typing import Final

from tests.conformance.model.events import Commit, Steps, append, perform
from tests.conformance.model.program import STREAMS, Guest
from tests.conformance.model.regions import (
    GUEST_DRIVEN,
    Entry,
    Log,
    subtrees,
    visible,
    visible_logs,
)
from tests.conformance.model.world import Effect, Refusal

ROOT: Final = uuid.UUID("9C19B15A-C83D-46F7-9BC3-EAD7923733F4")
DEFAULT_ATTEMPTS: Final = 3
OUTSIDE: Final = "demo:stepper/outside."
HOST: Final = "golem:api/host."
TYPES: Final = {
    "read-local": "read-local",
    "read-remote": "read-remote",
    "gate": "read-remote",
    "write-remote": "write-remote",
}
NOTHING: Final = "persist-nothing"
SCOPE: Final = "golem:durability/durability.begin-durable-function"
SCOPE_END: Final = "golem:durability/durability.end-durable-function"


class LeaveError(Exception):
    """Why an instance is left before its invocation returned."""


class JumpError(LeaveError):
    """The guest set its own index."""

    def __init__(self, target: int) -> None:
        super().__init__(target)
        self.target = target


class FailError(LeaveError):
    """This attempt failed; `start` is the failing call's, `transient` the host's word."""

    def __init__(self, kind: str, *, transient: bool = False, start: int = 0) -> None:
        super().__init__(kind)
        self.kind = kind
        self.transient = transient
        self.start = start


class ExitError(LeaveError):
    """The guest exited."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class UncertainError(LeaveError):
    """A write may have happened and must not be repeated without an owner's word."""

    def __init__(self, start: int) -> None:
        super().__init__(start)
        self.start = start


class DivergenceError(LeaveError):
    """The guest asked for something other than what is recorded."""


def derived(base: str, number: int) -> str:
    """The key derived from an invocation's key and a number."""
    is_uuid = len(base) == 36 and base.count("-") == 4
    namespace = uuid.UUID(base) if is_uuid else uuid.uuid5(ROOT, base)
    return str(uuid.uuid5(namespace, f"oplog-index-{number}"))


@dataclass(slots=True)
class Tally:
    """Operations of the guest that were not replayed."""

    count: int = 0


class Session:
    """The host's side of one instance: what it replays, and all modes that the guest can set."""

    def __init__(self, worker_id: str, log: Log, tally: Tally) -> None:
        self.worker_id = worker_id
        self.tally = tally
        self.log = log
        self.guest = Guest()
        seen = visible(log)
        self.tape = deque(pair for pair in seen if pair[1].kind in GUEST_DRIVEN)
        self.ends = {e.index("start_index"): e for _, e in seen if e.kind == "end"}
        self.lines: dict[str, deque[int]] = {level: deque() for level in STREAMS}
        for index, entry in visible_logs(log):
            self.lines[entry.text("level")].append(index)
        self.subtrees = subtrees(log)
        self.mode = True
        self.attempts = DEFAULT_ATTEMPTS
        self.started = 0
        self.invocation_key = ""
        self.last_at = 0
        self.leave_brackets()

    def leave_brackets(self) -> None:
        """Regions and zones do not outlive their invocation."""
        self.level = "smart"
        self.regions: list[int] = []
        self.zone = 0
        self.zone_key = ""
        self.zone_count = 0
        self.counter = 0
        self.held_effect = False

    @property
    def begin(self) -> int:
        """The outermost open begin, 0 if there is none: where a failure goes back to."""
        return min([*self.regions, *([self.zone] if self.zone else [])], default=0)

    def enter(self, index: int, started: Entry) -> None:
        """An invocation begins."""
        self.started = index
        self.invocation_key = started.text("key")
        self.last_at = started.at
        self.leave_brackets()

    def live(self) -> bool:
        """Whether all that is recorded was asked for again."""
        return not self.tape

    def next_operation(self) -> None:
        """The guest is about to do something."""
        self.tally.count += self.live()

    def take(self, kind: str, **fields: object) -> tuple[int, Entry]:
        """The next recorded entry, which must be what the guest asks for now."""
        index, entry = self.tape.popleft()
        if entry.kind != kind or any(entry[name] != value for name, value in fields.items()):
            raise DivergenceError(index, entry, kind, fields)
        return index, entry

    def mark(self, kind: str, **fields: object) -> Steps[int]:
        """One positional entry that the guest causes: recorded live, taken in replay."""
        if self.live():
            index, entry = yield from append(kind, **fields)
        else:
            index, entry = self.take(kind, **fields)
        self.last_at = entry.at
        return index

    # ---- calls ------------------------------------------------------------------------------

    def call(self, function: str, argument: int) -> Steps[int]:
        """A call of one of the embedder's functions."""
        kind = TYPES[function]
        fields: dict[str, object] = {
            "function": OUTSIDE + function,
            "function_type": kind,
            "request": [argument],
        }
        start, fresh = yield from self.start(fields)
        key = self.next_key(start) if kind == "write-remote" else None
        if start in self.ends:
            response = self.answered(start)
            assert isinstance(response, int)
            return response
        if kind == "write-remote":
            if not fresh and not self.mode:
                yield from self.ask_owner(start)
            yield Commit()
        said = yield from perform(Effect(function, argument, key))
        while isinstance(said, Refusal):
            repeats = said.transient and (kind != "write-remote" or self.mode) and not self.begin
            if not repeats or self.failed_attempts(start) + 1 >= self.attempts:
                raise FailError("guest-error", transient=said.transient, start=start)
            yield from append("error", retry_from=start, kind="guest-error", last=False)
            yield Commit()
            said = yield from perform(Effect(function, argument, key))
        yield from self.end_call(start, said.value)
        if kind == "write-remote" and not self.mode:
            yield Commit()
        return said.value

    def failed_attempts(self, retry_from: int) -> int:
        """Attempts are counted by what is tried again, whichever way."""
        errors = [e["retry_from"] for _, e in visible(self.log) if e.kind == "error"]
        return errors.count(retry_from)

    def start(self, fields: dict[str, object]) -> Steps[tuple[int, bool]]:
        """The call's own start, its identity, and whether it was made now. In a zone there is
        none: nothing is recorded that could answer the call in a replay.
        """
        if self.zone and not self.live():
            raise DivergenceError(self.tape[0], fields)
        if self.begin and fields["function_type"] != "read-local":
            self.held_effect = True
        if self.zone:
            return 0, True
        fresh = self.live()
        return (yield from self.mark("start", **fields)), fresh

    def end_call(self, start: int, response: object) -> Steps[None]:
        """The call's end, once."""
        if start:
            _, entry = yield from append("end", start_index=start, response=response)
            self.ends[start] = entry
            self.last_at = entry.at

    def answered(self, start: int) -> object:
        """What is recorded of a call that ended."""
        end = self.ends[start]
        self.last_at = end.at
        return end["response"]

    def ask_owner(self, start: int) -> Steps[None]:
        """An incomplete write with the mode off: only on an owner's word, and that once; or where
        it is recorded that it had not begun.
        """
        choices = [
            entry["choice"]
            for _, entry in visible(self.log)
            if entry.kind == "decision" and entry["start_index"] == start
        ]
        if not choices or choices[-1] not in ("repeat", "unbegun"):
            raise UncertainError(start)
        yield from append("decision", start_index=start, choice="begun")

    def next_key(self, start: int) -> str:
        """The key of a write: by its start, or by a count of its own in a region or a zone."""
        if self.zone:
            self.zone_count += 1
            return derived(self.zone_key, self.zone_count)
        number = start
        if self.regions:
            number = self.counter
            self.counter += 1
        return derived(f"{self.worker_id}/{self.invocation_key}", number)

    def own_call(self, name: str, function_type: str, request: list[object]) -> Steps[int]:
        """The start of a call of the host's own; in replay its end is there or is to be made."""
        start, _ = yield from self.start(
            {"function": HOST + name, "function_type": function_type, "request": request}
        )
        return start

    def key(self) -> Steps[tuple[int, int]]:
        """A generated key: a remote write that no peer sees."""
        before = self.live()
        start = yield from self.own_call("generate-idempotency-key", "write-remote", [])
        made = uuid.UUID(self.next_key(start))
        halves = made.int >> 64, made.int & ((1 << 64) - 1)
        if start in self.ends:
            recorded = self.answered(start)
            assert isinstance(recorded, dict)
            return recorded["high-bits"], recorded["low-bits"]
        if not before and not self.mode:
            yield from self.ask_owner(start)
        yield Commit()
        yield from self.end_call(start, {"high-bits": halves[0], "low-bits": halves[1]})
        if not self.mode:
            yield Commit()
        return halves

    def commit(self) -> Steps[None]:
        """All so far is durable."""
        start = yield from self.own_call("oplog-commit", "write-local", [1])
        if start in self.ends:
            self.answered(start)
            return
        yield Commit()
        yield from self.end_call(start, None)

    def settings(self) -> Steps[tuple[bool, str, int]]:
        """What the guest reads of its own modes; the policy is recorded, the others are rebuilt."""
        start = yield from self.own_call("get-retry-policy", "read-local", [])
        attempts = self.attempts
        if start in self.ends:
            recorded = self.answered(start)
            assert isinstance(recorded, int)
            attempts = recorded
        else:
            yield from self.end_call(start, attempts)
        return self.mode, self.level, attempts

    # ---- a durable function of the guest's own ------------------------------------------------

    def scope(self, argument: int, *, traps: bool) -> Steps[int]:
        """A block that happens as a whole: begun, a write, what it came to, ended. A completed one
        gives what it came to, and does not happen; one that was cut short happens again under the
        same start, but not with the mode off.
        """
        if self.zone:
            if not self.live():
                raise DivergenceError(self.tape[0], "scope")
            answer = yield from self.call("write-remote", argument)
            yield from self.ask_to_trap(argument, traps=traps)
            yield from self.wait_for_scope(self.zone)
            return answer
        start = yield from self.mark(
            "start", function=SCOPE, function_type="write-remote-batched", request=None
        )
        if start in self.ends:
            answer = self.skip_block(start)
            yield from self.wait_for_scope(start)
            return answer
        if start in self.subtrees and not self.mode:
            raise FailError("guest-error", start=start)
        self.open_region(start)
        self.held_effect = True
        answer = yield from self.call("write-remote", argument)
        fields: dict[str, object] = {"function": "block", "function_type": "write-remote-batched"}
        index, _ = yield from append("start", request=[bytes([argument >> 8])], **fields)
        yield from self.end_call(index, answer.to_bytes(8, "little"))
        yield from self.ask_to_trap(argument, traps=traps)
        yield from self.end_call(start, None)
        self.regions = [outer for outer in self.regions if outer < start]
        yield from self.wait_for_scope(start)
        return answer

    def wait_for_scope(self, begin: int) -> Steps[None]:
        """With the mode off what follows a scope waits for its end, in a call of its own."""
        if self.mode:
            return
        request = [{"write-remote-batched": None}, begin, False]
        fields: dict[str, object] = {"function": SCOPE_END, "function_type": "read-local"}
        start, _ = yield from self.start({**fields, "request": request})
        if start in self.ends:
            self.answered(start)
            return
        yield Commit()
        yield from self.end_call(start, None)

    def ask_to_trap(self, argument: int, *, traps: bool) -> Steps[None]:
        """The end of a block that may not come to its end the first time."""
        if traps and (yield from self.call("gate", 22 << 16 | argument & 0xFF00 | 1)):
            self.trap()

    def skip_block(self, start: int) -> int:
        """Passes over what is recorded of a completed block, and answers what it came to."""
        answer = b""
        last = next(i for i, e in visible(self.log) if e is self.ends[start])
        while self.tape and self.tape[0][0] < last:
            index, entry = self.tape.popleft()
            if entry.kind == "start" and entry["function"] == "block":
                response = self.answered(index)
                assert isinstance(response, bytes)
                answer = response
        self.answered(start)
        return int.from_bytes(answer, "little")

    # ---- marks ------------------------------------------------------------------------------

    def log_line(self, level: int, text: str) -> Steps[None]:
        """A line of output: while replaying the next one of its level is this one."""
        lines = self.lines[STREAMS[level]]
        if lines:
            lines.popleft()
        elif self.live():
            yield from append("log", level=STREAMS[level], text=text)

    def own_index(self) -> Steps[int]:
        """Where the guest is; the place is marked so that it stays."""
        return self.zone or (yield from self.mark("no-op"))

    def jump(self, target: int) -> Steps[None]:
        """Back to `target`."""
        if not self.live():
            raise DivergenceError(self.tape[0], "jump", target)
        yield from ()
        raise JumpError(target)

    def begin_region(self) -> Steps[int]:
        """An atomic region begins."""
        if self.zone:
            return self.zone
        index = yield from self.mark("begin-atomic-region")
        self.open_region(index)
        return index

    def open_region(self, index: int) -> None:
        """Keys are counted from the outermost begin."""
        if not self.regions:
            self.counter = index + 1
            self.held_effect = False
        self.regions.append(index)

    def end_region(self, begin: int) -> Steps[None]:
        """The region that began at `begin` ends, with those inside it; any other index is none."""
        if begin not in self.regions:
            return
        if self.zone:
            raise FailError("guest-error")
        yield from self.mark("end-atomic-region", begin_index=begin)
        self.regions = [outer for outer in self.regions if outer < begin]

    def set_mode(self, on: bool) -> Steps[None]:
        """Whether an incomplete remote write is repeated."""
        if not self.zone:
            yield from self.mark("set-idempotence-mode", value=on)
        self.mode = on

    def set_level(self, level: str) -> Steps[None]:
        """What is recorded from here on."""
        if self.zone and level == NOTHING:
            return
        index = yield from self.mark("set-persistence-level", value=level)
        self.level = level
        self.zone = 0
        if level == NOTHING:
            self.zone_key = self.next_key(index)
            self.zone_count = 0
            self.zone = index

    def set_attempts(self, attempts: int) -> Steps[None]:
        """How often something is attempted, the first time included."""
        if not self.zone:
            yield from self.mark("set-retry-policy", value=attempts)
        self.attempts = attempts

    def trap(self) -> None:
        """The guest does what no guest may."""
        raise FailError("guest-trap")

    def exit(self, failed: bool) -> None:
        """The guest exits with 0 or 1."""
        raise ExitError(int(failed))

    def time(self) -> int:
        """The time of what the guest last caused or observed."""
        return self.last_at
