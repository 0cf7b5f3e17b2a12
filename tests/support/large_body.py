"""A process of its own that has a guest read, or send, a large body, and says what it took.

    python -m tests.support.large_body FOLDER URL

Prints one JSON object: what the guest answered, and the largest private memory of the process, in
bytes, before and while it ran. Pages of the store's file are not private: the kernel has them.
"""

import json
import re
import sys
import threading
from pathlib import Path
from typing import Self

import trio

from executor import Executor
from tests.support import guests

SAMPLE_S = 0.05


def private_bytes() -> int:
    found = re.search(r"RssAnon:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


class Peak:
    """The largest private memory while it is entered."""

    def __init__(self) -> None:
        self.bytes = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._over.wait(SAMPLE_S):
            self.bytes = max(self.bytes, private_bytes())


async def read_large(folder: str, url: str) -> dict[str, object]:
    async with Executor.open(folder) as shem:
        await shem.deploy(guests.fetcher_component(), name="fetcher", allow_net=["127.0.0.1"])
        await shem.invoke("fetcher/w", "drain", [url.rpartition("/")[0] + "/1000000"], key="warm")
        before = private_bytes()
        with Peak() as peak:
            count, checksum = await shem.invoke("fetcher/w", "drain", [url], key="large")
        with Peak() as replaying:
            rebuild = await shem.replay("fetcher/w")
    return {
        "count": count,
        "checksum": checksum,
        "before": before,
        "peak": peak.bytes,
        "replaying": replaying.bytes,
        "divergence": str(rebuild.divergence or ""),
    }


if __name__ == "__main__":
    print(json.dumps(trio.run(read_large, *sys.argv[1:3])))
