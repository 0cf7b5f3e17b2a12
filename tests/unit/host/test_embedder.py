"""Host functions of the embedder: how they are found, and the interfaces that they form."""

import sys
from types import ModuleType

import pytest

from executor.errors import HostBindingError, UsageError
from executor.host.embedder import (
    bound_functions,
    embedder_interfaces,
    find_binding,
    find_bindings,
    host_function,
    semver_track,
)
from executor.wasm.types import format_function

CHARGE = "charge: func(who: string, cents: u64) -> result<string, string>"


@host_function("demo:bank/api", CHARGE)
async def charge(call, who, cents):
    return None


@host_function("demo:bank/api", "balance: func(who: string) -> u64", type="read-remote")
def balance(call, who):
    return 0


def names(value):
    return [bound.name for bound in bound_functions(value)]


def test_a_decorated_function_stays_itself_and_is_a_remote_write_by_default():
    assert balance(None, "ann") == 0
    (bound,) = bound_functions(charge)
    assert (bound.interface, bound.name, bound.type) == ("demo:bank/api", "charge", "write-remote")


@pytest.mark.parametrize("type_", ["write-local", "remote", ""])
def test_a_type_that_an_embedder_cannot_have_is_refused(type_):
    with pytest.raises(UsageError, match="is not a type of host function") as raised:
        host_function("demo:bank/api", CHARGE, type=type_)
    assert "read-local, read-remote, write-remote" in raised.value.hint


@pytest.mark.parametrize(
    ("interface", "signature", "message"),
    [
        ("demo:bank/api", "", "found the end"),
        ("demo:bank/api", "func()", 'column 1: .* the keyword "func"'),
        ("demo:bank/api", "charge", 'column 7: expected ":"'),
        ("demo:bank/api", "charge: func(x: nope)", 'column 17: unknown type "nope"'),
        ("demo:bank/api", "charge: func() -> ", "expected a type"),
        ("demo:bank/api", "charge: async func()", "WASI 0.3"),
        ("demo:bank/api", "type cents = u64", "is of 0 functions"),
        ("demo:bank/api", "charge: func(); balance: func()", "is of 2 functions"),
        ("demo:bank/api", None, "cannot be read"),
        ("", "charge: func()", "expected the name of an interface"),
        ("demo:bank/api {", "charge: func()", "cannot be read"),
        (None, "charge: func()", "cannot be read"),
    ],
)
def test_a_signature_that_is_not_the_wit_of_one_function_is_refused(interface, signature, message):
    with pytest.raises(UsageError, match=message) as raised:
        host_function(interface, signature)
    assert raised.value.where == f"{interface} {signature}"
    assert "write the WIT of one function" in raised.value.hint


class Teller:
    async def __call__(self, call):
        return None

    def tell(self, call):
        return None


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda call: None, r"with \(call, who\)"),
        (7, "7 is no function"),
        (print, "takes no attribute"),
        (Teller().tell, r"with \(call, who\)"),
    ],
)
def test_what_cannot_be_called_by_its_signature_is_refused(function, message):
    with pytest.raises(UsageError, match=message) as raised:
        host_function("demo:bank/api", "charge: func(who: string)")(function)
    assert raised.value.hint


def test_an_object_that_is_called_is_awaited_if_its_call_is_async():
    bound = host_function("demo:bank/api", "charge: func()")(Teller())
    (table,) = embedder_interfaces(bound_functions(bound))
    assert table.functions[0].action.__name__ == "action"


def test_functions_are_found_in_lists_modules_and_mappings_and_nowhere_else():
    module = ModuleType("bindings")
    module.charge, module.other, module.balance = charge, 7, balance
    assert names([charge, balance]) == ["charge", "balance"]
    assert names(module) == ["balance", "charge"]
    assert names({"a": charge, "b": [balance]}) == ["charge", "balance"]
    assert names(bound_functions(charge)) == ["charge"]
    assert names(()) == names(7) == names("text") == names(None) == []


def test_functions_of_one_interface_form_one_table_and_the_last_binding_counts():
    @host_function("demo:bank/api", CHARGE, type="read-local")
    def again(call, who, cents):
        return None

    @host_function("demo:other/api@1.2.3", "tick: func()")
    def tick(call):
        return None

    bank, other = embedder_interfaces(bound_functions([charge, balance, again, tick]))
    assert (bank.name, bank.versions) == ("demo:bank/api", "")
    assert {row.name: row.function_type for row in bank.functions} == {
        "charge": "read-local",
        "balance": "read-remote",
    }
    assert (other.name, other.versions) == ("demo:other/api", "1")
    charge_type = bank.wit.functions["charge"]
    assert format_function("charge", charge_type) == CHARGE


def test_a_signature_may_bring_its_types():
    text = "record money { cents: u64 } enum unit { eur } pay: func(m: money, in: unit) -> money;"

    @host_function("demo:bank/api", text)
    def pay(call, money, unit):
        return money

    (table,) = embedder_interfaces(bound_functions(pay))
    assert [row.name for row in table.functions] == ["pay"]
    assert "money" in table.wit.types


def test_several_signatures_of_an_interface_may_bring_the_same_type():
    money = "record money { cents: u64 } "

    @host_function("demo:bank/api", f"{money} pay: func(m: money)")
    def pay(call, m):
        return None

    @host_function("demo:bank/api", f"{money} owed: func() -> money")
    def owed(call):
        return {"cents": 1}

    (table,) = embedder_interfaces(bound_functions([pay, owed]))
    assert [row.name for row in table.functions] == ["pay", "owed"]
    paid = dict(table.wit.functions["pay"].params)["m"]
    assert paid == table.wit.functions["owed"].result


@pytest.mark.parametrize(
    ("version", "track"),
    [("1.2.3", "1"), ("0.2.9", "0.2"), ("0.0.3", "0.0.3"), ("", ""), ("10.0.0", "10")],
)
def test_versions_that_are_compatible_share_a_track(version, track):
    assert semver_track(version) == track


@pytest.fixture
def folder(tmp_path):
    yield tmp_path
    sys.modules.pop("bindings_of_a_test", None)


def test_bindings_are_imported_from_the_directory_that_is_recorded(folder):
    (folder / "bindings_of_a_test.py").write_text(
        "from executor import host_function\n"
        f"@host_function('demo:bank/api', {CHARGE!r})\n"
        "def charge(call, who, cents): ...\n"
        "class Bank:\n    calls = [charge]\n"
    )
    path = list(sys.path)
    for attribute in ("", ":charge", ":Bank.calls"):
        (found,) = find_bindings([f"bindings_of_a_test{attribute}"], str(folder))
        assert found.name == "charge"
    assert sys.path == path


def bank(label):
    return (
        "from executor import host_function\n"
        f"@host_function('demo:bank/api', {CHARGE!r})\n"
        f"def charge(call, who, cents): return {label!r}\n"
    )


def test_modules_of_one_name_in_two_directories_are_two(folder):
    for name in "ab":
        (folder / name).mkdir()
        (folder / name / "bindings_of_a_test.py").write_text(bank(name))
    found = {
        name: find_bindings(["bindings_of_a_test:charge"], str(folder / name))[0].function
        for name in "aba"
    }
    assert {name: function(None, "", 0) for name, function in found.items()} == {"a": "a", "b": "b"}
    (again,) = find_bindings(["bindings_of_a_test"], str(folder / "b"))
    assert again.function is found["b"], "a module is loaded once"
    assert sys.modules["bindings_of_a_test"].__file__ == str(folder / "a/bindings_of_a_test.py")


def test_a_second_module_that_fails_to_load_leaves_nothing_behind(folder):
    for name, text in (("a", bank("a")), ("b", "raise ValueError('no')")):
        (folder / name).mkdir()
        (folder / name / "bindings_of_a_test.py").write_text(text)
    find_bindings(["bindings_of_a_test"], str(folder / "a"))
    loaded = set(sys.modules)
    with pytest.raises(HostBindingError, match="cannot be imported: ValueError: no"):
        find_bindings(["bindings_of_a_test"], str(folder / "b"))
    assert set(sys.modules) == loaded


@pytest.mark.parametrize("name", ["package_of_a_test", "package_of_a_test.inner"])
def test_a_package_of_a_name_that_is_loaded_from_elsewhere_is_refused(folder, name):
    for place in "ab":
        package = folder / place / "package_of_a_test"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(bank(place))
        (package / "inner.py").write_text(bank(place))
    try:
        assert find_bindings([name], str(folder / "a"))
        with pytest.raises(HostBindingError, match="another package package_of_a_test") as raised:
            find_bindings([name], str(folder / "b"))
        assert str(folder / "b") in raised.value.where
    finally:
        for module in [m for m in sys.modules if m.startswith("package_of_a_test")]:
            del sys.modules[module]


def test_folders_without_an_init_file_hold_bindings_too(folder):
    inner = folder / "folder_of_a_test" / "inner"
    inner.mkdir(parents=True)
    (inner / "bank.py").write_text(bank("inner"))
    try:
        (found,) = find_bindings(["folder_of_a_test.inner.bank:charge"], str(folder))
        assert found.function(None, "eve", 1) == "inner"
    finally:
        for module in [m for m in sys.modules if m.startswith("folder_of_a_test")]:
            del sys.modules[module]


def test_a_directory_that_holds_another_copy_of_shem_gives_the_one_that_runs(folder):
    (folder / "executor").mkdir()
    (folder / "executor" / "__init__.py").write_text("raise ValueError('another copy')")
    assert find_bindings(["executor.cli.demo_bank"], str(folder))


@pytest.mark.parametrize("name", ["", ":charge", "bank:", "a b:c", "bank.py/x:c", "bank:a:b", "."])
def test_what_names_no_module_and_attribute_is_refused_at_its_deployment(name):
    with pytest.raises(UsageError, match="is not MODULE:ATTR"):
        find_binding(name, "")


def test_a_signature_that_became_unreadable_is_a_wrong_request_once_and_then_a_lost_binding(folder):
    (folder / "bindings_of_a_test.py").write_text(bank("x").replace("func(", "fun("))
    with pytest.raises(UsageError, match="cannot be read"):
        find_binding("bindings_of_a_test:charge", str(folder))
    with pytest.raises(HostBindingError, match="cannot be read"):
        find_bindings(["bindings_of_a_test:charge"], str(folder))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("no_such_module_here", None, "No module named"),
        ("bindings_of_a_test:nothing", "x = 1", "no attribute 'nothing'"),
        ("bindings_of_a_test:x", "x = 1", "holds no host function"),
        ("bindings_of_a_test", "x = 1", "holds no host function"),
        ("bindings_of_a_test", "raise ValueError('no')", "no"),
        ("bindings_of_a_test", "raise SystemExit('gone')", "SystemExit: gone"),
        ("bindings_of_a_test", "raise KeyboardInterrupt", "imported: KeyboardInterrupt"),
        ("bindings_of_a_test", "raise type('Own', (BaseException,), {})(7)", "Own: 7"),
        ("bindings_of_a_test", "def", "invalid syntax"),
    ],
)
def test_a_binding_that_cannot_be_imported_names_module_and_directory(folder, name, text, message):
    if text is not None:
        (folder / "bindings_of_a_test.py").write_text(text)
    path = list(sys.path)
    with pytest.raises(HostBindingError, match=message) as raised:
        find_bindings([name], str(folder))
    assert raised.value.where == f"{name} in {folder}"
    assert raised.value.kind == "host-binding"
    assert sys.path == path


class Anything:
    """As a mock or the proxy of a remote server: it has any attribute."""

    def __getattr__(self, name):
        return self


class Nothing:
    """As a proxy whose object is not there yet."""

    def __getattribute__(self, name):
        raise RuntimeError("working outside of a request")


def test_a_module_may_have_imported_objects_of_any_kind():
    module = ModuleType("bindings")
    module.anything, module.nothing, module.charge = Anything(), Nothing(), charge
    assert names(module) == ["charge"]
