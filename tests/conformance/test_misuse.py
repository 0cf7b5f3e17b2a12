"""What is asked of the library in a place, or of a kind, that it cannot be asked: a sentence."""

import asyncio
import errno
import gc
import os
import threading
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest
import trio

from executor import Executor, ShemError
from executor.errors import BadArguments, Busy, StoreError, UsageError
from tests.support.executors import LastingEngine, deployed, opened, run
from tests.support.programs import echo

WORKER = "relay/w"


async def entries(shem, **asked):
    return [record async for record in shem.oplog(WORKER, **asked)]


def operations(shem):
    """Every operation, as somebody asks for it."""

    async def take_up():
        shem.take_up(WORKER)

    return {
        "cancel": partial(shem.cancel, WORKER, "k"),
        "complete_promise": partial(shem.complete_promise, WORKER, 1, b""),
        "component": partial(shem.component, "relay"),
        "components": shem.components,
        "crash": partial(shem.crash, WORKER),
        "delete": partial(shem.delete, WORKER),
        "deploy": partial(shem.deploy, b"", name="relay"),
        "files": partial(shem.files, WORKER),
        "interrupt": partial(shem.interrupt, WORKER),
        "invocation": partial(shem.invocation, WORKER, "k"),
        "invoke": partial(shem.invoke, WORKER, "count"),
        "oplog": partial(entries, shem),
        "promise": partial(shem.promise, WORKER, 1),
        "promises": partial(shem.promises, WORKER),
        "replay": partial(shem.replay, WORKER),
        "resolve": partial(shem.resolve, WORKER, 1, "fail"),
        "resume": partial(shem.resume, WORKER),
        "revert": partial(shem.revert, WORKER, to=1),
        "run": partial(shem.run, until_idle=True),
        "submit": partial(shem.submit, WORKER, "count"),
        "take_up": take_up,
        "wait": partial(shem.wait, WORKER, "k"),
        "worker": partial(shem.worker, WORKER),
        "workers": shem.workers,
    }


async def refusal(ask):
    try:
        await ask()
    except ShemError as error:
        return type(error), error.message
    return None


def test_these_are_all_operations():
    public = {name for name in vars(Executor) if not name.startswith("_")}
    assert public == {*operations(Executor), "open"}


def test_every_operation_in_another_run_of_trio_is_refused_with_a_sentence():
    async def case():
        async with deployed(host=[echo()]) as shem:
            await shem.invoke(WORKER, "count", key="k")
            for name, ask in operations(shem).items():
                heard = await trio.to_thread.run_sync(trio.run, refusal, ask)
                assert heard is not None, name
                assert heard[0] is UsageError, name
                assert "another run of trio" in heard[1], name
            assert await shem.invoke(WORKER, "count", key="k") == 0

    run(case)


def test_every_operation_outside_of_trio_is_refused_with_a_sentence():
    async def case():
        async with deployed(host=[echo()]) as shem:
            for name, ask in operations(shem).items():
                heard = await trio.to_thread.run_sync(lambda ask=ask: asyncio.run(refusal(ask)))
                assert heard == (UsageError, "an executor is used outside of trio"), name

    run(case)


def test_every_operation_of_a_closed_executor_is_refused_with_a_sentence():
    async def case():
        async with deployed(host=[echo()]) as shem:
            await shem.invoke(WORKER, "count", key="k")
        for name, ask in operations(shem).items():
            assert await refusal(ask) == (StoreError, "the executor is closed"), name

    run(case)


def test_who_follows_an_oplog_while_the_executor_is_closed_hears_so():
    async def case():
        begun = trio.Event()
        heard = []

        async def entries_from_now_on():
            async for record in shem.oplog(WORKER, follow=True):
                heard.append(record)
                begun.set()

        async def follow():
            with pytest.raises(StoreError) as error:
                await entries_from_now_on()
            heard.append(error.value)

        async with trio.open_nursery() as nursery, deployed(host=[echo()]) as shem:
            await shem.invoke(WORKER, "count", key="k")
            nursery.start_soon(follow)
            await begun.wait()
        assert "closed" in heard[-1].message

    run(case)


def test_an_executor_is_not_opened_outside_of_trio(tmp_path):
    async def case():
        async with Executor.open(tmp_path / "store"):
            pass

    with pytest.raises(UsageError, match="outside of trio"):
        asyncio.run(case())
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("arguments", [None, 5, "text", b"bytes", {"a": 1}, {1}])
def test_arguments_that_are_no_list_are_refused_and_nothing_is_recorded(arguments):
    async def case():
        async with deployed(host=[echo()]) as shem:
            with pytest.raises(BadArguments, match="the arguments are one") as error:
                await shem.invoke(WORKER, "count", arguments)
            assert "relay" in error.value.where or "count" in error.value.where
            assert "list" in error.value.hint
            assert (await shem.workers()).workers == ()

    run(case)


@pytest.mark.parametrize("path", ["", 5, None, b"bytes"])
def test_what_names_no_directory_opens_no_store(path, tmp_path, monkeypatch):
    async def case():
        async with Executor.open(path):
            pass

    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="names no directory"):
        run(case)
    assert list(tmp_path.iterdir()) == []


def plain():
    """Not decorated."""


@pytest.mark.parametrize(
    ("host", "named"),
    [
        (5, "5"),
        ([5], "5"),
        ({"a": 1}, "1"),
        (["nosuch:x"], "nosuch:x"),
        ("nosuch:x", "nosuch:x"),
        (None, "None"),
        ([echo(), plain], "plain"),
        (ModuleType("empty"), "empty"),
    ],
)
def test_what_is_no_host_function_is_refused_at_the_opening(host, named, tmp_path):
    async def case():
        async with Executor.open(tmp_path / "store", host=host):
            pass

    with pytest.raises(UsageError, match="is no host function") as error:
        run(case)
    assert named in error.value.message
    assert error.value.where == "host"
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("shape", [lambda f: f, lambda f: [f], lambda f: ((), {"a": [f]}), iter])
def test_host_functions_are_given_alone_or_in_collections(shape):
    async def case():
        host = shape([echo()]) if shape is iter else shape(echo())
        async with opened(LastingEngine(), host=host) as shem:
            assert shem._services.revisions._host[0].name == "call"

    run(case)


def test_a_store_is_opened_by_any_path(tmp_path, monkeypatch):
    async def case(path):
        async with Executor.open(path) as shem:
            assert await shem.components() == ()
            return shem.path

    monkeypatch.chdir(tmp_path)
    assert run(case, ".") == Path(os.curdir)
    assert run(case, tmp_path / "store") == tmp_path / "store"


def leftovers():
    """What an opening may leave in its process: descriptors, and threads of the executor's."""
    gc.collect()  # what earlier tests left is none of it
    threads = [thread.name for thread in threading.enumerate() if "lane" in thread.name]
    return len(list(Path("/proc/self/fd").iterdir())), threads


def test_an_opening_that_is_refused_leaves_nothing_behind(tmp_path, monkeypatch):
    async def refused(error, words):
        before = leftovers()
        with pytest.raises(error, match=words):
            async with Executor.open(tmp_path):
                pass
        assert leftovers() == before

    async def case():
        async with Executor.open(tmp_path):
            await refused(Busy, "in use by process")
        with monkeypatch.context() as patched:
            patched.setattr(os, "pipe", out_of_files)
            await refused(OSError, "Too many open files")
        async with Executor.open(tmp_path):
            pass

    run(case)


def out_of_files():
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
