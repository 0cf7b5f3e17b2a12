import pytest

from executor.cli.torture_script import (
    check_lines,
    read_script,
    split_lines,
    steps_of,
    without_comments,
)
from executor.errors import BadArguments, UnknownFunction, UsageError
from executor.torture.plan import Invoke, Submit
from executor.worker.signatures import export_types


def words(text):
    return list(split_lines(text, "script"))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("a b c", ["a", "b", "c"]),
        ("a '{x: \"y z\"}'", ["a", '{x: "y z"}']),
        ('a "b \\" c"', ["a", 'b " c']),
        ("a b#c", ["a", "b#c"]),
        ("a '#b' # c 'd", ["a", "#b"]),
        ("a \\# b", ["a", "#", "b"]),
        ("a b'c d'e", ["a", "bc de"]),
        ("a ''", ["a", ""]),
        ("a b\\\n  c", ["a", "b", "c"]),
        ('a "b\\\nc"', ["a", "bc"]),
        ("a '{\n x: 1 }' b # that was it", ["a", "{\n x: 1 }", "b"]),
        ("a 'b\\\nc'", ["a", "b\\\nc"]),
    ],
)
def test_a_line_is_read_as_the_shell_would(text, wanted):
    assert words(text) == [(1, wanted)]


def test_lines_are_counted_by_where_they_begin():
    assert words("# don't\n\na 'b\nc'\n  \nd\n") == [(3, ["a", "b\nc"]), (6, ["d"])]


@pytest.mark.parametrize("text", ["a\nb 'c\nd", 'a\nb "c', "a\nb \\"])
def test_a_line_that_does_not_end_is_named_by_its_beginning(text):
    with pytest.raises(UsageError, match="a quote is not closed") as refused:
        words(text)
    assert refused.value.where == "script:2"


def test_what_the_shell_would_wait_for_is_not_complete():
    assert without_comments("a 'b") is None
    assert without_comments("a # 'b") == "a "


def read(text):
    return read_script(text, "script", "shop")


def test_a_line_is_what_one_types_behind_invoke():
    [line] = read("shop/ann place -5 --key k --env A=1 --env B=2 --arg p --arg q '\"x\"' -- --key")
    assert line.request == Invoke(
        worker="shop/ann",
        function="place",
        arguments=("-5", '"x"', "--key"),
        key="k",
        env={"A": "1", "B": "2"},
        args=("p", "q"),
    )
    assert line.waits
    assert read("shem invoke ann get") == read("shop/ann get")


def test_a_line_without_a_key_has_one_of_its_own_that_never_changes():
    assert [line.request.key for line in read("\nann get\nann get")] == ["line-2", "line-3"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("ann", "Missing argument 'FUNCTION'"),
        ("ann get --kee k", "No such option"),
        ("ann get --env A", "'A' is not of the form K=V"),
        ("ann get --key ''", "an idempotency key has 1 to 1024 bytes of UTF-8"),
        ("till/ann get", "till/ann is a worker of another component than shop"),
        ("a/b/c get", "'a/b/c' does not name a worker"),
        ("'' get", "'shop/' does not name a worker"),
    ],
)
def test_a_bad_line_is_refused_by_its_number(text, sentence):
    with pytest.raises(UsageError, match=sentence) as refused:
        read(f"ann get\n\n{text}")
    assert refused.value.where == "script:3"


@pytest.mark.parametrize("text", ["", "\n\n", "# nothing"])
def test_an_empty_script_is_refused(text):
    with pytest.raises(UsageError, match="asks for nothing"):
        read(text)


EXPORTS = export_types(("shop:api/till.{add}: func(n: u32) -> u32",))


def test_every_line_is_held_against_what_the_component_exports():
    check_lines(read("ann add 1\nann till.add 2"), "script", EXPORTS)
    with pytest.raises(UnknownFunction) as unknown:
        check_lines(read("ann add 1\nann sub 2"), "script", EXPORTS)
    assert unknown.value.where == "script:2: shop"
    with pytest.raises(BadArguments) as bad:
        check_lines(read('ann add "x"'), "script", EXPORTS)
    assert bad.value.where.startswith("script:1: ")


def test_each_line_is_promised_before_it_is_awaited_and_what_does_not_wait_is_awaited_in_the_end():
    steps = steps_of(read("ann add 1\nann add 2 --no-wait\nann get"))
    assert [(type(step), step.key) for step in steps] == [
        (Submit, "line-1"),
        (Invoke, "line-1"),
        (Submit, "line-2"),
        (Submit, "line-3"),
        (Invoke, "line-3"),
        (Invoke, "line-2"),
    ]
