"""Resources that a guest exports: constructors, methods, statics and drops are invocations.

What a handle's number means outlives every instance: each test runs as it is, with a replay beside
the living worker after every call, and with a simulated crash after every call.
"""

import pytest

from executor.errors import BadHandle
from executor.executor import WaveArguments
from oplog.entry import InvocationFinished
from tests.support.executors import LastingEngine, copy_oplog, deployed, opened, run, worker_entries
from tests.support.resource_guest import RESOURCES

WORKER = "resources/w"
NEW, GET, DROP = "counter.new", "counter.get", "counter.drop"


@pytest.fixture(params=["live", "replayed", "crashed"])
def mode(request):
    return request.param


class Guest:
    def __init__(self, shem, mode):
        self.shem = shem
        self.mode = mode

    async def __call__(self, function, *arguments, key=None):
        try:
            return await self.shem.invoke(WORKER, function, list(arguments), key=key)
        finally:
            if self.mode != "live":
                rebuild = self.shem.replay if self.mode == "replayed" else self.shem.crash
                report = await rebuild(WORKER)
                assert report.divergence is None
                assert report.stopped_at is None


def with_guest(mode, test):
    async def deploying():
        async with deployed(RESOURCES.encode(), "resources") as shem:
            await test(Guest(shem, mode))

    run(deploying)


def test_a_resource_lives_over_invocations_until_it_is_dropped(mode):
    async def test(guest):
        assert await guest(NEW, 7) == 1
        assert await guest(NEW, 777) == 2
        assert await guest(GET, 1) == 7
        assert await guest("counter.merge", 1, 2) == 3
        assert await guest(GET, 3) == 784
        assert await guest(DROP, 3) is None
        assert await guest("dropped") == 3_001_568

    with_guest(mode, test)


def test_a_handle_that_is_none_is_refused_and_the_worker_goes_on(mode):
    async def test(guest):
        await guest(NEW, 7)
        await guest("label.new", 1)
        for function, arguments, why in (
            (GET, (9,), "never issued"),
            (GET, (2,), "of a label"),
            ("counter.merge", (1, 1), "twice"),
        ):
            with pytest.raises(BadHandle, match=why):
                await guest(function, *arguments, key=f"{function} {arguments}")
        with pytest.raises(BadHandle, match="never issued"):
            await guest(GET, 9, key=f"{GET} (9,)")  # the recorded outcome
        await guest(NEW, 8)  # now 3
        with pytest.raises(BadHandle, match="never issued"):
            await guest(GET, 9)
        await guest(DROP, 1)
        with pytest.raises(BadHandle, match="dropped or given away"):
            await guest(GET, 1)
        assert await guest(GET, 3) == 8
        record = await guest.shem.worker(WORKER)
        assert (record.status, record.last_error) == ("idle", None)

    with_guest(mode, test)


def test_handles_stand_in_every_kind_of_value(mode):
    async def test(guest):
        assert await guest("many", 3) == [1, 2, 3]
        assert await guest("hold", "h", 5) == {"name": "h", "held": 4}
        assert await guest("maybe", 6) == 5
        assert await guest("total", [1, 2, 4, 5]) == 10 + 11 + 5 + 6
        assert await guest("eat", [1, 4]) == 15
        with pytest.raises(BadHandle, match="handle 4"):
            await guest("total", [2, 4])
        assert await guest("peek", 5) == 6

    with_guest(mode, test)


def test_handles_are_numbers_in_text(mode):
    async def test(guest):
        shem = guest.shem
        accepted = await shem.submit(WORKER, "hold", WaveArguments(('"x"', "5")))
        done = await shem.wait(WORKER, accepted.key)
        assert done.wave == '{name: "x", held: 1}'
        accepted = await shem.submit(WORKER, "total", WaveArguments(("[1, 1]",)))
        assert (await shem.wait(WORKER, accepted.key)).wave == "10"

    with_guest(mode, test)


def test_a_reverted_drop_did_not_happen():
    async def test(guest):
        await guest(NEW, 7)
        await guest(DROP, 1)
        await guest(NEW, 8)
        await guest.shem.revert(WORKER, last=2)
        assert await guest(GET, 1) == 7
        assert await guest(NEW, 9) == 2

    with_guest("live", test)


def test_every_prefix_goes_on_to_the_same_outcomes():
    """Also where the last thing recorded is a refusal, or a destructor's own call."""
    calls = [
        (NEW, (777,)),
        (GET, (5,)),
        ("many", (2,)),
        ("eat", ([2, 1],)),
        (GET, (1,)),
        (DROP, (3,)),
        ("dropped", ()),
    ]

    async def outcomes(shem):
        found = []
        for number, (function, arguments) in enumerate(calls):
            try:
                found.append(await shem.invoke(WORKER, function, arguments, key=f"{number}"))
            except BadHandle as error:
                found.append(error.message)
        return found

    async def test():
        engine = LastingEngine()
        async with deployed(RESOURCES.encode(), "resources", engine) as shem:
            expected = await outcomes(shem)
        entries = worker_entries(engine, WORKER)
        finished = [e.outcome for _, e in entries if isinstance(e, InvocationFinished)]
        assert sum(outcome.failure is not None for outcome in finished) == 2
        for length in range(1, len(entries) + 1):
            copied = LastingEngine()
            copy_oplog(engine, copied, WORKER, length)
            async with opened(copied) as shem:
                assert await outcomes(shem) == expected, length
            assert [
                e.outcome
                for _, e in worker_entries(copied, WORKER)
                if isinstance(e, InvocationFinished)
            ] == finished

    run(test)
