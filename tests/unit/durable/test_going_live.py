"""When a session that has replayed its history may go live."""

import pytest

from executor.errors import Divergence, InternalError
from executor.replay.phases import Phase
from executor.wasm.host_function import LeaveGuest
from oplog.codec import encode_value
from oplog.entry import Log, PendingInvocation, Raw, Start
from tests.support.deferred_guest import BEGIN, Instance, World

NOTHING = Raw(encode_value([]))
START = Start(at=3, function="now", function_type="read-local", request=NOTHING)


@pytest.fixture
def instance():
    """A guest whose invocation has begun and has done nothing that is recorded."""
    made = Instance(0, BEGIN, World(0))
    made.session.next_invocation()
    return made


def committed_meanwhile(instance, *entries):
    """Somebody else has appended and committed something since the replay began."""
    for entry in entries:
        index = instance.writer.last_index + 1
        instance.recorded_entries.append((index, entry))
        instance.writer.last_index = instance.writer.committed_index = index


def ask(instance):
    return instance.session.claim("now", "read-local", NOTHING)


def test_a_call_behind_the_history_makes_the_session_live(instance):
    assert ask(instance) == (0, None)
    assert instance.session.live


def test_an_instance_that_is_being_left_does_not_go_live(instance):
    instance.session.effects.closing = True
    with pytest.raises(LeaveGuest):
        ask(instance)
    assert not instance.session.live
    assert instance.listener.live_at is None
    assert instance.writer.last_index == len(BEGIN)


def test_acceptances_and_output_that_came_meanwhile_are_passed_over(instance):
    committed_meanwhile(
        instance,
        PendingInvocation(at=4, key="next", function="f", arguments=NOTHING),
        Log(at=5, level="stdout", text="late"),
    )
    assert ask(instance) == (0, None)
    assert instance.session.live


def test_history_of_a_guest_that_came_meanwhile_keeps_the_session_from_going_live(instance):
    committed_meanwhile(instance, START)
    with pytest.raises(InternalError, match="appeared while its instance was settling"):
        ask(instance)
    assert not instance.session.live
    assert instance.session.phase is Phase.REPLAYING


def test_a_rebuild_beside_a_living_worker_never_goes_live(instance):
    instance.session.may_go_live = False
    with pytest.raises(LeaveGuest):
        ask(instance)
    assert not instance.session.live
    assert instance.writer.last_index == len(BEGIN)


def test_what_can_only_come_behind_the_history_is_a_divergence_within_it():
    made = Instance(0, [*BEGIN, START], World(0))
    made.session.next_invocation()
    with pytest.raises(Divergence) as found:
        made.session.jump(2)
    assert found.value.index == len(BEGIN) + 1
    assert not made.session.live
