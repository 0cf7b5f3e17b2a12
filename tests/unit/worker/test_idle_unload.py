import trio
import trio.testing

from executor import Executor
from executor.worker import loop
from tests.support import guests


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
