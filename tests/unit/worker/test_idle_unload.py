import pytest
import trio
import trio.testing

from executor import Executor, Ok
from executor.worker import loop, memory
from executor.worker.loop import InvocationLoop
from tests.support import guests
from tests.support.executors import deployed, until
from tests.support.programs import Gate

MOST = 1 << 30


@trio.testing.trio_test
async def test_an_invocation_that_arrives_while_the_idle_instance_is_unloaded_is_run(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(loop, "IDLE_UNLOAD_S", 0)
    async with Executor.open(tmp_path / "store") as shem:
        await shem.deploy(guests.ADDER, name="adder")
        with trio.fail_after(30):
            for number in range(1, 101):
                assert await shem.invoke("adder/one", "add", [1]) == number


@trio.testing.trio_test
async def test_asking_for_an_outcome_again_leaves_an_idle_instance_loaded(tmp_path):
    async with Executor.open(tmp_path / "store") as shem:
        await shem.deploy(guests.ADDER, name="adder")
        await shem.invoke("adder/one", "add", [1], key="first")
        await shem.wait("adder/one", "first")
        await trio.sleep(0.05)
        assert (await shem.worker("adder/one")).loaded


class Memory:
    """What the process is said to have, in place of its own reading."""

    def __init__(self, monkeypatch):
        self.bytes = 0
        monkeypatch.setattr(memory, "LOOK_EVERY_S", 0.01)
        monkeypatch.setattr(memory, "own_bytes", self.read)
        self.looks = 0

    def read(self):
        self.looks += 1
        return self.bytes

    async def looked_at(self, times=6):
        seen = self.looks + times
        await until(lambda: self.looks >= seen)


@pytest.fixture
def process(monkeypatch):
    return Memory(monkeypatch)


@pytest.fixture
def given_up(monkeypatch, process):
    """Names of workers whose instances were given up, in their order; each gives back what
    `process.returned` says.
    """
    process.returned = 0
    names = []
    unload = InvocationLoop.unload

    def unload_told(invocation_loop):
        names.append(invocation_loop.worker.name)
        process.bytes -= process.returned
        unload(invocation_loop)

    monkeypatch.setattr(InvocationLoop, "unload", unload_told)
    return names


@trio.testing.trio_test
async def test_idle_instances_are_given_up_while_memory_is_scarce_and_no_others(process, given_up):
    gate = Gate()
    names = [f"relay/{number}" for number in range(5)]
    async with deployed(host=[gate.call], memory_bytes_max=MOST) as shem:
        with trio.fail_after(30):
            for name in names:
                assert await shem.invoke(name, "count") == 0
            await shem.submit(names[0], "relay", ["a"], key="k")
            await gate.entered.wait()
            process.bytes = MOST
            await process.looked_at()
            assert given_up == []
            process.returned = memory.WORTH_BYTES
            process.bytes = MOST + 5 * process.returned
            await until(lambda: not any(map(shem._workers.is_loaded, names[1:])))
            assert given_up == names[1:], "idle longest, gone first"
            assert (await shem.worker(names[0])).loaded, "it executes"
            gate.go.set()
            assert (await shem.wait(names[0], "k")).value == Ok("a!")
            process.bytes = 0
            assert await shem.invoke(names[3], "count") == 0


@trio.testing.trio_test
async def test_no_more_idle_instances_are_given_up_than_memory_asks_for(process, given_up):
    async with deployed(host=[Gate().call], memory_bytes_max=MOST) as shem:
        with trio.fail_after(30):
            for number in range(20):
                await shem.invoke(f"relay/{number}", "count")
            process.returned = memory.WORTH_BYTES
            process.bytes = MOST + 6 * memory.WORTH_BYTES
            await until(lambda: process.bytes <= MOST)
            await process.looked_at()
            assert len(given_up) == 5 + 4, "a quarter of twenty, and of fifteen"


@trio.testing.trio_test
async def test_instances_stay_where_giving_them_up_gives_nothing_back(process, given_up):
    """The allocator keeps it, or it is of something else; more of it is another matter."""
    async with deployed(host=[Gate().call], memory_bytes_max=MOST) as shem:
        with trio.fail_after(30):
            for number in range(20):
                await shem.invoke(f"relay/{number}", "count")
            process.returned = memory.WORTH_BYTES - 1
            process.bytes = 2 * MOST
            await until(lambda: len(given_up) >= 5)
            await process.looked_at(20)
            assert len(given_up) == 5, "a quarter, and no more"
            process.bytes += int(memory.GROWTH_SHARE * MOST)
            await process.looked_at(20)
            assert len(given_up) == 5, "as much as it may grow"
            process.bytes += 1
            await until(lambda: len(given_up) > 5)
            await process.looked_at(20)
            assert len(given_up) == 5 + 4
            process.bytes = MOST
            await process.looked_at()
            process.bytes = MOST + 1
            await until(lambda: len(given_up) > 9)  # it was relieved meanwhile


@trio.testing.trio_test
async def test_what_the_c_library_keeps_is_returned_where_memory_is_scarce(process, monkeypatch):
    """Nothing is idle: that is tried, and not at every look."""
    returned = []
    monkeypatch.setattr(memory, "return_free_memory", lambda: returned.append(None))
    async with deployed(guests.ADDER, memory_bytes_max=MOST):
        with trio.fail_after(30):
            process.bytes = MOST + 1
            await until(lambda: returned)
            await process.looked_at(20)
            assert len(returned) == 1


def test_free_memory_is_returned_whatever_the_c_library_is(monkeypatch):
    memory.return_free_memory()
    monkeypatch.setattr(memory.ctypes, "CDLL", lambda name: object())
    memory.return_free_memory()
