"""Which entries jumps and reverts hide."""

import random

import pytest

from executor.replay.regions import HiddenRanges, Regions
from oplog.entry import (
    HINTS,
    CompletionDelivered,
    CompletionDiscarded,
    End,
    EndAtomicRegion,
    Error,
    Exited,
    Jump,
    Log,
    NoOp,
    PendingInvocation,
    Region,
    Revert,
    Start,
)

AT = 1
NO_OP = NoOp(at=AT)
LOG = Log(at=AT, level="stdout", text="x")
PENDING = PendingInvocation(at=AT, key="k", function="f")
ERROR = Error(at=AT, retry_from=1, kind="guest-error")
EXITED = Exited(at=AT)
DELIVERED = CompletionDelivered(at=AT, start_index=1)
DISCARDED = CompletionDiscarded(at=AT, start_index=1)
DELIVERY = {CompletionDelivered, CompletionDiscarded}
KINDS = [NO_OP, LOG, PENDING, ERROR, EXITED, DELIVERED, DISCARDED]
KINDS += [
    EndAtomicRegion(at=AT, begin_index=2),
    Start(at=AT, function="f", function_type="read-local"),
]


def jump(first, last, subtree=None):
    return last, Jump(at=AT, region=Region(first, last), subtree=subtree)


def revert(first, last):
    return last, Revert(at=AT, region=Region(first, last))


def hidden(regions, count, entry=NO_OP):
    return [index for index in range(1, count + 1) if regions.hides(index, entry)]


def test_without_cuts_nothing_is_hidden():
    regions = Regions()
    assert hidden(regions, 9) == []
    assert not regions.touches(1, 1 << 60)
    assert not regions.jumped
    assert not regions.reverted


def test_a_jump_hides_the_entries_after_its_begin_and_itself():
    regions = Regions([jump(4, 7)])
    assert hidden(regions, 9) == [4, 5, 6, 7]


def test_a_jump_leaves_the_queue_errors_lifecycle_and_logs_and_takes_delivery():
    regions = Regions([jump(2, 5)])
    assert [entry for entry in KINDS if not regions.hides(3, entry)] == [
        LOG,
        PENDING,
        ERROR,
        EXITED,
    ]


def test_a_revert_also_hides_errors_and_the_lifecycle_and_leaves_itself():
    regions = Regions([revert(2, 5)])
    assert [entry for entry in KINDS if not regions.hides(3, entry)] == [LOG, PENDING]
    assert not regions.hides(5, Revert(at=AT, region=Region(2, 5)))


def test_a_jump_inside_a_reverted_region_gives_back_what_it_had_hidden():
    regions = Regions([jump(3, 6), revert(5, 9)])
    assert hidden(regions, 10) == [5, 6, 7, 8, 9]
    assert not regions.hides(3, NO_OP)


def test_a_revert_inside_a_reverted_region_does_not_count():
    regions = Regions([revert(2, 4), revert(4, 6)])
    assert hidden(regions, 8) == [4, 5, 6]


def test_a_jump_over_a_jump_hides_both_as_one_range():
    regions = Regions([jump(5, 6), jump(4, 9)])
    assert hidden(regions, 10) == [4, 5, 6, 7, 8, 9]
    assert regions.jumped.firsts == [4]
    assert regions.jumped.lasts == [9]


def test_a_jump_of_a_subtree_hides_the_body_of_its_scope_and_names_it():
    regions = Regions([jump(3, 5, subtree=2)])
    assert hidden(regions, 6) == [3, 4, 5]
    assert regions.subtrees == {2}
    assert Regions([jump(3, 5, subtree=2), revert(2, 7)]).subtrees == set()


def test_a_log_of_a_hidden_region_is_concealed_from_readers_and_never_hidden():
    regions = Regions([jump(3, 5), revert(8, 9)])
    for index in (3, 5, 8):
        assert regions.conceals(index, LOG)
        assert not regions.hides(index, LOG)
    assert not regions.conceals(2, LOG)
    assert not regions.conceals(8, PENDING)
    assert regions.conceals(4, NO_OP)


def test_ranges_that_touch_are_merged():
    ranges = HiddenRanges([Region(7, 9), Region(1, 2), Region(3, 4), Region(8, 12)])
    assert (ranges.firsts, ranges.lasts) == ([1, 7], [4, 12])
    assert [index for index in range(14) if index in ranges] == [1, 2, 3, 4, 7, 8, 9, 10, 11, 12]
    assert ranges.touches(5, 7)
    assert not ranges.touches(5, 6)
    assert not ranges.touches(13, 20)
    assert not HiddenRanges(())


def model(cuts, index, kind):
    """Latest first, each cut looked at alone, an index at a time."""
    reverted = set()
    jumped = set()
    for at, cut in sorted(cuts, reverse=True, key=lambda found: found[0]):
        if at in reverted:
            continue
        members = range(cut.region.first, cut.region.last + 1)
        (reverted if isinstance(cut, Revert) else jumped).update(members)
    if index in reverted:
        return kind not in HINTS or kind in {
            Error,
            Exited,
            CompletionDelivered,
            CompletionDiscarded,
        }
    hinted = kind in HINTS and kind not in {CompletionDelivered, CompletionDiscarded}
    return index in jumped and not hinted


@pytest.mark.parametrize("seed", range(60))
def test_any_mixture_of_jumps_and_reverts_hides_what_a_slow_model_hides(seed):
    print(f"seed {seed}")
    chosen = random.Random(seed)
    count = chosen.randrange(4, 40)
    cuts = []
    for index in range(3, count):
        if chosen.random() < 0.3:
            first = chosen.randrange(2, index + 1)
            make = Revert if chosen.random() < 0.4 else Jump
            cuts.append((index, make(at=AT, region=Region(first, index))))
    regions = Regions(cuts)
    for index in range(1, count + 2):
        for entry in KINDS:
            expected = model(cuts, index, type(entry))
            assert regions.hides(index, entry) == expected, (cuts, index, entry)
        first = chosen.randrange(1, index + 1)
        touched = any(i in regions.jumped or i in regions.reverted for i in range(first, index + 1))
        assert regions.touches(first, index) == touched


def test_a_jump_leaves_the_end_of_a_call_that_began_before_its_region():
    regions = Regions([jump(4, 7)])
    assert not regions.hides(5, End(at=AT, start_index=3))
    assert regions.hides(5, End(at=AT, start_index=4))
    assert Regions([revert(4, 7)]).hides(5, End(at=AT, start_index=3))
