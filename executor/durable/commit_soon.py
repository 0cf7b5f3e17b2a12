"""Commits that nobody waits for, joined with the next one that somebody does.

The `end` of a remote write is to become durable soon, and a moment later the same guest nearly
always asks for a commit itself: for its next write, or for its outcome. So a writer that is added
here is left alone for five to ten milliseconds and asked only if it still has something to commit.
A chain of remote writes then costs one sync each, and not two: also beside others, with whom a
step takes longer.
"""

from typing import Final

import trio

from oplog.errors import OplogError
from oplog.store import Writer

SOON_S: Final = 0.005


class CommitSoon:
    """`add` is for the trio thread; `run` is its task."""

    def __init__(self) -> None:
        self._writers: dict[Writer, int] = {}
        """With the last entry that is to be committed."""
        self._added = trio.Event()

    def add(self, writer: Writer) -> None:
        """Everything appended to `writer` so far is committed within milliseconds."""
        self._writers[writer] = writer.last_index
        self._added.set()

    async def run(self) -> None:
        older: dict[Writer, int] = {}
        while True:
            if not older:
                await self._added.wait()
            await trio.sleep(SOON_S)
            self._added = trio.Event()
            for writer, index in older.items():
                if writer.committed_index < index and writer.failed is None:
                    ask(writer)
            older, self._writers = self._writers, {}


def ask(writer: Writer) -> None:
    try:
        writer.commit(ignore_commit)
    except OplogError:
        return  # the store is closed: whoever appended hears it at its own next commit


def ignore_commit(error: OplogError | None) -> None:
    """A failure marks the writer, and the worker's next commit reports it."""
