"""What a command needs of the executor, whether this process runs it or another one is asked."""

from collections.abc import Callable, Sequence
from typing import Protocol, Unpack

from executor.deployment import DeployOptions
from executor.executor import WaveArguments
from executor.records import Accepted, Deployed, Done, Invocation, Rebuild


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
        env: dict[str, str] | None = None,
        run: bool = True,
    ) -> Accepted: ...

    async def wait(
        self, worker: str, key: str, *, timeout_s: float | None = None
    ) -> Invocation: ...

    async def invocation(self, worker: str, key: str) -> Invocation: ...

    async def crash(self, worker: str, *, go_on: bool = True) -> Rebuild: ...

    async def replay(self, worker: str, *, to: int | None = None) -> Rebuild: ...

    async def delete(self, worker: str) -> Done: ...

    async def run(self, *, until_idle: bool = False) -> None: ...
