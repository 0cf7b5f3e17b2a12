"""What a worker's owner says of a remote write that may have happened or not.

| choice | recorded                               | then                                |
|--------|----------------------------------------|-------------------------------------|
| repeat | decision                               | once more, under the same start     |
| value  | decision, end with the value           | the guest gets the value            |
| fail   | decision, invocation-finished, failure | the worker is failed                |

A repeated call records `begun` before its effect: if that attempt is lost as well, the call is
uncertain again. Nobody is asked about a call whose effect had not begun when its instance was left
in order, which is recorded: `unbegun`.
"""

from collections.abc import Sequence
from typing import Final

import trio

from executor.errors import Uncertain, UsageError
from executor.wasm.check import canonical_arguments
from executor.wasm.component import ImportedInterface, serving
from executor.wasm.host_function import HostInterface
from executor.wasm.plain import encode_result
from executor.wasm.types import FuncType, WitType
from executor.worker.commits import store_errors
from executor.worker.cutting import refuse_deleted
from executor.worker.worker import Worker
from oplog.entry import ABSENT, Decision, End, Failure, InvocationFinished, Outcome, Raw, Start

CHOICES: Final = ("repeat", "fail", "value")


async def uncertain_call(worker: Worker, start_index: int) -> tuple[str, FuncType]:
    """The uncertain call that begins at `start_index`: its function, and one that takes its answer,
    as it is recorded, and gives it, so that it reads as an argument. True until something is
    awaited again.

    Raises: UsageError unless the worker waits for a word on just that call, WorkerDeleted.
    """
    revision = await trio.to_thread.run_sync(
        worker.services.revisions.load, worker.status.component, worker.status.revision
    )
    refuse_deleted(worker)
    status = worker.status
    if not worker.question_committed:
        raise UsageError(
            f"the worker is {status.state}: no call of it is uncertain",
            where=worker.name,
            hint="see `shem worker`",
        )
    if start_index != status.decision[0]:
        raise UsageError(
            f"entry {start_index} is not the uncertain call",
            where=worker.name,
            hint=f"it is the one at entry {status.decision[0]}",
        )
    start = worker.entries.one(start_index)
    assert isinstance(start, Start)
    for imported in revision.component.imports:
        for name, found in imported.functions.items():
            if start.function == (f"{imported.name}.{name}" if imported.name else name):
                answer = recorded_answer(revision.linker.host, imported, name) or found.result
                params = () if answer is None else (("value", answer),)
                return start.function, FuncType(params=params, result=answer)
    raise Uncertain(
        f"the component imports no {start.function}",
        where=worker.name,
        hint="its answer has no type: give --repeat or --fail",
    )


def recorded_answer(
    host: Sequence[HostInterface], imported: ImportedInterface, name: str
) -> WitType | None:
    """The type of what is recorded, where the guest gets something else: a handle, an error."""
    offered = serving(host, imported.name, imported.version)
    functions = () if offered is None else offered.functions
    return next((function.answer for function in functions if function.name == name), None)


def append_unbegun(worker: Worker, starts: Sequence[int]) -> None:
    """Orders that these calls may be performed: their effects had not begun. Not durable."""
    with worker.writer.lock, store_errors(worker.name):
        for start in starts:
            at = worker.services.sources.wall_ns()
            worker.append(Decision(at=at, start_index=start, choice="unbegun"))


def append_resolution(
    worker: Worker, call: tuple[str, FuncType], choice: str, values: list[object]
) -> None:
    """Orders the decision and what follows from it. Not durable. `values` holds the answer for
    `value`, if the function has one. Raises: BadArguments.
    """
    function, wit = call
    response: Raw = ABSENT
    if choice == "value" and wit.result is not None:
        (value,) = canonical_arguments(wit, values, function)
        response = encode_result(wit, value)
    start_index = worker.status.decision[0]
    at = worker.services.sources.wall_ns()
    decision = Decision(at=at, start_index=start_index, choice=choice, value=response)
    with worker.writer.lock, store_errors(worker.name):
        worker.append(decision)
        if choice == "value":
            worker.append(End(at=at, start_index=start_index, response=response))
        elif choice == "fail":
            text = f"{function}, begun at entry {start_index}, was declared failed by its owner"
            failure = Failure(kind="guest-error", message=text)
            worker.append(InvocationFinished(at=at, outcome=Outcome(failure=failure)))
