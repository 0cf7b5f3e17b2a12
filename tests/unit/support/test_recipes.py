"""What of a guest's tools is absent, and what is wrong with them, are told apart."""

import os
from pathlib import Path

import pytest

from guests import recipes

JAVASCRIPT = ("trip", "collector")


@pytest.fixture
def tools(tmp_path, monkeypatch):
    """An empty build folder, and a folder of tools that are found before all others."""
    folder = tmp_path / "tools"
    folder.mkdir()
    monkeypatch.setattr(recipes, "BUILD", tmp_path / "build")
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    script(folder / "node", "exit 0")
    return folder


def script(path: Path, command: str) -> None:
    path.write_text(f"#!/bin/sh\n{command}\n")
    path.chmod(0o755)


@pytest.mark.parametrize("guest", JAVASCRIPT)
def test_a_registry_that_npm_does_not_reach_is_a_missing_tool(guest, tools):
    script(tools / "npm", "echo npm error code ETIMEDOUT >&2; exit 1")
    with pytest.raises(recipes.ToolMissingError, match=r"(?s)npm does not install .*ETIMEDOUT"):
        recipes.build(guest)
    script(tools / "npm", "echo asked again >&2; exit 1")
    with pytest.raises(recipes.ToolMissingError, match="asked again"):
        recipes.build(guest)


@pytest.mark.parametrize("guest", JAVASCRIPT)
def test_what_is_not_what_the_lock_says_is_an_error(guest, tools):
    script(tools / "npm", "echo npm error code EINTEGRITY >&2; exit 1")
    with pytest.raises(recipes.BuildError, match="EINTEGRITY") as caught:
        recipes.build(guest)
    assert not isinstance(caught.value, recipes.ToolMissingError)


def test_a_tool_that_is_not_done_in_time_is_given_up(tools):
    script(tools / "npm", "exec sleep 600")
    with pytest.raises(recipes.BuildError, match=r"npm ci: not done after 0\.2 s"):
        recipes.run("npm", "ci", timeout_s=0.2)
