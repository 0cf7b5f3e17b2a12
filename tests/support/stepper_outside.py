"""The outside of the stepper guest for processes that die: what it does is in a file.

`FUNCTIONS` are its host functions; the file is `$STEPPER_DEEDS`, one effect a line.
"""

import json
import os
from pathlib import Path
from typing import Any

from executor import Transient, host_function
from tests.conformance.model.session import TYPES
from tests.conformance.model.world import Answer, Effect, Refusal, World


def read_deeds(path: Path) -> list[Effect]:
    """Every effect so far."""
    lines = path.read_text().splitlines() if path.exists() else []
    return [Effect(*json.loads(line)) for line in lines]


def note_deed(path: Path, effect: Effect) -> None:
    line = json.dumps([effect.function, effect.argument, effect.key])
    with path.open("a") as deeds:
        deeds.write(f"{line}\n")


def function(name: str, kind: Any) -> Any:
    @host_function("demo:stepper/outside", f"{name}: func(n: u32) -> u64", type=kind)
    async def ask(call: Any, n: int) -> int:
        path = Path(os.environ["STEPPER_DEEDS"])
        world = World()
        for done in read_deeds(path):
            world.perform(done)
        effect = Effect(name, n, call.key if kind == "write-remote" else None)
        said = world.perform(effect)
        note_deed(path, effect)
        match said:
            case Answer(value):
                return value
            case Refusal(True, text):
                raise Transient(text)
            case Refusal(_, text):
                raise ValueError(text)

    return ask


FUNCTIONS = [function(name, kind) for name, kind in TYPES.items()]
