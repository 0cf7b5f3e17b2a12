"""How fast do bytes go through a guest, and what does the shim beside it do for them?

The guest reads a stream through `wasi:io/streams` and writes what it read to another, 64 KiB at a
time. Nobody is behind the streams, so what is left is the way of the bytes into the guest and out
again. The baseline is the same component as it is, without the outer component that it is compiled
in: every byte is a value.
"""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from unittest.mock import patch

import trio

from benches.measure import Figure, Rounds, directory, medians, seconds_async
from executor import Executor
from executor.durable.definition import Local
from executor.host import INTERFACES
from executor.host.interface import host_interface
from executor.host.state import HostState
from executor.host.streams import TRANSFER_BYTES_MAX, InputStream, OutputStream
from executor.wasm.types import OwnType
from tests.support.stream_guest import pump

MB = 1_000_000
CHUNKS = 64 * 1024 * 1024 // TRANSFER_BYTES_MAX
BASELINE_CHUNKS = CHUNKS // 16
"""The baseline takes its time."""
ROUNDS = 7
CONTENTS: Final = random.Random(1).randbytes(TRANSFER_BYTES_MAX)


class Endless(InputStream):
    def read(self, _state: HostState, count: int) -> bytes:
        return CONTENTS[:count]

    def skip(self, _state: HostState, count: int) -> int:
        return count

    def drop(self, _state: HostState) -> None:
        """Nothing was held for it."""


class Discard(OutputStream):
    def write(self, _state: HostState, contents: bytes) -> None:
        assert len(contents) == TRANSFER_BYTES_MAX

    def drop(self, _state: HostState) -> None:
        """Nothing was held for it."""


ENDS = host_interface(
    """
    interface t:host/api {
        use streams.{input-stream, output-stream};
        source: func() -> input-stream;
        sink: func() -> output-stream;
    }
    """,
    "",
    [
        Local("source", lambda state: state.handles.add(Endless())),
        Local("sink", lambda state: state.handles.add(Discard())),
    ],
    uses={name: OwnType(name) for name in ("input-stream", "output-stream")},
)


def throughput() -> Sequence[Figure]:
    with directory() as path:
        rounds = trio.run(compare, path)
    return [
        Figure(
            bench="bytes_throughput",
            value=rounds.ours,
            unit="MB/s",
            baseline=rounds.baseline,
            ratio=rounds.ratio,
            goal="reported",
            note="64 MiB of random bytes read and written by a guest, 64 KiB a call;"
            " against the same component without the shim",
        )
    ]


async def compare(path: Path) -> Rounds:
    wasm = pump().encode()
    # An executor's interfaces are fixed: the two ends that no public interface has join them here.
    with patch("executor.opened.INTERFACES", (*INTERFACES, ENDS)):
        async with Executor.open(path / "ours") as ours, Executor.open(path / "plain") as plain:
            await ours.deploy(wasm, name="pump")
            with patch("executor.wasm.engine.wrap", lambda *_: None):
                await plain.deploy(wasm, name="pump")
            for shem in (ours, plain):
                await pumped_mb_s(shem, 16)
            pairs = [
                (await pumped_mb_s(ours, CHUNKS), await pumped_mb_s(plain, BASELINE_CHUNKS))
                for _ in range(ROUNDS)
            ]
    return medians(pairs)


async def pumped_mb_s(shem: Executor, chunks: int) -> float:
    async def ask() -> None:
        assert await shem.invoke("pump/one", "pump", [chunks, TRANSFER_BYTES_MAX]) == total

    total = chunks * TRANSFER_BYTES_MAX
    return total / MB / await seconds_async(ask)
