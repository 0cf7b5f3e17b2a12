"""The promises of `golem:api/host`: a worker makes one, and waits until somebody completes it.

| function         | type         | recorded                                                       |
|------------------|--------------|----------------------------------------------------------------|
| create-promise   | write-local  | the promise's id; its row is durable with it                   |
| await-promise    | read-remote  | the value; a wait that lasts gives up its instance             |
| poll-promise     | read-remote  | the value, or that there is none yet                           |
| complete-promise | write-remote | whether it was this completion that counts                     |
| delete-promise   | write-remote | nothing                                                        |

An id names its worker by component and name: one that was deleted and made again is another worker,
whose promises are its own.
"""

from typing import Any, Final

from executor.durable.definition import NOT_READY, Awaited, HostFunctionRow, NotReady, Written
from executor.durable.function_type import READ_REMOTE, WRITE_REMOTE
from executor.durable.reasons import Leave
from executor.errors import GuestError, UnknownPromise
from executor.host.golem.rpc import uuid_record, uuid_text
from executor.host.pollables import Pollable
from executor.host.state import HostState
from executor.host.waiting import wait_ready
from executor.services.promises import PromiseId, PromiseRow, Promises, creation, unknown

INTERFACE: Final = "golem:api/host"


class Completed(Pollable):
    """Ready once the promise is complete, or gone."""

    lasting = True

    def __init__(self, promises: Promises, promise: PromiseId) -> None:
        self._promises = promises
        self._promise = promise
        self.signal = promises.signal(promise)
        self.promise = str(promise)

    def is_ready(self, now_ns: int) -> bool:
        return now_ns >= 0 and self._promises.is_settled(self._promise)


def create(state: Any, index: int) -> tuple[dict[str, object], tuple[object, ...]]:
    own = state.identity
    if not index:
        raise GuestError(
            "create-promise: a promise is named by an entry, and nothing is persisted here",
            where=INTERFACE,
        )
    worker_id = {
        "component-id": {"uuid": uuid_record(own.component_id)},
        "worker-name": own.name,
    }
    made = creation(PromiseId(own.id, index), state.session.guest_time_ns)
    return {"worker-id": worker_id, "oplog-idx": index}, (made,)


def found(state: HostState, promise_id: dict[str, Any]) -> tuple[PromiseId, str]:
    """The promise, and its worker's name for errors. Raises: GuestError."""
    worker = promise_id["worker-id"]
    component_id, name = uuid_text(worker["component-id"]["uuid"]), worker["worker-name"]
    own = state.identity
    if (component_id, name) == (own.component_id, own.name):
        return PromiseId(own.id, promise_id["oplog-idx"]), state.session.worker
    worker_id = state.directory.worker_id(component_id, name)
    if worker_id is None:
        raise GuestError(
            f"there is no worker {name!r} of component {component_id} whose promise this would be",
            where=INTERFACE,
        )
    return PromiseId(worker_id, promise_id["oplog-idx"]), name


async def read(state: Any, promise: PromiseId, worker: str) -> PromiseRow:
    """What is known of the promise; one of the worker's own may yet have to be committed.

    Raises: GuestError, OplogError.
    """
    promises = state.stores.promises
    row: PromiseRow | None = promises.read(promise)
    if row is None and promise.worker_id == state.identity.id:
        await state.session.commit()
        row = promises.read(promise)
    if row is None:
        raise GuestError(unknown(promise, worker).message, where=INTERFACE)
    return row


def attempt_value(state: HostState, promise_id: dict[str, Any]) -> bytes | NotReady:
    row = state.stores.promises.read(found(state, promise_id)[0])
    return row.value if row is not None and row.completed_at else NOT_READY


async def wait_value(state: HostState, promise_id: dict[str, Any]) -> bytes | Leave:
    promise, worker = found(state, promise_id)
    row = await read(state, promise, worker)
    while not row.completed_at:
        ready = await wait_ready(state, [Completed(state.stores.promises, promise)])
        if isinstance(ready, Leave):
            return ready
        row = await read(state, promise, worker)
    return row.value


async def poll(state: HostState, promise_id: dict[str, Any]) -> bytes | None:
    row = await read(state, *found(state, promise_id))
    return row.value if row.completed_at else None


async def complete(state: Any, promise_id: dict[str, Any], value: bytes) -> bool:
    promise, worker = found(state, promise_id)
    try:
        done: bool = await state.stores.promises.complete(
            promise, value, state.session.call_key, worker
        )
    except UnknownPromise as error:
        raise GuestError(error.message, where=INTERFACE) from error
    return done


async def delete(state: HostState, promise_id: dict[str, Any]) -> None:
    promise, worker = found(state, promise_id)
    await state.stores.promises.delete(promise, worker)


ROWS: Final[tuple[HostFunctionRow, ...]] = (
    Written(name="create-promise", action=create),
    Awaited(
        name="await-promise", function_type=READ_REMOTE, attempt=attempt_value, action=wait_value
    ),
    Awaited(name="poll-promise", function_type=READ_REMOTE, action=poll),
    Awaited(name="complete-promise", function_type=WRITE_REMOTE, action=complete),
    Awaited(name="delete-promise", function_type=WRITE_REMOTE, action=delete),
)
