"""The processes that the crash tests kill.

`python -m tests.support.crash_child` imports the executor, opens nothing, and forks one child for
each plan that it reads, a JSON line each, from standard input; it answers with the child's exit
status. So a child is a process of its own, new from the import on, and costs no import.

A child appends its reports to the plan's file as they happen: after a SIGKILL they tell what it had
promised.
"""

import contextlib
import faulthandler
import json
import os
import signal
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from hashlib import blake2b
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import trio

from executor import Executor, Ok, host_function
from executor.cli.crash_points import CrashPoint, crashing_perform, crashing_store
from executor.durable.retry import TransientError
from executor.errors import RequestError, ShemError, UnknownKey, WorkerNotFound
from executor.records import Invocation
from executor.requests import WaveArguments
from executor.worker.reader import StoreReader
from oplog.codec import encode_entry
from oplog.entry import KIND_OF, Entry
from tests.support.crash_plan import (
    Accepted,
    AnyEvent,
    AnyStep,
    Counted,
    Delete,
    Deleted,
    Deploy,
    Deployed,
    Ended,
    Found,
    Invoke,
    Line,
    Opened,
    Outcome,
    Plan,
    Refused,
    Replayed,
    Submit,
    Together,
    Wait,
    decode_plan,
    encode,
)

CHARGE = "charge: func(who: string, cents: u64) -> result<string, string>"
HANGS_S = 60
Report = Callable[[AnyEvent], None]


class CountingPoint(CrashPoint):
    """Kills nobody, counts everything."""

    def __init__(self) -> None:
        super().__init__("after-result", 0)
        self.counts: Counter[str] = Counter()
        self._counting = threading.Lock()

    def reach(self, kind: str) -> None:
        with self._counting:
            self.counts[kind] += 1


def bank(plan: Plan) -> Any:
    """`charge` by HTTP, in a worker thread."""

    @host_function(plan.bank, CHARGE, type=plan.charge_type)
    def charge(call, who, cents):
        if plan.flaky:
            marker = Path(plan.flaky, call.key)
            if not marker.exists():
                marker.touch()
                raise TransientError("the bank is busy")
        connection = HTTPConnection("127.0.0.1", plan.receiver_port, timeout=30)
        with contextlib.closing(connection):
            body = json.dumps({"who": who, "cents": cents})
            connection.request("POST", plan.peer, body, {"idempotency-key": call.key})
            return Ok(json.loads(connection.getresponse().read())["reference"])

    return charge


def line(index: int, entry: Entry) -> Line:
    return Line(
        index=index,
        kind=KIND_OF[type(entry)],
        digest=blake2b(encode_entry(entry), digest_size=8).hexdigest(),
        key=getattr(entry, "key", ""),
        function=getattr(entry, "function", ""),
        type=getattr(entry, "function_type", ""),
        start_index=getattr(entry, "start_index", 0),
    )


def report_oplogs(reader: StoreReader, plan: Plan, report: Report, *, verified: bool) -> None:
    for worker in plan.workers:
        try:
            worker_id = reader.worker_id(worker).hex()
        except WorkerNotFound:
            continue
        lines = tuple(line(record.index, record.entry) for record in reader.oplog(worker))
        report(Found(worker=worker, id=worker_id, lines=lines, verified=verified))


class Drive:
    """Takes the steps of one plan."""

    def __init__(self, shem: Executor, plan: Plan, report: Report) -> None:
        self.shem = shem
        self.plan = plan
        self.report = report

    async def steps(self, steps: Sequence[AnyStep]) -> None:
        for step in steps:
            await self.step(step)

    async def step(self, step: AnyStep) -> None:
        match step:
            case Invoke():
                await self.invoke(step)
            case Submit():
                await self.submit(step)
            case Wait():
                await self.wait(step.worker, step.key, resumed=False)
            case Together():
                async with trio.open_nursery() as nursery:
                    for sequence in step.sequences:
                        nursery.start_soon(self.steps, sequence)
            case Deploy():
                wasm = await trio.to_thread.run_sync(Path(step.path).read_bytes)
                deployed = await self.shem.deploy(wasm, name=step.name)
                self.report(Deployed(name=step.name, revision=deployed.revision))
            case Delete():
                await self.delete(step.worker)

    async def delete(self, worker: str) -> None:
        try:
            await self.shem.delete(worker)
        except WorkerNotFound:
            self.report(Deleted(worker=worker, found=False))
        else:
            self.report(Deleted(worker=worker, found=True))

    async def invoke(self, step: Invoke) -> None:
        arguments = WaveArguments(step.arguments)
        try:
            await self.shem.invoke(step.worker, step.function, arguments, key=step.key)
        except ShemError as error:
            if isinstance(error, RequestError) or error.kind == "previous-failed":
                self.refused(step.worker, step.key, error)
                return
        await self.wait(step.worker, step.key, resumed=False)

    async def submit(self, step: Submit) -> None:
        arguments = WaveArguments(step.arguments)
        try:
            await self.shem.submit(step.worker, step.function, arguments, key=step.key)
        except ShemError as error:
            self.refused(step.worker, step.key, error)
        else:
            self.report(Accepted(worker=step.worker, key=step.key))

    async def wait(self, worker: str, key: str, *, resumed: bool) -> None:
        timeout_s = 0 if resumed else None
        try:
            found = await self.shem.wait(worker, key, timeout_s=timeout_s)
        except (WorkerNotFound, UnknownKey):
            return
        except ShemError as error:
            self.refused(worker, key, error)
        else:
            self.report(outcome(found, resumed=resumed))

    def refused(self, worker: str, key: str, error: ShemError) -> None:
        self.report(Refused(worker=worker, key=key, kind=error.kind, message=error.message))

    async def resume(self) -> None:
        await self.shem.run(until_idle=True)
        for worker, key in keys_of(self.plan.steps):
            await self.wait(worker, key, resumed=True)

    async def verify(self) -> None:
        for query in self.plan.queries:
            await self.invoke(query)
        for worker in self.plan.workers:
            try:
                rebuilt = await self.shem.replay(worker)
            except WorkerNotFound:
                continue
            divergence = "" if rebuilt.divergence is None else str(rebuilt.divergence)
            self.report(
                Replayed(
                    worker=worker,
                    entries=rebuilt.entries,
                    replayed=rebuilt.replayed,
                    divergence=divergence,
                )
            )


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


def keys_of(steps: Sequence[AnyStep]) -> list[tuple[str, str]]:
    """Worker and key of every invocation, in the order of asking."""
    keys: list[tuple[str, str]] = []
    for step in steps:
        match step:
            case Invoke() | Submit():
                keys.append((step.worker, step.key))
            case Together():
                for sequence in step.sequences:
                    keys.extend(keys_of(sequence))
            case _:
                pass
    return keys


async def run_plan(plan: Plan, report: Report) -> None:
    counting = CountingPoint()
    point = CrashPoint(*plan.point) if plan.point else counting  # type: ignore[arg-type]
    store = crashing_store(Path(plan.store), point)
    opened = Executor.open(
        plan.store, host=bank(plan), store=store, perform=crashing_perform(point)
    )
    async with opened as shem:
        drive = Drive(shem, plan, report)
        if plan.resume:
            await drive.resume()
        await drive.steps(plan.steps)
        report(Counted(counts=dict(counting.counts)))
        if plan.verify:
            await drive.verify()
            report_oplogs(StoreReader(store.engine), plan, report, verified=True)
    report(Ended())


def run_child(plan: Plan) -> None:
    """Runs one plan in this process. Does not return."""
    errors = os.open(plan.errors, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(errors, 1)
    os.dup2(errors, 2)
    faulthandler.enable()
    faulthandler.dump_traceback_later(HANGS_S, exit=True)
    reports = os.open(plan.report, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def report(event: AnyEvent) -> None:
        os.write(reports, encode(event) + b"\n")

    status = 1
    try:
        if Path(plan.store, "data.mdb").exists():
            with StoreReader(plan.store) as reader:
                report_oplogs(reader, plan, report, verified=False)
        report(Opened())
        trio.run(run_plan, plan, report)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def serve() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for text in sys.stdin:
        child = os.fork()
        if child == 0:
            run_child(decode_plan(text))
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    serve()
