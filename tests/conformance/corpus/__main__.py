"""Says what becomes of each component of a folder.

    python -m tests.conformance.corpus FOLDER [--json]

Prints a line for each, by fate (`survey.py` says what each means), and how many met it; with
`--json` one object a component. Ends with 1 if any command differs from what it does on Wasmtime.
"""

import sys
import tempfile
from collections import Counter
from functools import partial
from pathlib import Path

import msgspec
import trio

from tests.conformance.corpus.survey import survey


async def main(folder: Path, *, as_json: bool) -> int:
    fates: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as store:
        async for found in survey(folder, Path(store)):
            fates[found.fate] += 1
            if as_json:
                print(msgspec.json.encode(found).decode(), flush=True)
            else:
                print(f"{found.fate:<12}  {found.component}  {found.details}", flush=True)
    if not as_json:
        print()
        for fate, count in fates.most_common():
            print(f"{count:>6}  {fate}")
    return 1 if fates["differs"] else 0


if __name__ == "__main__":
    named = [argument for argument in sys.argv[1:] if argument != "--json"]
    if len(named) != 1 or not Path(named[0]).is_dir():
        print(__doc__, file=sys.stderr)
        sys.exit(2)
    sys.exit(trio.run(partial(main, Path(named[0]), as_json="--json" in sys.argv)))
