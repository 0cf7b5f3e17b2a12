"""Loading and compiling revisions: from several threads, and from what the disk has left."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from executor.errors import StoreError
from executor.host import INTERFACES
from executor.services.components import (
    RevisionRow,
    artifact_path,
    content_digest,
    deployment,
    is_whole_artifact,
    write_artifact,
)
from executor.wasm.engine import Engine
from executor.worker import revision as revision_module
from executor.worker.revision import Revisions
from oplog.memory_engine import MemoryEngine
from tests.support import guests
from tests.support.children import start_python
from tests.support.programs import RELAY, STARTER


@pytest.fixture
def revisions(tmp_path):
    return Revisions(tmp_path, MemoryEngine(), INTERFACES, ())


@pytest.fixture
def compiled(monkeypatch):
    """What was compiled, in order; the relay is compiled for as long as the test wants."""
    began = []
    compile_now = Engine.compile
    held = threading.Event()
    entered = threading.Event()

    def compile_slowly(engine, wasm):
        began.append(wasm)
        if wasm == RELAY:
            entered.set()
            assert held.wait(30)
        return compile_now(engine, wasm)

    monkeypatch.setattr(Engine, "compile", compile_slowly)
    return began, entered, held


def test_a_compilation_holds_up_no_other_component(revisions, compiled):
    began, entered, held = compiled
    revisions.compiled(guests.ADDER, content_digest(guests.ADDER))
    with ThreadPoolExecutor(4) as threads:
        slow = threads.submit(revisions.compiled, RELAY, content_digest(RELAY))
        try:
            assert entered.wait(30)
            for wasm in (STARTER, guests.ADDER):
                other = threads.submit(revisions.compiled, wasm, content_digest(wasm))
                assert other.result(30).exports
            assert not slow.done()
        finally:
            held.set()
        assert slow.result(30).exports
    assert began == [guests.ADDER, RELAY, STARTER]


def test_nothing_is_compiled_by_two_threads(revisions, compiled):
    began, entered, held = compiled
    with ThreadPoolExecutor(4) as threads:
        digest = content_digest(RELAY)
        asked = [threads.submit(revisions.compiled, RELAY, digest) for _ in range(4)]
        assert entered.wait(30)
        held.set()
        assert all(one.result(30).exports for one in asked)
    assert began == [RELAY]


def test_a_damaged_artifact_is_compiled_again(revisions, compiled, tmp_path):
    began, _, _ = compiled
    digest = content_digest(guests.ADDER)
    path = artifact_path(tmp_path, digest, Engine.open().settings_tag)
    revisions.compiled(guests.ADDER, digest)
    whole = path.read_bytes()
    # Damage that Wasmtime does not see: its headers are there.
    path.write_bytes(whole[:-8] + bytes(8))
    assert revisions.compiled(guests.ADDER, digest).exports
    assert is_whole_artifact(path)
    assert began == [guests.ADDER] * 2


@pytest.mark.parametrize(
    "left",
    [
        lambda path: path.write_bytes(b"not an artifact"),
        lambda path: write_artifact(path, b"whole, but of nothing that Wasmtime wrote"),
        lambda path: write_artifact(path, b""),
        lambda path: path.mkdir(parents=True),
    ],
    ids=["damaged", "of something else", "of nothing", "a folder"],
)
def test_a_worker_runs_whatever_is_in_the_place_of_its_artifact(tmp_path, left):
    store = MemoryEngine()
    deploy_adder(store, 1)
    path = artifact_path(tmp_path, content_digest(guests.ADDER), Engine.open().settings_tag)
    path.parent.mkdir()
    left(path)
    for _ in range(2):
        revision = Revisions(tmp_path, store, INTERFACES, ()).load("adder", 0)
        assert revision.export("demo:adder/api.{add}").path
    assert path.is_dir() or is_whole_artifact(path)
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_where_no_artifact_can_be_kept_a_worker_runs_and_who_deploys_hears_of_it(tmp_path):
    store = MemoryEngine()
    deploy_adder(store, 1)
    (tmp_path / "artifacts").write_text("no folder")
    revisions = Revisions(tmp_path, store, INTERFACES, ())
    assert revisions.load("adder", 0).export("demo:adder/api.{add}").path
    with pytest.raises(StoreError, match="the compiled component cannot be kept") as refused:
        revisions.compiled(guests.ADDER, content_digest(guests.ADDER))
    assert (refused.value.kind, refused.value.where) == ("store-error", f"{tmp_path}/artifacts")
    assert refused.value.hint


COMPILING = """
    import sys
    from pathlib import Path
    from executor.host import INTERFACES
    from executor.services.components import content_digest
    from executor.wasm.engine import Engine
    from executor.worker.revision import Revisions
    from oplog.memory_engine import MemoryEngine
    from tests.support import guests

    wasm = guests.counter_component()
    Engine.open()
    print("ready", flush=True)
    sys.stdin.readline()
    revisions = Revisions(Path(sys.argv[1]), MemoryEngine(), INTERFACES, ())
    print(len(revisions.compiled(wasm, content_digest(wasm)).exports))
"""


def test_processes_that_compile_the_same_at_once_leave_one_whole_artifact(tmp_path):
    guests.counter_component()
    children = [start_python(COMPILING, tmp_path) for _ in range(3)]
    try:
        for child in children:
            assert child.stdout.readline() == "ready\n", child.stderr.read()
        for child in children:
            child.stdin.write("\n")
            child.stdin.flush()
        assert [child.communicate(timeout=60)[0] for child in children] == ["5\n"] * 3
    finally:
        for child in children:
            child.kill()
            child.communicate()
    [artifact] = (tmp_path / "artifacts").iterdir()
    assert is_whole_artifact(artifact)


def deploy_adder(store, count):
    """So many revisions of the same component."""
    for number in range(count):
        row = RevisionRow(
            component="adder",
            component_id="id",
            revision=number,
            digest=content_digest(guests.ADDER),
            size_bytes=1,
            deployed_at=1,
            imports=(),
            exports=(),
        )
        assert store.write([deployment(row, {row.digest: guests.ADDER})]) == [None]


def test_only_the_revisions_that_were_used_last_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(revision_module, "LOADED_MAX", 2)
    store = MemoryEngine()
    deploy_adder(store, 3)
    revisions = Revisions(tmp_path, store, INTERFACES, ())
    first, second = revisions.load("adder", 0), revisions.load("adder", 1)
    assert revisions.load("adder", 0) is first
    revisions.load("adder", 2)
    assert revisions.load("adder", 0) is first
    assert revisions.load("adder", 1) is not second
    assert second.export("demo:adder/api.{add}").path, "who holds it can go on using it"
    assert len(revisions._loaded) == 2
    assert revisions._compiling == {}
