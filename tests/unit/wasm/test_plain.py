import contextlib
import json
import math
import struct

import msgspec
import pytest
from hypothesis import given, settings

from executor.errors import BadArguments
from executor.wasm import plain as plain_module
from executor.wasm.check import canonical
from executor.wasm.plain import (
    compile_function,
    compile_plain,
    decode_arguments,
    decode_result,
    encode_arguments,
    encode_result,
    from_plain,
    plain_to_json,
    read_result,
    to_plain,
)
from executor.wasm.types import FuncType
from executor.wasm.values import Err, Ok, Some, Variant
from executor.wasm.wit import parse_function, parse_type
from tests.support.wit_values import calls, exact, typed_values, types

EXAMPLES = [
    ("u64", 2**64 - 1, 2**64 - 1),
    ("char", "☃", "☃"),
    ("list<u8>", b"ab", b"ab"),
    ("list<list<u8>>", [b"a"], [b"a"]),
    ("tuple<u8, string>", (1, "a"), [1, "a"]),
    ("record { b: u8, a: option<u8> }", {"b": 1, "a": None}, {"b": 1, "a": None}),
    ("variant { days(u8), forever }", Variant("days", 3), {"days": 3}),
    ("variant { days(u8), forever }", Variant("forever"), "forever"),
    ("variant { a(option<u8>) }", Variant("a"), {"a": None}),
    ("enum { red }", "red", "red"),
    ("flags { read, write }", ["read"], ["read"]),
    ("option<option<u8>>", None, None),
    ("option<option<u8>>", Some(None), {"some": None}),
    ("option<option<u8>>", Some(3), {"some": 3}),
    ("option<option<option<u8>>>", Some(Some(None)), {"some": {"some": None}}),
    ("result<tuple<u8>, string>", Ok((1,)), {"ok": [1]}),
    ("result<tuple<u8>, string>", Err("no"), {"err": "no"}),
    ("result", Ok(), {"ok": None}),
    ("list<own<x>>", [7], [{"handle": 7}]),
    ("borrow<x>", 7, {"handle": 7}),
]


@pytest.mark.parametrize(("type_", "value", "plain"), EXAMPLES)
def test_a_value_becomes_its_plain_form_and_back(type_, value, plain):
    type_ = parse_type(type_)
    stored = msgspec.msgpack.decode(msgspec.msgpack.encode(to_plain(type_, value)))
    assert exact(stored) == exact(plain)
    assert exact(from_plain(type_, plain)) == exact(value)


@pytest.mark.parametrize(
    "type_", ["u32", "bool", "string", "char", "list<u8>", "list<list<string>>", "enum { a }"]
)
def test_a_type_whose_values_are_plain_already_has_no_conversion(type_):
    assert compile_plain(parse_type(type_)) == (None, None)


def test_reading_back_a_record_or_option_of_plain_parts_converts_nothing():
    assert compile_plain(parse_type("record { seconds: u64, n: option<string> }"))[1] is None
    assert compile_plain(parse_type("option<list<u8>>")) == (None, None)
    assert compile_plain(parse_type("f64"))[1] is None


def test_a_conversion_is_compiled_once_a_type():
    text = "result<tuple<u8>, variant { a, b(own<x>) }>"
    assert compile_plain(parse_type(text)) is compile_plain(parse_type(text))
    _, type_ = parse_function("f: func(a: tuple<u8>) -> u8")
    assert compile_function(type_) is compile_function(FuncType(type_.params, type_.result))


def test_the_same_value_has_the_same_bytes_whatever_it_was_written_as():
    pairs = [
        ("record { b: u8, a: u8 }", {"b": 1, "a": 2}, {"a": 2, "b": 1}),
        ("flags { a, b }", ["a", "b"], ["b", "a"]),
        ("f64", 5.0, 5),
        ("f64", math.nan, struct.unpack(">d", bytes.fromhex("fff8000000000001"))[0]),
        ("f32", math.nan, -math.nan),
        ("f32", 0.1, struct.unpack("f", struct.pack("f", 0.1))[0]),
        ("list<u16>", [1, 2], (1, 2)),
    ]
    for type_, first, second in pairs:
        function = FuncType((("x", parse_type(type_)),))
        first_bytes = encode_arguments(function, [first])
        assert bytes(first_bytes) == bytes(encode_arguments(function, (second,))), type_


def test_values_that_python_takes_for_equal_have_different_bytes():
    pairs = [("bool", True, "u8", 1), ("f64", 0.0, "f64", -0.0), ("f64", 1.0, "u8", 1)]
    for first_type, first, second_type, second in pairs:
        assert first == second
        first_bytes = encode_result(FuncType((), parse_type(first_type)), first)
        second_bytes = encode_result(FuncType((), parse_type(second_type)), second)
        assert bytes(first_bytes) != bytes(second_bytes)


def test_arguments_are_one_array_and_a_missing_result_is_nil():
    _, nothing = parse_function("f: func()")
    assert bytes(encode_arguments(nothing, [])) == b"\x90"
    assert bytes(encode_result(nothing, None)) == b"\xc0"
    assert decode_arguments(nothing, encode_arguments(nothing, ())) == []
    assert decode_result(nothing, encode_result(nothing, None)) is None
    _, add = parse_function("add: func(a: u8, s: own<x>) -> result<u8>")
    assert bytes(encode_arguments(add, (5, 1))) == b"\x92\x05\x81\xa6handle\x01"
    assert isinstance(encode_arguments(add, (5, 1)), msgspec.Raw)
    assert bytes(encode_result(add, Ok(3))) == b"\x81\xa2ok\x03"


def test_json_says_what_json_cannot():
    plain = {
        "bytes": b"\x00\xff",
        "floats": [1.5, math.nan, math.inf, -math.inf],
        "deep": [{"x": (b"", None, True, 2**64 - 1)}],
        "handle": {"handle": 3},
    }
    assert plain_to_json(plain) == {
        "bytes": {"base64": "AP8="},
        "floats": [1.5, "nan", "inf", "-inf"],
        "deep": [{"x": [{"base64": ""}, None, True, 18446744073709551615]}],
        "handle": {"handle": 3},
    }


@settings(deadline=None, max_examples=300)
@given(typed_values())
def test_every_value_survives_the_plain_form_and_its_bytes(typed):
    type_, value = typed
    raw = msgspec.msgpack.encode(to_plain(type_, value))
    back = from_plain(type_, msgspec.msgpack.decode(raw))
    assert exact(back) == exact(value)
    assert msgspec.msgpack.encode(to_plain(type_, back)) == raw
    json.dumps(plain_to_json(to_plain(type_, value)), allow_nan=False)


@settings(deadline=None, max_examples=200)
@given(typed_values())
def test_the_checker_takes_a_plain_value_for_the_value_it_means(typed):
    type_, value = typed
    assert exact(canonical(type_, to_plain(type_, value))) == exact(value)


@settings(deadline=None, max_examples=200)
@given(calls())
def test_arguments_and_result_of_every_function_survive_their_bytes(call):
    type_, arguments, result = call
    raw = encode_arguments(type_, arguments)
    back = decode_arguments(type_, raw)
    assert exact(back) == exact(arguments)
    assert bytes(encode_arguments(type_, tuple(back))) == bytes(raw)
    assert exact(decode_result(type_, encode_result(type_, result))) == exact(result)


MISSHAPEN = [
    ("tuple<tuple<u8>, string>", [[1]]),
    ("tuple<u8, string>", 7),
    ("record { a: option<tuple<u8>> }", {"b": 1}),
    ("record { a: option<tuple<u8>> }", {}),
    ("variant { days(tuple<u8>), forever }", {"days": 1, "forever": 2}),
    ("variant { days(tuple<u8>), forever }", "never"),
    ("variant { days(tuple<u8>), forever }", None),
    ("option<option<u8>>", {"none": 1}),
    ("result<tuple<u8>, string>", {}),
    ("result<tuple<u8>, string>", "ok"),
    ("list<own<x>>", [7]),
    ("borrow<x>", {"hand": 7}),
]


@pytest.mark.parametrize(("type_", "plain"), MISSHAPEN)
def test_a_plain_value_of_another_shape_is_refused_where_it_is_met(type_, plain):
    wit = parse_type(type_)
    with pytest.raises(msgspec.ValidationError, match=r"^\$"):
        from_plain(wit, plain)
    raw = msgspec.Raw(msgspec.msgpack.encode(plain))
    for read in (lambda: decode_result(FuncType((), wit), raw), lambda: read_result(wit, raw)):
        with pytest.raises(msgspec.ValidationError):
            read()


@settings(deadline=None, max_examples=300)
@given(types(), typed_values())
def test_a_value_that_is_read_as_another_type_is_refused_or_becomes_one(type_, typed):
    """Nothing else leaves a conversion; what is read with every part looked at is of the type."""
    raw = msgspec.Raw(msgspec.msgpack.encode(to_plain(*typed)))
    function = FuncType((("p", type_),), type_)
    for decode in (decode_result, decode_arguments):
        with contextlib.suppress(msgspec.ValidationError):
            decode(function, raw)
    try:
        value = read_result(type_, raw)
    except msgspec.ValidationError:
        with pytest.raises((BadArguments, msgspec.ValidationError)):
            canonical(type_, from_plain(type_, msgspec.msgpack.decode(raw)))
    else:
        assert exact(canonical(type_, value)) == exact(value)


@pytest.mark.parametrize("raw", [b"\x05", b"\x90", b"\x92\x01\x02", b"\xa1a", b"\x81\xa1a\x01"])
@pytest.mark.parametrize("type_", ["f: func(a: u8)", "f: func(a: tuple<u8>)"])
def test_arguments_of_another_number_are_refused(type_, raw):
    _, wit = parse_function(type_)
    with pytest.raises(msgspec.ValidationError, match="expected 1 arguments"):
        decode_arguments(wit, msgspec.Raw(raw))


@pytest.mark.parametrize("error", [KeyError("x"), TypeError("x"), ValueError("x")])
def test_an_error_of_ours_is_told_as_it_is_where_the_value_is_of_its_type(error):
    def broken(_plain):
        raise error

    wit = parse_type("result<tuple<u8>, string>")
    reading = plain_module._reading(wit, broken)
    with pytest.raises(type(error)) as raised:
        reading({"ok": [1]})
    assert raised.value is error
    with pytest.raises(msgspec.ValidationError):
        reading({"ok": ["a"]})
