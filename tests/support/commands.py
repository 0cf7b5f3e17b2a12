"""`wasi:cli/run` components on two hosts: Wasmtime's own, and this executor.

Both get the same environment, arguments and files, and `/` as the one preopened directory. What a
command does is its exit code and its output; on the executor also after a replay, and after a cut
right before its outcome: everything it did is replayed then, and only the outcome is new.
"""

import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import trio

from executor.executor import Executor
from executor.records import InitialFile, Invocation
from executor.wasm.values import Err
from oplog.entry import Exited, InvocationFinished, InvocationStarted, Log
from tests.support.wasmtime_command import NOT_LINKED, TRAPPED

TIMEOUT_S = 60
OWN_VARIABLES = {
    "GOLEM_WORKER_NAME": "w",
    "GOLEM_COMPONENT_ID": "00000000-0000-0000-0000-000000000000",
    "GOLEM_COMPONENT_VERSION": "0",
}
"""What the executor adds to the environment of every worker."""


class Command(msgspec.Struct, frozen=True):
    wasm: Path
    args: Sequence[str] = ()
    env: dict[str, str] = {}
    root: Path | None = None
    """The directory whose files the command finds below `/`."""


class Ended(NamedTuple):
    exit_code: int
    stdout: bytes
    stderr: bytes


class NotLinked(Exception):
    """Wasmtime's own host does not offer what the component imports."""


class Hangs(Exception):
    """The command did not end in time."""


async def on_wasmtime(command: Command, *, timeout_s: float = TIMEOUT_S) -> Ended:
    """In a process of its own, on a copy of its files. Raises: NotLinked, Hangs."""
    with tempfile.TemporaryDirectory() as folder:
        root = own_root(command, Path(folder))
        asked = [sys.executable, "-m", "tests.support.wasmtime_command", "--root", str(root)]
        for name, value in (command.env | OWN_VARIABLES).items():
            asked += ["--env", f"{name}={value}"]
        asked += ["--", str(command.wasm), *command.args]
        done = None
        with trio.move_on_after(timeout_s):
            done = await trio.run_process(
                asked, capture_stdout=True, capture_stderr=True, check=False
            )
    if done is None:
        raise Hangs(f"not done on Wasmtime's own host after {timeout_s} s")
    if done.returncode == NOT_LINKED:
        raise NotLinked(done.stderr.decode(errors="replace").strip())
    return Ended(done.returncode, done.stdout, done.stderr)


def own_root(command: Command, folder: Path) -> Path:
    """A directory that the command may write to, with a copy of its files."""
    root = folder / "root"
    if command.root is None:
        root.mkdir()
    else:
        shutil.copytree(command.root, root)
    return root


async def deploy(shem: Executor, name: str, command: Command) -> None:
    files = () if command.root is None else tuple(initial_files(command.root))
    await shem.deploy(command.wasm.read_bytes(), name=name, files=files, env=dict(command.env))


def initial_files(root: Path) -> list[InitialFile]:
    return [
        InitialFile(path=f"/{file.relative_to(root)}", content=file.read_bytes(), writable=True)
        for file in sorted(root.rglob("*"))
        if file.is_file()
    ]


async def on_shem(
    shem: Executor, worker: str, command: Command, *, timeout_s: float = TIMEOUT_S
) -> Ended:
    """A first run of a deployed command. Raises: Hangs."""
    accepted = await shem.submit(worker, "run", args=command.args)
    done = await shem.wait(worker, accepted.key, timeout_s=timeout_s)
    return await ended(shem, done, timeout_s)


async def after_cut(shem: Executor, worker: str, *, timeout_s: float = TIMEOUT_S) -> Ended:
    """The last run again, from right before its outcome: what it had done is replayed.

    Raises: Hangs, Divergence.
    """
    visible = [record async for record in shem.oplog(worker) if not record.hidden]
    started = [one.entry for one in visible if isinstance(one.entry, InvocationStarted)][-1]
    kept = [one.index for one in visible if not isinstance(one.entry, InvocationFinished | Exited)]
    await shem.revert(worker, to=kept[-1])
    return await ended(shem, await shem.wait(worker, started.key, timeout_s=timeout_s), timeout_s)


async def ended(shem: Executor, done: Invocation, timeout_s: float) -> Ended:
    if done.status == "pending":
        await shem.delete(done.worker)
        raise Hangs(f"not done after {timeout_s} s")
    stdout, stderr = [
        b"".join(
            [
                record.entry.text.encode() if record.entry.octets is None else record.entry.octets
                async for record in shem.oplog(done.worker)
                if isinstance(record.entry, Log) and record.entry.level == level
            ]
        )
        for level in ("stdout", "stderr")
    ]
    if done.exit_code is not None:
        return Ended(done.exit_code, stdout, stderr)
    if done.status == "failed":
        assert done.error is not None
        return Ended(TRAPPED, stdout, stderr + f"{done.error.kind}: {done.error.message}".encode())
    return Ended(1 if isinstance(done.value, Err) else 0, stdout, stderr)
