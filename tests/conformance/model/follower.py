"""Goes through what one worker did in step with the reference, and says where they part.

The reference is never ahead of what was seen: it stops where the worker waits, or died.
"""

from collections.abc import Sequence
from typing import NoReturn, TypeVar

from oplog.entry import Decision, Interrupted, Revert
from tests.conformance.model.entries import view
from tests.conformance.model.events import Append, Commit, Event, Perform, Reply, Steps
from tests.conformance.model.reference import Reference, RefusedError
from tests.conformance.model.regions import Entry
from tests.conformance.model.subject import Deed, Ordered
from tests.conformance.model.world import World

T = TypeVar("T")
UNKNOWN = -1
MADE_KEY = "golem:api/host.generate-idempotency-key"
"""A write that asks nobody: here it is over as soon as it may begin, in the worker it takes a
moment, in which the guest may be left.
"""
LEFT = (Interrupted, Revert)
"""Entries from outside at which the guest was left, wherever it was."""


def is_unbegun(entry: object) -> bool:
    """Whether it says that a write had not begun when its instance was left."""
    return isinstance(entry, Decision) and entry.choice == "unbegun"


def tells_of_leaving(entry: object) -> bool:
    return type(entry) in LEFT or is_unbegun(entry)


class Difference(AssertionError):
    """The worker did something else than the rules say."""


class WaitError(Exception):
    """Nothing more was seen."""


class Follower:
    """One worker, from its first entry."""

    def __init__(self, worker_id: bytes, ordered: list[Ordered], deeds: Sequence[Deed]) -> None:
        self.ordered = ordered
        self.deeds = deeds
        self.world = World()
        self.reference = Reference(worker_id.hex())
        self.steps: Steps[None] | None = None
        self.event: Event | None = None
        """What was said and not seen yet."""
        self.event_at = 0
        """How many entries there were when it was said."""
        self.sees_lost = True
        """Whether what was ordered and lost is seen too; else only effects tell of it."""
        self.asked: list[str] = []
        """What owners asked for, and after which entry."""
        self.restarted = False
        """Whether the instance was lost at some place that nothing tells of."""
        self.owed = 0
        """Entries that must be durable before anything else happens."""
        self.promised = 0
        """Entries that somebody was told are durable."""
        self.reference.add(self.next_seen(Entry("create"))[1])

    # ---- the worker by itself ----------------------------------------------------------------

    def follow(self) -> None:
        """As far as was seen. Raises: Difference."""
        while True:
            if self.steps is None:
                if self.reference.rests():
                    break
                self.steps = self.reference.run()
            try:
                self.event = self.drive(self.steps, self.event)
            except StopIteration:
                self.steps = self.event = None
            except WaitError:
                if self.was_left():
                    self.leave()
                break
            except Difference:
                if not self.restarted:
                    raise
                self.restarted = False
                self.leave()

    def was_left(self) -> bool:
        """Whether somebody outside did something next, before which the guest was left."""
        count = len(self.reference.log)
        return count < len(self.ordered) and tells_of_leaving(self.ordered[count].entry)

    def drive(self, steps: Steps[T], event: Event | None) -> Event:
        """One event further: `event`, if given, is seen first. Raises: WaitError, StopIteration."""
        reply: Reply = None
        if event is not None:
            reply = self.see(event)
        if self.steps is None:
            raise StopIteration
        said = steps.send(reply)
        self.event_at = len(self.reference.log)
        return said

    def see(self, event: Event) -> Reply:
        """What was seen of an event. Raises: WaitError, Difference."""
        match event:
            case Append(entry):
                return self.append(entry)
            case Commit():
                self.owed = len(self.reference.log)
                return None
            case Perform():
                return self.perform(event)

    def append(self, entry: Entry) -> int:
        """The next entry of the worker's own doing, which must be this one."""
        if not self.sees_lost and not self.is_behind() and self.misses_deed():
            return self.reference.add(entry)
        seen, found = self.next_seen(entry)
        self.settle(seen.committed, f"{found}")
        return self.reference.add(found)

    def next_seen(self, entry: Entry) -> tuple[Ordered, Entry]:
        """What was ordered next, which must be `entry`. Raises: WaitError, Difference."""
        log = self.reference.log
        if not self.is_behind():
            raise WaitError
        seen = self.ordered[len(log)]
        found = view(len(log) + 1, seen.entry)
        if tells_of_leaving(seen.entry) and (is_unbegun(seen.entry) or entry.kind != found.kind):
            raise WaitError
        if (found.kind, found.fields) != (entry.kind, entry.fields):
            self.differ(f"{found}", f"{entry}")
        entry.at = found.at
        return seen, entry

    def perform(self, event: Perform) -> Reply:
        """The next effect, which must be this one; its answer, once it is given."""
        count = len(self.world.performed)
        if count == len(self.deeds):
            raise WaitError
        deed = self.deeds[count]
        if deed.effect != event.effect:
            self.differ(f"{deed.effect}", f"{event.effect}")
        if deed.ordered not in (UNKNOWN, self.event_at):
            self.differ(f"{deed.effect} after entry {deed.ordered}", f"{event.effect}")
        if deed.state == "waits":
            raise WaitError
        self.settle(deed.committed, f"{deed.effect}")
        said = self.world.perform(event.effect)
        if deed.state == "abandoned":
            self.leave()
            return None
        return said

    def settle(self, committed: int, what: str) -> None:
        """What was owed before this happened is durable."""
        if committed < self.owed:
            self.differ(f"{what} with {committed} entries durable", f"{self.owed} before it")
        self.reference.committed = max(self.reference.committed, self.owed)

    def leave(self) -> None:
        """The instance was left where it is, which may be before a write that must not be repeated:
        then that is recorded.
        """
        if self.steps is not None:
            self.steps.close()
        count, session = len(self.reference.log), self.reference.session
        if self.is_behind() and is_unbegun(self.ordered[count].entry):
            found = view(count + 1, self.ordered[count].entry)
            start, entry = self.reference.last_start()
            if entry["function_type"] != "write-remote" or found["start_index"] != start:
                self.differ(f"{found}", f"{entry} at {start}")
            performed = isinstance(self.event, Append) and entry["function"] != MADE_KEY
            if session is None or session.mode or performed:
                self.differ(f"{found}", f"{self.event}")
            self.reference.add(found)
        self.steps = self.event = None
        self.reference.session = None

    def abandon(self) -> None:
        """The call that waits was left, with its instance; nothing goes on yet."""
        if isinstance(self.event, Perform):
            self.world.perform(self.event.effect)
        self.leave()

    # ---- owners, and the end -----------------------------------------------------------------

    def act(self, steps: Steps[T], durable: int) -> T:
        """What an owner did, all of which was seen and, where it was to be, is durable now.

        Raises: Difference, RefusedError.
        """
        event: Event | None = None
        while True:
            try:
                event = steps.send(self.see_owner(event, durable))
            except StopIteration as end:
                answer: T = end.value
                return answer
            except WaitError:
                self.differ("nothing", f"{event}")

    def see_owner(self, event: Event | None, durable: int) -> Reply:
        """As `see`; what a caller is told is durable is, and the worker need not wait for it."""
        if event is None:
            return None
        if isinstance(event, Append):
            return self.reference.add(self.next_seen(event.entry)[1])
        assert isinstance(event, Commit), event
        if durable < len(self.reference.log):
            self.differ(f"{durable} entries are durable", "all of them")
        self.promised = len(self.reference.log)
        return None

    def die(self, durable: int, doing: Steps[object] | None) -> None:
        """The process is dead, maybe amid what an owner asked for. `forget` what was lost then."""
        self.follow()
        if doing is not None and self.is_behind():
            self.act_partly(doing)
            self.follow()
        if self.is_behind() and isinstance(self.event, Perform):
            self.leave()  # amid a crash that was asked for: the call that waited was left first
            self.follow()
        self.check_whole()
        if self.misses_deed():
            self.abandon()  # the effect happened, and nobody heard of it
        self.leave()
        if durable < self.must_keep:
            self.differ(f"{durable} entries are durable", f"{self.must_keep}")

    @property
    def must_keep(self) -> int:
        """Entries that no death may lose."""
        return max(self.promised, self.reference.committed)

    def forget(self, kept: int) -> None:
        """After a death only the first `kept` entries are there."""
        del self.ordered[kept:]
        self.owed = 0
        self.reference.lose(kept)

    def act_partly(self, steps: Steps[object]) -> None:
        """As much as was seen of what an owner asked for."""
        event: Event | None = None
        try:
            while True:
                if isinstance(event, Commit):
                    event = None  # nobody was told
                event = steps.send(self.see_owner(event, 0))
        except (StopIteration, WaitError, RefusedError):
            return

    def check_rest(self) -> None:
        """The worker does nothing by itself, and should not. Raises: Difference."""
        self.follow()
        if self.event is not None and self.restarted:
            self.leave()
            self.follow()
        self.restarted = False
        self.check_whole()
        if self.event is not None:
            self.differ("nothing more", f"{self.event}")

    def check_held(self) -> None:
        """The worker waits for the outside. Raises: Difference."""
        self.follow()
        self.check_whole()
        if not isinstance(self.event, Perform):
            self.differ("a call that waits", f"{self.event}")

    def is_behind(self) -> bool:
        """Whether more entries were seen than the reference has."""
        return len(self.reference.log) < len(self.ordered)

    def misses_deed(self) -> bool:
        """Whether more effects were seen than the reference has."""
        return len(self.world.performed) < len(self.deeds)

    def check_whole(self) -> None:
        """All that was seen was said. Raises: Difference."""
        log = self.reference.log
        if self.is_behind():
            rest = self.ordered[len(log)].entry
            self.differ(f"{view(len(log) + 1, rest)}", f"{self.event}")
        count = len(self.world.performed) + isinstance(self.event, Perform)
        if count < len(self.deeds):
            self.differ(f"{self.deeds[count]}", f"{self.event}")

    def differ(self, seen: str, said: str) -> NoReturn:
        log = self.reference.log
        lines = [f"{i:5} {e.kind} {e.fields}" for i, e in enumerate(log, 1)]
        asked = "asked: " + ", ".join(self.asked)
        raise Difference("\n".join([*lines, asked, f"seen {seen}", f"said {said}"]))

    def note(self, what: str) -> None:
        """Keeps what an owner asks for now, for the message of a difference."""
        self.asked.append(f"{what} after {len(self.reference.log)}")
