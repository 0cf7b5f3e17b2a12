"""Reading what is committed through the library: queries, pages, and whose thread waits."""

import threading

import pytest

from executor.errors import UsageError
from oplog.entry import InvocationFinished, InvocationStarted, PendingInvocation
from tests.support.executors import LastingEngine, deployed, run
from tests.support.guests import ADDER


class WatchedEngine(LastingEngine):
    """Keeps the threads that read entries."""

    def __init__(self):
        super().__init__()
        self.readers = set()

    def read_entries(self, worker_id, first, limit):
        self.readers.add(threading.get_ident())
        return super().read_entries(worker_id, first, limit)


def test_an_oplog_is_searched_by_the_language_and_read_on_a_worker_thread():
    async def case():
        engine = WatchedEngine()
        async with deployed(ADDER, "adder", engine) as shem:
            await shem.invoke("adder/w", "add", [41], key="first")
            await shem.invoke("adder/w", "add", [1], key="second")
            engine.readers.clear()
            found = [entry async for entry in shem.oplog("adder/w", search="41 OR second")]
            assert threading.get_ident() not in engine.readers
            assert [type(record.entry) for record in found] == [
                PendingInvocation,
                InvocationStarted,
                InvocationFinished,
                PendingInvocation,
                InvocationStarted,
            ]
            limited = [entry.index async for entry in shem.oplog("adder/w", 3, 1, search="key:f")]
            assert limited == [3]
            with pytest.raises(UsageError, match="closes nothing"):
                await anext(shem.oplog("adder/w", search="41)"))

    run(case)
