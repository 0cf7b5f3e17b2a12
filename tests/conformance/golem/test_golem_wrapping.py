"""Whatever toolchain made a guest of Golem's, nothing about it is unknown to what wraps it."""

import pytest

from executor.wasm.binary import COMPONENT, MAGIC, read_prologue
from executor.wasm.wrapping import wrap
from tests.conformance.golem.components import WHY_SKIPPED, components_folder

FOLDER = components_folder()
if FOLDER is None:
    pytest.skip(WHY_SKIPPED, allow_module_level=True)


def test_the_bytes_of_every_guest_go_through_the_shim() -> None:
    assert FOLDER is not None
    wrapped = 0
    for path in sorted(FOLDER.glob("*.wasm")):
        component = path.read_bytes()
        if not component.startswith(MAGIC + COMPONENT):
            continue
        prologue = read_prologue(component)
        if any(of.name.startswith("wasi:io/streams@") for of in prologue.imports):
            assert wrap(component, prologue, ()) is not None, path.name
            wrapped += 1
    assert wrapped >= 50
