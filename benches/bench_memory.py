"""How much memory does a loaded Python worker take?

`python -m benches.bench_memory STORE` prints what it measured, in a process of its own.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import trio
import wasmtime
from wasmtime.component import Component, Linker

from benches.bench_cold_worker import charge
from benches.bench_waiting import ROOT, resident_kib
from benches.measure import Figure, directory
from executor import Executor
from tests.support import guests

WORKERS = 100
WARM_WORKERS = 3


def loaded() -> Sequence[Figure]:
    with directory() as path:
        ours, plain = (measured(side, path / side) for side in ("ours", "plain"))
    return [
        Figure(
            bench="rss_per_worker",
            value=ours,
            unit="MiB RSS each",
            baseline=plain,
            ratio=ours / plain,
            goal="reported",
            note=f"{WORKERS} loaded workers of an 18 MB Python component, each invoked once;"
            " against as many instances of plain wasmtime-py, called alike",
        )
    ]


def measured(side: str, store: Path) -> float:
    child = subprocess.run(
        [sys.executable, "-m", "benches.bench_memory", side, str(store)],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    return float(child.stdout)


async def measure_ours(path: Path) -> None:
    async with Executor.open(path, host=[charge]) as shem:
        await shem.deploy(guests.order_component(), name="orders")
        for number in range(WARM_WORKERS):
            await shem.invoke(f"orders/warm{number}", "orders", [])
        before = resident_kib()
        for number in range(WORKERS):
            await shem.invoke(f"orders/w{number}", "orders", [])
        print((resident_kib() - before) / WORKERS / 1024, flush=True)
        os._exit(0)  # nobody waits for them to be deleted one by one


def measure_plain() -> None:
    engine = wasmtime.Engine()
    component = Component(engine, guests.order_component())
    linker = Linker(engine)
    linker.add_wasip2()
    with linker.root() as root, root.add_instance("demo:orders/bank") as bank:
        bank.add_func("charge", lambda _store, who, _cents: who)
    interface = component.get_export_index("demo:orders/workflow")
    orders = component.get_export_index("orders", interface)
    assert orders is not None
    kept = []

    def make(count: int) -> None:
        for _ in range(count):
            store = wasmtime.Store(engine)
            store.set_wasi(wasmtime.WasiConfig())
            instance = linker.instantiate(store, component)
            function: Any = instance.get_func(store, orders)
            assert function(store) == []
            kept.append((store, instance))

    make(WARM_WORKERS)
    before = resident_kib()
    make(WORKERS)
    print((resident_kib() - before) / WORKERS / 1024)


if __name__ == "__main__":
    if sys.argv[1] == "ours":
        trio.run(measure_ours, Path(sys.argv[2]))
    else:
        measure_plain()
