"""`shem torture` on guests that nobody here wrote: killed at a sample of points, nothing is lost.

`SHEM_CRASH_POINTS=all` tries every point.
"""

import json
import os

import pytest

from executor.cli.app import main
from tests.conformance.golem.components import WHY_SKIPPED, components_folder

if components_folder() is None:
    pytest.skip(WHY_SKIPPED, allow_module_level=True)

SAMPLE = () if os.environ.get("SHEM_CRASH_POINTS") == "all" else ("--sample", "24")
SCRIPTS = {
    "shopping-cart": r"""
        ann initialize-cart '"test-user-1"'
        ann add-item '{product-id: "G1000", name: "Shirt", price: 100.0, quantity: 5}'
        ann add-item '{product-id: "G1001", name: "Cloud", price: 999999.0, quantity: 1}'
        ann add-item '{product-id: "G1002", name: "Mud", price: 11.0, quantity: 10}' --no-wait
        ann update-item-quantity '"G1002"' 20
        ann remove-item '"G1001"'
        ann get-cart-contents
        bob initialize-cart '"bob"'
        bob get-cart-contents
    """,
    "counters": r"""
        a '[constructor]counter' '"c1"'
        a '[method]counter.inc-by' 1 5
        a '[constructor]counter' '"c2"'
        a '[method]counter.inc-by' 2 7 --no-wait
        a '[method]counter.inc-by' 1 1 --no-wait
        a '[method]counter.get-value' 1
        a '[resource-drop]counter' 1
        a get-all-dropped
        a inc-global-by 4
        a get-global-value
        a '[method]counter.get-args' 2
    """,
    "file-service": r"""
        w create-directory '"/d"'
        w write-file '"/d/a.txt"' '"hello"'
        w write-file-direct '"/b.txt"' '"direct"'
        w create-link '"/b.txt"' '"/c.txt"'
        w rename-file '"/b.txt"' '"/d/b.txt"'
        w create-sym-link '"a.txt"' '"/d/s"'
        w read-file '"/d/b.txt"'
        w get-file-info '"/d/a.txt"'
        w delete-file '"/c.txt"'
        w read-file '"/none"'
    """,
    "java-1": r"""
        w run-example1 '"Hello"'
        w run-example1 '"again"'
    """,
}
"""What each is asked. A checkout of the cart is left out: it draws lots."""


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_foreign_component_loses_and_repeats_nothing(name, tmp_path, capfdbinary):
    folder = components_folder()
    assert folder is not None
    script = tmp_path / "script.txt"
    script.write_text(SCRIPTS[name])
    code = main(["torture", str(folder / f"{name}.wasm"), str(script), "--json", *SAMPLE])
    out, err = capfdbinary.readouterr()
    assert code == 0, (out, err)
    figures = json.loads(out)
    print(figures)
    assert (figures["lost"], figures["duplicated"], figures["differences"]) == (0, 0, [])
    assert figures["recovered"] == figures["tried"]
    assert figures["kills"] >= 0.8 * figures["tried"] - 2
