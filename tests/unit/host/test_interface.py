import pytest

from executor.durable.definition import Local
from executor.errors import InternalError
from executor.host import INTERFACES
from executor.host.interface import drop_handle, host_interface

OFFERED = [
    *[f"blobstore/{name}" for name in ("types", "container", "blobstore")],
    *[f"cli/{name}" for name in ("environment", "exit", "stdin", "stdout", "stderr")],
    *[f"cli/terminal-{name}" for name in ("input", "output", "stdin", "stdout", "stderr")],
    *[f"clocks/{name}" for name in ("wall-clock", "monotonic-clock", "timezone")],
    *[f"config/{name}" for name in ("store", "runtime")],
    *[f"filesystem/{name}" for name in ("types", "preopens")],
    *[f"http/{name}" for name in ("types", "outgoing-handler")],
    *[f"io/{name}" for name in ("error", "poll", "streams")],
    *[f"keyvalue/{name}" for name in ("wasi-keyvalue-error", "types", "eventual")],
    *[f"keyvalue/{name}" for name in ("eventual-batch", "atomic", "store", "batch", "atomics")],
    "logging/logging",
    *[f"random/{name}" for name in ("random", "insecure", "insecure-seed")],
    *[f"sockets/{name}" for name in ("network", "instance-network", "ip-name-lookup")],
    *[f"sockets/{name}" for name in ("tcp", "tcp-create-socket", "udp", "udp-create-socket")],
]
TEXT = "interface demo:a/b { resource thing; one: func(); two: func() -> u32; }"
ONE = Local("one", lambda state: None)
TWO = Local("two", lambda state: 2)


def test_a_table_has_a_row_for_each_function_and_a_drop_for_each_resource():
    table = host_interface(TEXT, "0.2", [TWO, ONE])
    assert table.name == "demo:a/b"
    assert [row.name for row in table.functions] == ["two", "one"]
    assert table.drops == {"thing": drop_handle}


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([ONE], r"functions without a row \['two'\]"),
        ([ONE, TWO, Local("three", print)], r"rows without a declaration \['three'\]"),
        ([ONE, TWO, ONE], r"rows given twice \['one'\]"),
    ],
)
def test_rows_that_do_not_agree_with_the_text_are_refused(rows, message):
    with pytest.raises(InternalError, match=message):
        host_interface(TEXT, "0.2", rows)


def test_a_drop_of_a_resource_that_is_not_declared_is_refused():
    with pytest.raises(InternalError, match=r"without a declaration \['other'\]"):
        host_interface(TEXT, "0.2", [ONE, TWO], drops={"other": drop_handle})


def test_every_interface_that_a_python_or_a_rust_guest_imports_is_there():
    served = [(table.name, table.versions) for table in INTERFACES]
    assert len(served) == len(set(served))
    names = {name for name, _ in served}
    assert {f"wasi:{name}" for name in OFFERED} == {
        name for name in names if name.startswith("wasi:")
    }


def test_every_resource_of_every_interface_can_be_dropped():
    for table in INTERFACES:
        assert set(table.drops) == set(table.wit.resources), table.name
