"""What a guest writes: when it is heard, and by whom later."""

from functools import partial

import pytest
import trio

from executor import host_function
from executor.errors import GuestTrap, PreviousFailed
from executor.worker.worker import OUTPUT_COMMIT_S
from guests import recipes
from tests.conformance.model.program import Code, Op, encode
from tests.support.engines import Hold
from tests.support.executors import LastingEngine, deployed, run, until

W = "stepper/w"
PATIENCE_S = 20
SAYS = Op(Code.LOG, 0, 7)
WARNS = Op(Code.LOG, 1, 8)
WAITS = Op(Code.READ_LOCAL, 1)
TRAPS = Op(Code.TRAP, 0, 255)


class Outside:
    """What the guest imports; a local read waits until it is let go."""

    def __init__(self):
        self.asked = trio.Event()
        self.go = trio.Event()

    def functions(self):
        kinds = {
            "gate": "read-remote",
            "read-remote": "read-remote",
            "write-remote": "write-remote",
        }
        return [self._waiting(), *(self._at_once(name, kind) for name, kind in kinds.items())]

    def _waiting(self):
        signature = "read-local: func(n: u32) -> u64"

        @host_function("demo:stepper/outside", signature, type="read-local")
        async def ask(_call, _n):
            self.asked.set()
            await self.go.wait()
            return 1

        return ask

    def _at_once(self, name, kind):
        @host_function("demo:stepper/outside", f"{name}: func(n: u32) -> u64", type=kind)
        async def ask(_call, _n):
            return 0

        return ask


def with_stepper(test, engine, on_output=lambda *_: None):
    async def case():
        outside = Outside()
        wasm = recipes.build("stepper").read_bytes()
        options = {"host": outside.functions(), "on_output": on_output}
        async with deployed(wasm, "stepper", engine, **options) as shem:
            await test(shem, outside)

    run(case)


def test_a_line_is_heard_once_it_is_durable_and_while_its_guest_waits_for_something_else():
    heard = []
    hold = Hold()
    engine = LastingEngine()

    async def test(shem, outside):
        asked = [encode([SAYS, WARNS, WAITS])]
        await shem.submit(W, "run", asked, key="k", run=False)
        engine.on_write = hold
        worker = (await shem._workers.loop(W)).worker
        with trio.fail_after(PATIENCE_S):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(partial(shem.invoke, W, "run", asked, key="k"))
                await outside.asked.wait()
                await until(hold.entered.is_set)
                worker.deliver_output()
                assert heard == []
                hold.go.set()
                await until(lambda: len(heard) == 2)
                outside.go.set()
        assert heard == [(W, "stdout", b"line 7\n"), (W, "stderr", b"line 8\n")]
        outcome = await shem.wait(W, "k")
        assert (outcome.stdout, outcome.stderr) == ("line 7\n", "line 8\n")

    with_stepper(test, engine, lambda *line: heard.append(line))
    assert OUTPUT_COMMIT_S <= 0.05


def test_who_comes_after_a_failure_hears_what_the_failed_one_had_written_to_its_stderr():
    async def test(shem, outside):
        outside.go.set()
        await shem.submit(W, "run", [encode([SAYS, WARNS, TRAPS])], key="failing", run=False)
        await shem.submit(W, "run", [encode([SAYS])], key="waiting", run=False)
        failed = await shem.wait(W, "failing")
        assert (failed.status, failed.error.kind) == ("failed", GuestTrap.kind)
        assert failed.stderr
        with pytest.raises(PreviousFailed) as waiting:
            await shem.wait(W, "waiting")
        with pytest.raises(PreviousFailed) as later:
            await shem.submit(W, "run", [encode([SAYS])])
        assert waiting.value.stderr == later.value.stderr == failed.stderr

    with_stepper(test, LastingEngine())
