"""Golem's guests in C, Zig, Go, Rust, Java and Grain, live, in forced replay and after crashes.

What is expected is the behaviour of `guest_languages*.rs` of Golem's executor tests at v1.2.5,
written afresh. The guests in Java and Grain trap by a fault of their own, on Wasmtime's own host as
well; Golem ignores their tests. JavaScript, Python, C# and Swift are missing in its repository.
"""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from trio.testing import trio_test

from executor.errors import GuestTrap
from executor.executor import Executor
from oplog.entry import InvocationFinished
from tests.conformance.golem.components import WHY_SKIPPED, components_folder, golem_component
from tests.conformance.golem.guest import Guest, Mode, deployed

if components_folder() is None:
    pytest.skip(WHY_SKIPPED, allow_module_level=True)

HALF_A_GIB = 512 * 1024 * 1024
RECORD = {"id": "1", "name": "one", "desc": "first", "timestamp": 7}


@trio_test
async def test_c_prints_and_returns(tmp_path: Path, mode: Mode) -> None:
    """An instance prints in its first call only: every call ends in the library's destructors."""
    async with Executor.open(tmp_path) as shem:
        guest = await deployed(shem, "c-1", "c-1", mode)
        done = await guest.invocation("run")
        assert (done.value, done.stdout) == (100, "Hello World!\n")
        assert (await guest.invocation("run")).stdout == ""
        said = (await Guest(shem, "c-1/c-2", mode).invocation("print", ["Hello C!"])).stdout
        assert said == f"Hello C! {datetime.now(UTC).year}\n"


@trio_test
async def test_c_has_much_memory_from_the_start(tmp_path: Path, mode: Mode) -> None:
    async with Executor.open(tmp_path) as shem:
        guest = await deployed(shem, "large-initial-memory", "w", mode)
        assert await guest.run("run") == HALF_A_GIB


@trio_test
async def test_c_takes_much_memory_little_by_little(tmp_path: Path, mode: Mode) -> None:
    async with Executor.open(tmp_path) as shem:
        guest = await deployed(shem, "large-dynamic-memory", "w", mode)
        assert await guest.run("run") == 0


@trio_test
async def test_zig_keeps_a_sum(tmp_path: Path, mode: Mode) -> None:
    async with Executor.open(tmp_path) as shem:
        guest = await deployed(shem, "zig-3", "w", mode)
        await guest.call("add", 10)
        done = await guest.invocation("add", [11])
        assert done.stdout == "Adding 11 to state\n"
        assert await guest.call("get") == 21


@trio_test
async def test_go_sees_time_arguments_and_environment(tmp_path: Path, mode: Mode) -> None:
    async with Executor.open(tmp_path) as shem:
        await shem.deploy(golem_component("tinygo-wasi"), name="tinygo-wasi")
        guest = Guest(shem, "tinygo-wasi/w", mode)
        await shem.submit(
            guest.worker,
            "example1",
            ["Hello Go-lem"],
            key="k",
            args=["arg-1", "arg-2"],
            env={"ENV_VAR_1": "ENV_VAR_VALUE_1"},
        )
        done = await guest.invocation("example1", ["Hello Go-lem"], "k")
        first, second, rest = done.stdout.split("\n", 2)
        assert first == "Hello Go-lem"
        assert second == f"test {datetime.now(UTC).year} {done.value}"
        assert "args: [arg-1 arg-2]" in rest
        for variable in (
            *("ENV_VAR_1=ENV_VAR_VALUE_1", "GOLEM_WORKER_NAME=w"),
            *("GOLEM_COMPONENT_ID=", "GOLEM_COMPONENT_VERSION=0"),
        ):
            assert variable in rest


@pytest.mark.parametrize("name", ["rust_component_service", "child_component"])
@trio_test
async def test_rust_takes_and_gives_values(tmp_path: Path, mode: Mode, name: str) -> None:
    async with Executor.open(tmp_path) as shem:
        guest = await deployed(shem, name, "w", mode)
        assert await guest.run("echo", "hello") == "echo: hello"
        assert await guest.run("calculate", 12) == sum(range(10_000))
        [processed] = await guest.run("process", [RECORD])
        assert processed.keys() == RECORD.keys()
        assert processed["id"] == "1"


@trio_test
async def test_rust_reads_an_input_that_is_empty(tmp_path: Path, mode: Mode) -> None:
    """It wants a number there, and Golem's workers get one from a stream of another kind."""
    async with Executor.open(tmp_path) as shem:
        guest = await deployed(shem, "stdio-cc", "w", mode)
        with pytest.raises(GuestTrap):
            await shem.invoke(guest.worker, "run", key="k")
        await guest.rebuild_to_failure()
        stderr = (await shem.wait(guest.worker, "k")).stderr
        assert stderr.startswith("Got input through stdin: \n")
        assert "ParseIntError { kind: Empty }" in stderr


@pytest.mark.parametrize(
    ("name", "function", "arguments", "trap"),
    [
        ("java-1", "run-example1", ["Hello Golem!"], "ExceptionHandling_throwException"),
        ("java-2", "initialize-cart", ["test-user-1"], "ExceptionHandling_throwException"),
        ("grain-1", "run", [], "<wasm function"),
    ],
)
@trio_test
async def test_java_and_grain_trap_as_they_do_everywhere(
    tmp_path: Path, mode: Mode, name: str, function: str, arguments: list[str], trap: str
) -> None:
    async with Executor.open(tmp_path) as shem:
        guest = await deployed(shem, name, "w", mode)
        with pytest.raises(GuestTrap):
            await shem.invoke(guest.worker, function, arguments)
        await guest.rebuild_to_failure()
        [last] = [
            record.entry
            async for record in shem.oplog(guest.worker)
            if isinstance(record.entry, InvocationFinished)
        ]
        assert last.outcome.failure is not None
        assert trap in last.outcome.failure.backtrace
