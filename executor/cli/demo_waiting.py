"""The part of `shem demo` in which workers wait, for time and for somebody's decision, while no
process has them.
"""

import os
import time
from pathlib import Path
from typing import Final, Protocol

SLEEPER: Final = "approval/reminder"
REMIND: Final = ("remind", '"water the plants"', "11", "--key", "r-1")
SLEEP_S: Final = 11
"""A wait of more than ten seconds gives up its instance at once."""
ASKER: Final = "approval/bridge"
REQUEST: Final = ("request", '"a bridge"', "--key", "b-1")


class Story(Protocol):
    """What this part needs of the story that it is told in."""

    def tell(self, text: str) -> None: ...
    def check(self, claim: str, *, held: bool) -> None: ...
    def run(self, *arguments: str) -> str: ...
    def read(self, *arguments: str) -> list[dict[str, object]]: ...


def tell_waiting(story: Story, guest: Path) -> None:
    story.tell("A workflow that waits, for days if need be; and while it waits it is only rows.")
    story.run("deploy", os.path.relpath(guest))
    began = time.monotonic()
    fall_asleep(story)
    decide(story)
    wake_up(story, began)


def fall_asleep(story: Story) -> None:
    story.tell(f"It is to remind us in {SLEEP_S} seconds. No process waits for that.")
    story.run("invoke", SLEEPER, *REMIND, "--no-wait")
    story.run("run", "--until-idle")
    check_asleep(story, SLEEPER)


def check_asleep(story: Story, worker: str) -> None:
    [found] = story.read("worker", worker)
    story.check(
        f"{worker} is {found['status']}, and no process has it loaded",
        held=found["status"] == "suspended" and found["loaded"] is False,
    )


def decide(story: Story) -> None:
    story.tell("Meanwhile another worker asks for an approval: it waits for a promise.")
    story.run("invoke", ASKER, *REQUEST, "--no-wait")
    story.run("run", "--until-idle")
    check_asleep(story, ASKER)
    [page] = story.read("promise", "list", ASKER)
    promises = page["promises"]
    assert isinstance(promises, list)
    number = str(promises[0]["promise"])
    story.run("promise", "list", ASKER)
    story.tell("A later command decides. Exactly one decision counts.")
    story.run("promise", "complete", ASKER, number, '"approved"')
    story.run("promise", "complete", ASKER, number, '"refused"')
    answer = story.run("invoke", ASKER, *REQUEST)
    story.check("the first decision is the answer", held=answer == '("a bridge", "approved", 1)\n')


def wake_up(story: Story, began: float) -> None:
    story.tell("The reminder, which nobody kept in memory:")
    answer = story.run("invoke", SLEEPER, *REMIND)
    passed_s = time.monotonic() - began
    suspended = story.read("oplog", SLEEPER, "--kind", "suspend")
    story.check(
        f"it came after {passed_s:.0f} seconds, having slept in the store",
        held=answer == '"water the plants"\n' and passed_s >= SLEEP_S and len(suspended) > 0,
    )
