"""Deployments: how revisions are numbered when several come at the same time."""

import time

import trio

from tests.support import guests
from tests.support.engines import Hold
from tests.support.executors import LastingEngine, opened, run, until
from tests.support.programs import RELAY, echo


def test_deployments_of_one_name_at_the_same_time_get_a_revision_each():
    async def case():
        engine = LastingEngine(on_write=lambda batches: time.sleep(0.05))
        async with opened(engine, host=[echo()]) as shem:
            got = []

            async def deploy(wasm, value):
                got.append(await shem.deploy(wasm, name="c", env={"A": value}))

            async with trio.open_nursery() as nursery:
                for wasm in (guests.ADDER, RELAY):
                    for value in "1223":
                        nursery.start_soon(deploy, wasm, value)
            stored = (await shem.component("c")).revisions
            assert [revision.revision for revision in stored] == list(range(6))
            digests = {revision.revision: revision.digest for revision in stored}
            assert all(digests[one.revision] == one.digest for one in got)
            assert {one.revision for one in got} == set(range(6))
            assert len({one.id for one in got}) == 1

    run(case)


def test_a_deployment_that_is_cancelled_in_its_commit_keeps_its_number():
    async def case():
        hold = Hold()
        async with opened(LastingEngine(on_write=hold), host=[echo()]) as shem:
            scope = trio.CancelScope()
            stages = []
            second = []

            async def deploy_first():
                with scope:
                    await shem.deploy(guests.ADDER, name="c")

            async def deploy_second():
                second.append(await shem.deploy(RELAY, name="c", progress=stages.append))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(deploy_first)
                await until(hold.entered.is_set)
                scope.cancel()
                nursery.start_soon(deploy_second)
                await until(lambda: "storing" in stages)
                hold.go.set()
            assert [one.revision for one in second] == [1]
            stored = (await shem.component("c")).revisions
            assert [revision.revision for revision in stored] == [0, 1]

    run(case)
