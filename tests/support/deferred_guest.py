"""A guest without Wasm that makes deferred calls, in a world that ends them in any order.

The guest is a deterministic function of what it observes: what it does next is drawn from a seed
and the trace so far. The world decides when an effect ends, and when a commit happens. So one
program can be run again over a part of its oplog, in another world, as after a crash.
"""

import random
from typing import NamedTuple

from executor.durable.deferred import CallState
from executor.durable.deferred_function import DeferredFunction
from executor.durable.definition import NOT_READY
from executor.durable.session import DurableSession
from executor.durable.session_world import SessionWorld
from executor.replay.cursor import Cursor
from executor.replay.regions import Regions
from oplog.codec import decode_entry, encode_value
from oplog.entry import Create, InvocationFinished, InvocationStarted, Outcome, Raw
from oplog.writer import Writer

WORKER_ID = bytes(range(16))
BEGIN = (
    Create(at=1, name="c/w", component="c"),
    InvocationStarted(at=2, key="k", function="f"),
)
FETCH = DeferredFunction("test:web/client", "fetch: func(number: u32) -> string")
TYPES = ("read-remote", "write-remote", "read-local")
STEPS_MAX = 40


class Trapped(Exception):
    """The guest trapped."""


class Handle:
    """An effect under way."""

    def __init__(self, effect, done):
        self.effect = effect
        self.done = done
        self.cancelled = False
        self.under_way = True

    def cancel(self):
        self.cancelled = True


class World:
    """Ends effects and commits when it likes; keeps every effect that was started."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.open = []
        self.started = []
        """(key, function type) of each effect, in order."""
        self.now = 1_000

    def start(self, effect, done):
        handle = Handle(effect, done)
        self.open.append(handle)
        self.started.append((effect.key, effect.function_type))
        return handle

    def commit_soon(self, writer):
        pass

    def end_one(self):
        """Ends an effect that is under way; False if there is none."""
        self.open = [handle for handle in self.open if not handle.cancelled]
        if not self.open:
            return False
        handle = self.open.pop(self.random.randrange(len(self.open)))
        handle.done(f"answer of {handle.effect.key} in this world {self.random.random()}", None)
        return True

    def wall_ns(self):
        self.now += 1
        return self.now


class Listener:
    def __init__(self):
        self.live_at = None
        self.trace = []

    def on_live(self):
        self.live_at = len(self.trace)

    def on_target(self):
        pass

    def on_full(self):
        pass

    def on_output(self, level, text):
        pass


class Run(NamedTuple):
    entries: list
    trace: list
    live_at: int | None
    """How much of the trace there was when the session went live."""
    started: list


class Instance:
    """One instance of the guest, over the first entries of an oplog."""

    def __init__(self, program, entries, world, *, idempotent=True, decisions=()):
        self.program = program
        self.world = world
        self.entries = list(entries)
        self.writer = Writer(WORKER_ID, len(entries), None, lambda writer: None)
        self.listener = Listener()
        self.trace = self.listener.trace
        self.recorded_entries = recorded = list(enumerate(self.entries, 1))

        def read(first, limit):
            return recorded[first - 1 : first - 1 + limit]

        self.session = DurableSession(
            worker="c/w",
            writer=self.writer,
            cursor=Cursor(read, first=2, target=len(recorded), regions=Regions()),
            world=SessionWorld(
                effects=world,
                listener=self.listener,
                sources=world,
                append=self.writer.append,
                attempts=lambda index: 0,
                defer=lambda call: call(),
                post=lambda call, *arguments: call(*arguments),
            ),
        )
        self.session.modes.idempotent = idempotent
        self.session.decisions = dict(decisions)
        self.calls = []

    def run(self):
        """To the end of the invocation, or to a trap."""
        session = self.session
        session.next_invocation()
        trapped = False
        try:
            for _ in range(STEPS_MAX):
                if not self.step():
                    break
        except Trapped:
            trapped = True
        if not trapped:
            self.end_writes()
            outcome = Outcome(result=Raw(encode_value(len(self.trace))))
            if not session.match_outcome(outcome):
                self.writer.append(InvocationFinished(at=self.world.wall_ns(), outcome=outcome))
        self.commit()
        return Run(self.entries, self.trace, self.listener.live_at, self.world.started)

    def step(self):
        """One operation; what the guest sees of it, and how late it is for its files, goes to the
        trace. False at the end.
        """
        if self.session.live:
            while self.world.random.random() < 0.3:
                self.commit()
                self.world.end_one()
        chosen = random.Random(f"{self.program} {self.trace}")
        held = [i for i, call in enumerate(self.calls) if call is not None]
        kinds = ["begin", "begin", "read", "read", "poll", "drop", "now", "stop", "trap"]
        weights = [4, 4, 5, 5, 5, 2, 2, 1, 0.2]
        if len(held) > 5:
            weights[0] = weights[1] = 0
        if not held:
            weights[2:6] = [0, 0, 0, 0]
        kind = chosen.choices(kinds, weights)[0]
        if kind == "stop":
            return False
        if kind == "trap":
            self.trace.append("trap")
            raise Trapped
        number = chosen.choice(held) if held else 0
        polled = sorted(chosen.sample(held, chosen.randint(1, len(held)))) if held else []
        match kind:
            case "begin":
                seen = self.begin(chosen.choice(TYPES))
            case "read":
                seen = self.read(number)
            case "poll":
                seen = self.poll(polled)
            case "drop":
                self.session.deferred.drop(self.calls[number])
                self.calls[number] = None
                seen = "dropped"
            case "now":
                seen = self.recorded("now", self.world.random.random)
        self.trace.append((kind, seen, self.session.guest_time_ns))
        return True

    def begin(self, function_type):
        async def run(call):
            raise AssertionError("the world of this test answers by itself")

        number = len(self.calls)
        deferred = self.session.deferred
        self.calls.append(FETCH.begin(deferred, function_type, (number,), run))
        return number

    def read(self, number):
        answer = FETCH.read(self.session.deferred, self.calls[number])
        if answer is NOT_READY:
            return "nothing"
        self.calls[number] = None
        return answer

    def poll(self, numbers):
        return self.recorded(f"poll {numbers}", lambda: self.wait_ready(numbers))

    def wait_ready(self, numbers):
        deferred = self.session.deferred
        while True:
            ready = [number for number in numbers if deferred.is_ready(self.calls[number])]
            if ready:
                return ready
            self.commit()
            self.world.end_one()

    def recorded(self, function, action):
        """A serialized call, as `durable/call.py` makes it."""
        session = self.session
        request = Raw(encode_value([]))
        index = 0
        if not session.live:
            index, response = session.claim(function, "read-local", request)
            if response is not None:
                return bytes(response)
        if not index:
            index = session.append_start(function, "read-local", request)
        response = Raw(encode_value(action()))
        session.append_end(index, response)
        return bytes(response)

    def end_writes(self):
        """As `writes_ended`: the outcome waits for the remote writes under way."""
        if not self.session.live:
            return
        while any(
            call is not None
            and call.function_type == "write-remote"
            and call.state is CallState.OPEN
            for call in self.calls
        ):
            self.commit()
            self.world.end_one()

    def commit(self):
        """What the committer does, at once."""
        while self.writer.committed_index < self.writer.last_index or self.writer._waiting:
            batch, waiting = self.writer.take()
            if batch is not None:
                self.entries.extend(decode_entry(raw) for _, _, raw in batch.entries)
            late, drained = self.writer.settle(None)
            for done in [*waiting, *late]:
                done(None)
            for wake in drained:
                wake()
