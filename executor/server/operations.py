"""What a command needs of the executor, whether this process runs it or another one is asked."""

from collections.abc import Callable, Sequence
from typing import Literal, Protocol, TypeAlias, Unpack

from executor.deployment import DeployOptions
from executor.records import (
    Accepted,
    Deployed,
    Done,
    Invocation,
    NewWorker,
    Rebuild,
    WorkerFile,
)
from executor.requests import WaveArguments

Choice: TypeAlias = Literal["repeat", "fail", "value"]


class Operations(Protocol):
    """`Executor` says what each one does, and what is durable when it returns."""

    async def deploy(
        self,
        wasm: bytes,
        *,
        name: str,
        progress: Callable[[str], None] | None = None,
        **options: Unpack[DeployOptions],
    ) -> Deployed: ...

    async def submit(
        self,
        worker: str,
        function: str,
        arguments: Sequence[object] | WaveArguments = (),
        *,
        key: str | None = None,
        run: bool = True,
        **new: Unpack[NewWorker],
    ) -> Accepted: ...

    async def wait(
        self, worker: str, key: str, *, timeout_s: float | None = None
    ) -> Invocation: ...

    async def invocation(self, worker: str, key: str) -> Invocation: ...

    async def crash(self, worker: str, *, go_on: bool = True) -> Rebuild: ...

    async def replay(self, worker: str, *, to: int | None = None) -> Rebuild: ...

    async def files(self, worker: str, path: str = "/") -> WorkerFile: ...

    async def interrupt(self, worker: str) -> Done: ...

    async def resume(self, worker: str, *, until_ended: bool = False) -> Done: ...

    async def cancel(self, worker: str, key: str) -> Done: ...

    async def resolve(
        self,
        worker: str,
        start: int,
        choice: Choice,
        value: object = None,
        *,
        until_ended: bool = False,
    ) -> Done: ...

    async def revert(
        self, worker: str, *, to: int | None = None, last: int | None = None, go_on: bool = True
    ) -> Done: ...

    async def complete_promise(
        self,
        worker: str,
        promise: int,
        value: bytes,
        *,
        key: str | None = None,
        until_rest: bool = False,
    ) -> bool: ...

    async def delete(self, worker: str) -> Done: ...

    async def run(self, *, until_idle: bool = False) -> None: ...
