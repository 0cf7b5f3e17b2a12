"""The peer of the rules guest, as host functions that are deployed by name."""

import os
from pathlib import Path

from executor import host_function

INTERFACE = "demo:rules/peer"
MARKERS_VARIABLE = "SHEM_TEST_MARKERS"


@host_function(INTERFACE, "write: func(step: u32) -> u32", type="write-remote")
async def write(call, step):
    return step


@host_function(INTERFACE, "read: func(step: u32) -> u32", type="read-remote")
def read(call, step):
    """1 to the first call of a case's worker for this step, and to each attempt of it; then 0."""
    case = os.environ["SHEM_TORTURE_CASE"]
    name = f"{case}-{call.worker}-{step}".replace("/", "-")
    marker = Path(os.environ[MARKERS_VARIABLE], name)
    try:
        with marker.open("x") as file:
            file.write(call.key)
    except FileExistsError:
        return int(marker.read_text() == call.key)
    return 1
