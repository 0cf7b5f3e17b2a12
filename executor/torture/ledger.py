"""What a process under torture reports of itself: effects as they happen, oplogs as they stand.

A report is in its file before the effect begins, so no kill can hide an effect.
"""

from functools import partial
from hashlib import blake2b
from typing import Final

from msgspec.structs import replace

from executor.durable.effects import Effect, Perform
from executor.durable.function_type import REMOTE
from executor.errors import WorkerNotFound
from executor.torture.calls import cuts_of, doubles, recorded_calls, setbacks
from executor.torture.plan import EffectBegan, EffectEnded, Found, Report
from executor.worker.reader import StoreReader
from oplog.codec import encode_entry

DIGEST_BYTES: Final = 8


def recorded_effects(perform: Perform, report: Report) -> Perform:
    """`perform`, with each remote effect reported when it is really performed: behind a crash point
    that dies before it, and before one that dies after it.
    """

    async def run(effect: Effect) -> object:
        report(EffectBegan(key=effect.key, function=effect.function, type=effect.function_type))
        answered = False
        try:
            answer = await effect.run()
            answered = True
        finally:
            report(EffectEnded(key=effect.key, answered=answered))
        return answer

    async def performed(effect: Effect) -> object:
        if effect.function_type in REMOTE:
            effect = replace(effect, run=partial(run, effect))
        return await perform(effect)

    return performed


def report_oplogs(
    reader: StoreReader, workers: tuple[str, ...], report: Report, *, verified: bool
) -> None:
    """Reports what is committed of each worker that there is."""
    for worker in workers:
        try:
            worker_id = reader.worker_id(worker)
        except WorkerNotFound:
            continue
        history = [(record.index, record.entry) for record in reader.oplog(worker)]
        status = reader.status(worker_id)
        report(
            Found(
                worker=worker,
                id=worker_id.hex(),
                entries=tuple(
                    blake2b(encode_entry(entry), digest_size=DIGEST_BYTES).hexdigest()
                    for _, entry in history
                ),
                calls=tuple(recorded_calls(worker_id, history)),
                doubles=tuple(doubles(history)),
                setbacks=setbacks(history),
                rolled_back=bool(cuts_of(history)),
                status=status.state,
                pending=status.pending,
                verified=verified,
            )
        )
