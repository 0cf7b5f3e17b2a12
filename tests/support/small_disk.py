"""A disk of a few kilobytes, where the system lets a test mount one."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


def mount(*arguments: object) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        ("mount", *map(str, arguments)), capture_output=True, check=False, timeout=60
    )


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """A tmpfs of so much, `4k`, at `folder`, which is made."""
    folder.mkdir()
    if mount("-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder).returncode:
        pytest.skip("this system does not let the test mount a small disk")
    try:
        yield folder
    finally:
        subprocess.run(("umount", "--lazy", str(folder)), check=True, timeout=60)


def resize(folder: Path, size: str) -> None:
    assert mount("-o", f"remount,size={size}", folder).returncode == 0


def fill(file: Path) -> None:
    """Makes the file as long as the disk lets it be."""
    with file.open("ab", buffering=0) as opened:
        for size in (1 << 16, 1 << 12, 1):
            try:
                while opened.write(b"x" * size):
                    pass
            except OSError:
                continue
