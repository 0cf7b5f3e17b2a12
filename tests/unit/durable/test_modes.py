"""The keys of remote writes in regions and zones, and when a trap is tried again."""

from executor.durable.keys import call_namespace, derived_key, key_in, namespace_of
from executor.durable.modes import Modes
from executor.durable.retry import DEFAULT_POLICY

NAMESPACE = call_namespace(bytes(16), "order-1")


def keys(modes, *indices):
    return [modes.key(NAMESPACE, index) for index in indices]


def counted(*indices):
    return [key_in(NAMESPACE, index) for index in indices]


def test_outside_of_a_region_a_key_is_that_of_the_start():
    assert keys(Modes(), 7, 9) == counted(7, 9)


def test_the_counter_of_a_region_begins_behind_its_begin_in_every_attempt():
    assert derived_key("base3", 2) == key_in(namespace_of("base3"), 2)
    for first in (11, 40):
        modes = Modes()
        modes.begin_region(10)
        assert keys(modes, first, first + 2, first + 4) == counted(11, 12, 13)
        modes.end_region(10)
        assert keys(modes, first + 7) == counted(first + 7)


def test_the_outermost_region_counts_for_those_inside():
    modes = Modes()
    modes.begin_region(10)
    assert keys(modes, 11) == counted(11)
    modes.begin_region(13)
    assert keys(modes, 14) == counted(12)
    modes.end_region(13)
    assert keys(modes, 17) == counted(13)
    assert modes.begin == 10
    modes.begin_region(20)
    modes.end_region(10)
    assert (modes.begin, modes.regions) == (0, [])


def test_the_keys_of_a_zone_are_its_own():
    modes = Modes()
    modes.set_level("persist-nothing", 10, NAMESPACE)
    inside = keys(modes, 0, 0, 0)
    assert len(set(inside)) == 3
    assert set(inside).isdisjoint(counted(*range(100)))
    modes.set_level("smart", 11, NAMESPACE)
    assert keys(modes, 12) == counted(12)
    again = Modes()
    again.set_level("persist-nothing", 10, NAMESPACE)
    assert keys(again, 0, 0, 0) == inside


def test_a_zone_in_a_region_has_the_same_keys_in_every_attempt():
    attempts = []
    for zone in (14, 31):
        modes = Modes()
        modes.begin_region(10)
        before = keys(modes, zone - 3)
        modes.set_level("persist-nothing", zone, NAMESPACE)
        inside = keys(modes, 0, 0)
        modes.set_level("smart", zone + 1, NAMESPACE)
        attempts.append([*before, *inside, *keys(modes, zone + 2)])
        assert modes.begin == 10
    assert attempts[0] == attempts[1]
    assert len(set(attempts[0])) == 4


def test_calls_that_are_no_writes_move_no_counter_and_share_no_key_with_one():
    modes = Modes()
    assert modes.read_key(NAMESPACE, 9) == counted(9)[0], (
        "outside of a region it is that of the start"
    )
    modes.begin_region(10)
    reads = [modes.read_key(NAMESPACE, index) for index in (11, 12, 17)]
    writes = keys(modes, 13, 15)
    modes.set_level("persist-nothing", 19, NAMESPACE)
    for _ in range(3):
        reads.append(modes.read_key(NAMESPACE, 0))
        writes += keys(modes, 0)
    assert writes[:2] == counted(11, 12)
    assert len({*reads, *writes}) == 3 + 2 + 6
    assert {*reads, *writes[2:]}.isdisjoint(counted(*range(100)))


def test_a_trap_is_tried_again_only_in_a_region_that_wrote():
    modes = Modes()
    modes.wrote = True
    assert not modes.retries_traps
    modes.begin_region(10)
    assert not modes.retries_traps
    modes.wrote = True
    assert modes.retries_traps
    modes.end_region(10)
    assert not modes.retries_traps


def test_an_invocation_takes_regions_and_zones_with_it_and_leaves_mode_and_policy():
    modes = Modes()
    modes.idempotent = False
    modes.begin_region(10)
    modes.set_level("persist-nothing", 12, NAMESPACE)
    modes.leave_invocation()
    assert (modes.begin, modes.zone, modes.regions, modes.level) == (0, 0, [], "smart")
    assert not modes.idempotent
    assert modes.policy == DEFAULT_POLICY
