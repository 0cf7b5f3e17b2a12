"""Where a script is tortured: stores, chains of processes, and what they come to.

A case is one store, copied from one in which the component is deployed, and a chain of processes
that use it one after another: each but the last is killed at its point, the last takes up what is
pending, asks for everything again and verifies. A process that ended of itself, since it did not
come to its point, is the last that was to be killed.
"""

import errno
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from itertools import count, repeat
from pathlib import Path
from queue import SimpleQueue
from random import Random
from signal import SIGKILL
from threading import Lock
from types import MappingProxyType
from typing import Final, NamedTuple, cast

from msgspec.structs import replace

from executor.errors import StoreError, UsageError
from executor.path_text import legible, system_path
from executor.torture.account import Account, Difference, Reference, account_of
from executor.torture.children import Children
from executor.torture.crash_points import KINDS, Point, PointKind
from executor.torture.plan import AnyEvent, AnyStep, Counted, Outcome, Plan, Refused, decode_event
from executor.torture.verdict import Case, Verdict, judge

CHAIN_LENGTH_MAX: Final = 100
LATER_S: Final = 0.003
"""By how much each reading of the second undisturbed run is later; of a further one, made when
something differs, more, as a recovery may make it."""
FURTHER_S: Final = (0.0, 0.1, 0.0, 1.0, 0.0, 10.0)
ROOM_BYTES: Final = 2**22
"""With less than this free a case that went wrong is not believed."""
NAME_MAX: Final = 32
"""Characters of a component, and of a chain, in the name of a folder."""
NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})

Check = Callable[[Case], Iterable[str]]


class Trial(NamedTuple):
    """What is tortured."""

    name: str
    template: Path
    """A store in which the component is deployed, and that nobody runs."""
    steps: tuple[AnyStep, ...]
    timeout_s: float = 60.0
    """Of each process."""
    places: Mapping[tuple[str, str], str] = MappingProxyType({})
    """Where an invocation stands, by worker and key: for errors."""

    @property
    def workers(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(step.worker for step in self.steps))


class Tried(NamedTuple):
    """One case and what is to be said of it."""

    case: Case
    """Without its events if everything held: there may be thousands of cases."""
    verdict: Verdict


class Lab:
    """For one trial. Methods block."""

    def __init__(
        self, trial: Trial, folder: Path, children: Children, keep: Path | None = None
    ) -> None:
        """Cases live in `folder` until they are judged; wrong ones move to `keep`, if given."""
        self.trial = trial
        self.checks: list[Check] = []
        """What must hold besides, of every case."""
        self._folder = folder
        self._keep = keep
        self._children = children
        self._numbers = count(1)
        self._learning = Lock()
        """Held while undisturbed runs are made, and for a look at what they agree on."""
        self._reference: Reference | None = None
        self._counts: dict[PointKind, int] = {}
        self._done = SimpleQueue[Future[Tried] | None]()
        """Cases that were tried, None if no more are wanted."""

    # -- one case ----------------------------------------------------------------------------

    def plan(self, folder: Path) -> Plan:
        return Plan(
            case=legible(folder.name),
            store=legible(str(folder / "store")),
            report=legible(str(folder / "reports.jsonl")),
            errors=legible(str(folder / "output.txt")),
            workers=self.trial.workers,
            steps=self.trial.steps,
            timeout_s=self.trial.timeout_s,
        )

    def new_folder(self, name: str) -> Path:
        """A new case's folder, with a store in which the component is deployed.

        Raises: StoreError if there is no room.
        """
        own = f"{self.trial.name[:NAME_MAX]}-{name[:NAME_MAX]}-{next(self._numbers)}"
        folder = self._folder / system_path(own.replace(":", "-"))
        store = folder / "store"
        try:
            store.mkdir(parents=True)
            (folder / "output.txt").touch()
            shutil.copy(self.trial.template / "data.mdb", store)
            (store / "artifacts").symlink_to((self.trial.template / "artifacts").absolute())
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            raise no_room(folder, error.strerror or "") from error
        return folder

    def run_chain(
        self, name: str, points: Iterable[Point], later_s: float | None = None
    ) -> tuple[Case, Path]:
        """A process for each point, then one that recovers and verifies. The case, and its folder,
        which is the caller's to remove.
        """
        folder = self.new_folder(name)
        plan = replace(self.plan(folder), later_s=later_s)
        chain: list[Point] = []
        killed = 0
        failure = ""
        for point in points:
            status = self._children.run(replace(plan, point=point, resume=bool(chain)))
            chain.append(point)
            killed += status == -SIGKILL
            if status != -SIGKILL:
                failure = end_text(status, plan)
                break
        if not failure:
            status = self._children.run(replace(plan, resume=bool(chain), verify=True))
            failure = end_text(status, plan)
        return Case(folder.name, tuple(chain), killed, events_of(plan), failure), folder

    def try_chain(self, chain: Iterable[Point], name: str = "") -> Tried:
        """Runs and judges a case. Raises: StoreError if there was no room for it."""
        points = chain if name else tuple(chain)
        case, folder = self.run_chain(name or chain_text(points), points)
        differences = self._differences(case)
        verdict = judge(case, differences)
        more = tuple(text for check in self.checks for text in check(case))
        verdict = verdict._replace(wrong=(*verdict.wrong, *more))
        if verdict.wrong:
            check_room(case, folder)
            if self._keep is not None:
                self._keep.mkdir(parents=True, exist_ok=True)
                kept = self._keep / folder.name
                no_artifacts = shutil.ignore_patterns("artifacts")  # they are compiled again
                shutil.copytree(folder, kept, ignore=no_artifacts, dirs_exist_ok=True)
        else:
            case = case._replace(events=())
        shutil.rmtree(folder, ignore_errors=True)
        return Tried(case, verdict)

    # -- undisturbed runs ----------------------------------------------------------------------

    def reference(self) -> Reference:
        """What two undisturbed runs agree on; they are made once.

        Raises: UsageError naming a line that is refused or does not end; StoreError if there is no
        room.
        """
        with self._learning:
            if self._reference is None:
                first, events = self._undisturbed("undisturbed", None)
                self._counts = counts_of(events)
                reference = Reference(first)
                reference.add(self._undisturbed("late", LATER_S)[0])
                self._reference = reference
            return self._reference

    def counts(self) -> dict[PointKind, int]:
        """How often an undisturbed run reaches each kind of point."""
        self.reference()
        return self._counts

    def _undisturbed(self, name: str, later_s: float | None) -> tuple[Account, Sequence[AnyEvent]]:
        case, folder = self.run_chain(name, (), later_s)
        stopped = self._stopped(case)
        verdict = judge(case)
        wrong = (*verdict.wrong, *(text for check in self.checks for text in check(case)))
        if stopped or wrong:
            check_room(case, folder)
        if stopped:
            raise stopped
        if wrong:
            raise UsageError(
                f"nothing was killed, and still: {wrong[0]}",
                where=self.trial.name,
                hint="what does not hold undisturbed cannot be tortured",
            )
        shutil.rmtree(folder, ignore_errors=True)
        return account_of(case.events), case.events

    def _stopped(self, case: Case) -> UsageError | None:
        """What keeps an undisturbed run from getting through the script, if anything does."""
        answered = set()
        for event in case.events:
            match event:
                case Refused() if event.kind != "previous-failed":
                    return UsageError(
                        event.message,
                        where=self._place(event),
                        hint="every line has to be accepted when nothing is killed",
                    )
                case Refused() | Outcome():
                    answered.add((event.worker, event.key))
                case _:
                    pass
        waiting = [s for s in self.trial.steps if (s.worker, s.key) not in answered]
        if not case.failure or not waiting:
            return None
        return UsageError(
            f"undisturbed, {case.failure}",
            where=self._place(waiting[0]),
            hint="every line has to end when nothing is killed; --timeout allows more time",
        )

    def _place(self, of: Refused | AnyStep) -> str:
        return self.trial.places.get((of.worker, of.key), f"key {of.key} of {of.worker}")

    def _differences(self, case: Case) -> list[Difference]:
        """What no undisturbed run explains; more of them are made as long as that may help."""
        if case.failure:
            return []
        reference = self.reference()
        account = account_of(case.events)
        with self._learning:
            found = list(reference.differences(account))
            while found and reference.count - 2 < len(FURTHER_S):
                later_s = FURTHER_S[reference.count - 2]
                reference.add(self._undisturbed(f"late-{reference.count}", later_s)[0])
                found = list(reference.differences(account))
        return found

    # -- many cases ----------------------------------------------------------------------------

    def points(self, kinds: Sequence[PointKind] = KINDS) -> list[Point]:
        """Every point that an undisturbed run reaches."""
        counts = self.counts()
        return [(kind, n) for kind in kinds for n in range(1, counts.get(kind, 0) + 1)]

    def chains(
        self, points: Sequence[Point], recovery_kills: int, chance: Random
    ) -> list[tuple[Point, ...]]:
        """A chain for each point; recoveries are killed too, at points of its kind that a process
        with half of the work left is likely to reach.
        """
        counts = self.counts()
        return [
            (
                point,
                *(
                    (point[0], chance.randint(1, max(counts[point[0]] // 3, 1)))
                    for _ in range(recovery_kills)
                ),
            )
            for point in points
        ]

    def try_chains(self, chains: Sequence[Sequence[Point]]) -> Iterator[Tried]:
        """Cases as they are done, several at once. Who leaves some unread is done with the lab."""
        for chain in chains:
            future = self._children.pool.submit(self.try_chain, chain)
            future.add_done_callback(self._done.put)
        for _ in chains:
            done = self._done.get()
            if done is None:
                raise KeyboardInterrupt
            yield done.result()

    def interrupt(self) -> None:
        """Has what tries cases raise `KeyboardInterrupt`. For the handler of a signal: what such a
        handler raises itself is lost if a callback of the collector happens to run just then.
        """
        self._done.put(None)

    def try_beyond(self, kind: PointKind) -> Iterator[Tried]:
        """Tries the points after the last that was counted, until there are no more: how many
        entries share a commit is a matter of time.
        """
        for number in count(self.counts().get(kind, 0) + 1):
            [tried] = self.try_chains([[(kind, number)]])
            yield tried
            if not tried.case.killed:
                return

    def try_until_done(self, point: Point) -> Tried:
        """Kills one process after another at the same point, until one has nothing left to do."""
        return self.try_chain(repeat(point, CHAIN_LENGTH_MAX), name="until-done")


def chain_text(chain: Iterable[Point]) -> str:
    """`append:17`, or `append:17,commit:2` if a recovery is killed too."""
    return ",".join(f"{kind}:{number}" for kind, number in chain)


def end_text(status: int, plan: Plan) -> str:
    """How a process ended otherwise than by itself or at its point, in words."""
    if status == 0:
        return ""
    said = Path(system_path(plan.errors)).read_text(errors="replace").strip().splitlines()
    if any(line.startswith("Timeout (") for line in said):
        return f"a process did not end within {plan.timeout_s:g} s"
    how = f"exit code {status}" if status > 0 else f"signal {-status}"
    return f"a process ended with {how}: {said[-1] if said else 'it said nothing'}"


def events_of(plan: Plan) -> tuple[AnyEvent, ...]:
    """Everything that the processes of a plan have reported."""
    report = Path(system_path(plan.report))
    lines = report.read_bytes().splitlines() if report.exists() else ()
    return tuple(decode_event(line) for line in lines)


def counts_of(events: Sequence[AnyEvent]) -> dict[PointKind, int]:
    (counted,) = [event for event in events if isinstance(event, Counted)]
    return {cast("PointKind", kind): number for kind, number in counted.counts.items()}


def check_room(case: Case, folder: Path) -> None:
    """Raises: StoreError if the case is wrong since there was no room for it."""
    refused = any(isinstance(event, Refused) and event.kind == "disk-full" for event in case.events)
    if refused or "No space left" in case.failure or shutil.disk_usage(folder).free < ROOM_BYTES:
        raise no_room(folder, "no space left on the device")


def no_room(folder: Path, reason: str) -> StoreError:
    return StoreError(
        f"the store of a case cannot be written: {reason}",
        kind="disk-full",
        where=str(folder),
        hint="make space there, or name another place with TMPDIR",
    )
