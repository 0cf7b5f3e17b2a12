"""`python -m executor.cli` is `shem`."""

import sys

from executor.cli.app import main

if __name__ == "__main__":
    sys.exit(main())
