"""Guests of the host's tables; each is replayed when its test ends."""

import pytest

from executor.services.files import FileTree
from executor.services.files_nodes import FileLimits
from tests.support.host_calls import CREATED_NS, Guest, replay
from tests.support.sources import FakeSources


@pytest.fixture
def make_guest():
    """`make_guest(files=None, **state)`: a live guest; replayed when the test ends."""
    made = []

    def make(files=None, **state):
        files = files or (lambda: FileTree(FileLimits(bytes_max=200_000), created_ns=CREATED_NS))
        guest = Guest(sources=FakeSources(seed=1), files=files(), **state)
        made.append((guest, files))
        return guest

    yield make
    for guest, files in made:
        replay(guest, files)


@pytest.fixture
def guest(make_guest):
    return make_guest()
