"""Commands: components that export `wasi:cli/run`, here and on Wasmtime's own host."""

import pytest
import trio
from trio.testing import trio_test

from executor.errors import AlreadyExists, PreviousFailed, UsageError
from executor.executor import Executor
from executor.wasm.values import Err, Ok
from guests import recipes
from oplog.entry import Exited, InvocationFinished
from tests.support import guests
from tests.support.commands import Command, Ended, after_cut, deploy, on_shem, on_wasmtime
from tests.support.executors import LastingEngine, deployed, kinds
from tests.support.terminals import Terminals

SAID = b"run 1\nargument it\nargument a b\n"
ENDS = {
    "well": Ended(0, b"", b""),
    "fail": Ended(1, b"", b"failing, as asked\n"),
    "exit": Ended(0, b"", b""),
    "exit-failure": Ended(1, b"", b""),
    "trap": Ended(134, b"", b""),
}
EXITS_WITH = b"""
(component
  (import "wasi:cli/exit@0.2.6" (instance $exit
    (export "exit-with-code" (func (param "status-code" u8)))))
  (core func $leave (canon lower (func $exit "exit-with-code")))
  (core module $Main
    (import "exit" "exit" (func $exit (param i32)))
    (func (export "run") (result i32) (call $exit (i32.const 7)) (i32.const 0)))
  (core instance $main (instantiate $Main
    (with "exit" (instance (export "exit" (func $leave))))))
  (func $run (result (result)) (canon lift (core func $main "run")))
  (instance $command (export "run" (func $run)))
  (export "wasi:cli/run@0.2.6" (instance $command)))
"""


def built_command():
    return recipes.build("command")


@pytest.mark.parametrize("end", ENDS)
def test_a_command_does_what_it_does_on_wasmtime(tmp_path, end):
    command = Command(built_command(), args=("it", "a b", end), env={"A": "b=c", "B": ""})
    said = SAID + f"argument {end}\nA=b=c\nB=\n".encode()

    async def run():
        async with Executor.open(tmp_path) as shem:
            component = await deploy(shem, "command", command)
            reference = await on_wasmtime(command, component.id)
            assert (reference.exit_code, reference.stdout) == (ENDS[end].exit_code, said)
            live = await on_shem(shem, "command", command)
            assert (live.exit_code, live.stdout) == (ENDS[end].exit_code, said)
            assert live.stderr.startswith(ENDS[end].stderr)
            assert (await shem.replay("command/w")).divergence is None
            assert (await shem.crash("command/w")).divergence is None
            assert await after_cut(shem, "command") == live

    trio.run(run)


@trio_test
async def test_a_command_that_returned_runs_again_and_keeps_its_memory():
    engine = LastingEngine()
    async with deployed(guests.command_component(), "command", engine) as shem:
        assert await shem.invoke("command/w", "run", args=["fail"]) == Err()
        await shem.crash("command/w")
        accepted = await shem.submit("command/w", "wasi:cli/run.{run}", key="second")
        done = await shem.wait("command/w", accepted.key)
        assert (done.value, done.wave, done.exit_code) == (Err(), "err", None)
        assert done.stdout == "run 2\nargument fail\n"
        assert (await shem.worker("command/w")).status == "idle"
        assert await shem.invoke("command/other", "run", key="second") == Ok()


@trio_test
async def test_a_worker_that_exited_runs_no_more():
    engine = LastingEngine()
    async with deployed(guests.command_component(), "command", engine) as shem:
        accepted = await shem.submit("command/w", "run", args=["exit"])
        done = await shem.wait("command/w", accepted.key)
        assert (done.status, done.exit_code, done.result) == ("completed", 0, {"exit": 0})
        record = await shem.worker("command/w")
        assert (record.status, record.loaded) == ("exited", False)
        assert kinds(engine, "command/w")[-2:] == [Exited, InvocationFinished]
        with pytest.raises(PreviousFailed, match="exited"):
            await shem.invoke("command/w", "run")


@trio_test
async def test_a_worker_keeps_the_arguments_it_was_created_with(tmp_path):
    async with Executor.open(tmp_path) as shem:
        await shem.deploy(guests.command_component(), name="command")
        await shem.invoke("command/w", "run", args=["it", "x"])
        assert (await shem.worker("command/w")).args == ("it", "x")
        await shem.invoke("command/none", "run")
    async with Executor.open(tmp_path) as shem:
        for args in (["it"], [], ["it", "x", ""]):
            with pytest.raises(AlreadyExists, match="other command arguments"):
                await shem.submit("command/w", "run", args=args)
        await shem.submit("command/w", "run", args=("it", "x"), key="again")
        assert (await shem.wait("command/w", "again")).stdout == "run 2\nargument it\nargument x\n"
        with pytest.raises(AlreadyExists):
            await shem.submit("command/none", "run", args=["it"])


@trio_test
async def test_what_is_no_text_is_refused_and_nothing_is_created(tmp_path):
    async with Executor.open(tmp_path) as shem:
        await shem.deploy(guests.command_component(), name="command")
        for new in ({"args": ["a", "\udcff"]}, {"env": {"A": "\udcff"}}, {"env": {"\udcff": "a"}}):
            with pytest.raises(UsageError, match="is not Unicode text"):
                await shem.submit("command/w", "run", **new)
        with pytest.raises(UsageError, match="is not Unicode text"):
            await shem.deploy(guests.command_component(), name="other", env={"A": "\udcff"})
        assert (await shem.workers()).workers == ()


def test_from_the_command_line_an_exit_is_a_result_and_its_code_a_failure(tmp_path):
    (tmp_path / "exits.wasm").write_bytes(EXITS_WITH)
    terminals = Terminals(tmp_path)
    command = str(built_command())
    assert terminals.shem("deploy", "exits.wasm").code == 0
    assert terminals.shem("deploy", command).code == 0
    for served in (False, True):
        if served:
            terminals.serve()
        worker = f"served-{served}"
        exited = terminals.shem("invoke", f"exits/{worker}", "run", "--json")
        assert (exited.code, exited.json["result"]) == (1, {"exit": 7})
        assert exited.json["error"]["kind"] == "guest-exit"
        ran = terminals.shem(
            *("invoke", f"command/{worker}", "run", "--arg", "it", "--arg", "fail", "--json")
        )
        assert (ran.code, ran.json["result"], ran.json["wave"]) == (0, {"err": None}, "err")
        assert ran.json["stdout"] == "run 1\nargument it\nargument fail\n"
        again = terminals.shem("invoke", f"command/{worker}", "run", "--arg", "it")
        assert (again.code, again.stdout) == (4, "")
        assert "created with" in again.stderr
        no_text = terminals.shem("invoke", "command/no-text", "run", "--arg", b"\xff")
        assert (no_text.code, no_text.stdout) == (2, "")
        assert "is not Unicode text" in no_text.stderr
        assert terminals.shem("worker", f"command/{worker}", "--json").json["args"] == [
            "it",
            "fail",
        ]
    terminals.close()
