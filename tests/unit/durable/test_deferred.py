"""What the trio thread asks of deferred calls while the guest goes on."""

from types import SimpleNamespace

from executor.durable.deferred import CallState, DeferredCall, DeferredCalls


class MeanwhileAnother(DeferredCall):
    """While somebody looks at it, the guest begins another call."""

    __slots__ = ("calls",)

    def __getattribute__(self, name):
        if name == "state":
            self.calls[opened(9)] = None
        return super().__getattribute__(name)


def opened(index, kind=DeferredCall):
    call = kind("f", "read-remote", None, None)
    call.index = index
    call.state = CallState.OPEN
    return call


def test_the_oldest_open_call_is_told_while_the_guest_begins_others():
    calls = DeferredCalls(SimpleNamespace(open_start=0))
    ended = opened(3, MeanwhileAnother)
    ended.calls = calls._calls
    ended.state = CallState.READY
    calls._calls |= {ended: None, opened(5): None}
    assert calls.oldest_open == 5
