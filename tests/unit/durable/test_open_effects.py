"""The effects of a session: what is kept of those that nobody waits for any more."""

import gc
import weakref

from executor.durable.effects import Effect
from executor.durable.open_effects import OpenEffects
from oplog.entry import NoOp
from oplog.writer import Writer


class Handle:
    cancelled = False

    def cancel(self):
        self.cancelled = True


class Runner:
    """Holds no handle, as one whose effects have ended."""

    def start(self, _effect, _done):
        handle = Handle()
        self.last = weakref.ref(handle)
        return handle


def test_nothing_is_kept_of_an_effect_that_the_guest_has_dropped():
    runner, cancelled = Runner(), []
    writer = Writer(bytes(16), 10, None, lambda writer: None)
    effects = OpenEffects(writer, runner, lambda call: (call(), cancelled.append(True)))
    effect = Effect(function="f", function_type="read-remote", key="k", run=lambda: None)
    asked = effects.begin(effect, lambda _answer, _error: None, refused=lambda _leave: None)
    assert runner.last() is not None
    with writer.lock:
        effects.drop(asked)
    assert cancelled == [True]
    del asked
    gc.collect()
    assert runner.last() is None, "a guest may drop any number of calls"


def test_a_read_whose_key_leaves_starts_once_its_start_is_durable_and_another_at_once():
    asked, started = [], []
    writer = Writer(bytes(16), 10, None, asked.append)
    writer.append(NoOp(at=1))

    class Starting:
        def start(self, effect, _done):
            started.append(effect.key)

    effects = OpenEffects(writer, Starting(), lambda call: call())
    for key, keyed in (("heard", True), ("own", False)):
        effect = Effect(
            function="f", function_type="read-remote", key=key, run=lambda: None, keyed=keyed
        )
        effects.begin(effect, lambda _answer, _error: None, refused=lambda _leave: None)
    assert (started, asked) == (["own"], [writer])
    _, waiting = writer.take()
    writer.settle(None)
    for done in waiting:
        done(None)
    assert started == ["own", "heard"]
