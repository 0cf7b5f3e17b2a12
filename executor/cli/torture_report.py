"""What `shem torture` shows: progress on a terminal, the figures, and each thing that was wrong."""

import shlex
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

from executor.cli.output import one_line, stderr_console, table, write_json, write_line
from executor.torture.crash_points import KINDS
from executor.torture.figures import Figures, Wrong
from executor.torture.lab import Lab, Tried


class TortureReport:
    """Of one run of the command; `command` is what it was, but for the choice of points."""

    def __init__(self, lab: Lab, command: Sequence[str]) -> None:
        self.figures = Figures(lab.trial.name)
        self.seed: int | None = None
        self.interrupted = False
        self._lab = lab
        self._command = tuple(command)
        self._began = time.monotonic()
        self._expected = 0
        self._progress: Progress | None = None
        self._task = TaskID(0)

    @contextmanager
    def shown_progress(self) -> Iterator[None]:
        """A bar on the terminal, if there is one."""
        console = stderr_console()
        if not console.is_terminal:
            yield
            return
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=console, transient=True) as progress:
            self._progress = progress
            self._task = progress.add_task(self._description(), total=None)
            yield
        self._progress = None

    def expect(self, more: int) -> None:
        """So many cases come besides."""
        self._expected += more
        self._show()

    def count(self, tried: Tried) -> None:
        self.figures.count(tried)
        self._show()

    def _show(self) -> None:
        if self._progress is not None:
            self._progress.update(
                self._task,
                total=self._expected,
                completed=self.figures.tried,
                description=self._description(),
            )

    def _description(self) -> str:
        figures = self.figures
        return (
            f"recovered {figures.recovered} of {figures.tried},"
            f" lost {figures.lost}, duplicated {figures.duplicated}"
        )

    def write(self, *, as_json: bool) -> None:
        """The figures on stdout."""
        if as_json:
            write_json(self._json())
            return
        figures = self.figures
        workers = self._lab.trial.workers
        keys = {(step.worker, step.key) for step in self._lab.trial.steps}
        write_line(
            f"{figures.name}: {counted(len(keys), 'invocation')} of"
            f" {counted(len(workers), 'worker')}"
        )
        for text in table([("POINT", "REACHED", "TRIED", "KILLS"), *self._rows()]):
            write_line(f"  {text}")
        for phrase in self._lab.reference().not_compared():
            write_line(f"not compared: {phrase}")
        for wrong in figures.wrong:
            write_line(f"{wrong.at}: {one_line(wrong.what)}: {self._reproducing(wrong)}")
        if self.interrupted:
            write_line(f"interrupted: {counted(self._expected - figures.tried, 'point')} not tried")
        seed = "" if self.seed is None else f"; seed {self.seed}"
        write_line(
            f"{counted(figures.tried, 'point')} tried, {counted(figures.killed, 'kill')},"
            f" {figures.recovered} recovered;"
            f" {counted(figures.repeated, 'effect')} repeated with the same key,"
            f" {figures.uncertain} uncertain{seed}"
        )
        write_line(
            f"lost {figures.lost}, duplicated {figures.duplicated}, wrong {len(figures.wrong)}"
        )

    def _rows(self) -> list[tuple[str, int, int, int]]:
        """Kind, how often an undisturbed run comes to it, cases, and killed processes."""
        counts = self._lab.counts()
        figures = self.figures
        return [
            (kind, counts.get(kind, 0), figures.cases[kind], figures.kills[kind])
            for kind in KINDS
            if figures.cases[kind]
        ]

    def _reproducing(self, wrong: Wrong) -> str:
        return shlex.join(("shem", *self._command, "--at", wrong.at))

    def _json(self) -> dict[str, object]:
        figures = self.figures
        trial = self._lab.trial
        return {
            "component": figures.name,
            "workers": list(trial.workers),
            "invocations": len({(step.worker, step.key) for step in trial.steps}),
            "points": [
                {"kind": kind, "reached": reached, "tried": tried, "kills": kills}
                for kind, reached, tried, kills in self._rows()
            ],
            "tried": figures.tried,
            "kills": figures.killed,
            "recovered": figures.recovered,
            "lost": figures.lost,
            "duplicated": figures.duplicated,
            "repeated": figures.repeated,
            "uncertain": figures.uncertain,
            "differences": [
                {"at": wrong.at, "what": wrong.what, "command": self._reproducing(wrong)}
                for wrong in figures.wrong
            ],
            "not_compared": self._lab.reference().not_compared(),
            "interrupted": self.interrupted,
            "seed": self.seed,
            "ms": (time.monotonic() - self._began) * 1_000,
        }


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
