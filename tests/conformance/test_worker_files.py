"""A worker's files from outside: those of its last committed entry, and nothing is appended."""

import pytest

from executor.errors import Divergence, UnknownFile, WorkerNotFound
from executor.executor import Executor
from executor.host.wasi import filesystem
from executor.records import InitialFile
from oplog.entry import End, InvocationStarted, Start
from tests.support import guests, programs
from tests.support.executors import (
    LastingEngine,
    copy_oplog,
    deployed,
    kinds,
    opened,
    run,
    until,
    worker_entries,
)

WORKER = "scribe/w"
WAIT_NS = 9_000_000_000
ERROR_CODES = b" ".join(
    b'"%s"' % code.encode() for code in filesystem.TYPES.wit.types["error-code"].cases
)
INITIAL = InitialFile(path="/etc/rates", content=b"a,b", writable=False)


MAKER = (
    b"""
(component
  (import "wasi:filesystem/types@0.2.0" (instance $types
    (export "descriptor" (type $descriptor (sub resource)))
    (type $codes (enum %s))
    (export "error-code" (type $code (eq $codes)))
    (export "[method]descriptor.create-directory-at" (func
      (param "self" (borrow $descriptor)) (param "path" string)
      (result (result (error $code)))))))
  (alias export $types "descriptor" (type $descriptor))
  (import "wasi:filesystem/preopens@0.2.0" (instance $preopens
    (alias outer 1 $descriptor (type $outer))
    (export "descriptor" (type $descriptor (eq $outer)))
    (export "get-directories" (func (result (list (tuple (own $descriptor) string)))))))
  (import "wasi:random/random@0.2.0" (instance $random
    (export "get-random-u64" (func (result u64)))))
"""
    % ERROR_CODES
    + programs.MEMORY
    + b"""
  (core func $open (canon lower (func $preopens "get-directories")
    (memory $mem) (realloc $realloc)))
  (core func $make (canon lower (func $types "[method]descriptor.create-directory-at")
    (memory $mem)))
  (core func $draw (canon lower (func $random "get-random-u64")))
  (core module $Main
    (import "memory" "memory" (memory 1))
    (import "host" "open" (func $open (param i32)))
    (import "host" "make" (func $make (param i32 i32 i32 i32)))
    (import "host" "draw" (func $draw (result i64)))
    (data (i32.const 64) "ab")
    (func (export "make") (local $root i32)
      (call $open (i32.const 16))
      (local.set $root (i32.load (i32.load (i32.const 16))))
      (call $make (local.get $root) (i32.const 64) (i32.const 1) (i32.const 32))
      (drop (call $draw))
      (call $make (local.get $root) (i32.const 65) (i32.const 1) (i32.const 32))))
  (core instance $main (instantiate $Main
    (with "memory" (instance $memory))
    (with "host" (instance
      (export "open" (func $open)) (export "make" (func $make)) (export "draw" (func $draw))))))
  (func $make-both (canon lift (core func $main "make")))
  (instance $api (export "make" (func $make-both)))
  (export "demo:maker/api" (instance $api)))
"""
)
"""`make: func()`: the directory `a`, then a random number, then the directory `b`."""


def scribe(engine=None, **options):
    return deployed(guests.scribe_component(), "scribe", engine, **options)


def names(found):
    return [entry.name for entry in found.entries]


async def text(shem: Executor, path: str) -> str:
    return (await shem.files(WORKER, path)).content.decode()


def test_a_directory_is_listed_and_a_file_read():
    async def case():
        engine = LastingEngine()
        async with scribe(engine) as shem:
            await shem.deploy(guests.scribe_component(), name="scribe", files=[INITIAL])
            await shem.invoke(WORKER, "make-directory", ["notes"])
            await shem.invoke(WORKER, "write", ["notes/é", "hello"])
            await shem.invoke(WORKER, "link", ["notes/é", "latest"])
            before = worker_entries(engine, WORKER)
            root = await shem.files(WORKER)
            assert (root.file.name, root.file.kind, root.content) == ("/", "directory", None)
            assert names(root) == ["etc", "latest", "notes"]
            link = root.entries[1]
            assert (link.kind, link.target, link.size) == ("symbolic-link", "notes/é", 8)
            rates = await shem.files(WORKER, "etc/rates")
            assert (rates.content, rates.file.writable) == (b"a,b", False)
            assert rates.file.modified_at == before[0][1].at
            for path in ("/notes/é", "notes//é", "/latest"):
                assert await text(shem, path) == "hello"
            (note,) = (await shem.files(WORKER, "/notes/")).entries
            assert (note.kind, note.size, note.links, note.writable) == ("regular-file", 5, 1, True)
            started = [entry.at for _, entry in before]
            assert note.modified_at in started
            assert worker_entries(engine, WORKER) == before

    run(case)


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("/nothing", "there is nothing"),
        ("/a/b", "no directory"),
        ("/a/", "no directory"),
        ("/../x", "leads out"),
        ("/up", "leads out"),
        ("/loop", "symbolic links"),
        ("/" + "x" * 256, "too long"),
        ("/a\0b", "NUL"),
        ("/\udcff", "Unicode"),
    ],
)
def test_a_path_that_leads_to_nothing_is_refused_with_a_sentence(path, why):
    async def case():
        async with scribe() as shem:
            await shem.invoke(WORKER, "write", ["a", ""])
            await shem.invoke(WORKER, "link", ["..", "up"])
            await shem.invoke(WORKER, "link", ["loop", "loop"])
            with pytest.raises(UnknownFile) as refused:
                await shem.files(WORKER, path)
            assert why in refused.value.message
            assert refused.value.where == WORKER
            with pytest.raises(WorkerNotFound):
                await shem.files("scribe/nobody")

    run(case)


def test_a_running_worker_is_not_disturbed_and_shows_what_is_committed():
    async def case():
        engine = LastingEngine()
        async with scribe(engine) as shem:
            accepted = await shem.submit(
                WORKER, "write-and-wait", ["a", "one ", WAIT_NS, "two"], key="k"
            )
            await until(lambda: InvocationStarted in kinds(engine, WORKER))
            await shem.interrupt(WORKER)
            assert await text(shem, "a") == "one two"
            await shem.resume(WORKER)
            before = worker_entries(engine, WORKER)
            assert await text(shem, "a") == "one two"
            assert worker_entries(engine, WORKER) == before
            assert (await shem.invocation(WORKER, accepted.key)).status == "pending"
            assert (await shem.worker(WORKER)).loaded

    run(case)


def test_what_the_guest_did_behind_its_last_committed_entry_is_not_shown():
    """Between the recorded call and what follows it the guest cannot be interrupted."""

    async def recorded():
        engine = LastingEngine()
        async with deployed(MAKER, "maker", engine) as shem:
            await shem.invoke("maker/w", "make")
        return engine

    async def shown(source, count):
        target = LastingEngine()
        copy_oplog(source, target, "maker/w", count)
        async with opened(target) as shem:
            return names(await shem.files("maker/w"))

    async def case():
        source = await recorded()
        entries = worker_entries(source, "maker/w")
        (drawn,) = [index for index, entry in entries if isinstance(entry, End)]
        assert await shown(source, drawn - 1) == ["a"]
        assert await shown(source, drawn) == ["a"]
        assert await shown(source, drawn + 1) == ["a", "b"]

    run(case)


def test_times_of_files_are_those_of_what_the_guest_last_caused_or_observed():
    async def case():
        engine = LastingEngine()
        async with deployed(MAKER, "maker", engine) as shem:
            await shem.invoke("maker/w", "make")
            await shem.crash("maker/w")
            found = (await shem.files("maker/w")).entries
        ats = {type(entry): entry.at for _, entry in worker_entries(engine, "maker/w")}
        assert [one.modified_at for one in found] == [ats[InvocationStarted], ats[End]]

    run(case)


def test_a_failed_worker_shows_its_last_good_point_and_a_reverted_one_too():
    async def case():
        async with scribe() as shem:
            await shem.invoke(WORKER, "write", ["a", "good"])
            accepted = await shem.submit(WORKER, "write-and-trap", ["a", "bad"])
            assert (await shem.wait(WORKER, accepted.key)).status == "failed"
            found = await shem.files(WORKER, "a")
            assert found.content == b"good"
            assert "unreachable" in found.stopped_at
            await shem.revert(WORKER, last=1)
            found = await shem.files(WORKER, "a")
            assert (found.content, found.stopped_at) == (b"good", None)
            await shem.revert(WORKER, last=1)
            assert names(await shem.files(WORKER)) == []

    run(case)


def test_a_worker_whose_oplog_no_longer_answers_shows_nothing():
    def tampered(entries):
        return [(i, e) if not isinstance(e, Start) else (i, rename(e)) for i, e in entries]

    def rename(entry):
        return Start(
            at=entry.at, function="demo:other/api.x", function_type="read-local", request=b"\x90"
        )

    async def case():
        source, target = LastingEngine(), LastingEngine()
        async with scribe(source) as shem:
            await shem.invoke(WORKER, "write-and-wait", ["a", "x", 1, "y"])
        copy_oplog(source, target, WORKER, len(worker_entries(source, WORKER)), tampered)
        async with opened(target) as shem:
            with pytest.raises(Divergence):
                await shem.files(WORKER, "a")

    run(case)
