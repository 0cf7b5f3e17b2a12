"""Prebuilt guests of Golem 1.2.5, read from the folder that SHEM_GOLEM_COMPONENTS names.

They are the files of `test-components/` in the public repository golemcloud/golem at its tag
v1.2.5, unmodified, and `shopping-cart-resource-versioned.wasm` of its `wasm-ast/wasm/`. None of
them is part of this repository.
"""

import os
from pathlib import Path

VARIABLE = "SHEM_GOLEM_COMPONENTS"
WHY_SKIPPED = f"{VARIABLE} does not name the folder of Golem 1.2.5's test-components"


def components_folder() -> Path | None:
    """The folder, if the variable names one."""
    named = os.environ.get(VARIABLE)
    return Path(named) if named and Path(named).is_dir() else None


def golem_component(name: str) -> bytes:
    """The component, by its file's stem. A missing file is an error: the folder is incomplete."""
    folder = components_folder()
    assert folder is not None, WHY_SKIPPED
    return (folder / f"{name}.wasm").read_bytes()
