"""The part of `shem demo` in which a guest asks many at once, and is killed half-way."""

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from executor.cli.demo_receiver import QUOTES, Quote, Receiver

BUYER: Final = "gather/buyer"
COUNT: Final = 20
HANDLE: Final = "wasi:http/outgoing-handler.handle"
ANSWERS_TIMEOUT_S: Final = 60
COMMITTED_S: Final = 0.3
"""So long after an answer it is durable, on any disk."""


class Story(Protocol):
    """What this part needs of the story that it is told in."""

    receiver: Receiver

    def tell(self, text: str) -> None: ...
    def show(self, text: str) -> None: ...
    def check(self, claim: str, *, held: bool) -> None: ...
    def let(self, name: str, value: str) -> None: ...
    def start(self, *arguments: str) -> subprocess.Popen[str]: ...
    def run(self, *arguments: str) -> str: ...
    def read(self, *arguments: str) -> list[dict[str, Any]]: ...


def tell_gathering(story: Story, guest: Path) -> None:
    story.tell("A guest that asks twenty suppliers at the same time, with asyncio over wasi:http.")
    story.run("deploy", os.path.relpath(guest), "--allow-net", "127.0.0.1")
    story.tell("Every second one takes its time. SIGKILL, once the others have answered.")
    urls = ", ".join(f'"{story.receiver.url.rstrip("/")}{QUOTES}{n}"' for n in range(COUNT))
    story.let("SUPPLIERS", f"[{urls}]")
    command = ("invoke", BUYER, "post-all", f"[{urls}]", '"a quote"', "--key", "q-1")
    with story.start(*command) as process:
        try:
            wait_for_half(story.receiver, process)
        finally:
            process.kill()
    recorded = recorded_paths(story.read("oplog", BUYER))
    story.show(f"killed: exit {process.returncode}; the oplog has {len(recorded)} answers")
    story.check(
        "the process died of SIGKILL between the first answers and the last",
        held=process.returncode == -signal.SIGKILL and 0 < len(recorded) < COUNT,
    )
    story.tell("The same command again:")
    answer = story.run(*command)
    check_quotes(story, answer, recorded, story.receiver.quotes())


def wait_for_half(receiver: Receiver, process: subprocess.Popen[str]) -> None:
    """Until all were asked, and the quick ones' answers are durable; or the process ended."""
    deadline = time.monotonic() + ANSWERS_TIMEOUT_S
    while process.poll() is None and time.monotonic() < deadline:
        quotes = receiver.quotes()
        if len(quotes) == COUNT and sum(quote.answered for quote in quotes) >= COUNT // 2:
            time.sleep(COMMITTED_S)
            return
        time.sleep(0.01)


def recorded_paths(entries: Sequence[dict[str, Any]]) -> set[str]:
    """Of the requests whose answer is in the oplog."""
    starts = {
        entry["index"]: str(entry["request"][3])
        for entry in entries
        if entry["kind"] == "start" and entry["function"] == HANDLE
    }
    ended = [entry["start_index"] for entry in entries if entry["kind"] == "end"]
    return {starts[index] for index in ended if index in starts}


def check_quotes(story: Story, answer: str, recorded: set[str], quotes: Sequence[Quote]) -> None:
    wanted = ", ".join(f'"200 {{\\"supplier\\": {n}}}"' for n in range(COUNT))
    story.check("all twenty answers, in the order of the suppliers", held=answer == f"[{wanted}]\n")
    story.check(
        "no request whose answer was recorded was made again",
        held=all(quote.requests == 1 for quote in quotes if quote.path in recorded),
    )
    story.check(
        "every other one was made again, under the same key",
        held=len(quotes) == COUNT
        and all(quote.requests == 2 for quote in quotes if quote.path not in recorded),
    )
