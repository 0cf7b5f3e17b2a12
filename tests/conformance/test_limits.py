"""Limits of a deployment: recorded with the worker, met by the guest, the same in every replay."""

import pytest

from executor import Err, Ok
from executor.errors import UsageError
from executor.records import InitialFile
from oplog.entry import Create
from tests.support import guests
from tests.support.executors import LastingEngine, opened, run, worker_entries

WORKER = "scribe/w"


async def deploy(shem, **options):
    return await shem.deploy(guests.scribe_component(), name="scribe", **options)


def created(engine, worker=WORKER):
    entry = worker_entries(engine, worker)[0][1]
    assert isinstance(entry, Create)
    return entry


def test_a_guest_over_its_quota_of_files_is_told_and_goes_on():
    async def case():
        engine = LastingEngine()
        async with opened(engine) as shem:
            await deploy(shem, limits={"files": 100, "file-count": 2})

            async def call(name, *arguments):
                return await shem.invoke(WORKER, name, list(arguments))

            assert await call("resize", "a", 101) == Err("quota")
            assert await call("resize", "a", 99) == Ok()
            assert await call("write", "b", "xy") == Err("quota")
            assert await call("write", "b", "x") == Ok()
            assert await call("write", "c", "") == Err("quota")
            assert await call("make-directory", "c") == Err("quota")
            assert await call("link", "b", "c") == Err("quota")
            assert await call("remove", "a") == Ok()
            assert await call("write", "c", "x" * 99) == Ok()
            assert created(engine).limits == {"files_bytes": 100, "files_count": 2}
            for rebuild in (shem.replay, shem.crash):
                assert (await rebuild(WORKER)).divergence is None
            assert (await shem.files(WORKER, "c")).file.size == 99

    run(case)


def test_a_worker_keeps_the_limits_that_it_was_created_with():
    async def case():
        engine = LastingEngine()
        async with opened(engine) as shem:
            small = await deploy(shem, limits={"files": 10})
            assert await shem.invoke(WORKER, "resize", ["a", 11]) == Err("quota")
            large = await deploy(shem, limits={"files": 20})
            assert (small.revision, large.revision) == (0, 1)
            assert (await deploy(shem, limits={"files": 10})).revision == 0
            assert await shem.invoke("scribe/x", "resize", ["a", 11]) == Ok()
        async with opened(engine) as shem:
            assert await shem.invoke(WORKER, "resize", ["a", 11]) == Err("quota")
            assert await shem.invoke(WORKER, "resize", ["a", 10]) == Ok()

    run(case)


def test_every_limit_is_recorded_and_memory_and_tables_are_those_of_the_instance():
    async def case():
        engine = LastingEngine()
        async with opened(engine) as shem:
            await shem.deploy(GROWER, name="grower", limits={"memory": 131_072, "tables": 5})
            assert await shem.invoke("grower/w", "memory", [1]) == 1
            assert await shem.invoke("grower/w", "memory", [1]) == 2**32 - 1
            assert await shem.invoke("grower/w", "table", [4]) == 1
            assert await shem.invoke("grower/w", "table", [1]) == 2**32 - 1
            limits = {"memory_bytes": 131_072, "table_elements": 5}
            assert created(engine, "grower/w").limits == limits
            assert (await shem.crash("grower/w")).divergence is None

    run(case)


GROWER = b"""
(component
  (core module $Main
    (memory 1) (table 1 funcref)
    (func (export "memory") (param i32) (result i32) (memory.grow (local.get 0)))
    (func (export "table") (param i32) (result i32) (table.grow (ref.null func) (local.get 0))))
  (core instance $main (instantiate $Main))
  (func $memory (param "n" u32) (result u32) (canon lift (core func $main "memory")))
  (func $table (param "n" u32) (result u32) (canon lift (core func $main "table")))
  (instance $api (export "memory" (func $memory)) (export "table" (func $table)))
  (export "demo:grower/api" (instance $api)))
"""


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"limits": {"disk": 1}}, "there is no limit 'disk'"),
        ({"limits": {"memory": 65_535}}, "less than one page"),
        ({"limits": {"files": -1}}, "a limit of -1 is too small"),
        ({"limits": {"files": 2**63}}, "is too large"),
        ({"limits": {"files": 2}, "files": ["/a"]}, "begin with the file '/a': quota"),
        ({"files": ["/a", "/a"]}, "begin with the file '/a': exist"),
        ({"files": ["/a", "/a/b"]}, "begin with the file '/a/b': not-directory"),
        ({"files": ["/../a"]}, "begin with the file '/../a': not-permitted"),
        ({"files": ["/" + "a" * 256]}, "name-too-long"),
    ],
)
def test_a_deployment_that_no_worker_could_begin_with_is_refused(options, says):
    async def case():
        async with opened(LastingEngine()) as shem:
            given = dict(options)
            if "files" in given:
                given["files"] = [
                    InitialFile(path=path, content=b"abc", writable=True) for path in given["files"]
                ]
            with pytest.raises(UsageError) as refused:
                await deploy(shem, **given)
            assert says in refused.value.message
            assert await shem.components() == ()

    run(case)
