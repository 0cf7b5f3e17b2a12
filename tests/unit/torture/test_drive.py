"""The client of a process under torture, with an executor that answers as told."""

from types import SimpleNamespace

import trio

from executor.errors import StoreError
from executor.records import FileRecord, Invocation, WorkerFile
from executor.torture.drive import FILES_MAX, Drive, content_text
from executor.torture.plan import Files, Invoke, Outcome, Plan, Resolved, Trouble

STEP = Invoke(worker="w/a", function="f", key="k")
PLAN = Plan(
    case="c", store="s", report="r", errors="e", workers=("w/a",), steps=(STEP,), timeout_s=1
)


class Reader:
    """A worker in states that follow one another, with one invocation that is pending."""

    def __init__(self, *states):
        self.states = list(states)

    def worker_id(self, worker):
        return b"id"

    def status(self, worker_id):
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        return SimpleNamespace(state=state, decision=(7, "asked"))

    def invocation(self, worker, key):
        return Invocation(worker=worker, function="f", key=key, status="pending")


class Shem:
    def __init__(self, trouble=None):
        self.trouble = trouble
        self.runs = 0

    async def run(self, *, until_idle):
        assert until_idle
        self.runs += 1
        if self.trouble is not None:
            raise self.trouble

    async def wait(self, worker, key):
        return Invocation(worker=worker, function="f", key=key, status="completed", wave="1")

    async def resolve(self, worker, start, choice):
        assert (worker, start, choice) == ("w/a", 7, "repeat")


def resumed(shem, *states):
    events = []
    trio.run(Drive(shem, Reader(*states), PLAN, events.append).resume)
    return events


def test_what_is_pending_after_everything_was_taken_up_is_reported_as_such():
    [found] = resumed(Shem(), "running")
    assert (found.status, found.resumed) == ("pending", True)


def test_a_suspended_worker_is_waited_for_since_it_wakes_by_itself():
    [found] = resumed(Shem(), "suspended")
    assert (found.status, found.wave, found.resumed) == ("completed", "1", True)


def test_an_uncertain_write_is_repeated_by_its_owners_word_and_everything_taken_up_again():
    shem = Shem()
    events = resumed(shem, "uncertain", "uncertain", "idle")
    assert [type(event) for event in events] == [Resolved, Resolved, Outcome]
    assert shem.runs == 3


def test_what_keeps_a_worker_from_running_is_reported():
    [trouble, _] = resumed(Shem(StoreError("no", kind="store-corrupt", where="w/a")), "idle")
    assert trouble == Trouble(kind="store-corrupt", message="w/a: no")


def record(name, kind="regular-file", target=None):
    return FileRecord(
        name=name, kind=kind, size=0, links=1, writable=True, accessed_at=0, modified_at=0,
        changed_at=0, target=target,
    )  # fmt: skip


def test_the_tree_is_walked_from_its_root():
    tree = {
        "/": [record("log"), record("in", "directory"), record("at", "symbolic-link", "log")],
        "/in": [record("deep")],
        "/log": b"paid",
        "/in/deep": b"\xff",
    }

    class WithFiles(Shem):
        async def files(self, worker, path):
            found = tree[path]
            listed = isinstance(found, list)
            return WorkerFile(
                worker=worker,
                path=path,
                file=record("x"),
                entries=tuple(found) if listed else None,
                content=None if listed else found,
            )

    drive = Drive(WithFiles(), Reader("idle"), PLAN, print)
    assert trio.run(drive._files, "w/a") == {
        "/log": "paid",
        "/in": "a directory",
        "/at": "-> log",
        "/in/deep": "\ufffd",
    }
    tree["/"] = [record(f"d{n}", "directory") for n in range(FILES_MAX + 1)]
    assert len(trio.run(drive._files, "w/a")) == FILES_MAX


def test_a_long_content_is_told_by_its_beginning_and_all_of_it():
    first, second = (content_text(b"x" * 5_000 + end) for end in (b"a", b"b"))
    assert first != second
    assert len(first) < 5_000
    assert Files(worker="w/a", texts={"/x": first}).texts["/x"].startswith("xxx")
