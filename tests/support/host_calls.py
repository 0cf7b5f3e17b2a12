"""A guest that calls the rows of the host's tables, and is then replayed.

`replay` makes the same calls again, with the recorded answers in the place of actions, in another
world: values, output, files and handles must be the same.
"""

from functools import partial

import trio

from executor.durable.definition import NOT_READY, TO_RECORD, Awaited, Local, Recorded
from executor.durable.modes import Modes
from executor.durable.trace import Trace
from executor.host import INTERFACES
from executor.host.state import HostState, WorkerIdentity
from executor.wasm.check import canonical
from executor.wasm.values import Err, Ok
from oplog.entry import InvocationStarted
from tests.support.sources import FakeSources
from tests.support.stores import memory_stores


def tables():
    """By name; of two versions of one interface the second has a 2 behind it."""
    found = {}
    for table in INTERFACES:
        found[table.name if table.name not in found else f"{table.name}2"] = table
    return found


TABLES = tables()
CREATED_NS = 1_700_000_000_000_000_000


IDENTITY = WorkerIdentity(
    component_id="0b3c2a8e-5a35-4f0a-9f0c-7f2a4b7d1e55", name="worker", revision=3, retry_count=2
)


class Left(BaseException):
    def __init__(self, reason):
        super().__init__(reason)
        self.reason = reason


class FakeSession:
    def __init__(self):
        self.guest_time_ns = CREATED_NS
        self.invocation_key = "key-1"
        self.call_key = ""
        self.worker = "component/worker"
        self.logged = []
        self.may_suspend = False
        self.modes = Modes()
        self.trace = Trace(self.worker, bytes(16))
        self.trace.enter_invocation(
            InvocationStarted(at=CREATED_NS, key=self.invocation_key, function="demo:a/b.{c}")
        )
        self.marks = []

    def mark(self, make):
        self.marks.append(make(self.guest_time_ns))
        return len(self.marks)

    def set_level(self, level, index):
        self.modes.set_level(level, index, b"namespace")

    def log(self, level, text, subject=""):
        self.logged.append((level, text, subject) if subject else (level, text))

    def leave(self, reason):
        raise Left(reason)


class Guest:
    """Live if it is given no answers to replay."""

    def __init__(self, *, sources, files, environment=(), arguments=(), replayed=None, stores=None):
        self.session = FakeSession()
        self.sources = sources
        self.state = HostState(
            session=self.session,
            sources=sources,
            files=files,
            environment=environment,
            arguments=arguments,
            identity=IDENTITY,
        )
        self.state.stores = stores or memory_stores()
        self.replayed = replayed
        self.answers = []
        self.calls = []
        self.values = []
        if replayed is None:
            self.state.clock.anchor(sources.wall_ns(), CREATED_NS, sources.monotonic_ns())

    def call(self, function, *arguments):
        """`function` is `wasi:io/poll.poll`; checks arguments and value against the WIT types."""
        interface, name = function.split(".", 1)
        table = TABLES[interface]
        (row,) = [row for row in table.functions if row.name == name]
        types = table.wit.functions[name]
        for (parameter, wit_type), argument in zip(types.params, arguments, strict=True):
            canonical(wit_type, argument, where=f"{function} {parameter}")
        self.session.guest_time_ns += 1_000
        self.session.call_key = f"key-{len(self.calls)}"
        value = self._perform(row, arguments)
        self.calls.append((function, arguments, self.session.guest_time_ns))
        if types.result is None:
            assert value is None, function
        else:
            canonical(types.result, value, where=function)
        self.values.append(value)
        return value

    def ok(self, function, *arguments):
        value = self.call(function, *arguments)
        assert isinstance(value, Ok), f"{function}{arguments} answered {value}"
        return value.value

    def err(self, function, *arguments):
        value = self.call(function, *arguments)
        assert isinstance(value, Err), f"{function}{arguments} answered {value}"
        return value.value

    def drop(self, interface, resource, number):
        self.calls.append((("drop", interface, resource), number, 0))
        TABLES[interface].drops[resource](self.state, number)

    def _perform(self, row, arguments):
        if isinstance(row, Local):
            return row.call(self.state, *arguments)
        if row.local is not None:
            value = row.local(self.state, *arguments)
            if value is not TO_RECORD:
                return value
        answer = self._answer(row, arguments)
        if row.observe is None:
            return answer
        return row.observe(self.state, answer, *arguments)

    def _answer(self, row, arguments):
        if self.replayed is not None:
            return self.replayed.pop(0)
        match row:
            case Recorded():
                answer = row.action(self.state, *arguments)
            case Awaited():
                answer = NOT_READY if row.attempt is None else row.attempt(self.state, *arguments)
                if answer is NOT_READY:
                    answer = trio.run(partial(row.action, self.state, *arguments))
        self.answers.append(answer)
        return answer


def tree_of(files):
    """Everything that can be seen of a tree, times and inodes included."""
    seen = {}
    left = [("/", 1)]
    while left:
        path, inode = left.pop()
        stat = files.stat(inode)
        content = ""
        if stat.kind == "directory":
            for name, _ in files.listing(inode):
                left.append((f"{path}{name}/", files.lookup(inode, name, follow=False)))
        elif stat.kind == "regular-file":
            content = files.read(inode, 0, stat.size)
        seen[path] = (stat, content)
    return seen


def replay(live, files):
    other = FakeSources(wall_ns=5, monotonic_ns=77, seed=2)
    again = Guest(
        sources=other, files=files(), environment=[("A", "other")], replayed=[*live.answers]
    )
    for function, arguments, time_ns in live.calls:
        if isinstance(function, tuple):
            again.drop(*function[1:], arguments)
            continue
        again.session.guest_time_ns = time_ns - 1_000
        again.call(function, *arguments)
    assert again.values == live.values
    assert again.session.logged == live.session.logged
    assert tree_of(again.state.files) == tree_of(live.state.files)
    assert len(again.state.handles) == len(live.state.handles)
    assert other.slept_until == []
