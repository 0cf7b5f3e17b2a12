"""Commits that nobody waits for: soon, once a writer, and not where another one came first."""

import trio
import trio.testing

from executor.durable.commit_soon import SOON_S, CommitSoon
from oplog.errors import OplogError


class Written:
    """A writer, as far as it is asked."""

    def __init__(self, last_index=1):
        self.last_index = last_index
        self.committed_index = 0
        self.failed = None
        self.asked = 0
        self.closed = False

    def commit(self, _done):
        if self.closed:
            raise OplogError("the store is closed")
        self.asked += 1
        self.committed_index = self.last_index


def run(use):
    """`await use(commits)` while they are served, on a clock that jumps."""

    async def served():
        commits = CommitSoon()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(commits.run)
            await use(commits)
            nursery.cancel_scope.cancel()

    trio.run(served, clock=trio.testing.MockClock(autojump_threshold=0))


def test_what_was_added_is_committed_soon_and_once():
    async def use(soon):
        written = Written()
        for _ in range(3):
            soon.add(written)
        await trio.sleep(SOON_S / 2)
        assert written.asked == 0
        await trio.sleep(2 * SOON_S)
        assert written.asked == 1
        await trio.sleep(10 * SOON_S)
        assert written.asked == 1

    run(use)


def test_who_was_committed_meanwhile_is_left_alone():
    async def use(soon):
        written = Written()
        soon.add(written)
        await trio.sleep(SOON_S / 2)
        written.committed_index = 1
        await trio.sleep(10 * SOON_S)
        assert written.asked == 0

    run(use)


def test_what_came_last_counts():
    async def use(soon):
        written = Written()
        soon.add(written)
        written.last_index = 2
        soon.add(written)
        written.committed_index = 1
        await trio.sleep(3 * SOON_S)
        assert written.asked == 1

    run(use)


def test_one_that_failed_or_whose_store_is_closed_holds_up_nobody():
    async def use(soon):
        failed, closed, written = Written(), Written(), Written()
        failed.failed = OplogError("lost")
        closed.closed = True
        for one in (failed, closed, written):
            soon.add(one)
        await trio.sleep(3 * SOON_S)
        assert (failed.asked, closed.asked, written.asked) == (0, 0, 1)

    run(use)
