"""Golem's guests for files, clocks and failures, live, in forced replay and after crashes.

What is expected is the behaviour of `wasi.rs` of Golem's executor tests at v1.2.5, written afresh.
What those tests do over HTTP is in `test_golem_http.py`. Names are looked up in a resolver of the
test's own.
"""

import socket
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import trio_test

from executor.errors import BadArguments, GuestTrap, PreviousFailed
from executor.executor import Executor
from executor.records import InitialFile
from executor.wasm.values import Ok
from oplog.entry import InvocationFinished, Start
from tests.conformance.golem.components import WHY_SKIPPED, components_folder, golem_component
from tests.conformance.golem.guest import Guest, Mode, deployed
from tests.support.resolver import Resolver

if components_folder() is None:
    pytest.skip(WHY_SKIPPED, allow_module_level=True)

INITIAL_FILES = [
    InitialFile(path="/foo.txt", content=b"foo\n", writable=False),
    InitialFile(path="/bar/baz.txt", content=b"baz\n", writable=True),
]


class Files:
    """The file service, whose executor ends and opens again when asked to."""

    def __init__(self, path: Path, mode: Mode) -> None:
        self.path = path
        self.mode = mode

    async def done(self, *steps: tuple[str, ...]) -> list[Any]:
        """What each step answers, each an `Ok`, in an executor of its own."""
        async with Executor.open(self.path) as shem:
            guest = await deployed(shem, "file-service", "w", self.mode)
            answers = [await guest.call(*step) for step in steps]
        assert all(isinstance(answer, Ok) for answer in answers), answers
        return [answer.value for answer in answers]


@trio_test
async def test_clocks_tell_the_time_and_time_passes(tmp_path: Path, mode: Mode) -> None:
    async with Executor.open(tmp_path) as shem:
        guest = await deployed(shem, "clocks", "clocks-1", mode)
        wall, elapsed, local = await guest.run("run")
        assert abs(time.time() - wall) < 30
        assert 2 <= elapsed < 20
        assert abs((datetime.now(UTC) - datetime.fromisoformat(local)).total_seconds()) < 30
        assert 0.2 <= await guest.run("sleep-for", 0.2) < 20


@trio_test
async def test_a_sleep_that_is_over_takes_no_time_in_replay(tmp_path: Path) -> None:
    async with Executor.open(tmp_path) as shem:
        guest = await deployed(shem, "clock-service", "clock-service-1", "live")
        await guest.call("sleep", 5)
    async with Executor.open(tmp_path) as shem:
        guest = Guest(shem, guest.worker, "live")
        begun = time.monotonic()
        await guest.call("sleep", 0)
        assert (await shem.crash(guest.worker)).divergence is None
        assert time.monotonic() - begun < 5


@trio_test
async def test_a_sleep_goes_on_after_a_restart(tmp_path: Path) -> None:
    """Its deadline is recorded once, so what is left of it is slept."""
    worker = "clock-service/clock-service-2"
    async with Executor.open(tmp_path) as shem:
        await deployed(shem, "clock-service", "clock-service-2", "live")
        await shem.submit(worker, "sleep", [4], key="interrupted")
        begun = time.monotonic()
        await trio.sleep(2)
    async with Executor.open(tmp_path) as shem:
        assert (await shem.wait(worker, "interrupted")).value == Ok()
        assert time.monotonic() - begun >= 3.9
        entries = [record.entry async for record in shem.oplog(worker)]
        started = [entry.function for entry in entries if isinstance(entry, Start)]
        assert sum("subscribe" in function for function in started) == 1
        assert await shem.invoke(worker, "sleep", [1]) == Ok()
        assert time.monotonic() - begun >= 4.9
        assert (await shem.replay(worker)).divergence is None


@trio_test
async def test_a_long_sleep_gives_up_its_instance_and_ends_in_its_time(
    tmp_path: Path, mode: Mode
) -> None:
    """Also behind a restart, in the middle of it, of an executor that runs everything."""
    worker = "clock-service/clock-service-3"
    begun = time.monotonic()
    async with Executor.open(tmp_path, suspend_after_s=1.0) as shem:
        guest = await deployed(shem, "clock-service", "clock-service-3", mode)
        await shem.submit(worker, "sleep", [5], key="long")
        with trio.fail_after(30):
            while (await shem.worker(worker)).status != "suspended":  # noqa: ASYNC110
                await trio.sleep(0.02)
        assert not (await shem.worker(worker)).loaded
        await guest.rebuild()
    async with Executor.open(tmp_path, suspend_after_s=1.0, recover="all") as shem:
        assert (await shem.wait(worker, "long", timeout_s=60)).value == Ok()
        assert time.monotonic() - begun >= 5
        await Guest(shem, worker, mode).rebuild()


@pytest.mark.parametrize("suffix", ["", "-echo", "-state"])
@trio_test
async def test_a_guest_that_answers_requests_cannot_be_called_with_one(
    tmp_path: Path, suffix: str
) -> None:
    """In Golem a caller gives the request as a record; here it is a resource that no caller has."""
    async with Executor.open(tmp_path) as shem:
        guest = await deployed(shem, f"wasi-http-incoming-request-handler{suffix}", "w", "live")
        exports = (await shem.component(guest.worker.partition("/")[0])).exports
        assert any("handle" in export for export in exports), exports
        with pytest.raises(BadArguments):
            await shem.invoke(guest.worker, "handle", [1, 2])


@trio_test
async def test_a_file_is_written_read_and_deleted(tmp_path: Path, mode: Mode) -> None:
    async with Executor.open(tmp_path) as shem:
        guest = await deployed(shem, "file-write-read-delete", "w", mode)
        assert await guest.run("run") == (None, "hello world", None)
        assert await guest.run("run") == (None, "hello world", None)


@trio_test
async def test_initial_files_are_there_and_may_be_written_or_not(
    tmp_path: Path, mode: Mode
) -> None:
    async with Executor.open(tmp_path) as shem:
        name = "initial-file-read-write"
        await shem.deploy(golem_component(name), name=name, files=INITIAL_FILES)
        guest = Guest(shem, f"{name}/w", mode)
        assert await guest.run("run") == ("foo\n", None, None, "baz\n", "hello world")
        assert await guest.run("run") == ("foo\n", None, None, "hello world", "hello world")
        other = Guest(shem, f"{name}/other", mode)
        assert await other.run("run") == ("foo\n", None, None, "baz\n", "hello world")


@trio_test
async def test_files_are_listed_and_read_from_outside(tmp_path: Path, mode: Mode) -> None:
    async with Executor.open(tmp_path) as shem:
        name = "initial-file-read-write"
        more = InitialFile(path="/baz.txt", content=b"baz\n", writable=True)
        await shem.deploy(golem_component(name), name=name, files=[*INITIAL_FILES, more])
        guest = Guest(shem, f"{name}/w", mode)
        await guest.run("run")
        listed = (await shem.files(guest.worker)).entries
        assert listed is not None
        assert [(file.name, file.kind, file.size, file.writable) for file in listed] == [
            ("bar", "directory", 0, True),
            ("baz.txt", "regular-file", 4, True),
            ("foo.txt", "regular-file", 4, False),
        ]
        assert (await shem.files(guest.worker, "/foo.txt")).content == b"foo\n"
        assert (await shem.files(guest.worker, "/bar/baz.txt")).content == b"hello world"


@trio_test
async def test_listings_are_stable(tmp_path: Path, mode: Mode) -> None:
    """The guest does not manage to remove its directory, which has something in it."""
    async with Executor.open(tmp_path) as shem:
        guest = await deployed(shem, "directories", "directories-1", mode)
        below = [("/test/dir1", True), ("/test/dir2", True), ("/test/hello.txt", False)]
        assert await guest.run("run") == (0, [("/test", True)], below, 1)
    async with Executor.open(tmp_path) as shem:
        assert (await shem.crash("directories/directories-1")).divergence is None


@trio_test
async def test_files_are_there_after_a_restart(tmp_path: Path, mode: Mode) -> None:
    files = Files(tmp_path, mode)
    await files.done(
        ("write-file", "/testfile.txt", "hello world"),
        ("write-file-direct", "direct.txt", "hello directly"),
        ("create-link", "/testfile.txt", "/link.txt"),
    )
    assert await files.done(
        ("read-file", "/testfile.txt"), ("read-file", "/direct.txt"), ("read-file", "/link.txt")
    ) == ["hello world", "hello directly", "hello world"]


@pytest.mark.parametrize(
    ("made", "seen"),
    [
        ([("write-file-direct", "t.txt", "hello")], [("get-file-info", "/t.txt")]),
        ([("write-file", "/t.txt", "hello")], [("get-file-info", "/t.txt")]),
        ([("create-directory", "/test")], [("get-info", "/")]),
        (
            [
                ("create-directory", "/test"),
                ("create-directory", "/test2"),
                ("write-file", "/test/t.txt", "hello"),
                ("create-link", "/test/t.txt", "/test2/link.txt"),
            ],
            [("get-info", "/test2"), ("get-info", "/test2/link.txt")],
        ),
        (
            [
                ("create-directory", "/test"),
                ("create-directory", "/test/a"),
                ("remove-directory", "/test/a"),
            ],
            [("get-info", "/test")],
        ),
        (
            [
                ("create-directory", "/test"),
                ("create-directory", "/test2"),
                ("write-file-direct", "test/t.txt", "hello"),
                ("create-sym-link", "../test/t.txt", "/test2/link.txt"),
            ],
            [("get-info", "/test2"), ("get-info", "/test2/link.txt")],
        ),
        (
            [
                ("create-directory", "/test"),
                ("create-directory", "/test2"),
                ("write-file", "/test/t.txt", "hello"),
                ("rename-file", "/test/t.txt", "/test2/link.txt"),
            ],
            [("get-info", "/test"), ("get-info", "/test2"), ("get-info", "/test2/link.txt")],
        ),
        (
            [
                ("create-directory", "/test"),
                ("write-file", "/test/t.txt", "hello"),
                ("remove-file", "/test/t.txt"),
            ],
            [("get-info", "/test")],
        ),
        ([("write-file-direct", "t.txt", "hello")], [("hash", "t.txt")]),
    ],
    ids=[
        *("write", "write-via-stream", "create-directory", "link", "remove-directory", "symlink"),
        *("rename", "remove-file", "hash"),
    ],
)
def test_times_and_hashes_are_the_same_after_a_restart(
    tmp_path: Path, mode: Mode, made: list[tuple[str, ...]], seen: list[tuple[str, ...]]
) -> None:
    async def run() -> None:
        files = Files(tmp_path, mode)
        before = (await files.done(*made, *seen))[len(made) :]
        assert await files.done(*seen) == before

    trio.run(run)


@trio_test
async def test_a_failed_worker_says_where_it_failed_and_runs_no_more(
    tmp_path: Path, mode: Mode
) -> None:
    """Golem's error holds the backtrace; here it is in the recorded outcome."""
    async with Executor.open(tmp_path) as shem:
        guest = await deployed(shem, "failing-component", "failing-worker-1", mode)
        await guest.run("add", 5)
        with pytest.raises(GuestTrap):
            await shem.invoke(guest.worker, "add", [50], key="bad")
        with pytest.raises(PreviousFailed):
            await shem.invoke(guest.worker, "get")
        await guest.rebuild_to_failure()
        last = [
            record.entry
            async for record in shem.oplog(guest.worker)
            if isinstance(record.entry, InvocationFinished)
        ][-1]
        assert last.outcome.failure is not None
        assert "failing_component.wasm!golem:component/api#add" in last.outcome.failure.backtrace


@trio_test
async def test_what_a_name_led_to_is_replayed_and_not_looked_up_again(tmp_path: Path) -> None:
    addresses = ["104.21.3.4", "2606:4700::6815:304"]
    resolver = Resolver({"golem.cloud": addresses})
    trio.socket.set_custom_hostname_resolver(resolver)
    async with Executor.open(tmp_path) as shem:
        wasm = golem_component("networking")
        await shem.deploy(wasm, name="networking", allow_net=["golem.cloud"])
        first = await shem.invoke("networking/w", "get", key="k")
        assert first == [
            "IpAddress::Ipv4((104, 21, 3, 4))",
            "IpAddress::Ipv6((9734, 18176, 0, 0, 0, 0, 26645, 772))",
        ]
        assert (await shem.replay("networking/w")).divergence is None
        assert (await shem.crash("networking/w")).divergence is None
    resolver.names = {}
    async with Executor.open(tmp_path) as shem:
        assert await shem.invoke("networking/w", "get", key="k") == first
        assert (await shem.replay("networking/w")).divergence is None
    assert resolver.asked == ["golem.cloud"]


@trio_test
async def test_a_name_that_leads_nowhere_fails_at_once(tmp_path: Path) -> None:
    resolver = Resolver({"golem.cloud": [socket.EAI_NONAME]})
    trio.socket.set_custom_hostname_resolver(resolver)
    async with Executor.open(tmp_path) as shem:
        await shem.deploy(golem_component("networking"), name="networking", allow_net=["*"])
        with pytest.raises(GuestTrap):
            await shem.invoke("networking/w", "get", key="k")
        assert "name-unresolvable" in (await shem.wait("networking/w", "k")).stderr
        for rebuild in (shem.replay, shem.crash):
            assert (await rebuild("networking/w")).divergence is None
    assert resolver.asked == ["golem.cloud"]


@trio_test
async def test_a_name_lookup_that_no_rule_allows_names_the_missing_rule(tmp_path: Path) -> None:
    async with Executor.open(tmp_path) as shem:
        guest = await deployed(shem, "networking", "w", "live")
        with pytest.raises(GuestTrap):
            await shem.invoke(guest.worker, "get", key="k")
        stderr = (await shem.wait(guest.worker, "k")).stderr
        assert "golem.cloud is not allowed: deploy with --allow-net golem.cloud" in stderr
        assert "access-denied" in stderr
