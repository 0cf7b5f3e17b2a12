"""What a value weighs while it crosses, against what Wasmtime is really given."""

import random

import pytest

from executor.errors import LimitError
from executor.requests import canonical_request
from executor.wasm import ffi, weight
from executor.wasm.plain import encode_result
from executor.wasm.types import FuncType
from executor.wasm.values import Err, Ok, Some, Variant
from executor.wasm.weight import CROSSING_BYTES_MAX, LIGHT_BYTES, check_weight, weigh
from executor.wasm.wit import parse_type


@pytest.mark.parametrize(
    ("type_", "value", "bytes_taken"),
    [
        ("u64", 5, 32),
        ("string", "é" * 10, 32 + 20),
        ("list<u8>", bytes(100), 32 * 101),
        ("list<bool>", [True] * 100, 32 * 101),
        ("list<string>", ["a", "bc"], 32 * 3 + 3),
        ("list<list<u8>>", [b"abc", b""], 32 + 32 * 4 + 32),
        ("record { x: u32, text: string }", {"x": 1, "text": "abc"}, 32 + 48 * 2 + 5 + 3),
        ("tuple<u8, string>", (1, "ab"), 32 * 3 + 2),
        ("variant { none, some(string) }", Variant("some", "x"), 32 + 4 + 32 + 1),
        ("variant { none, some(string) }", Variant("none"), 32 + 4),
        ("result<string, u8>", Ok("ab"), 64 + 2),
        ("result<string, u8>", Err(3), 64),
        ("option<string>", None, 32),
        ("option<string>", "abc", 64 + 3),
        ("option<option<u8>>", Some(3), 96),
        ("enum { red, green }", "green", 32 + 5),
        ("flags { read, write }", ["read", "write"], 32 + 16 * 2 + 9),
    ],
)
def test_a_value_weighs_what_it_takes(type_, value, bytes_taken):
    assert weigh(parse_type(type_), value) == bytes_taken


def test_nothing_light_is_ever_too_heavy():
    """The densest values that there are: so few encoded bytes cannot be over the bound."""
    rnd = random.Random(1)
    for text, values in (
        ("list<option<bool>>", [True] * 1_000),
        ("list<result<bool>>", [Ok(True)] * 1_000),
        ("list<tuple<bool, bool>>", [(True, False)] * 1_000),
        ("list<record { a: bool }>", [{"a": True}] * 1_000),
        ("list<variant { a(bool) }>", [Variant("a", True)] * 1_000),
        ("list<flags { a }>", [["a"]] * 1_000),
        ("list<option<option<bool>>>", [Some(True)] * 1_000),
        ("list<u8>", rnd.randbytes(1_000)),
        ("string", "a" * 1_000),
    ):
        type_ = parse_type(text)
        encoded = memoryview(encode_result(FuncType((), type_), values)).nbytes
        assert weigh(type_, values) / encoded < CROSSING_BYTES_MAX / LIGHT_BYTES, text


def test_arguments_are_weighed_together_and_refused_with_a_sentence():
    bytes_type = parse_type("list<u8>")
    function = FuncType((("a", bytes_type), ("b", bytes_type)), None)
    canonical_request("put", function, [bytes(1 << 20), bytes(1 << 20)])
    with pytest.raises(LimitError, match="the arguments take 192 MiB as component values"):
        canonical_request("put", function, [bytes(3 << 20), bytes(3 << 20)])


def test_sizes_are_those_of_the_values_that_cross():
    assert (weight.VALUE_BYTES, weight.FIELD_BYTES) == (ffi.VALUE_BYTES, ffi.FIELD_BYTES)


def test_no_result_weighs_nothing():
    raw = encode_result(FuncType((), parse_type("string")), "x" * (2 << 20))
    check_weight([(None, None)], raw, "the answer takes", "here")
