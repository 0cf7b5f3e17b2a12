"""A worker waits for what somebody else decides, for days and over crashes; exactly one decides."""

import time
from contextlib import asynccontextmanager, suppress

import pytest
import trio
import trio.testing

from executor.errors import (
    GuestError,
    LimitError,
    StoreError,
    UnknownPromise,
    WorkerNotFound,
)
from executor.services.promises import VALUE_BYTES_MAX, PromiseId, read_promise
from executor.worker.rows import read_worker_id
from oplog.codec import decode_entry
from oplog.engine import Batch, Row
from oplog.entry import End, InvocationFinished, Start, Suspend
from tests.support import guests
from tests.support.executors import (
    APART_TIMEOUT_S,
    FullEngine,
    LastingEngine,
    copy_oplog,
    opened,
    run,
    status_of,
    until,
    until_state,
    worker_entries,
)
from tests.support.sources import StillSources

SECOND_NS = 10**9
DAY_NS = 24 * 3_600 * SECOND_NS
W = "approval/w"
CREATE = "golem:api/host.create-promise"
COMPLETE = "golem:api/host.complete-promise"


@asynccontextmanager
async def approval(engine, **options):
    async with opened(engine, **options) as shem:
        await shem.deploy(guests.approval_component(), name="approval")
        yield shem


def starts(engine, worker, function):
    return [
        index
        for index, entry in worker_entries(engine, worker)
        if isinstance(entry, Start) and entry.function == function
    ]


def promise_rows(engine):
    return engine.read_rows("promises")


def wake_rows(engine):
    return engine.read_rows("wakeups")


async def waiting(shem, engine, sources, key="k", worker=W):
    """A request whose worker has given up its instance; the number of its promise."""
    await shem.submit(worker, "request", ["a bridge"], key=key)
    await sources.until_asleep()
    sources.advance(2 * SECOND_NS)
    await until_state(engine, worker, "suspended")
    return starts(engine, worker, CREATE)[-1]


async def decided(shem, key="k", worker=W):
    with trio.fail_after(APART_TIMEOUT_S):
        return (await shem.wait(worker, key)).value


# -- waiting ---------------------------------------------------------------------------------------


@trio.testing.trio_test
async def test_a_worker_that_waits_long_is_only_rows_and_goes_on_with_the_value():
    engine, sources = LastingEngine(), StillSources()
    async with approval(engine, sources=sources) as shem:
        number = await waiting(shem, engine, sources)
        assert not (await shem.worker(W)).loaded
        [suspend] = [e for _, e in worker_entries(engine, W) if type(e) is Suspend]
        name = str(PromiseId(read_worker_id(engine, W), number))
        assert (suspend.wake_at, suspend.promises) == (None, (name,))
        assert len(wake_rows(engine)) == 1
        with trio.fail_after(APART_TIMEOUT_S):
            await shem.run(until_idle=True)  # what nobody has decided is no work now
        assert await shem.complete_promise(W, number, b"yes")
        assert await decided(shem) == ("a bridge", "yes", 1)
        assert wake_rows(engine) == []
        assert (await shem.replay(W)).divergence is None
        assert (await shem.crash(W)).divergence is None


@trio.testing.trio_test
async def test_a_damaged_promise_is_told_by_the_worker_that_waits_for_it_and_the_others_go_on():
    engine, sources = LastingEngine(), StillSources()
    async with approval(engine, sources=sources) as shem:
        await waiting(shem, engine, sources)
        number = await waiting(shem, engine, sources, key="l", worker="approval/v")
    [damaged] = [
        key for key, _ in promise_rows(engine) if key.startswith(read_worker_id(engine, W))
    ]
    assert engine.write([Batch(rows=[Row("promises", damaged, b"?")])]) == [None]
    with trio.fail_after(APART_TIMEOUT_S):
        async with opened(engine, sources=sources) as shem:
            with pytest.raises(StoreError, match=r"the row of promise .* is damaged"):
                await shem.run(until_idle=True)
            assert await shem.complete_promise("approval/v", number, b"yes")
            assert await decided(shem, "l", "approval/v") == ("a bridge", "yes", 1)


@trio.testing.trio_test
async def test_days_later_another_process_decides_and_yet_another_goes_on():
    engine, sources = LastingEngine(), StillSources()
    async with approval(engine, sources=sources) as shem:
        number = await waiting(shem, engine, sources)
    days = StillSources(wall_ns=sources.wall + 3 * DAY_NS)
    async with opened(engine, sources=days) as shem:
        assert await shem.complete_promise(W, number, b"yes")
        assert status_of(engine, W).state == "suspended"  # nobody asked for it to run
    async with opened(engine, sources=days, recover="all") as shem:
        await until_state(engine, W, "idle")
        assert (await shem.invocation(W, "k")).value == ("a bridge", "yes", 1)


@trio.testing.trio_test
async def test_who_decides_may_have_the_worker_run_until_it_rests():
    engine, sources = LastingEngine(), StillSources()
    async with approval(engine, sources=sources) as shem:
        number = await waiting(shem, engine, sources)
    async with opened(engine) as shem:
        assert await shem.complete_promise(W, number, b"no", until_rest=True)
        assert (await shem.invocation(W, "k")).value == ("a bridge", "no", 1)
        assert not await shem.complete_promise(W, number, b"yes", until_rest=True)


@trio.testing.trio_test
async def test_a_short_wait_keeps_its_instance():
    engine = LastingEngine()
    async with approval(engine) as shem:
        await shem.submit(W, "request", ["x"], key="k")
        await until(lambda: promise_rows(engine))
        await shem.complete_promise(W, starts(engine, W, CREATE)[0], b"yes")
        assert await decided(shem) == ("x", "yes", 1)
    assert Suspend not in {type(entry) for _, entry in worker_entries(engine, W)}


@trio.testing.trio_test
async def test_a_decision_that_comes_while_the_worker_is_being_suspended_wakes_it():
    engine, sources = LastingEngine(), StillSources()
    async with approval(engine, sources=sources) as shem:
        await shem.submit(W, "request", ["x"], key="k")
        await until(lambda: promise_rows(engine))
        [number] = starts(engine, W, CREATE)

        def decide(batches):
            for batch in batches:
                for _, _, encoded in batch.entries:
                    if isinstance(decode_entry(encoded), Suspend):
                        engine.on_write = lambda _: None
                        promise = PromiseId(read_worker_id(engine, W), number)
                        trio.from_thread.run_sync(
                            nursery.start_soon, shem.complete_promise, W, number, b"yes",
                            trio_token=token,
                        )  # fmt: skip
                        assert read_promise(engine, promise).completed_at == 0

        token = trio.lowlevel.current_trio_token()
        engine.on_write = decide
        async with trio.open_nursery() as nursery:
            await sources.until_asleep()
            sources.advance(2 * SECOND_NS)
            assert await decided(shem) == ("x", "yes", 1)
        assert engine.on_write is not decide


@trio.testing.trio_test
async def test_many_workers_wait_for_one_promise():
    engine, sources = LastingEngine(), StillSources()
    async with approval(engine, sources=sources) as shem:
        promise = await shem.invoke(W, "create")
        for number in range(20):
            await shem.submit(f"approval/{number}", "await", [promise], key="k")
        await sources.until_asleep(20)
        sources.advance(2 * SECOND_NS)
        for number in range(20):
            await until_state(engine, f"approval/{number}", "suspended")
        assert await shem.invoke(W, "complete", [promise, b"\x00\xff"])
        for number in range(20):
            assert await decided(shem, worker=f"approval/{number}") == b"\x00\xff"


# -- deciding --------------------------------------------------------------------------------------


@trio.testing.trio_test
async def test_exactly_one_completion_wins_and_its_value_stays():
    engine = LastingEngine()
    async with approval(engine) as shem:
        promise = await shem.invoke(W, "create")
        assert await shem.invoke(W, "poll", [promise]) is None
        answers = []

        async def complete(number):
            answers.append(await shem.complete_promise(W, promise["oplog-idx"], b"%d" % number))

        async def of_worker(number):
            worker = f"approval/{number}"
            answers.append(await shem.invoke(worker, "complete", [promise, b"%d" % number]))

        engine.on_write = lambda _: time.sleep(0.01)  # so that all have read what is pending
        async with trio.open_nursery() as nursery:
            for number in range(10):
                nursery.start_soon(complete, number)
                nursery.start_soon(of_worker, number)
        assert sorted(answers) == [False] * 19 + [True]
        value = await shem.invoke(W, "await", [promise])
        assert await shem.invoke("approval/0", "poll", [promise]) == value
        for worker in (W, *(f"approval/{number}" for number in range(10))):
            assert (await shem.replay(worker)).divergence is None


@trio.testing.trio_test
async def test_the_same_key_hears_the_same_however_often():
    async with approval(LastingEngine()) as shem:
        number = (await shem.invoke(W, "create"))["oplog-idx"]
        assert await shem.complete_promise(W, number, b"1", key="one")
        assert await shem.complete_promise(W, number, b"1", key="one")
        assert not await shem.complete_promise(W, number, b"1", key="two")
        assert (await shem.promise(W, number)).value == b"1"


@pytest.mark.parametrize("won", ["not at all", "by this call", "by another"])
@trio.testing.trio_test
async def test_a_completion_whose_end_was_lost_is_repeated_and_hears_the_same(won):
    """The row may be written and the `end` not: the derived key says whose it was."""
    engine = LastingEngine()
    async with approval(engine) as shem:
        promise = await shem.invoke(W, "create")
        assert await shem.invoke("approval/other", "complete", [promise, b"v"], key="k")
    [(key, completed)] = promise_rows(engine)
    [start] = starts(engine, "approval/other", COMPLETE)
    target = LastingEngine()
    copy_oplog(engine, target, "approval/other", start)
    copy_oplog(engine, target, W, len(worker_entries(engine, W)))
    async with opened(target) as shem:  # the row as of before
        assert promise_rows(target) == []
    if won == "by this call":
        target.write([Batch(rows=[Row("promises", key, completed)])])
    else:
        created = first_row(engine, W)
        target.write([Batch(rows=[Row("promises", key, created)])])
    async with opened(target) as shem:
        if won == "by another":
            assert await shem.complete_promise(W, promise["oplog-idx"], b"first")
        with trio.fail_after(APART_TIMEOUT_S):
            outcome = await shem.wait("approval/other", "k")
        assert outcome.value is (won != "by another")
        value = (await shem.promise(W, promise["oplog-idx"])).value
        assert value == (b"first" if won == "by another" else b"v")


def first_row(engine, worker):
    """The row of the worker's promise as it was made: from the batch that made it."""
    worker_id = read_worker_id(engine, worker)
    rows = [row for group in engine.groups for batch in group for row in batch.rows]
    return next(row.value for row in rows if row.table == "promises" and worker_id in row.key)


@trio.testing.trio_test
async def test_a_value_has_a_bound_and_an_unknown_promise_is_refused():
    async with approval(LastingEngine()) as shem:
        number = (await shem.invoke(W, "create"))["oplog-idx"]
        with pytest.raises(LimitError):
            await shem.complete_promise(W, number, bytes(VALUE_BYTES_MAX + 1))
        assert await shem.complete_promise(W, number, bytes(VALUE_BYTES_MAX))
        assert await shem.invoke(W, "poll", [promise_id(shem, number)]) == bytes(VALUE_BYTES_MAX)
        for unknown in (number + 1, -1, 2**64, 10**30):
            with pytest.raises(UnknownPromise):
                await shem.complete_promise(W, unknown, b"")
            with pytest.raises(UnknownPromise):
                await shem.promise(W, unknown)
        assert (await shem.promises(W, after=10**30)).promises == ()
        assert len((await shem.promises(W, after=-1)).promises) == 1
        with pytest.raises(WorkerNotFound):
            await shem.complete_promise("approval/nobody", number, b"")


def promise_id(shem, number, worker="w"):
    component = shem._reader.components()[0].id  # as a guest would have been told
    whole = int(component.replace("-", ""), 16)
    uuid = {"high-bits": whole >> 64, "low-bits": whole & 2**64 - 1}
    worker_id = {"component-id": {"uuid": uuid}, "worker-name": worker}
    return {"worker-id": worker_id, "oplog-idx": number}


# -- promises that are gone ------------------------------------------------------------------------


@pytest.mark.parametrize("function", ["await", "poll", "complete"])
@pytest.mark.parametrize(("worker", "number"), [("w", 4), ("w", 2**64 - 1), ("nobody", 4)])
def test_what_was_never_made_fails_the_guest_with_a_sentence(function, worker, number):
    async def test():
        async with approval(LastingEngine()) as shem:
            await shem.submit(W, "delete", [promise_id(shem, 3)])
            more = [b"v"] if function == "complete" else []
            with pytest.raises(GuestError) as raised:
                await shem.invoke(W, function, [promise_id(shem, number, worker), *more])
            assert "there is no" in raised.value.message

    run(test)


@pytest.mark.parametrize("suspended", [True, False])
@pytest.mark.parametrize("gone_by", ["delete-promise", "deleting its worker", "revert"])
def test_who_waits_for_a_promise_that_goes_fails_clearly(suspended, gone_by):
    async def test():
        engine, sources = LastingEngine(), StillSources()
        async with approval(engine, sources=sources) as shem:
            await shem.invoke("approval/owner", "poll", [await shem.invoke(W, "create")])
            promise = await shem.invoke("approval/owner", "create")
            await shem.submit("approval/waiter", "await", [promise], key="k")
            await sources.until_asleep()
            if suspended:
                sources.advance(2 * SECOND_NS)
                await until_state(engine, "approval/waiter", "suspended")
            match gone_by:
                case "delete-promise":
                    await shem.invoke(W, "delete", [promise])
                    await shem.invoke(W, "delete", [promise])  # again: nothing to do
                case "revert":
                    await shem.revert("approval/owner", last=1)
                case _:
                    await shem.delete("approval/owner")
            assert len(promise_rows(engine)) == 1
            with trio.fail_after(APART_TIMEOUT_S):
                outcome = await shem.wait("approval/waiter", "k")
            assert outcome.error.kind == "guest-error"
            assert "there is no" in outcome.error.message
            assert wake_rows(engine) == []

    run(test)


@trio.testing.trio_test
async def test_a_promise_that_a_jump_hides_goes_with_it():
    engine = LastingEngine()
    async with approval(engine) as shem:
        promise = await shem.invoke(W, "create-again")
        page = await shem.promises(W)
        assert [found.promise for found in page.promises] == [promise["oplog-idx"]]
        first, last = starts(engine, W, CREATE)
        assert (first < last, last) == (True, promise["oplog-idx"])
        with pytest.raises(UnknownPromise):
            await shem.complete_promise(W, first, b"")
        assert (await shem.replay(W)).divergence is None


@trio.testing.trio_test
async def test_a_completion_comes_before_or_after_a_deletion_and_never_behind_it():
    engine = LastingEngine()
    async with approval(engine) as shem:
        for attempt in range(20):
            worker = f"approval/{attempt}"
            number = (await shem.invoke(worker, "create"))["oplog-idx"]
            async with trio.open_nursery() as nursery:
                nursery.start_soon(complete_if_there, shem, worker, number)
                nursery.start_soon(shem.delete, worker)
        assert promise_rows(engine) == []


async def complete_if_there(shem, worker, number):
    with suppress(UnknownPromise, WorkerNotFound):
        await shem.complete_promise(worker, number, b"v")


# -- crashes ---------------------------------------------------------------------------------------


@trio.testing.trio_test
async def test_a_promise_becomes_durable_with_the_end_of_the_call_that_made_it():
    engine = LastingEngine()
    async with approval(engine) as shem:
        number = (await shem.invoke(W, "create"))["oplog-idx"]
        await shem.replay(W)
        await shem.crash(W)
        await shem.invoke(W, "poll", [promise_id(shem, number)])
    made = [
        batch
        for group in engine.groups
        for batch in group
        if any(row.table == "promises" for row in batch.rows)
    ]
    [batch] = made  # once: in replay nothing is written again
    entries = [decode_entry(encoded) for _, _, encoded in batch.entries]
    assert number in {entry.start_index for entry in entries if isinstance(entry, End)}


@trio.testing.trio_test
async def test_a_promise_whose_call_was_not_committed_is_lost_with_it():
    engine = FullEngine()
    async with approval(engine) as shem:
        await shem.invoke(W, "create")
        before = promise_rows(engine)
        engine.full = True
        with pytest.raises(StoreError):
            await shem.invoke(W, "create", key="second")
        assert promise_rows(engine) == before
        engine.full = False
        with trio.fail_after(APART_TIMEOUT_S):
            await until(lambda: engine.probes)
            promise = await invoked_when_there_is_room(shem, key="second")
        numbers = [PromiseId.of_row_key(key).index for key, _ in promise_rows(engine)]
        assert numbers[-1] == promise["oplog-idx"]
        assert len(numbers) == 2


async def invoked_when_there_is_room(shem, key):
    while True:
        try:
            return await shem.invoke(W, "create", key=key)
        except StoreError:
            await trio.sleep(0.05)


def test_a_crash_at_every_entry_of_the_approval_ends_in_the_same_decision():
    async def test():
        engine, sources = LastingEngine(), StillSources()
        async with approval(engine, sources=sources) as shem:
            number = await waiting(shem, engine, sources)
            await shem.complete_promise(W, number, b"yes")
            await decided(shem)
        entries = worker_entries(engine, W)
        created = first_row(engine, W)
        made_at = next(i for i, e in entries if isinstance(e, End) and e.start_index == number)
        for count in range(2, len(entries) + 1):
            await taken_up(engine, count, created if count >= made_at else None)

    async def taken_up(engine, count, created):
        target = LastingEngine()
        copy_oplog(engine, target, W, count)
        worker_id = read_worker_id(target, W)
        entries = worker_entries(target, W)
        finished = any(isinstance(entry, InvocationFinished) for _, entry in entries)
        if created is not None:
            key = PromiseId(worker_id, starts(target, W, CREATE)[0]).row_key
            target.write([Batch(rows=[Row("promises", key, created)])])
        async with opened(target, sources=StillSources(), recover="all") as shem:
            if not finished:
                await until(lambda: starts(target, W, CREATE) and promise_rows(target))
                assert await shem.complete_promise(W, starts(target, W, CREATE)[-1], b"yes")
            assert await decided(shem) == ("a bridge", "yes", 1)
            assert len(promise_rows(target)) == 1
            assert (await shem.replay(W)).divergence is None

    run(test)


@trio.testing.trio_test
async def test_promises_are_listed_a_page_at_a_time():
    async with approval(LastingEngine()) as shem:
        made = [(await shem.invoke(W, "create"))["oplog-idx"] for _ in range(5)]
        await shem.complete_promise(W, made[1], b"v")
        page = await shem.promises(W, limit=3)
        assert [found.promise for found in page.promises] == made[:3]
        assert [found.status for found in page.promises] == ["pending", "completed", "pending"]
        rest = await shem.promises(W, after=page.cursor, limit=3)
        assert ([found.promise for found in rest.promises], rest.cursor) == (made[3:], None)
