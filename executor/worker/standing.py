"""Workers that have something to do and do not run now: why, and what is to be done about it."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from executor.errors import WorkerNotFound
from executor.records import WorkerSummary, time_text
from executor.services.promises import PromiseId
from executor.worker.reader import StoreReader
from executor.worker.status import State, Status
from oplog.errors import OplogCorruptError

STANDING: Final[tuple[State, ...]] = (
    "uncertain",
    "failed",
    "exited",
    "interrupted",
    "retrying",
    "suspended",
)
NAMED_MAX: Final = 10
"""Workers of one state that are named; a store may have a hundred thousand that sleep."""
LOOKED_AT_MAX: Final = 100
"""Workers of one state among which those are."""
ERROR_MAX: Final = 160
"""Characters of an error, of its first line: `shem worker` has the whole."""


def standing_workers(store: StoreReader) -> Iterator[str]:
    """A sentence for each, as committed: the first ones of each state. Blocks."""
    for state in STANDING:
        try:
            yield from standing_so(store, state)
        except OplogCorruptError as error:
            yield f"not all that are {state} can be named: {error}"


def standing_so(store: StoreReader, state: State) -> Iterator[str]:
    """Raises: OplogCorruptError."""
    found = store.workers(status=state, limit=LOOKED_AT_MAX).workers
    if state == "exited":  # which is an end as any other, unless something waits for it
        found = tuple(worker for worker in found if worker.pending)
    for worker in found[:NAMED_MAX]:
        with suppress(WorkerNotFound):  # deleted just now
            yield sentence(store, worker)
    if len(found) > NAMED_MAX:
        yield f"and whoever else is {state}: see `shem workers --status {state}`"


def sentence(store: StoreReader, worker: WorkerSummary) -> str:
    """Raises: WorkerNotFound, OplogCorruptError."""
    name = worker.worker
    worker_id = store.worker_id(name)
    status = store.status(worker_id)
    match status.state:
        case "uncertain":
            start = status.decision[0]
            return (
                f"{name} is uncertain: its write at entry {start} may have happened or not:"
                f" shem resolve {name} {start} --repeat, --fail or --value WAVE"
            )
        case "failed":
            why = beginning(worker.last_error or "no text")
            return f"{name} failed: {why}: shem revert {name} --last 1, or delete it"
        case "exited":
            waiting = f"{name} has exited, and invocations wait"
            return f"{waiting}: shem revert {name} --last 1, or delete it"
        case "interrupted":
            return f"{name} is interrupted: shem resume {name}"
        case "retrying":
            return f"{name} is tried again at {time_text(status.retry_at)}: by a `shem run` then"
        case "suspended":
            return f"{name} waits for {' or '.join(awaited(store, worker_id, status))}"
        case _:
            return f"{name} is {status.state} again"


def beginning(error: str) -> str:
    first = error.partition("\n")[0][:ERROR_MAX]
    return first if first == error else f"{first}…"


def awaited(store: StoreReader, worker_id: bytes, status: Status) -> Iterator[str]:
    """Raises: WorkerNotFound, OplogCorruptError."""
    for text in status.promises:
        promise = PromiseId.of_name(text)
        own = promise.worker_id == worker_id
        owner = status.name if own else store.status(promise.worker_id).name
        yield f"promise {promise.index}: shem promise complete {owner} {promise.index} VALUE"
    if status.wake_at is not None:
        yield f"{time_text(status.wake_at)}: a `shem run` then goes on with it"
