"""One worker of a Golem component, called the way that the test's mode says."""

from collections.abc import Sequence
from typing import Any, Literal

from executor.executor import Executor
from executor.records import Invocation
from tests.conformance.golem.components import golem_component

Mode = Literal["live", "replayed", "crashed"]
TIMEOUT_S = 60
API = "golem:it/api"


class Guest:
    """One worker of a Golem component; after each invocation the mode says what happens to it."""

    def __init__(
        self, shem: Executor, worker: str, mode: Mode, env: dict[str, str] | None = None
    ) -> None:
        """`env` is that of a worker that its first invocation creates."""
        self.shem = shem
        self.env = env
        self.worker = worker
        self.mode = mode

    async def call(self, function: str, *arguments: Any, key: str | None = None) -> Any:
        """The value of a function of `golem:it/api`."""
        return (await self.invocation(f"{API}.{{{function}}}", arguments, key)).value

    async def run(self, function: str, *arguments: Any) -> Any:
        """The value of a function by its path, or its short name."""
        return (await self.invocation(function, arguments)).value

    async def invocation(
        self, function: str, arguments: Sequence[Any] = (), key: str | None = None
    ) -> Invocation:
        given = list(arguments)
        accepted = await self.shem.submit(self.worker, function, given, key=key, env=self.env)
        done = await self.shem.wait(self.worker, accepted.key, timeout_s=TIMEOUT_S)
        assert (done.status, done.error) == ("completed", None)
        await self.rebuild()
        return done

    async def rebuild(self) -> None:
        """Nothing is appended and nothing diverges; afterwards the worker is as it was."""
        assert await self._rebuilt() is None

    async def rebuild_to_failure(self) -> None:
        """The same of a worker that failed: no instance is run past its last good invocation."""
        stopped_at = await self._rebuilt()
        assert stopped_at is not None or self.mode == "live"

    async def _rebuilt(self) -> str | None:
        """Where the rebuild that the mode asks for stopped, if it did."""
        if self.mode == "live":
            return None
        before = await entry_kinds(self.shem, self.worker)
        rebuild = self.shem.replay if self.mode == "replayed" else self.shem.crash
        report = await rebuild(self.worker)
        assert report.divergence is None
        assert report.entries == len(before)
        assert report.replayed > 0 or report.stopped_at is not None
        assert await entry_kinds(self.shem, self.worker) == before
        return report.stopped_at


async def entry_kinds(shem: Executor, worker: str) -> list[str]:
    return [type(record.entry).__name__ async for record in shem.oplog(worker)]


async def deployed(shem: Executor, component: str, worker: str, mode: Mode) -> Guest:
    await shem.deploy(golem_component(component), name=component)
    return Guest(shem, f"{component}/{worker}", mode)
