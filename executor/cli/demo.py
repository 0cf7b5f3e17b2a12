"""`shem demo`: the whole story in a terminal, on a real component, with a real SIGKILL.

Every step is a `shem` command in a process of its own, as a user would type it; what the story
claims is checked against the bank's own account of what reached it.
"""

import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import click
import msgspec
from rich.console import Console
from rich.text import Text

from executor.cli.command_line import STORE_VARIABLE, CommandLine, command_options
from executor.cli.demo_gathering import tell_gathering
from executor.cli.demo_receiver import RECEIVER_VARIABLE, Charge, Receiver, started_receiver
from executor.cli.demo_waiting import tell_waiting
from executor.cli.output import (
    EXIT_DONE,
    EXIT_GUEST,
    stderr_console,
    stdout_console,
    table,
    write_json,
)
from executor.errors import AlreadyExists, InternalError, UsageError
from executor.path_text import system_path

GUEST: Final = Path("guests", "build", "order.wasm")
GATHERING_GUEST: Final = GUEST.with_name("gather.wasm")
WAITING_GUEST: Final = GUEST.with_name("approval.wasm")
WORKER: Final = "order/alice"
FUNCTION: Final = "place"
FIRST: Final = '{id: "o-1", customer: "alice", items: [{sku: "tea", quantity: 2, cents: 450}]}'
ITEMS: Final = (
    ("kettle", 1, 3900), ("cup", 4, 725), ("saucer", 4, 450),
    ("sugar", 1, 199), ("spoon", 4, 310), ("tray", 1, 2450),
)  # fmt: skip
KILL_AT: Final = 4
"""The charge that is under way at the bank when the process is killed."""
STEP_TIMEOUT_S: Final = 120
POLL_S: Final = 0.01
KEY_SHOWN: Final = 8


class Check(msgspec.Struct, frozen=True):
    """One claim of the story, and whether it held."""

    claim: str
    held: bool


class StepFailed(InternalError):
    """A command of the story failed, and has said why."""

    def __init__(self, arguments: Sequence[str], code: int) -> None:
        super().__init__(f"shem {shlex.join(arguments)} ended with {code}")
        self.code = code


class Story:
    """Runs the commands, tells what happens, and remembers what was checked."""

    def __init__(self, store: Path, receiver: Receiver, console: Console) -> None:
        self.receiver = receiver
        self.checks: list[Check] = []
        self._console = console
        self._variables: dict[str, str] = {}
        self._environment = {
            **os.environ,
            STORE_VARIABLE: str(store),
            RECEIVER_VARIABLE: receiver.url,
        }

    def tell(self, text: str) -> None:
        self._console.print(Text(f"\n{text}", "bold"))

    def show(self, text: str) -> None:
        self._console.print(Text(text))

    def check(self, claim: str, *, held: bool) -> None:
        self.checks.append(Check(claim, held))
        mark = Text("  ok    ", "green") if held else Text("  FAILED  ", "bold red")
        self._console.print(mark + Text(claim))

    def let(self, name: str, value: str) -> None:
        """Shows a long argument once; later commands name it."""
        self._variables[value] = f'"${name}"'
        self._console.print(Text(f"$ {name}={shlex.quote(value)}", "cyan"))

    def start(self, *arguments: str, direct: bool = False) -> subprocess.Popen[str]:
        """`shem` with these arguments as a child process; its stderr is ours.

        So is its stdout if `direct`; else it is a pipe.
        """
        words = (self._variables.get(word) or shlex.quote(word) for word in arguments)
        self._console.print(Text(f"$ shem {' '.join(words)}", "cyan"))
        self._console.file.flush()
        return subprocess.Popen(  # noqa: S603  # this very program
            (sys.executable, "-P", "-m", "executor.cli", *arguments),
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=None if direct else subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str) -> str:
        """The same, to its end; shows and answers its stdout. Raises if the command failed."""
        output = self._finish(self.start(*arguments), arguments)
        if output:
            self.show(output.rstrip("\n"))
        return output

    def watch(self, *arguments: str) -> None:
        """As `run`, but on a terminal the command writes there itself, in its colours."""
        if self._console.is_terminal and not self._console.stderr:
            self._finish(self.start(*arguments, direct=True), arguments)
        else:
            self.run(*arguments)

    def read(self, *arguments: str) -> list[dict[str, Any]]:
        """The JSON lines of a command that is not part of the story."""
        process = subprocess.run(  # noqa: S603  # this very program
            (sys.executable, "-P", "-m", "executor.cli", *arguments, "--json"),
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=STEP_TIMEOUT_S,
            check=False,
        )
        if process.returncode != 0:
            raise InternalError(f"shem {shlex.join(arguments)}: {process.stderr.strip()}")
        return [msgspec.json.decode(line) for line in process.stdout.splitlines()]

    def _finish(self, process: subprocess.Popen[str], arguments: Sequence[str]) -> str:
        with process:
            try:
                output, _ = process.communicate(timeout=STEP_TIMEOUT_S)
            finally:
                process.kill()  # nothing, if it has ended
        if process.returncode != 0:
            raise StepFailed(arguments, process.returncode)
        return output or ""


@click.command("demo")
@click.option("--component", metavar="FILE", help=f"The order guest [default: {GUEST}].")
@command_options
@click.pass_context
def demo(context: click.Context, component: str | None) -> int:
    """Tell the whole story, with a real component and SIGKILL.

    Deploy, invoke, kill in the middle, finish from the oplog, and look at what the bank has seen.

    Uses a store of its own, whatever $SHEM_DATA says, that is gone afterwards, or keeps the new one
    that --data names.
    """
    line = context.ensure_object(CommandLine)
    guest = find_guest(component)
    gathering = find_guest(None, GATHERING_GUEST)
    waiting = find_guest(None, WAITING_GUEST)
    console = stderr_console() if line.json else stdout_console()
    with demo_store(line.data) as store, started_receiver() as receiver:
        story = Story(store, receiver, console)
        try:
            tell_story(story, guest)
            tell_gathering(story, gathering)
            tell_waiting(story, waiting)
        except StepFailed as failure:
            if line.json or failure.code < 0:  # nobody has said it in JSON, or at all
                raise
            return failure.code
    failed = [check for check in story.checks if not check.held]
    story.tell(f"{len(story.checks) - len(failed)} of {len(story.checks)} checks held.")
    if line.json:
        write_json({"checks": msgspec.to_builtins(story.checks), "failed": len(failed)})
    return EXIT_GUEST if failed else EXIT_DONE


def find_guest(named: str | None, built: Path = GUEST) -> Path:
    """A component to tell the story with. Raises: UsageError that says how to build it."""
    repository = Path(__file__).resolve().parents[2]
    places = [Path(system_path(named))] if named else [repository / built, built.absolute()]
    for place in places:
        if place.is_file():
            return place
    raise UsageError(
        f"the guest {built.stem} is not built",
        where=str(places[0]),
        hint="run `make guests` in Shem's repository, or name the file with --component",
    )


@contextmanager
def demo_store(named: str | None) -> Iterator[Path]:
    """A new store: the one that was named, which stays, or one that ends with the story."""
    if named is None:
        with tempfile.TemporaryDirectory(prefix="shem-demo-") as folder:
            yield Path(folder, "store")
        return
    store = Path(system_path(named))
    if store.exists():
        raise AlreadyExists("the demo needs a new store", where=named, hint="name another folder")
    yield store


def tell_story(story: Story, guest: Path) -> None:
    story.tell(f"A Python program, compiled to a component of {guest.stat().st_size // 10**6} MB.")
    shown = os.path.relpath(guest)
    story.run("deploy", shown, "--host", "executor.cli.demo_bank:charge")
    story.tell("An order with one item: one charge, a write to a bank in another process.")
    story.run("invoke", WORKER, FUNCTION, FIRST, "--key", "order-1")
    order = order_wave()
    under_way = kill_in_the_middle(story, order)
    result = finish(story, order)
    show_charges(story, story.receiver.charges(), under_way)
    again(story, order, result)
    show_oplog(story)


def order_wave() -> str:
    items = ", ".join(
        f'{{sku: "{sku}", quantity: {count}, cents: {cents}}}' for sku, count, cents in ITEMS
    )
    return f'{{id: "o-2", customer: "alice", items: [{items}]}}'


def kill_in_the_middle(story: Story, order: str) -> int:
    """Answers which charge of the bank's account was under way, counted from 0."""
    story.tell(
        f"An order with {len(ITEMS)} items; its process gets SIGKILL while charge {KILL_AT} is"
        " under way at the bank."
    )
    story.let("ORDER", order)
    before = story.receiver.requests()
    with story.start("invoke", WORKER, FUNCTION, order, "--key", "order-2") as process:
        try:
            wait_for_requests(story.receiver, before + KILL_AT, process)
        finally:
            process.kill()
    reached = story.receiver.requests() - before
    story.show(f"killed: exit {process.returncode}; the bank has seen {reached} of {len(ITEMS)}")
    story.check(
        "the process died of SIGKILL in the middle of the invocation",
        held=process.returncode == -signal.SIGKILL and 0 < reached < len(ITEMS),
    )
    [worker] = story.read("worker", WORKER)
    story.check(
        f"the worker stands in the store as {worker['status']} with order-2",
        held=worker["status"] == "running" and worker["current_key"] == "order-2",
    )
    return before + reached - 1


def wait_for_requests(receiver: Receiver, wanted: int, process: subprocess.Popen[str]) -> None:
    """Until the bank has seen so many, or the process ended before. Blocks."""
    deadline = time.monotonic() + STEP_TIMEOUT_S
    while receiver.requests() < wanted and process.poll() is None:
        if time.monotonic() > deadline:
            raise InternalError(f"the bank did not see {wanted} requests in {STEP_TIMEOUT_S} s")
        time.sleep(POLL_S)


def finish(story: Story, order: str) -> str:
    story.tell("The same command again: the worker is rebuilt from its oplog and goes on.")
    result = story.run("invoke", WORKER, FUNCTION, order, "--key", "order-2")
    story.check("the order is finished", held=result.startswith("ok("))
    return result


def show_charges(story: Story, charges: list[Charge], under_way: int) -> None:
    story.tell("What reached the bank, by idempotency key:")
    rows = [
        (c.key[:KEY_SHOWN], c.who, c.cents, c.reference, c.requests, c.charged) for c in charges
    ]
    for text in table([("KEY", "WHO", "CENTS", "REFERENCE", "REQUESTS", "CHARGED"), *rows]):
        story.show(f"  {text}")
    wanted = [900, *(count * cents for _, count, cents in ITEMS)]
    story.check(
        f"{len(wanted)} writes, each charged once by its key",
        held=[charge.cents for charge in charges] == wanted
        and all(charge.charged == 1 for charge in charges),
    )
    repeated = [number for number, charge in enumerate(charges) if charge.requests != 1]
    story.check(
        "only the charge that was under way at the kill was asked for again, under the same key",
        held=repeated in ([], [under_way]) and all(charge.requests <= 2 for charge in charges),
    )


def again(story: Story, order: str, result: str) -> None:
    story.tell("The same key once more: the recorded outcome, and nothing runs.")
    before = story.receiver.requests()
    answer = story.run("invoke", WORKER, FUNCTION, order, "--key", "order-2")
    story.check("the same answer", held=answer == result)
    story.check("nothing reached the bank", held=story.receiver.requests() == before)


def show_oplog(story: Story) -> None:
    story.tell("The oplog, from which all this was rebuilt:")
    story.watch("oplog", WORKER)
    finished = story.read("oplog", WORKER, "--kind", "invocation-finished")
    story.check("one outcome for each key", held=len(finished) == 2)
    story.tell("And once more, beside the living worker:")
    story.run("replay", WORKER)
    [rebuild] = story.read("replay", WORKER)
    story.check("the replay agrees with the oplog", held=rebuild["divergence"] is None)
