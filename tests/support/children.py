"""Child processes of a test: a piece of Python, and what it printed."""

import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).parents[2]


def start_python(code: str, *arguments: object) -> subprocess.Popen[str]:
    """Run `code` with `arguments` as `sys.argv[1:]`, its pipes open."""
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run_python(code: str, *arguments: object, timeout_s: float = 60) -> str:
    """What the child printed; it must end well."""
    process = start_python(code, *arguments)
    try:
        out, err = process.communicate(timeout=timeout_s)
    finally:
        process.kill()
    assert process.returncode == 0, err
    return out
