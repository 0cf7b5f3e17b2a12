"""From outside, to one worker's history: an owner's word on an uncertain call, and cutting back."""

from collections.abc import Sequence
from typing import Literal

from executor.records import Done
from executor.wasm.wave import parse_arguments
from executor.worker.cutting import revert as revert_worker
from executor.worker.interruption import wait_or_suspended
from executor.worker.loop import InvocationLoop
from executor.worker.resolving import append_resolution, uncertain_call

Choice = Literal["repeat", "fail", "value"]


async def resolve(
    loop: InvocationLoop,
    start: int,
    choice: Choice,
    value: object,
    *,
    texts: Sequence[str] | None,
    until_ended: bool,
) -> Done:
    """Records the word on the call whose `start` is at this index; the worker then goes on. The
    answer is `value`, or WAVE in `texts`. Durable on return; with `until_ended` the invocation has
    ended as well. Raises: UsageError, BadArguments, WorkerDeleted, StoreError.
    """
    worker = loop.worker
    call = await uncertain_call(worker, start)
    values = [value] if texts is None else parse_arguments(call[1], texts, call[0])
    append_resolution(worker, call, choice, values)
    await worker.commit_to_end()
    worker.notify()
    loop.start()
    current = worker.status.current
    if until_ended and current is not None:
        await wait_or_suspended(loop, current.key)
    return Done(worker=worker.name, done=True, status=worker.status.state)


async def revert(loop: InvocationLoop, *, to: int | None, last: int | None, go_on: bool) -> Done:
    """Cuts a stopped worker back. Durable on return; `done` is false if nothing lies behind the
    cut. Raises: UsageError naming the nearest legal cuts, WorkerDeleted, StoreError.
    """
    worker = loop.worker
    try:
        with loop.kept_still():
            done = await revert_worker(worker, to=to, last=last)
            if done:
                worker.trouble = None
    finally:
        worker.notify()
        if go_on:
            loop.start()
    return Done(worker=worker.name, done=done, status=worker.status.state)
