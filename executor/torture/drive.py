"""The client in a process under torture: asks for invocations, and reports what it is told."""

from hashlib import blake2b
from typing import Final

from executor.errors import InvocationError, ShemError, UnknownKey, WorkerNotFound
from executor.executor import Executor
from executor.records import Invocation
from executor.requests import WaveArguments
from executor.torture.calls import TEXT_MAX
from executor.torture.ledger import report_oplogs
from executor.torture.plan import (
    Accepted,
    AnyStep,
    Files,
    Invoke,
    Outcome,
    Plan,
    Refused,
    Replayed,
    Report,
    Resolved,
    Submit,
    Trouble,
)
from executor.worker.reader import StoreReader
from executor.worker.status import Status

FILES_MAX: Final = 256
"""So many names of a worker's tree are looked at; each is a rebuild."""


class Drive:
    """Takes the steps of one plan. For the trio thread."""

    def __init__(self, shem: Executor, reader: StoreReader, plan: Plan, report: Report) -> None:
        self.shem = shem
        self._reader = reader
        self._plan = plan
        self._report = report

    async def take_steps(self) -> None:
        for step in self._plan.steps:
            await self._take(step)

    async def _take(self, step: AnyStep) -> None:
        arguments = WaveArguments(step.arguments)
        ask = self.shem.submit if isinstance(step, Submit) else self.shem.invoke
        try:
            await ask(
                step.worker,
                step.function,
                arguments,
                key=step.key,
                env=step.env,
                args=step.args,
            )
        except ShemError as error:
            recorded = isinstance(error, InvocationError) and error.kind != "previous-failed"
            if not recorded or isinstance(step, Submit):
                self._refused(step, error)
                return
        if isinstance(step, Submit):
            self._report(Accepted(worker=step.worker, key=step.key))
        else:
            await self._wait(step)

    async def _wait(self, step: Invoke) -> None:
        try:
            found = await self.shem.wait(step.worker, step.key)
        except ShemError as error:
            self._refused(step, error)
        else:
            self._report(outcome(found, resumed=False))

    def _refused(self, step: AnyStep, error: ShemError) -> None:
        self._report(
            Refused(worker=step.worker, key=step.key, kind=error.kind, message=error.message)
        )

    async def resume(self) -> None:
        """Takes up all that is pending, with an owner who has an uncertain write repeated, and
        reports what is committed of each key.
        """
        await self._run_until_idle()
        while [worker for worker in self._plan.workers if await self._resolve(worker)]:
            await self._run_until_idle()
        for worker, key in dict.fromkeys((step.worker, step.key) for step in self._plan.steps):
            try:
                found = self._reader.invocation(worker, key)
            except (WorkerNotFound, UnknownKey):
                continue
            if found.status == "pending" and self._status(worker).state == "suspended":
                found = await self.shem.wait(worker, key)  # it wakes by itself
            self._report(outcome(found, resumed=True))

    def _status(self, worker: str) -> Status:
        return self._reader.status(self._reader.worker_id(worker))

    async def _run_until_idle(self) -> None:
        try:
            await self.shem.run(until_idle=True)
        except ShemError as error:
            self._report(Trouble(kind=error.kind, message=f"{error.where}: {error.message}"))

    async def _resolve(self, worker: str) -> bool:
        """Whether the worker was uncertain."""
        try:
            status = self._status(worker)
        except WorkerNotFound:
            return False
        if status.state != "uncertain":
            return False
        start, _ = status.decision
        await self.shem.resolve(worker, start, "repeat")
        self._report(Resolved(worker=worker, start=start))
        return True

    async def verify(self) -> None:
        """Replays every worker, and reports its files and its oplog."""
        for worker in self._plan.workers:
            try:
                rebuilt = await self.shem.replay(worker)
            except WorkerNotFound:
                continue
            except ShemError as error:
                self._report(Trouble(kind=error.kind, message=f"replay: {error.message}"))
                continue
            divergence = "" if rebuilt.divergence is None else str(rebuilt.divergence)
            self._report(
                Replayed(
                    worker=worker,
                    entries=rebuilt.entries,
                    replayed=rebuilt.replayed,
                    divergence=divergence,
                )
            )
            if not divergence:
                self._report(Files(worker=worker, texts=await self._files(worker)))
        report_oplogs(self._reader, self._plan.workers, self._report, verified=True)

    async def _files(self, worker: str) -> dict[str, str]:
        """What lies in the worker's tree, as far as `FILES_MAX` goes."""
        texts: dict[str, str] = {}
        directories = ["/"]
        while directories:
            directory = directories.pop()
            listed = await self.shem.files(worker, directory)
            for file in listed.entries or ():
                path = f"{directory.rstrip('/')}/{file.name}"
                if len(texts) == FILES_MAX:
                    return texts
                if file.kind == "directory":
                    directories.append(path)
                    texts[path] = "a directory"
                elif file.kind == "symbolic-link":
                    texts[path] = f"-> {file.target}"
                else:
                    content = (await self.shem.files(worker, path)).content or b""
                    texts[path] = content_text(content)
        return texts


def content_text(content: bytes) -> str:
    """All of a short text; the beginning, and a digest, of anything else."""
    text = content.decode(errors="replace")
    if len(text) <= TEXT_MAX:
        return text
    return f"{text[:TEXT_MAX]} {blake2b(content).hexdigest()}"


def outcome(found: Invocation, *, resumed: bool) -> Outcome:
    error = found.error
    return Outcome(
        worker=found.worker,
        key=found.key,
        resumed=resumed,
        status=found.status,
        wave=found.wave,
        error="" if error is None else f"{error.kind}: {error.message}",
        exit_code=found.exit_code,
        attempts=found.attempts,
        stdout=found.stdout,
        stderr=found.stderr,
    )
