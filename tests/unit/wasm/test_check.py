import collections
import dataclasses
import enum
import math
from types import MappingProxyType, SimpleNamespace
from typing import NamedTuple

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from executor.errors import BadArguments
from executor.wasm.check import canonical, canonical_arguments
from executor.wasm.types import INTEGER_RANGES
from executor.wasm.values import Err, Ok, Some, Variant
from executor.wasm.wit import parse_function, parse_type
from tests.support.wit_values import LABELS, exact, typed_values, types

PERSON = "record { name: string, has-hat: bool, age: option<u8> }"


@dataclasses.dataclass
class Person:
    name: str
    has_hat: bool


class PersonStruct(msgspec.Struct):
    name: str
    has_hat: bool
    age: int | None = None


class Color(enum.StrEnum):
    RED = "red"


class Number(int):
    pass


class Text(str):
    __slots__ = ()


class PersonTuple(NamedTuple):
    name: str
    has_hat: bool
    age: int | None = None


ANN = {"name": "Ann", "has-hat": True, "age": None}

ACCEPTED = [
    ("bool", True, True),
    ("u8", Number(7), 7),
    ("f64", 3, 3.0),
    ("f32", 0.1, 0.10000000149011612),
    ("f32", 1e39, math.inf),
    ("f64", -0.0, -0.0),
    ("f64", -math.nan, math.nan),
    ("char", "☃", "☃"),
    ("string", Text("é"), "é"),
    ("list<u8>", [1, 255], b"\x01\xff"),
    ("list<u8>", bytearray(b"ab"), b"ab"),
    ("list<u8>", memoryview(b"ab"), b"ab"),
    ("list<u8>", (), b""),
    ("list<u16>", (1, 2), [1, 2]),
    ("list<u16>", range(3), [0, 1, 2]),
    ("list<string>", collections.deque(["a"]), ["a"]),
    ("tuple<u8, string>", [1, "a"], (1, "a")),
    (PERSON, {"age": None, "has-hat": True, "name": "Ann"}, ANN),
    (PERSON, {"name": "Ann", "has_hat": True}, ANN),
    (PERSON, MappingProxyType({"name": "Ann", "has_hat": True}), ANN),
    (PERSON, Person("Ann", True), ANN),
    (PERSON, PersonStruct("Ann", True), ANN),
    (PERSON, PersonTuple("Ann", True), ANN),
    (PERSON, SimpleNamespace(name="Ann", has_hat=True, age=Some(3)), ANN | {"age": 3}),
    ("variant { days(u8), forever }", Variant("days", Number(3)), Variant("days", 3)),
    ("variant { days(u8), forever }", {"days": 3}, Variant("days", 3)),
    ("variant { days(u8), forever }", "forever", Variant("forever")),
    ("variant { days(u8), forever }", {"forever": None}, Variant("forever")),
    ("enum { red, green }", Color.RED, "red"),
    ("flags { read, write, exec }", {"exec", "read"}, ["read", "exec"]),
    ("flags { read, write, exec }", ("write", "read"), ["read", "write"]),
    ("option<u8>", Some(3), 3),
    ("option<u8>", None, None),
    ("option<option<u8>>", {"some": None}, Some(None)),
    ("option<option<u8>>", Some(Some(3)), Some(3)),
    ("result<u8, string>", {"ok": 3}, Ok(3)),
    ("result<u8, string>", {"err": "no"}, Err("no")),
    ("result", Ok(), Ok()),
    ("result", {"err": None}, Err()),
    ("own<x>", {"handle": 3}, 3),
    ("borrow<x>", 3, 3),
]


@pytest.mark.parametrize(("type_", "given_", "expected"), ACCEPTED)
def test_what_people_write_becomes_the_canonical_value(type_, given_, expected):
    assert exact(canonical(parse_type(type_), given_)) == exact(expected)


REFUSED = [
    ("bool", 1, "$: expected bool, got 1"),
    ("u8", True, "$: expected u8 (0 to 255), got True"),
    ("u8", 256, "$: expected u8 (0 to 255), got 256"),
    ("u8", 5.0, "$: expected u8 (0 to 255), got 5.0 (float)"),
    ("u32", "5", "$: expected u32 (0 to 4294967295), got '5'"),
    ("f64", "1.5", "$: expected f64, got '1.5'"),
    ("f64", True, "$: expected f64, got True"),
    ("f64", 10**400, "$: expected f64, got "),
    ("char", "ab", "$: expected char (a string of one character), got 'ab'"),
    ("char", "\ud800", "got the lone surrogate U+D800 at position 0"),
    ("string", "ok\udcff", "$: expected string of Unicode scalar values, got the lone surrogate"),
    ("string", b"x", "$: expected string, got b'x'"),
    ("list<u8>", [1, 256], "$[1]: expected u8 (0 to 255), got 256"),
    ("list<u8>", "text", "$: expected list<u8> (bytes, or a list of ints), got 'text'"),
    ("list<u16>", b"x", "$: expected list<u16>, got b'x'"),
    ("list<u16>", {1, 2}, "$: expected list<u16>, got {1, 2} (set)"),
    ("tuple<u8, u8>", [1], "$: expected tuple<u8, u8> (2 elements), got 1 elements"),
    ("tuple<u8, u8>", (1, -1), "$[1]: expected u8 (0 to 255), got -1"),
    (PERSON, {"name": "Ann"}, "$.has-hat: expected bool, got nothing: the field is missing"),
    (PERSON, {"nane": "Ann"}, "(did you mean name?), got the field 'nane'"),
    (PERSON, {1: "Ann"}, "got the field 1"),
    (PERSON, Ok("Ann"), "got Ok(value='Ann') (Ok)"),
    (PERSON, 5, "$: expected record { name: string, has-hat: bool, age: option<u8> }, got 5"),
    ("variant { days(u8), forever }", "days", "$.days: expected u8, got no payload"),
    ("variant { days(u8), forever }", {"days": -1}, "$.days: expected u8 (0 to 255), got -1"),
    ("variant { days(u8), forever }", {"forever": 1}, "$.forever: expected no payload, got 1"),
    ("variant { days(u8), forever }", "day", "(did you mean days?), got the case 'day'"),
    ("variant { days(u8), forever }", {}, "got {} (dict)"),
    ("variant { days(u8), forever }", {3: 4}, "got the case 3"),
    (
        "enum { red, green }",
        "rod",
        "$: expected enum { red, green } (did you mean red?), got 'rod'",
    ),
    ("enum { red, green }", ["red"], "got ['red'] (list)"),
    ("flags { read, write }", "read", "$: expected flags { read, write }, got 'read'"),
    ("flags { read, write }", ["read", "read"], "got a flag twice"),
    ("flags { read, write }", ["reed"], "(did you mean read?), got the flag 'reed'"),
    ("flags { read, write }", [[]], "got the flag [] (list)"),
    ("option<u8>", "x", "$: expected u8 (0 to 255), got 'x'"),
    ("option<option<u8>>", 5, "(None or Some(value), since options nest), got 5"),
    ("option<option<u8>>", Some(300), "$.some: expected u8 (0 to 255), got 300"),
    ("result<u8, string>", 5, "$: expected result<u8, string> (Ok(…) or Err(…)), got 5"),
    ("result<u8, string>", {"ok": 1, "err": 2}, "got {'err': 2, 'ok': 1} (dict)"),
    ("result<u8, string>", Err(5), "$.err: expected string, got 5"),
    ("result", Ok(5), "$.ok: expected no payload, got 5"),
    ("own<x>", -1, "$: expected a handle (its number), got -1"),
    ("own<x>", True, "$: expected a handle (its number), got True"),
    (
        "record { items: list<record { id: u32 }> }",
        {"items": [{"id": 1}, {"id": 2}, {"id": -1}]},
        "$.items[2].id: expected u32 (0 to 4294967295), got -1",
    ),
]


@pytest.mark.parametrize(("type_", "given_", "message"), REFUSED)
def test_a_wrong_value_is_refused_with_its_path_and_what_is_expected(type_, given_, message):
    with pytest.raises(BadArguments) as refused:
        canonical(parse_type(type_), given_, "argument 1")
    assert message in refused.value.message
    assert refused.value.message.startswith("$")
    assert refused.value.where == "argument 1"
    assert refused.value.expected


@pytest.mark.parametrize("name", INTEGER_RANGES)
def test_an_integer_reaches_both_ends_of_its_range_and_no_further(name):
    least, greatest = INTEGER_RANGES[name]
    type_ = parse_type(name)
    assert canonical(type_, least) == least
    assert canonical(type_, greatest) == greatest
    for beyond in (least - 1, greatest + 1):
        with pytest.raises(BadArguments, match=f"{least} to {greatest}"):
            canonical(type_, beyond)


def test_a_value_too_long_to_show_is_shortened():
    with pytest.raises(BadArguments) as refused:
        canonical(parse_type("u8"), "x" * 10_000)
    assert len(refused.value.message) < 200


def test_a_value_whose_repr_fails_is_refused_all_the_same():
    class Broken:
        __slots__ = ()

        def __repr__(self):
            raise ValueError("no")

    with pytest.raises(BadArguments, match="Broken"):
        canonical(parse_type("u8"), Broken())


def test_arguments_are_counted_and_named():
    _, charge = parse_function("charge: func(who: string, cents: u64, note: option<string>)")
    assert canonical_arguments(charge, ["Ann", 5]) == ["Ann", 5, None]
    assert canonical_arguments(charge, ("Ann", 5, "x"), "charge") == ["Ann", 5, "x"]
    with pytest.raises(BadArguments) as refused:
        canonical_arguments(charge, ["Ann"], "charge")
    assert refused.value.message == "takes 3 arguments, 1 given (missing: cents)"
    assert refused.value.hint.startswith("it is a func(who: string")
    with pytest.raises(BadArguments, match=r"takes 3 arguments, 4 given \(1 too many\)"):
        canonical_arguments(charge, ["Ann", 5, None, None])
    with pytest.raises(BadArguments) as refused:
        canonical_arguments(charge, ["Ann", -5], "charge")
    assert refused.value.where == "charge: argument 2 (cents)"


@settings(deadline=None, max_examples=200)
@given(typed_values())
def test_a_canonical_value_stays_as_it_is(typed):
    type_, value = typed
    assert exact(canonical(type_, value)) == exact(value)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | LABELS | st.binary(max_size=2),
    lambda part: (
        st.lists(part, max_size=3)
        | st.dictionaries(LABELS | st.integers(0, 3), part, max_size=3)
        | st.builds(Ok, part)
        | st.builds(Some, part)
        | st.builds(Variant, LABELS, part)
    ),
    max_leaves=5,
)


@settings(deadline=None, max_examples=400)
@given(types(), ANYTHING)
def test_any_value_is_refused_or_becomes_canonical(type_, value):
    try:
        accepted = canonical(type_, value)
    except BadArguments:
        return
    assert exact(canonical(type_, accepted)) == exact(accepted)
