import pytest

from executor.host.golem.rpc import RPC_TYPES
from executor.host.golem.wit_value import NOTHING, plain_wit_value, wit_value
from executor.wasm.check import canonical
from executor.wasm.values import Err, Ok, Some, Variant
from executor.wasm.wit import parse_type

WIT_VALUE = RPC_TYPES.wit.types["wit-value"]


def nodes(value):
    canonical(WIT_VALUE, value, where="wit-value")
    return [(node.case, node.payload) for node in value["nodes"]]


@pytest.mark.parametrize(
    ("text", "value", "expected"),
    [
        ("u8", 7, [("prim-u8", 7)]),
        ("s64", -7, [("prim-s64", -7)]),
        ("f32", 0.5, [("prim-float32", 0.5)]),
        ("f64", 0.25, [("prim-float64", 0.25)]),
        ("char", "é", [("prim-char", "é")]),
        ("bool", True, [("prim-bool", True)]),
        ("string", "a", [("prim-string", "a")]),
        ("list<u8>", b"\1\2", [("list-value", [1, 2]), ("prim-u8", 1), ("prim-u8", 2)]),
        (
            "record { a: u8, b: option<string> }",
            {"b": "x", "a": 1},
            [
                ("record-value", [1, 2]),
                ("prim-u8", 1),
                ("option-value", 3),
                ("prim-string", "x"),
            ],
        ),
        (
            "tuple<u8, tuple<bool>>",
            (1, (False,)),
            [
                ("tuple-value", [1, 2]),
                ("prim-u8", 1),
                ("tuple-value", [3]),
                ("prim-bool", False),
            ],
        ),
        (
            "variant { none, some(u8) }",
            Variant("some", 1),
            [("variant-value", (1, 1)), ("prim-u8", 1)],
        ),
        ("variant { none, some(u8) }", Variant("none"), [("variant-value", (0, None))]),
        ("enum { red, green }", "green", [("enum-value", 1)]),
        ("flags { read, write }", ["write"], [("flags-value", [False, True])]),
        ("option<u8>", None, [("option-value", None)]),
        (
            "option<option<u8>>",
            Some(None),
            [("option-value", 1), ("option-value", None)],
        ),
        ("result<u8, string>", Ok(1), [("result-value", Ok(1)), ("prim-u8", 1)]),
        ("result<u8, string>", Err("x"), [("result-value", Err(1)), ("prim-string", "x")]),
        ("result", Ok(), [("result-value", Ok())]),
    ],
)
def test_a_value_of_a_type_is_a_list_of_nodes(text, value, expected):
    assert nodes(wit_value(parse_type(text), value)) == expected


def test_a_value_whose_type_is_not_known_has_the_types_that_its_form_shows():
    plain = [True, 1, -1, 0.5, "a", b"\1", None, {"case": 2}]
    assert nodes(plain_wit_value(plain)) == [
        ("list-value", [1, 2, 3, 4, 5, 6, 8, 9]),
        ("prim-bool", True),
        ("prim-u64", 1),
        ("prim-s64", -1),
        ("prim-float64", 0.5),
        ("prim-string", "a"),
        ("list-value", [7]),
        ("prim-u8", 1),
        ("option-value", None),
        ("record-value", [10]),
        ("prim-u64", 2),
    ]
    assert nodes(NOTHING) == []
