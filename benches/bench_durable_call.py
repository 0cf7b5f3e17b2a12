"""Is a durable call, recorded or replayed, as quick as a plain host call of wasmtime-py?

The same component runs in both. Ours are invocations of a real worker: entries, encoding, the
share of commits, claims and decoding are all in the figure.
"""

import os
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import trio
import wasmtime
from wasmtime.component import Component, Linker, Record

from benches.measure import Figure, Rounds, directory, medians, seconds, seconds_async
from benches.programs import CALLS, SIGNATURES
from executor import Executor
from executor.durable.definition import Recorded
from executor.durable.function_type import READ_LOCAL
from executor.host import INTERFACES
from executor.host.interface import host_interface

CALLS_A_ROUND = 10_000
ROUNDS = 9
US = 1e6

CALLS_API = host_interface(
    """
    interface bench:calls/api {
        number: func(x: u32) -> u32;
        text: func(s: string) -> string;
    }
    """,
    "",
    [
        Recorded(name="number", function_type=READ_LOCAL, action=lambda _state, x: x + 1),
        Recorded(name="text", function_type=READ_LOCAL, action=lambda _state, s: s),
    ],
)


class PlainGuest:
    """The component as wasmtime-py runs it, with host functions that do the same."""

    def __init__(self) -> None:
        config = wasmtime.Config()
        config.epoch_interruption = True
        engine = wasmtime.Engine(config)
        linker = Linker(engine)
        with linker.root() as root:
            with root.add_instance("bench:calls/api") as api:
                api.add_func("number", lambda _store, x: x + 1)
                api.add_func("text", lambda _store, s: s)
            with root.add_instance("wasi:clocks/wall-clock@0.2.0") as wall:
                wall.add_func("now", plain_now)
            with root.add_instance("wasi:random/random@0.2.0") as random:
                random.add_func(
                    "get-random-u64", lambda _store: int.from_bytes(os.urandom(8), "little")
                )
        self._store = wasmtime.Store(engine)
        self._store.set_epoch_deadline(1 << 40)
        self._instance = linker.instantiate(self._store, Component(engine, CALLS.decode()))

    def call_s(self, export: str) -> float:
        """Seconds for one round of calls."""
        function: Any = self._instance.get_func(self._store, export)
        return seconds(lambda: function(self._store, CALLS_A_ROUND))


def plain_now(_store: object) -> Record:
    whole, part = divmod(time.time_ns(), 1_000_000_000)
    moment = Record()
    vars(moment).update(seconds=whole, nanoseconds=part)
    return moment


Measure = Callable[[Executor, str], Awaitable[float]]
"""Seconds of one round of durable calls of an export."""


def live() -> Sequence[Figure]:
    async def measure(shem: Executor, export: str) -> float:
        return await seconds_async(lambda: shem.invoke(f"calls/{export}", export, [CALLS_A_ROUND]))

    return [compare("durable_call_live", measure)]


def replayed() -> Sequence[Figure]:
    async def measure(shem: Executor, export: str) -> float:
        rebuilt = await shem.replay(f"calls/{export}")
        assert rebuilt.divergence is None
        assert rebuilt.replayed > CALLS_A_ROUND
        return rebuilt.ms / 1_000

    return [compare("durable_call_replay", measure)]


def compare(bench: str, measure: Measure) -> Figure:
    with directory() as path:
        results = trio.run(alternate, path, measure)
    worst = max(results.values(), key=lambda rounds: rounds.ratio)
    each = ", ".join(
        f"{SIGNATURES[export]} {rounds.ratio:.2f} ({rounds.ours:.2f}/{rounds.baseline:.2f} us)"
        for export, rounds in results.items()
    )
    return Figure(
        bench=bench,
        value=worst.ours,
        unit="us a call",
        baseline=worst.baseline,
        ratio=worst.ratio,
        goal="<= 1.0",
        note=f"worst of: {each}; against one plain host call of wasmtime-py",
    )


async def alternate(path: Path, measure: Measure) -> dict[str, Rounds]:
    plain = PlainGuest()
    results: dict[str, Rounds] = {}
    # An executor's interfaces are fixed: the two calls that no public interface has join them here.
    with patch("executor.opened.INTERFACES", (*INTERFACES, CALLS_API)):
        async with Executor.open(path / "store") as shem:
            await shem.deploy(CALLS, name="calls")
            for export in SIGNATURES:
                await shem.invoke(f"calls/{export}", export, [CALLS_A_ROUND])
                pairs = [(await measure(shem, export), plain.call_s(export)) for _ in range(ROUNDS)]
                scale = US / CALLS_A_ROUND
                results[export] = medians([(ours * scale, base * scale) for ours, base in pairs])
    return results
