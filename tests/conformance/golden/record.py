"""Records the golden oplogs: `python -m tests.conformance.golden.record NAME`.

For a new oplog only. One that is committed is never recorded again: it is what stores in the world
hold, and has to keep replaying.
"""

import json
import sys
from pathlib import Path

import trio

from executor.worker.rows import read_worker_id
from oplog.codec import encode_entry
from tests.support.executors import LastingEngine, opened, worker_entries
from tests.support.programs import PROGRAMS, Bank
from tests.support.sources import FakeSources

FOLDER = Path(__file__).parent
NAMES = ("charger", "clocks")


async def recorded(name: str) -> list[str]:
    """The entries of one run in a world that stands still, as hex."""
    program = PROGRAMS[name]
    engine = LastingEngine()
    sources = FakeSources(seed=7)
    async with opened(engine, host=Bank().functions(), sources=sources) as shem:
        await shem.deploy(program.wasm(), name=name)
        for number, (function, arguments) in enumerate(program.calls):
            await shem.invoke(f"{name}/golden", function, list(arguments), key=f"key-{number}")
    assert read_worker_id(engine, f"{name}/golden") is not None
    return [encode_entry(entry).hex() for _, entry in worker_entries(engine, f"{name}/golden")]


def main() -> None:
    for name in sys.argv[1:]:
        path = FOLDER / f"{name}.json"
        assert name in NAMES
        assert not path.exists(), f"{path} is committed: it is never recorded again"
        golden = {
            "program": name,
            "worker": f"{name}/golden",
            "worker_id": "00112233445566778899aabbccddeeff",
            "entries": trio.run(recorded, name),
        }
        path.write_text(json.dumps(golden, indent=1) + "\n")


if __name__ == "__main__":
    main()
