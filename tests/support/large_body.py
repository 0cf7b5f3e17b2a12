"""A process of its own that has a guest read, or send, a large body, and says what it took.

    python -m tests.support.large_body FOLDER read URL
    python -m tests.support.large_body FOLDER send URL BYTES
    python -m tests.support.large_body FOLDER recover

Prints one JSON object: what the guest answered, and the largest anonymous memory of the process, in
bytes, before and while it ran, and while it was replayed. Pages of the store's file are not among
it, though the kernel calls them private as long as no other process maps them.
"""

import json
import re
import sys
import threading
from pathlib import Path
from typing import Any, Self

import trio

from executor import Executor
from tests.support import guests

SAMPLE_S = 0.05
WORKER = "fetcher/w"
KEY = "large"


def anonymous_bytes() -> int:
    found = re.search(r"RssAnon:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


class Peak:
    """The largest anonymous memory while it is entered."""

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
            self.bytes = max(self.bytes, anonymous_bytes())


async def measure(folder: str, what: str, url: str = "", count: str = "0") -> dict[str, Any]:
    async with Executor.open(folder) as shem:
        await shem.deploy(guests.fetcher_component(), name="fetcher", allow_net=["127.0.0.1"])
        if what == "read":
            await shem.invoke(WORKER, "drain", [url.rpartition("/")[0] + "/1000000"], key="warm")
        before = anonymous_bytes()
        with Peak() as peak:
            match what:
                case "read":
                    answer = await shem.invoke(WORKER, "drain", [url], key=KEY)
                case "send":
                    answer = await shem.invoke(WORKER, "pour", [url, int(count)], key=KEY)
                case _:
                    answer = (await shem.wait(WORKER, KEY)).value
        with Peak() as replaying:
            rebuild = await shem.replay(WORKER)
    return {
        "answer": answer,
        "before": before,
        "peak": peak.bytes,
        "replaying": replaying.bytes,
        "divergence": str(rebuild.divergence or ""),
    }


if __name__ == "__main__":
    print(json.dumps(trio.run(measure, *sys.argv[1:])))
