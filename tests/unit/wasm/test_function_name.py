import pytest

from executor.errors import UnknownFunction, UsageError
from executor.wasm.function_name import resolve

COUNTER = [
    "demo:counter/api.{add}",
    "demo:counter/api.{get}",
    "demo:counter/admin.{get}",
    "demo:counter/api.{[constructor]counter}",
    "demo:counter/api.{[method]counter.increment}",
    "demo:counter/api.{[static]counter.most}",
    "reset",
]


@pytest.mark.parametrize(
    ("asked", "path"),
    [
        ("add", "demo:counter/api.{add}"),
        ("{add}", "demo:counter/api.{add}"),
        ("api.add", "demo:counter/api.{add}"),
        ("api.{add}", "demo:counter/api.{add}"),
        ("demo:counter/api.add", "demo:counter/api.{add}"),
        ("demo:counter/api.{add}", "demo:counter/api.{add}"),
        ("demo:counter/api@1.2.0.{add}", "demo:counter/api.{add}"),
        ("demo:counter/api@1.2.0-rc.1.{add}", "demo:counter/api.{add}"),
        ("demo:counter/api.add@0.1.0", "demo:counter/api.{add}"),
        ("admin.get", "demo:counter/admin.{get}"),
        ("reset", "reset"),
        ("counter.new", "demo:counter/api.{[constructor]counter}"),
        ("api.{counter.increment}", "demo:counter/api.{[method]counter.increment}"),
        ("[method]counter.increment", "demo:counter/api.{[method]counter.increment}"),
        ("counter.most", "demo:counter/api.{[static]counter.most}"),
    ],
)
def test_a_function_is_found_by_any_of_its_spellings(asked, path):
    assert resolve(COUNTER, asked) == path


def test_an_ambiguous_name_names_all_that_it_could_mean():
    with pytest.raises(UsageError) as refused:
        resolve(COUNTER, "get", "counter")
    assert refused.value.message == (
        '"get" is ambiguous: demo:counter/api.{get}, demo:counter/admin.{get}'
    )
    assert refused.value.where == "counter"


def test_a_full_path_means_itself_though_it_is_short_for_others_too():
    assert resolve(["a:b/c.{run}", "run"], "run") == "run"


def test_an_unknown_name_gets_near_names():
    with pytest.raises(UnknownFunction) as refused:
        resolve(COUNTER, "ad")
    assert refused.value.message == 'no exported function is called "ad"'
    assert refused.value.hint == "did you mean demo:counter/api.{add}?"


def test_a_name_near_to_nothing_gets_the_list():
    with pytest.raises(UnknownFunction) as refused:
        resolve(["demo:counter/api.{add}", "reset"], "zzzzzz")
    assert refused.value.hint == "it exports demo:counter/api.{add}, reset"
    with pytest.raises(UnknownFunction) as refused:
        resolve([], "add")
    assert refused.value.hint == "the component exports no functions"


def test_another_package_or_version_is_another_function():
    exports = ["ui:tests/ui@0.1.0.{string}", "ui:tests/ui@0.2.0.{string}"]
    assert resolve(exports, "ui:tests/ui@0.2.0.{string}") == exports[1]
    assert resolve(exports, "ui:tests/ui.string@0.1.0") == exports[0]
    with pytest.raises(UnknownFunction):
        resolve(exports, "ui:tests/ui@0.0.0.{string}")
    with pytest.raises(UnknownFunction):
        resolve(exports, "other:tests/ui.{string}")
    with pytest.raises(UsageError, match="ambiguous"):
        resolve(exports, "string")
