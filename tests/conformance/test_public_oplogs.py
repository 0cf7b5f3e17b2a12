"""Guests that read and search oplogs, their own among them."""

from uuid import UUID

import pytest

from executor.errors import GuestError
from oplog.entry import End, Start
from tests.support import guests
from tests.support.executors import LastingEngine, opened, run, worker_entries
from tests.support.wat_guests import TELLER, TRACER

SUBJECTS = {"teller": TELLER, "tracer": TRACER, "adder": guests.ADDER}


async def deploy(shem):
    auditor = await shem.deploy(guests.auditor_component(), name="auditor")
    found = {name: await shem.deploy(wasm, name=name) for name, wasm in SUBJECTS.items()}
    return {name: halves(one.id) for name, one in (found | {"auditor": auditor}).items()}


def halves(component_id):
    number = UUID(component_id).int
    return [number >> 64, number & (1 << 64) - 1]


def test_a_guest_reads_and_searches_the_oplog_of_another_worker():
    async def case():
        engine = LastingEngine()
        async with opened(engine) as shem:
            ids = await deploy(shem)
            await shem.invoke("tracer/w", "trace", ["charge"])
            await shem.invoke("teller/w", "log", ["warn", "disk", "nearly full"])
            await shem.invoke("teller/w", "tell", ["currency"])

            async def audit(function, subject, *text):
                arguments = [*ids[subject], "w", *text]
                return await shem.invoke("auditor/w", function, arguments)

            traced = worker_entries(engine, "tracer/w")
            ends = [entry for _, entry in traced if isinstance(entry, End)]
            assert await audit("entries", "tracer") == len(traced) - len(ends)
            [start] = [i for i, entry in traced if isinstance(entry, Start)]
            assert await audit("search", "tracer", "get-random-u64") == [start]
            assert await audit("search", "tracer", "kind:end") == [start]
            assert await audit("search", "tracer", "kind:start OR kind:end") == [start]
            assert await audit("search", "tracer", "kind:span-started") == [start - 2]
            assert await audit("search", "teller", "nearly AND level:warn")
            assert await audit("search", "teller", "nowhere") == []
            assert await audit("entries", "adder") == 0
            assert (await shem.replay("auditor/w")).divergence is None
            await shem.crash("auditor/w")
            assert await audit("entries", "tracer") == len(traced) - len(ends)

    run(case)


def test_a_guest_reads_its_own_oplog_to_an_end():
    async def case():
        engine = LastingEngine()
        async with opened(engine) as shem:
            ids = await deploy(shem)
            counts = [
                await shem.invoke("auditor/w", "entries", [*ids["auditor"], "w"]) for _ in range(20)
            ]
            assert counts == sorted(set(counts))
            own = worker_entries(engine, "auditor/w")
            sizes = [len(entry.response) for _, entry in own if isinstance(entry, End)]
            assert max(sizes) < 60_000
            assert (await shem.crash("auditor/w")).divergence is None

    run(case)


def test_a_long_oplog_comes_in_many_pieces_and_a_query_without_sense_fails_its_invocation():
    async def case():
        engine = LastingEngine()
        async with opened(engine) as shem:
            ids = await deploy(shem)
            for number in range(120):
                await shem.invoke("adder/w", "add", [number])
            entries = worker_entries(engine, "adder/w")
            assert await shem.invoke("auditor/w", "entries", [*ids["adder"], "w"]) == len(entries)
            found = await shem.invoke("auditor/w", "search", [*ids["adder"], "w", "kind:start"])
            assert found == []
            found = await shem.invoke(
                "auditor/w", "search", [*ids["adder"], "w", "kind:invocation-finished"]
            )
            assert len(found) == 120
            with pytest.raises(GuestError, match="query"):
                await shem.invoke("auditor/w", "search", [*ids["adder"], "w", "(("])

    run(case)


def test_a_worker_that_was_deleted_meanwhile_has_no_more_entries_nor_those_of_its_successor():
    async def case():
        engine = LastingEngine()
        async with opened(engine) as shem:
            ids = await deploy(shem)
            await shem.invoke("adder/w", "add", [1])
            count = await shem.invoke("auditor/w", "entries", [*ids["adder"], "w"])
            await shem.delete("adder/w")
            assert await shem.invoke("auditor/w", "entries", [*ids["adder"], "w"]) == 0
            await shem.invoke("adder/w", "add", [1])
            assert await shem.invoke("auditor/w", "entries", [*ids["adder"], "w"]) == count
            assert (await shem.replay("auditor/w")).divergence is None

    run(case)
