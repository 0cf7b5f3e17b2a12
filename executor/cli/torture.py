"""`shem torture`: a user's component, killed at every point of a script, and what comes of it."""

import os
import random
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import click
import msgspec
import trio

from executor.cli.command_line import CommandLine, command_options
from executor.cli.completion import complete_file
from executor.cli.deploy import Deployment, deployment_options, shown_progress
from executor.cli.output import (
    EXIT_DONE,
    EXIT_GUEST,
    EXIT_INTERRUPTED,
)
from executor.cli.parse import read_file, seconds
from executor.cli.torture_report import TortureReport
from executor.cli.torture_script import check_lines, read_script, steps_of
from executor.deployment import DeployOptions
from executor.errors import InvocationInterrupted, StoreError, UsageError
from executor.path_text import is_unicode, legible, system_path
from executor.torture.crash_points import KINDS, Point, PointKind, parse_point
from executor.torture.lab import NO_ROOM, Lab, Trial, no_room
from executor.torture.subject import Subject, deploy_subject, deployed_subject
from executor.worker.signatures import export_types

STDIN: Final = "-"
TIMEOUT_MAX_S: Final = 1_000_000
ENDING: Final = (signal.SIGINT, signal.SIGTERM)
GROWING: Final[tuple[PointKind, ...]] = ("append", "commit")
"""How often these are reached is a matter of time: what lies beyond is tried as well."""
CHOOSING: Final = ("--points", "--sample", "--seed", "--recovery-kills")
NOT_REPEATED: Final = {*CHOOSING, "--at", "--jobs", "--keep"}
FLAGS_NOT_REPEATED: Final = {"--json", "--debug"}


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What the user asked for; the command's arguments and options by name."""

    script: str
    deployment: Deployment
    points: tuple[PointKind, ...] | None
    at: tuple[tuple[Point, ...], ...]
    sample: int | None
    seed: int | None
    recovery_kills: int
    jobs: int
    timeout_s: float
    keep: Path | None


def kinds(text: str) -> tuple[PointKind, ...]:
    """`append,commit`: kinds of crash points."""
    wanted = text.split(",")
    found = tuple(kind for kind in KINDS if kind in wanted)
    if unknown := set(wanted) - set(KINDS):
        raise click.BadParameter(f"{min(unknown)!r} is none of {', '.join(KINDS)}")
    return found


def chain(text: str) -> tuple[Point, ...]:
    """`append:17`, or `append:17,commit:2`: the recovery is killed as well."""
    try:
        return tuple(parse_point(part, "--at") for part in text.split(","))
    except UsageError as error:
        raise click.BadParameter(f"{error.message}; {error.hint}") from error


@click.command("torture")
@click.argument("file", metavar="COMPONENT", shell_complete=complete_file)
@click.argument("script", metavar="SCRIPT", shell_complete=complete_file)
@deployment_options
@click.option("--points", metavar="KIND,...", type=kinds, help=f"Only these of {', '.join(KINDS)}.")
@click.option(
    "--at",
    metavar="POINT",
    type=chain,
    multiple=True,
    help="Only this point, as append:17. POINT,POINT kills the recovery too.",
)
@click.option("--sample", metavar="N", type=click.IntRange(min=1), help="Only N of the points.")
@click.option("--seed", metavar="S", type=int, help="Of the sample, and of recovery kills.")
@click.option(
    "--recovery-kills",
    metavar="N",
    type=click.IntRange(0, 50),
    default=0,
    help="Kill also N processes that recover, at each point.",
)
@click.option(
    "--jobs",
    metavar="J",
    type=click.IntRange(1, 64),
    default=os.cpu_count() or 1,
    help="Cases at the same time [default: one a CPU].",
)
@click.option(
    "--timeout",
    "timeout_s",
    metavar="S",
    type=seconds,
    default="60",
    help="A process that lives longer hangs [default: 60].",
)
@click.option(
    "--keep",
    metavar="DIR",
    type=lambda text: Path(system_path(text)),
    help="Keep the store and the reports of each case that went wrong.",
)
@command_options
@click.pass_context
def torture(context: click.Context, /, **asked: Any) -> int:
    """Kill a component at every point of SCRIPT and prove that nothing is lost or done twice.

    COMPONENT is a file, or the name of a deployed component: its newest revision is taken, with the
    options it was deployed with. It runs in a temporary directory; no store of yours is touched.
    Its host functions run for real, again and again: give it test peers. SCRIPT is a file, or - for
    stdin, with a line for each invocation, as one would type it behind `shem invoke`.

    The script runs undisturbed, and then once for each point: in a process that gets SIGKILL there,
    and in another one that recovers, asks for everything again and goes on. Answers, output,
    effects, states and files have to be those of the undisturbed run, no accepted invocation and no
    effect may be lost, none may happen twice but under its own key where a crash left it open, and
    every worker has to replay. What undisturbed runs do not agree on, as times and random numbers,
    is left out, and said. A question at the end of the script tells the final state.
    """
    line = context.ensure_object(CommandLine)
    deployed = {name: asked.pop(name) for name in Deployment.__struct_fields__}
    request = Request(deployment=Deployment(**deployed), **asked)
    check_choice(request)
    with (
        signals_call(interrupt, signal.SIGTERM),
        laboratory() as folder,
        line.children(request.jobs) as children,
    ):
        try:
            trial = prepare(line, request, folder)
            lab = Lab(trial, folder, children, request.keep)
            with shown_progress(f"running {request.script} undisturbed"):
                lab.reference()
        except KeyboardInterrupt as error:
            raise InvocationInterrupted(
                "interrupted before anything was killed",
                where=request.script,
                hint="run it again: nothing of it is left",
            ) from error
        report = TortureReport(lab, repeated(line.arguments))
        try:
            with report.shown_progress(), signals_call(lab.interrupt, *ENDING):
                try_points(lab, request, report)
        except KeyboardInterrupt:
            report.interrupted = True
        report.write(as_json=line.json)
    if report.interrupted:
        return EXIT_INTERRUPTED
    return EXIT_GUEST if report.figures.wrong else EXIT_DONE


@contextmanager
def signals_call(interrupt: Callable[[], None], *numbers: int) -> Iterator[None]:
    """What is left to be done is not done, and nothing is left behind: as at a Ctrl-C."""
    before = {number: signal.getsignal(number) for number in numbers}
    for number, answered in before.items():
        if answered != signal.SIG_IGN:
            signal.signal(number, lambda *_: interrupt())
    try:
        yield
    finally:
        for number, answered in before.items():
            signal.signal(number, answered)


def interrupt() -> None:
    raise KeyboardInterrupt


def check_choice(request: Request) -> None:
    """Raises: UsageError for options that contradict one another, or that no process can keep."""
    if not 0 < request.timeout_s <= TIMEOUT_MAX_S:
        raise UsageError(
            f"a process cannot be given {request.timeout_s:g} s",
            where="shem torture",
            hint=f"give --timeout more than 0 and at most {TIMEOUT_MAX_S:,} seconds",
        )
    chosen = (request.points, request.sample, request.seed, request.recovery_kills or None)
    named = [name for name, value in zip(CHOOSING, chosen, strict=True) if value is not None]
    if request.at and named:
        raise UsageError(
            f"--at says which points are tried, and so does {named[0]}",
            where="shem torture",
            hint="give one of the two",
        )


@contextmanager
def laboratory() -> Iterator[Path]:
    """A temporary directory. Raises: StoreError if there is no room for what is put there;
    UsageError if its path cannot be told to the processes under torture.
    """
    try:
        with tempfile.TemporaryDirectory(
            prefix="shem-torture-", ignore_cleanup_errors=True
        ) as folder:
            if not is_unicode(legible(folder)):
                raise UsageError(
                    "the path of the temporary directory is not UTF-8",
                    where=folder,
                    hint="name another place with TMPDIR",
                )
            yield Path(folder)
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        raise no_room(Path(tempfile.gettempdir()), error.strerror or "") from error


def prepare(line: CommandLine, request: Request, folder: Path) -> Trial:
    """Reads the script, deploys the component into a store of its own, and checks each line.

    Raises: UsageError, UnknownFunction, BadArguments naming the line; ComponentRejected,
    HostBindingError, StoreError.
    """
    subject = find_subject(line, request.deployment)
    where, text = read_text(request.script)
    lines = read_script(text, where, subject.name)
    template = folder / "deployed"
    with shown_progress(f"deploying {subject.name}") as progress:
        try:
            deployed = trio.run(deploy_subject, subject, template, line.store, progress)
        except StoreError as error:
            if error.kind != "disk-full":
                raise
            raise no_room(template, error.message) from error
    check_lines(lines, where, export_types(deployed.exports))
    return Trial(
        name=subject.name,
        template=template,
        steps=steps_of(lines),
        timeout_s=request.timeout_s,
        places={(a.request.worker, a.request.key): f"{where}:{a.number}" for a in lines},
    )


def read_text(script: str) -> tuple[str, str]:
    """How the script is called, and what is in it."""
    if script == STDIN:
        return "stdin", sys.stdin.read() if sys.stdin is not None else ""
    return script, read_file(script).decode(errors="replace")


def find_subject(line: CommandLine, deployment: Deployment) -> Subject:
    """The file, or what is deployed under the name, with the options that were given besides.

    Raises: UsageError if there is neither, ComponentNotFound.
    """
    file = deployment.file
    if Path(system_path(file)).is_file():
        return Subject(deployment.component, read_file(file), deployment.options)
    if line.has_store() and not {".", "/"} & set(file):
        found = line.read(lambda store: deployed_subject(store, file))
        return found._replace(options=merged(found.options, deployment.options))
    raise UsageError(
        f"there is no file {file}",
        where="shem torture",
        hint="name a component's file, or a component of the store (--data DIR)",
    )


def merged(deployed: DeployOptions, given: DeployOptions) -> DeployOptions:
    """What is given counts: by name for variables, limits and values, whole for host and policy;
    files and peers are added.
    """
    options = deployed.copy()
    options["env"] = {**deployed["env"], **given["env"]}
    options["limits"] = {**deployed["limits"], **given["limits"]}
    options["config"] = {**deployed["config"], **given["config"]}
    options["files"] = [*deployed["files"], *given["files"]]
    options["allow_net"] = [*deployed["allow_net"], *given["allow_net"]]
    options["retry"] = given["retry"] or deployed["retry"]
    if given["host"]:
        options["host"] = given["host"]
        del options["host_directory"]
    return options


def try_points(lab: Lab, request: Request, report: TortureReport) -> None:
    """Tries what was asked for; the report hears of each case as it is done."""
    kinds = request.points or KINDS
    seed = request.seed
    if not request.at and (request.sample or request.recovery_kills) and seed is None:
        seed = random.SystemRandom().randrange(1 << 32)
    report.seed = seed
    chance = random.Random(seed)  # noqa: S311  # a sample, no secret
    points = lab.points(kinds)
    if not points:
        raise UsageError(
            f"the script comes to no point of the kinds {', '.join(kinds)}",
            where=request.script,
            hint="leave out --points: every kind is tried then",
        )
    if request.sample is not None and request.sample < len(points):
        points = sorted(chance.sample(points, request.sample), key=points.index)
    chains = request.at or lab.chains(points, request.recovery_kills, chance)
    for kind, number in (chain[0] for chain in request.at):
        if kind not in GROWING and number > lab.counts().get(kind, 0):
            raise unreached(lab, request, kind, number)
    report.expect(len(chains))
    for tried in lab.try_chains(chains):
        case = tried.case
        if request.at and case.killed < len(case.chain) and not tried.verdict.wrong:
            raise unreached(lab, request, *case.chain[-1], recovering=len(case.chain) > 1)
        report.count(tried)
    if not request.at and request.sample is None:
        for kind in (kind for kind in GROWING if kind in kinds):
            for tried in lab.try_beyond(kind):
                report.expect(1)
                report.count(tried)


def unreached(
    lab: Lab, request: Request, kind: PointKind, number: int, *, recovering: bool = False
) -> UsageError:
    """The refusal of a point at which nothing was killed."""
    return UsageError(
        f"the {'recovery' if recovering else 'script'} does not come to {kind}:{number}:"
        f" undisturbed there are {lab.counts().get(kind, 0)} points of {kind}",
        where=request.script,
        hint="choose one of them; without --at every point is tried",
    )


def repeated(arguments: Sequence[str]) -> list[str]:
    """The words of the same command, without those that choose points and those that do not change
    what comes of it.
    """
    kept: list[str] = []
    words = iter(arguments)
    for word in words:
        name, _, value = word.partition("=")
        if name in NOT_REPEATED:
            if not value:
                next(words, None)
        elif word not in FLAGS_NOT_REPEATED:
            kept.append(word)
    return kept
