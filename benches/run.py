"""Runs the benches and prints a table, then one JSON object a bench on the last lines.

`python -m benches.run` runs all of them, `python -m benches.run NAME…` those that a name begins:
`steps_64`, or `steps` for both of its kind.
"""

import sys
import time
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from benches import (
    bench_bytes,
    bench_cold_worker,
    bench_deduplicated,
    bench_durable_call,
    bench_http,
    bench_idle,
    bench_invocations,
    bench_memory,
    bench_recover,
    bench_replay,
    bench_sleepers,
    bench_steps,
    bench_waiting,
)
from benches.measure import Figure
from executor.cli.collector import settle_collector

BENCHES: Final[dict[str, Callable[[], Sequence[Figure]]]] = {
    "durable_call_live": bench_durable_call.live,
    "durable_call_replay": bench_durable_call.replayed,
    "invocations_sequential": bench_invocations.sequential,
    "invocations_64": bench_invocations.concurrent,
    "steps_sequential": bench_steps.sequential,
    "steps_64": bench_steps.concurrent,
    "deduplicated": bench_deduplicated.deduplicated,
    "replay_100k": bench_replay.replay,
    "cold_python_worker": bench_cold_worker.cold,
    "recover_5000": bench_recover.recover,
    "idle_100k": bench_idle.idle,
    "waiting_5000": bench_waiting.waiting,
    "sleepers_10000": bench_sleepers.sleepers,
    "wake_latency": bench_sleepers.latency,
    "http_concurrent": bench_http.concurrent,
    "rss_per_worker": bench_memory.loaded,
    "bytes_throughput": bench_bytes.throughput,
}


def chosen(names: Sequence[str]) -> list[str]:
    """The benches to run: all, or those that a name begins. Exits if a name begins none."""
    if not names:
        return list(BENCHES)
    found = [bench for bench in BENCHES if any(bench.startswith(name) for name in names)]
    unknown = [name for name in names if not any(bench.startswith(name) for bench in BENCHES)]
    if unknown:
        sys.exit(f"no bench {', '.join(unknown)}; there are {', '.join(BENCHES)}")
    return found


def row(figure: Figure) -> str:
    return (
        f"{figure.bench:24} {figure.value:11,.2f} {figure.unit:14} {figure.baseline:11,.2f}"
        f" {figure.ratio:7.2f}  {figure.goal:>10}  {figure.note}"
    )


def json_line(figure: Figure) -> str:
    fields = {
        "bench": figure.bench,
        "value": round(figure.value, 3),
        "unit": figure.unit,
        "baseline": round(figure.baseline, 3),
        "ratio": round(figure.ratio, 3),
        "note": figure.note,
    }
    return msgspec.json.encode(fields).decode()


def main(names: Sequence[str]) -> None:
    print(
        f"{'bench':24} {'value':>11} {'unit':14} {'baseline':>11} {'ratio':>7}  {'goal':>10}  note"
    )
    figures: list[Figure] = []
    settle_collector()  # as `shem` does
    began = time.perf_counter()
    for name in chosen(names):
        for figure in BENCHES[name]():
            print(row(figure), flush=True)
            figures.append(figure)
    print(f"{time.perf_counter() - began:.0f} s")
    for figure in figures:
        print(json_line(figure))


if __name__ == "__main__":
    main(sys.argv[1:])
