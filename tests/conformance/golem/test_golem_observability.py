"""Golem's guests for logging, live, in forced replay and after crashes.

What is expected is the behaviour of Golem's executor tests at v1.2.5, written afresh. They are not
committed here; see `components.py`.
"""

from pathlib import Path

import pytest
from trio.testing import trio_test

from executor.executor import Executor
from oplog.entry import Log
from tests.conformance.golem.components import WHY_SKIPPED, components_folder, golem_component

if components_folder() is None:
    pytest.skip(WHY_SKIPPED, allow_module_level=True)

LEVELS = ("stdout", "stderr", "critical", "error", "debug", "info", "warn", "trace")


@pytest.fixture(params=["live", "replayed", "crashed"])
def mode(request: pytest.FixtureRequest) -> str:
    return request.param  # type: ignore[no-any-return]


async def rebuilt(shem: Executor, worker: str, mode: str) -> None:
    if mode != "live":
        rebuild = await (shem.replay if mode == "replayed" else shem.crash)(worker)
        assert rebuild.divergence is None


@trio_test
async def test_every_level_is_logged_once_in_order(tmp_path: Path, mode: str) -> None:
    async with Executor.open(tmp_path) as shem:
        await shem.deploy(golem_component("logging"), name="logging")
        accepted = await shem.submit("logging/w", "some-random-entries")
        done = await shem.wait("logging/w", accepted.key, timeout_s=60)
        assert (done.status, done.error) == ("completed", None)
        await rebuilt(shem, "logging/w", mode)
        logs = [found.entry async for found in shem.oplog("logging/w", search="kind:log")]
        assert all(isinstance(log, Log) for log in logs)
        written: dict[int, str] = {}
        lines = "".join(log.text for log in logs if log.level == "stdout").splitlines()
        errors = "".join(log.text for log in logs if log.level == "stderr").splitlines()
        for level, streamed in (("stdout", lines), ("stderr", errors)):
            written |= {int(line.partition(".")[0]): level for line in streamed}
        written |= {int(log.context): log.level for log in logs if log.level in LEVELS[2:]}
        assert written == {number: LEVELS[number % 8] for number in range(100)}
        assert sum(log.level in LEVELS[2:] for log in logs) == 75 - 1
        assert done.stderr.count("\n") == len(errors) + 74
