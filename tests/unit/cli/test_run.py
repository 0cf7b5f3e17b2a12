"""`shem run`, whichever process runs the store, and if one after another does."""

from contextlib import asynccontextmanager

import pytest

from executor.cli.app import main
from executor.cli.command_line import CommandLine
from executor.errors import Busy
from executor.server.client import AskedExecutor, HandedOver
from tests.support.fake_executor import FakeExecutor


class Asked(AskedExecutor):
    """Another process that ends in order while it is asked to run everything."""

    def __init__(self, path, owner):
        super().__init__(path, {}, Busy(owner), print)
        self.owner = owner

    async def run(self, *, until_idle=False, begun):
        begun(self.owner)
        raise HandedOver


@pytest.fixture
def ran(store, tmp_path, monkeypatch, capfdbinary):
    """What `shem run` says where these processes have the store, and then this one."""
    (tmp_path / "store").mkdir()

    def run(*owners, options=("--until-idle",)):
        left = list(owners)

        @asynccontextmanager
        async def opened(path, **_world):
            yield Asked(path, left.pop(0)) if left else FakeExecutor(store)

        line = CommandLine(opened, store.open_reader)
        assert main(["run", *options, "--data", str(tmp_path / "store")], line) == 0
        return capfdbinary.readouterr().err.decode().splitlines()

    return run


def test_who_takes_over_says_so_once_it_has_the_store(ran):
    assert ran() == []
    waits = ": this one waits until nothing is left to run"
    shows = ": this one shows what is run there, and takes over when that one ends"
    took_over = "shem: that process has ended: this one takes over"
    assert ran("in use by 7") == [f"shem: in use by 7{waits}", took_over]
    assert ran("in use by 7", options=()) == [f"shem: in use by 7{shows}", took_over]


def test_a_process_that_is_still_ending_is_named_once_and_the_next_one_by_its_name(ran):
    said = ran("in use by 7", "in use by 7", "in use by 8", "in use by 8")
    assert [line.partition(": this one")[0] for line in said] == [
        "shem: in use by 7",
        "shem: in use by 8",
        "shem: that process has ended",
    ]
