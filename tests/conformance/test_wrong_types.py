"""What a caller of the library gives that is of another type is refused in a sentence."""

import errno

import pytest

from executor.cli.output import error_record
from executor.errors import UsageError
from tests.support import guests
from tests.support.executors import LastingEngine, opened, run


@pytest.mark.parametrize(
    ("ask", "where"),
    [
        (lambda shem: shem.deploy("adder.wasm", name="adder"), "wasm"),
        (lambda shem: shem.deploy(guests.ADDER, name=None), "name"),
        (lambda shem: shem.deploy(guests.ADDER, name="b", host="bank:charge"), "host"),
        (lambda shem: shem.deploy(guests.ADDER, name="b", host=5), "host"),
        (lambda shem: shem.deploy(guests.ADDER, name="b", host=[5]), "host"),
        (lambda shem: shem.deploy(guests.ADDER, name="b", host=iter(["a:b"])), "host"),
        (lambda shem: shem.deploy(guests.ADDER, name="b", host_directory=5), "host_directory"),
        (lambda shem: shem.deploy(guests.ADDER, name="b", env={"A": 1}), "env"),
        (lambda shem: shem.deploy(guests.ADDER, name="b", config=5), "config"),
        (lambda shem: shem.deploy(guests.ADDER, name="b", files=[5]), "files"),
        (lambda shem: shem.deploy(guests.ADDER, name="b", limits={"memory": "x"}), "limits"),
        (lambda shem: shem.deploy(guests.ADDER, name="b", allow_net="localhost"), "allow_net"),
        (lambda shem: shem.deploy(guests.ADDER, name="b", retry=5), "retry"),
        (lambda shem: shem.deploy(guests.ADDER, name="b", hosts=[]), "hosts"),
        (lambda shem: shem.invoke("adder/w", "add", [1], env=5), "env"),
        (lambda shem: shem.invoke("adder/w", "add", [1], args=[1]), "args"),
        (lambda shem: shem.submit("adder/w", "add", [1], allow_net="localhost"), "allow_net"),
        (lambda shem: shem.submit("adder/w", "add", [1], timeout_s=5), "timeout_s"),
        (lambda shem: shem.invoke(None, "add", [1]), "worker"),
        (lambda shem: shem.invoke("adder/w", None, [1]), "function"),
        (lambda shem: shem.invoke("adder/w", "add", [1], key=5), "key"),
        (lambda shem: shem.submit("adder/w", "add", [1], key=b"k"), "key"),
        (lambda shem: shem.complete_promise("adder/w", "4", b"x"), "promise"),
        (lambda shem: shem.complete_promise("adder/w", 4, "x"), "value"),
    ],
)
def test_a_value_of_another_type_is_named(ask, where):
    async def case():
        async with opened(LastingEngine()) as shem:
            await shem.deploy(guests.ADDER, name="adder")
            with pytest.raises(UsageError) as caught:
                await ask(shem)
            assert [item.component for item in await shem.components()] == ["adder"]
            assert (await shem.workers()).workers == ()
            assert (caught.value.where, bool(caught.value.hint)) == (where, True)

    run(case)


def test_too_many_open_files_are_no_fault_of_the_output():
    record = error_record(OSError(errno.EMFILE, "Too many open files"))
    assert (record.kind, record.message) == ("limit", "Too many open files")
    assert "ulimit -n" in record.hint
