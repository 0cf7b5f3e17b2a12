"""Components that nobody here built: what runs on Wasmtime's own host runs the same here.

`SHEM_CORPUS` names a folder of them, with whatever components below it; without it nothing is run.
`python -m tests.conformance.corpus FOLDER` tells what became of each.
"""

import faulthandler
import os
from pathlib import Path

import pytest
import trio

from tests.conformance.corpus.survey import Fate, survey

VARIABLE = "SHEM_CORPUS"
WASMTIMES_OWN = {
    "preview2_sleep": "asks that a timer of no time is ready at once, which it is not on Wasmtime",
    "cli_no_udp": "asks for a datagram socket, and that it cannot be bound",
    "preview2_udp_sockopts": "asks for a datagram socket, which the other host here does not make",
}
"""Commands that do on this executor what they ask for, and on Wasmtime not."""


def test_every_command_of_the_corpus_does_what_it_does_on_wasmtime(tmp_path: Path) -> None:
    named = os.environ.get(VARIABLE)
    if not named:
        pytest.skip(f"{VARIABLE} does not name a folder of components")
    faulthandler.cancel_dump_traceback_later()  # hundreds of components take longer than one test
    found: list[Fate] = []

    async def collect() -> None:
        found.extend([fate async for fate in survey(Path(named), tmp_path)])

    trio.run(collect)
    assert found, f"no component below {named}"
    differing = [
        fate
        for fate in found
        if fate.fate == "differs" and not fate.component.endswith(tuple(WASMTIMES_OWN))
    ]
    assert differing == []
