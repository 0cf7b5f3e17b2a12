"""From outside, to one worker: interrupt it, resume it, cancel what waits in its queue.

An interrupted worker stands still until it is resumed or gets a new invocation, whatever becomes of
the process; the invocation it was in is then finished first. All of it is for the trio thread, and
what is said to be done is durable.
"""

from contextlib import suppress
from typing import Final

from executor.durable.open_effects import WRITES_AWAITED_MAX_S
from executor.errors import AlreadyExists, Busy, InvocationInterrupted
from executor.records import Done
from executor.worker.commits import store_errors
from executor.worker.loop import InvocationLoop
from executor.worker.outcomes import unknown_key
from executor.worker.status import is_held_up
from executor.worker.worker import Worker
from oplog.entry import CancelPendingInvocation, Interrupted, Resumed

INTERRUPTIBLE: Final = frozenset({"idle", "running", "suspended", "retrying"})


async def interrupt(loop: InvocationLoop) -> Done:
    """Leaves the instance wherever it is: reads are cancelled, writes awaited for a while. A worker
    that has nothing to do is not interrupted. Raises: StoreError.
    """
    worker = loop.worker
    status = worker.status
    done = False
    try:
        with loop.kept_still():
            if status.state in INTERRUPTIBLE and is_held_up(status):
                await loop.stop(writes_awaited_s=WRITES_AWAITED_MAX_S)
                with worker.writer.lock, store_errors(worker.name):
                    status = worker.status
                    may_be = status.state in INTERRUPTIBLE and is_held_up(status)
                    done = may_be and not worker.deleted
                    if done:
                        worker.append(Interrupted(at=worker.services.sources.wall_ns()))
                await worker.commit_to_end()
                worker.deliver_output()
    finally:
        worker.notify()
        loop.start()  # for what came too late to be interrupted, and for what resumed it
    return answer(worker, done=done)


async def resume(loop: InvocationLoop, *, until_ended: bool) -> Done:
    """The worker goes on; with `until_ended` returns when its invocation has ended, or suspends, or
    is interrupted again. Raises: StoreError, and with `until_ended` what keeps it from running.
    """
    worker = loop.worker
    with worker.writer.lock, store_errors(worker.name):
        done = worker.status.state == "interrupted"
        if done:
            worker.append(Resumed(at=worker.services.sources.wall_ns()))
            current = worker.status.current
            key = current.key if current is not None else worker.next_key()
    if done:
        await worker.commit_to_end()
        loop.start()
        if until_ended and key is not None:
            with suppress(InvocationInterrupted):
                await wait_or_suspended(loop, key)
    return answer(worker, done=done)


async def wait_or_suspended(loop: InvocationLoop, key: str) -> None:
    """Returns when the outcome of `key` is committed, or its worker waits without an instance.

    Raises: as `Worker.wait`.
    """
    worker = loop.worker
    state = worker.key_state(key)
    while loop.has_work() and state is not None and not state.finished_index:
        await worker.wait_news()
        state = worker.key_state(key)
    if worker.status.state != "suspended":
        await worker.wait(key)


async def cancel(worker: Worker, key: str) -> Done:
    """Takes a key out of the queue; its outcome is `cancelled` from then on. Doing it again changes
    nothing. Raises: UnknownKey, Busy for a running key, AlreadyExists for a finished one.
    """
    with worker.writer.lock, store_errors(worker.name):
        state = worker.key_state(key)
        if state is None:
            raise unknown_key(worker.name, key)
        done = key in worker.rows.queue
        if done:
            worker.append(
                CancelPendingInvocation(
                    at=worker.services.sources.wall_ns(),
                    key=key,
                    function=state.function,
                    digest=state.digest,
                )
            )
        elif not state.finished_index:
            raise Busy(
                f"the invocation with key {key!r} runs already",
                where=worker.name,
                hint="`shem interrupt` stops it until it is resumed",
            )
        elif state.started_index:
            raise AlreadyExists(
                f"the invocation with key {key!r} has its outcome",
                where=worker.name,
                hint="the same request with this key shows it",
            )
    await worker.commit_to_end()
    worker.notify()
    return answer(worker, done=done)


def answer(worker: Worker, *, done: bool) -> Done:
    return Done(worker=worker.name, done=done, status=worker.status.state)
