"""The laboratory of the crash tests, one for all of them, and their figures at the end of a run."""

import pytest

from tests.support.crash_lab import CrashLab
from tests.support.receiver import Receiver

TOLD = pytest.StashKey[list[str]]()


def pytest_terminal_summary(terminalreporter, config):
    lines = config.stash.get(TOLD, [])
    if lines:
        terminalreporter.section("crash points")
        for line in lines:
            terminalreporter.write_line(line)


@pytest.fixture
def tell(request):
    """Has a line printed at the end of the run, whether or not tests failed."""
    return request.config.stash.setdefault(TOLD, []).append


@pytest.fixture(scope="session")
def crash_lab(tmp_path_factory):
    folder = tmp_path_factory.mktemp("crash")
    with Receiver.start(folder) as receiver, CrashLab(folder, receiver) as lab:
        yield lab
