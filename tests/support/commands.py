"""`wasi:cli/run` components on two hosts: Wasmtime's own, and this executor.

Both get the same environment, arguments and files, and `/` as the one preopened directory. What a
command does is its exit code and its output; on the executor also after a replay, and after a cut
right before its outcome: everything it did is replayed then, and only the outcome is new.
"""

import shutil
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec
import trio

from executor.errors import UsageError
from executor.executor import Executor
from executor.records import Deployed, InitialFile, Invocation
from executor.wasm.values import Err
from oplog.entry import Exited, InvocationFinished, InvocationStarted, Log
from tests.support.wasmtime_command import NOT_LINKED, TRAPPED

TIMEOUT_S = 60
RUN = "wasi:cli/run.{run}"
WORKER = "w"
"""The name of the worker that runs a command: it sees it."""


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


async def on_wasmtime(
    command: Command, component_id: str, *, timeout_s: float = TIMEOUT_S
) -> Ended:
    """In a process of its own, on a copy of its files, as if it were the first revision of a
    component here. Raises: NotLinked, Hangs.
    """
    own = {
        "GOLEM_WORKER_NAME": WORKER,
        "GOLEM_COMPONENT_ID": component_id,
        "GOLEM_COMPONENT_VERSION": "0",
    }
    with tempfile.TemporaryDirectory() as folder:
        root = own_root(command, Path(folder))
        asked = [sys.executable, "-m", "tests.support.wasmtime_command", "--root", str(root)]
        for name, value in (command.env | own).items():
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


async def deploy(shem: Executor, name: str, command: Command) -> Deployed:
    files = () if command.root is None else tuple(initial_files(command.root))
    wasm = command.wasm.read_bytes()
    return await shem.deploy(wasm, name=name, files=files, env=dict(command.env))


def initial_files(root: Path) -> list[InitialFile]:
    return [
        InitialFile(path=f"/{file.relative_to(root)}", content=file.read_bytes(), writable=True)
        for file in sorted(root.rglob("*"))
        if file.is_file()
    ]


async def on_shem(
    shem: Executor, component: str, command: Command, *, timeout_s: float = TIMEOUT_S
) -> Ended:
    """A first run of a deployed command, by its worker. Raises: Hangs."""
    worker = f"{component}/{WORKER}"
    accepted = await shem.submit(worker, RUN, args=command.args)
    done = await shem.wait(worker, accepted.key, timeout_s=timeout_s)
    return await ended(shem, done, timeout_s)


async def after_cut(shem: Executor, component: str, *, timeout_s: float = TIMEOUT_S) -> Ended:
    """The last run again, from the last entry before its outcome where an oplog can be cut: what it
    had done is replayed. Raises: Hangs, Divergence.
    """
    worker = f"{component}/{WORKER}"
    visible = [record async for record in shem.oplog(worker) if not record.hidden]
    started = [one for one in visible if isinstance(one.entry, InvocationStarted)][-1]
    for one in reversed(visible):
        if isinstance(one.entry, InvocationFinished | Exited):
            continue
        with suppress(UsageError):  # it lies inside a call that trapped
            await shem.revert(worker, to=one.index)
            break
    done = await shem.wait(worker, started.entry.key, timeout_s=timeout_s)
    return await ended(shem, done, timeout_s)


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
