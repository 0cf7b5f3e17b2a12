"""The durable services over an engine in memory, which writes at once."""

from functools import partial

from executor.services.blob_garbage import Garbage
from executor.services.blobs import Blobs
from executor.services.environment import Environment, StoreLimits
from executor.services.keyvalue import KeyValue
from executor.services.promises import Promises
from executor.services.stores import Stores
from executor.services.writing import Written
from oplog.engine import CountExceededError, RowChangedError
from oplog.memory_engine import MemoryEngine
from tests.support.sources import FakeSources


def written_at_once(engine):
    """Writes a batch in the step in which it is asked for."""

    async def write(batch, _where):
        [error] = engine.write([batch])
        match error:
            case None:
                return Written.DONE
            case RowChangedError():
                return Written.CHANGED
            case CountExceededError():
                return Written.EXCEEDED
            case _:
                raise error

    return write


def memory_stores(engine=None, limits=None, write=None):
    engine = engine or MemoryEngine()
    sources = FakeSources()
    write = write or written_at_once(engine)
    environment = Environment(engine, write, limits or StoreLimits())
    garbage = Garbage(engine, partial(environment.write_beside, worker="blobs"))
    return Stores(
        promises=Promises(engine, write, sources.wall_ns),
        keyvalue=KeyValue(environment, sources.random_id),
        blobs=Blobs(environment, garbage, sources.random_id, sources.wall_ns),
    )
