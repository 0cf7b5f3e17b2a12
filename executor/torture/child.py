"""The processes under torture.

`python -m executor.torture.child` imports the executor, opens nothing, and forks one child for each
plan that it reads, a JSON line each, from standard input; it answers with the child's exit code. So
a child is a process of its own, new from the import on, and costs no import.
"""

import contextlib
import faulthandler
import os
import signal
import sys
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NoReturn

import trio

from executor.executor import Executor
from executor.path_text import system_path
from executor.sources import SystemSources
from executor.torture.crash_points import (
    CountingPoint,
    CrashPoint,
    crashing_perform,
    crashing_store,
)
from executor.torture.drive import Drive
from executor.torture.later import LaterSources
from executor.torture.ledger import recorded_effects, report_oplogs
from executor.torture.plan import (
    AnyEvent,
    Counted,
    Ended,
    Opened,
    Plan,
    Report,
    decode_plan,
    encode,
)
from executor.worker.reader import StoreReader


@asynccontextmanager
async def opened_drive(plan: Plan, report: Report) -> AsyncIterator[tuple[Drive, CountingPoint]]:
    """A client of the plan's store, which is opened with its crash point; what is counted is of use
    where nothing dies.
    """
    counting = CountingPoint()
    point = counting if plan.point is None else CrashPoint(*plan.point)
    directory = Path(system_path(plan.store))
    store = crashing_store(directory, point)
    opened = Executor.open(
        directory,
        store=store,
        sources=SystemSources() if plan.later_s is None else LaterSources(plan.later_s),
        perform=recorded_effects(crashing_perform(point), report),
    )
    async with opened as shem:
        yield Drive(shem, StoreReader(store.engine), plan, report), counting


async def run_plan(plan: Plan, report: Report) -> None:
    """Opens the store, takes the steps, and verifies if asked to."""
    async with opened_drive(plan, report) as (drive, counting):
        if plan.resume:
            await drive.resume()
        await drive.take_steps()
        report(Counted(counts={str(kind): count for kind, count in counting.counts.items()}))
        if plan.verify:
            await drive.verify()
    report(Ended())


def run_child(plan: Plan, run: Callable[[Plan, Report], Awaitable[None]] = run_plan) -> NoReturn:
    """Runs one plan in this process, to its end."""
    os.environ["SHEM_TORTURE_CASE"] = system_path(plan.case)
    os.dup2(os.open(os.devnull, os.O_RDONLY), sys.stdin.fileno())
    errors = os.open(system_path(plan.errors), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(errors, sys.stdout.fileno())
    os.dup2(errors, sys.stderr.fileno())
    faulthandler.enable()
    faulthandler.dump_traceback_later(plan.timeout_s, exit=True)
    reports = os.open(system_path(plan.report), os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def report(event: AnyEvent) -> None:
        line = encode(event) + b"\n"
        while line:
            line = line[os.write(reports, line) :]

    status = 1
    try:
        directory = Path(system_path(plan.store))
        if (directory / "data.mdb").exists():
            with StoreReader(directory) as reader:
                report_oplogs(reader, plan.workers, report, verified=False)
        report(Opened())
        trio.run(run, plan, report)
        status = 0
    except Exception:
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def serve(run: Callable[[str], object]) -> None:
    """Has a child of its own `run` each line of standard input, one after another.

    A child holds the pipe of the answers for as long as it lives, though it writes nothing there:
    who has killed all of them reads its end only once all are dead.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.dup(sys.stdout.fileno())
    for line in sys.stdin.buffer:
        child = os.fork()
        if child == 0:
            run(line.decode())
            os._exit(0)
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


def main() -> None:
    serve(lambda text: run_child(decode_plan(text)))


if __name__ == "__main__":
    main()
