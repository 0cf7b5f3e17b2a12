"""Compiled artifacts: what is durable of them, and what is not taken for one."""

import os
from pathlib import Path

import pytest

from executor.services.components import is_whole_artifact, write_artifact

ARTIFACT = bytes(range(256)) * 40


@pytest.fixture
def path(tmp_path):
    return tmp_path / "artifacts" / "digest.cwasm"


def test_an_artifact_that_was_written_is_whole_and_begins_with_what_was_compiled(path):
    assert not is_whole_artifact(path)
    for artifact in (ARTIFACT, b"", ARTIFACT * 2):
        write_artifact(path, artifact)
        assert is_whole_artifact(path)
        assert path.read_bytes().startswith(artifact)
    assert [file.name for file in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize(
    "damage",
    [
        lambda raw: b"",
        lambda raw: raw[:5],
        lambda raw: raw[:-1],
        lambda raw: raw[: len(raw) // 2],
        lambda raw: bytes(len(raw)),
        lambda raw: raw[: len(raw) // 2] + bytes(len(raw) - len(raw) // 2),
        lambda raw: raw + b"\0",
        lambda raw: raw[1:],
        lambda raw: ARTIFACT,
    ],
    ids=[
        "empty", "short", "cut by one", "cut in half", "zeroed", "zeroed in half", "longer",
        "shifted", "of another version",
    ],
)  # fmt: skip
def test_what_a_crash_of_the_machine_may_leave_is_no_artifact(path, damage):
    write_artifact(path, ARTIFACT)
    path.write_bytes(damage(path.read_bytes()))
    assert not is_whole_artifact(path)


def test_an_artifact_is_on_the_disk_before_it_has_its_name_and_its_name_is_durable(
    path, monkeypatch
):
    steps = []
    replace = Path.replace

    def synced(descriptor):
        name = Path(f"/proc/self/fd/{descriptor}").readlink()
        steps.append("folder" if name == path.parent else f"{name.stat().st_size} bytes")

    def replaced(file, target):
        steps.append("name")
        return replace(file, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", replaced)
    write_artifact(path, ARTIFACT)
    assert steps == [f"{path.stat().st_size} bytes", "name", "folder"]
