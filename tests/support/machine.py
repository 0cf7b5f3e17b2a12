"""A small executor for tests: components from WAT, host functions from WIT text, one call."""

import threading
from contextlib import contextmanager

from executor.wasm.engine import Engine
from executor.wasm.host_function import HostFunction, HostInterface
from executor.wasm.instance import Instance, Returned
from executor.wasm.lane import Lanes
from executor.wasm.linker import Linker
from executor.wasm.wit import parse_function

WAIT_S = 30


def host_function(text, call, *, waits=False, uses=None):
    """`host_function("tick: func(x: u32) -> u32", lambda state, x: x + 1)`."""
    name, _, signature = text.rpartition(": func(")
    _, type_ = parse_function(f"f: func({signature}", uses)
    return HostFunction(name=name, type=type_, call=call, waits=waits)


def host_interface(*functions, name="t:host/api", versions="", resources=None):
    return HostInterface(
        name=name, versions=versions, functions=functions, resources=resources or {}
    )


class Answer:
    """Waits for a callback's one argument."""

    def __init__(self):
        self._event = threading.Event()
        self._values = []

    def __call__(self, value=None):
        self._values.append(value)
        self._event.set()

    def wait(self, timeout_s=WAIT_S):
        assert self._event.wait(timeout_s), "no outcome in time"
        assert len(self._values) == 1, self._values
        return self._values[0]

    @property
    def arrived(self):
        return self._event.is_set()


class Machine:
    def __init__(self, lanes_count):
        self.engine = Engine.open()
        self.lanes = Lanes(self.engine.increment_epoch, lanes_count)
        self.instances = []

    def component(self, text):
        return self.engine.load(self.engine.compile(text.encode()))

    def linker(self, text, *host):
        return Linker(self.engine, self.component(text), host)

    def prepare(self, linker, state=None, **limits):
        """An instance that is not started yet; the lanes take turns."""
        lane = self.lanes.lanes[len(self.instances) % len(self.lanes.lanes)]
        instance = Instance(linker, lane, state, **limits)
        self.instances.append(instance)
        return instance

    def start(self, linker, state=None, **limits):
        """A running instance."""
        instance = self.prepare(linker, state, **limits)
        started = Answer()
        instance.start(started)
        assert started.wait() == Returned()
        return instance

    def begin(self, instance, name, *arguments):
        """Call an export by name; answers what waits for its outcome."""
        exports = instance._linker.component.exports
        function = next(export for export in exports if export.name == name)
        outcome = Answer()
        instance.call(function, arguments, outcome)
        return outcome

    def call(self, instance, name, *arguments):
        return self.begin(instance, name, *arguments).wait()

    def close(self):
        for instance in self.instances:
            instance.close()
        self.lanes.close()


@contextmanager
def machine(lanes_count=1):
    made = Machine(lanes_count)
    try:
        yield made
    finally:
        made.close()
