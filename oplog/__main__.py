"""`python -m oplog STORE` reads every page of a store, and says whether they fit together.

For who was told by a signal (SIGSEGV, SIGBUS, SIGABRT) that they may not. Changes nothing. Exit
codes: 0 they do, 5 they do not, 2 no store was named.
"""

import sys
from pathlib import Path

from oplog.errors import OplogError
from oplog.whole import require_undamaged


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m oplog STORE\n")
        return 2
    try:
        require_undamaged(Path(arguments[0]))
    except OplogError as error:
        sys.stderr.write(f"{error}\n")
        return 5
    sys.stdout.write(f"{arguments[0]}: every page can be read\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
