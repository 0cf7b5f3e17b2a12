import trio
import trio.testing

from executor import Executor, Ok
from executor.worker import loop, memory
from executor.worker.loop import InvocationLoop
from tests.support import guests
from tests.support.executors import deployed, until
from tests.support.programs import Gate


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


@trio.testing.trio_test
async def test_idle_instances_are_given_up_while_memory_is_scarce_and_no_others(monkeypatch):
    monkeypatch.setattr(memory, "LOOK_EVERY_S", 0.01)
    used = [0]
    monkeypatch.setattr(memory, "own_bytes", lambda: used[0])
    gate = Gate()
    names = [f"relay/{number}" for number in range(5)]
    given_up = []
    unload = InvocationLoop.unload

    def unload_told(invocation_loop):
        given_up.append(invocation_loop.worker.name)
        unload(invocation_loop)

    monkeypatch.setattr(InvocationLoop, "unload", unload_told)
    async with deployed(host=[gate.call], memory_bytes_max=100) as shem:
        with trio.fail_after(30):
            for name in names:
                assert await shem.invoke(name, "count") == 0
            await shem.submit(names[0], "relay", ["a"], key="k")
            await gate.entered.wait()
            used[0] = 100
            await trio.sleep(0.1)
            assert given_up == []
            used[0] = 101
            await until(lambda: not any(map(shem._workers.is_loaded, names[1:])))
            assert given_up == names[1:], "idle longest, gone first"
            assert (await shem.worker(names[0])).loaded, "it executes"
            gate.go.set()
            assert (await shem.wait(names[0], "k")).value == Ok("a!")
            used[0] = 0
            assert await shem.invoke(names[3], "count") == 0
