"""What golem:durability records of a value, and a pollable that gets its meaning later."""

import pytest

from executor.durable.scopes import Persisted
from executor.host.golem.durability import BYTES, TYPED
from executor.host.pollables import Pollable
from executor.wasm.values import Variant

LAZY = "golem:durability/durability"
TYPED_VALUE = {
    "value": {"nodes": [Variant("record-value", [1]), Variant("prim-string", "é")]},
    "typ": {"nodes": [Variant("record-type", [("payload", 1)]), Variant("prim-string-type")]},
}


@pytest.mark.parametrize(
    ("form", "other", "value"), [(BYTES, TYPED, b"\x00\xff"), (TYPED, BYTES, TYPED_VALUE)]
)
def test_a_response_is_read_in_the_form_in_which_it_was_persisted(form, other, value):
    found = Persisted(
        index=2,
        at=1,
        function="f",
        function_type="read-local",
        scope=None,
        response=form.encode(value),
    )
    assert form.decode(found) == value
    assert form.is_of(found)
    assert not other.is_of(found)


def test_a_lazy_pollable_is_what_it_was_given(guest):
    lazy = guest.call(f"{LAZY}.[constructor]lazy-initialized-pollable")
    early = guest.call(f"{LAZY}.[method]lazy-initialized-pollable.subscribe", lazy)
    assert guest.call("wasi:io/poll.[method]pollable.ready", early) is False
    timer = guest.call("wasi:clocks/monotonic-clock.subscribe-duration", 100)
    guest.call(f"{LAZY}.[method]lazy-initialized-pollable.set", lazy, timer)
    late = guest.call(f"{LAZY}.[method]lazy-initialized-pollable.subscribe", lazy)
    assert guest.call("wasi:io/poll.poll", [early, late]) == [0, 1]
    assert guest.sources.slept_until == [5_000 + 100]
    guest.drop("wasi:io/poll", "pollable", early)
    assert guest.state.handles.get(late, Pollable).deadline_ns == 100
