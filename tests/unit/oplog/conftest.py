"""A store in memory that a test can stand in the way of, and a place for one on the disk."""

import pytest

from oplog.memory_engine import MemoryEngine
from oplog.store import Store
from tests.support.engines import DelegatingEngine


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store"


@pytest.fixture
def engine():
    return DelegatingEngine(MemoryEngine())


@pytest.fixture
def store(engine):
    store = Store(engine)
    yield store
    store.close()
