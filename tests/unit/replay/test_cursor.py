"""The cursor: order, pages, draining, terminals, logs, and how much it holds."""

import gc
import random

import pytest

from executor.replay.cursor import PAGE_ENTRIES_MAX, Cursor
from executor.replay.regions import Regions
from oplog.entry import (
    Cancelled,
    Create,
    Decision,
    End,
    Error,
    HostStreamFrame,
    InvocationFinished,
    InvocationStarted,
    Jump,
    Log,
    NoOp,
    Outcome,
    PendingInvocation,
    Raw,
    Region,
    Start,
)
from oplog.errors import OplogCorruptError

AT = 1


def start(name="f"):
    return Start(at=AT, function=name, function_type="read-local", request=Raw(b"\x90"))


def end(index):
    return End(at=AT, start_index=index, response=Raw(b"\x01"))


def log(text, level="stdout"):
    return Log(at=AT, level=level, text=text)


def frame(index):
    return HostStreamFrame(at=AT, parent_start=index, stream="request-body")


class Pages:
    """An oplog that remembers how it was read."""

    def __init__(self, entries):
        self.entries = entries
        self.asked = []

    def __call__(self, first, limit):
        self.asked.append((first, limit))
        return list(enumerate(self.entries, 1))[first - 1 : first - 1 + limit]


def cursor_of(*entries, target=None, first=1, cuts=()):
    return Cursor(Pages(entries), first=first, target=target or len(entries), regions=Regions(cuts))


def take_all(cursor):
    taken = []
    while (found := cursor.peek()) is not None:
        taken.append(found[0])
        cursor.take()
    return taken


def test_guest_driven_entries_come_in_order_and_everything_else_is_passed_over():
    cursor = cursor_of(
        Create(at=AT, name="c/w", component="c"),
        PendingInvocation(at=AT, key="k", function="f"),
        InvocationStarted(at=AT, key="k", function="f"),
        start(),
        log("line"),
        Error(at=AT, retry_from=4, kind="guest-error"),
        end(4),
        NoOp(at=AT),
        Decision(at=AT, start_index=4, choice="begun"),
        InvocationFinished(at=AT, outcome=Outcome(result=Raw(b"\x01"))),
    )
    assert take_all(cursor) == [3, 4, 8, 10]
    assert cursor.consumed == 4


def test_an_unconsumed_end_does_not_hold_up_draining():
    cursor = cursor_of(start(), end(1))
    assert cursor.peek() == (1, start())
    cursor.take()
    assert cursor.peek() is None
    assert cursor.take_terminal(1) == end(1)


def test_a_terminal_is_found_behind_entries_that_wait_and_leaves_them_waiting():
    cursor = cursor_of(start("a"), start("b"), end(2), NoOp(at=AT), end(1))
    cursor.peek()
    cursor.take()
    assert cursor.take_terminal(1) == end(1)
    assert take_all(cursor) == [2, 4]
    assert cursor.take_terminal(2) == end(2)
    assert cursor.take_terminal(4) is None


def test_a_cancelled_call_is_both_a_terminal_and_an_entry_that_the_guest_causes():
    cancelled = Cancelled(at=AT, start_index=1)
    cursor = cursor_of(start(), cancelled)
    cursor.peek()
    cursor.take()
    assert cursor.take_terminal(1) == cancelled
    assert cursor.peek() == (2, cancelled)


def test_logs_wait_by_level_and_their_text_is_not_compared():
    cursor = cursor_of(log("1"), log("2", "stderr"), start(), log("3"), log("4", "stderr"))
    assert cursor.take_log("stderr").text == "2"
    assert cursor.take_log("stdout").text == "1"
    assert cursor.take_log("stdout").text == "3"
    assert cursor.take_log("stdout") is None
    assert cursor.take_log("stderr").text == "4"
    assert cursor.take_log("debug") is None
    assert take_all(cursor) == [3]


def test_hidden_entries_and_logs_are_not_met():
    jump = Jump(at=AT, region=Region(2, 5))
    cursor = cursor_of(
        start("a"), start("b"), end(2), log("hidden"), jump, log("seen"), end(1), cuts=[(5, jump)]
    )
    assert cursor.take_log("stdout").text == "seen"
    assert cursor.take_log("stdout") is None
    assert take_all(cursor) == [1]
    assert cursor.take_terminal(2) is None
    assert cursor.take_terminal(1) == end(1)


def test_what_a_guest_wrote_before_what_is_consumed_by_now_was_of_another_one():
    entries = (start("a"), log("lost"), frame(1), start("b"), frame(1), log("kept"), frame(1))
    cursor = cursor_of(*entries)
    assert take_all(cursor) == [1, 4]
    assert cursor.take_frame(1) == 5
    assert cursor.take_log("stdout").text == "kept"
    assert cursor.take_log("stdout") is None
    assert cursor.take_frame(1) == 7
    assert cursor.take_frame(1) is None


def test_with_what_does_not_run_again_everything_that_it_wrote_is_passed_over():
    scope = (start("scope"), start("a"), log("body"), frame(9), end(1))
    cursor = cursor_of(*scope, log("behind"), frame(9), start("b"))
    assert cursor.peek()[0] == 1
    cursor.take()
    cursor.skip_before(5)
    assert cursor.take_terminal(1) == end(1)
    assert cursor.take_log("stdout").text == "behind"
    assert cursor.take_frame(9) == 7
    assert take_all(cursor) == [8]


def test_nothing_behind_the_target_is_seen_until_the_target_is_moved():
    cursor = cursor_of(start("a"), end(1), start("b"), target=2)
    assert take_all(cursor) == [1]
    cursor.extend(1)
    assert cursor.peek() is None
    cursor.extend(3)
    assert take_all(cursor) == [3]
    assert cursor.target == 3


def test_it_begins_where_it_is_told_to():
    assert take_all(cursor_of(start(), start(), start(), first=3)) == [3]


def test_entries_that_are_missing_before_the_target_are_no_end_of_the_reading():
    cursor = cursor_of(start(), end(1), start(), target=9)
    assert cursor.peek()[0] == 1
    cursor.take()
    assert cursor.take_terminal(1) == end(1)
    assert cursor.peek()[0] == 3
    cursor.take()
    for ask in (cursor.peek, lambda: cursor.take_terminal(3), lambda: cursor.take_log("stdout")):
        with pytest.raises(OplogCorruptError, match="entries 4 to 9 are missing"):
            ask()


@pytest.mark.parametrize("count", [1, 1_023, 1_024, 1_025, 3_000])
def test_pages_hold_at_most_1024_entries_and_never_reach_behind_the_target(count):
    pages = Pages([start()] * (count + 5))
    cursor = Cursor(pages, first=1, target=count, regions=Regions())
    assert take_all(cursor) == list(range(1, count + 1))
    assert PAGE_ENTRIES_MAX == 1_024
    assert all(limit <= 1_024 for _, limit in pages.asked)
    assert sum(limit for _, limit in pages.asked) == count
    assert len(pages.asked) == -(-count // 1_024)


def test_a_long_oplog_is_never_in_memory_at_once():
    def read(first, limit):
        indices = range(first, first + limit)
        return [(index, start() if index % 2 else end(index - 1)) for index in indices]

    cursor = Cursor(read, first=1, target=20_000, regions=Regions())
    most = 0
    for index in range(1, 20_000, 2):
        assert cursor.peek()[0] == index
        cursor.take()
        assert cursor.take_terminal(index).start_index == index
        if index % 999 == 0:
            alive = sum(type(found) in (Start, End) for found in gc.get_objects())
            held = len(cursor._guest) + len(cursor._ends)
            most = max(most, held, alive)
    assert most <= PAGE_ENTRIES_MAX
    assert cursor.peek() is None
    assert cursor.consumed == 20_000


@pytest.mark.parametrize("seed", range(20))
def test_any_oplog_is_consumed_as_a_slow_model_consumes_it(seed):
    print(f"seed {seed}")
    chosen = random.Random(seed)
    entries = []
    ends = {}
    for index in range(1, chosen.randrange(5, 3_000)):
        kind = chosen.random()
        if kind < 0.4:
            entries.append(start(str(index)))
            continue
        open_calls = [i for i, e in enumerate(entries, 1) if type(e) is Start and i not in ends]
        if kind < 0.7 and open_calls:
            ends[open_calls[0]] = index
            entries.append(end(open_calls[0]))
        else:
            entries.append(log(str(index), chosen.choice(["stdout", "stderr"])))
    cursor = Cursor(Pages(entries), first=1, target=len(entries), regions=Regions())
    logs = {
        level: [i for i, e in enumerate(entries, 1) if type(e) is Log and e.level == level]
        for level in ("stdout", "stderr")
    }
    expected = [index for index, entry in enumerate(entries, 1) if type(entry) is Start]
    for index in expected:
        assert cursor.peek()[0] == index
        cursor.take()
        terminal = cursor.take_terminal(index)
        assert (terminal is None) == (index not in ends)
        level = chosen.choice(["stdout", "stderr"])
        taken = cursor.take_log(level)
        logs[level] = [at for at in logs[level] if at > index]
        assert (taken.text if taken else None) == (str(logs[level].pop(0)) if logs[level] else None)
    assert cursor.peek() is None
