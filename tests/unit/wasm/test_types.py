from hypothesis import given, settings

from executor.wasm.types import (
    STRING,
    U8,
    U32,
    BorrowType,
    EnumType,
    FlagsType,
    FuncType,
    ListType,
    OptionType,
    OwnType,
    RecordType,
    ResultType,
    TupleType,
    VariantType,
    format_function,
    format_type,
    is_bytes,
    nests_option,
    same_function,
    same_type,
)
from executor.wasm.wit import parse_type
from tests.support.wit_values import types

POINT = RecordType((("x", U32), ("y", U32)), "point")


def test_a_type_is_written_as_wit_text():
    written = {
        "list<u8>": ListType(U8),
        "option<option<string>>": OptionType(OptionType(STRING)),
        "tuple<u8, string>": TupleType((U8, STRING)),
        "result": ResultType(),
        "result<u8>": ResultType(U8),
        "result<_, string>": ResultType(None, STRING),
        "result<u8, string>": ResultType(U8, STRING),
        "record { x: u32, y: u32 }": POINT,
        "record { %type: u8 }": RecordType((("type", U8),)),
        "variant { none, some(u8) }": VariantType((("none", None), ("some", U8))),
        "enum { a, b }": EnumType(("a", "b")),
        "flags { read, write }": FlagsType(("read", "write")),
        "flags {}": FlagsType(()),
        "own<pollable>": OwnType("pollable"),
        "borrow<_>": BorrowType(),
    }
    for text, type_ in written.items():
        assert format_type(type_) == text


def test_a_function_is_written_as_wit_text():
    add = FuncType((("n", U32),), U32)
    assert format_function("add", add) == "add: func(n: u32) -> u32"
    assert format_function("", FuncType()) == "func()"


def test_the_name_of_a_type_is_no_part_of_what_it_is():
    assert same_type(POINT, RecordType((("x", U32), ("y", U32))))
    assert RecordType((("x", U32), ("y", U32))) != POINT


def test_names_of_fields_and_cases_and_their_order_are_part_of_a_type():
    assert not same_type(POINT, RecordType((("y", U32), ("x", U32))))
    assert not same_type(POINT, RecordType((("x", U32), ("z", U32))))
    assert not same_type(POINT, RecordType((("x", U32),)))
    assert not same_type(EnumType(("a", "b")), EnumType(("b", "a")))
    assert not same_type(FlagsType(("a",)), EnumType(("a",)))
    assert not same_type(VariantType((("a", U8),)), VariantType((("a", None),)))
    assert not same_type(ResultType(U8), ResultType(None, U8))


def test_resources_are_compared_by_name_where_both_are_known():
    assert same_type(OwnType("a"), OwnType(""))
    assert not same_type(OwnType("a"), OwnType("b"))
    assert not same_type(OwnType("a"), BorrowType("a"))


def test_functions_are_the_same_whatever_their_parameters_are_called():
    assert same_function(FuncType((("a", U8),), POINT), FuncType((("b", U8),), POINT))
    assert not same_function(FuncType((("a", U8),)), FuncType((("a", U8),), U8))
    assert not same_function(FuncType((("a", U8),)), FuncType())


def test_bytes_and_nested_options_are_recognised():
    assert is_bytes(ListType(U8))
    assert not is_bytes(ListType(U32))
    assert nests_option(OptionType(OptionType(U8)))
    assert not nests_option(OptionType(ListType(OptionType(U8))))


@settings(deadline=None, max_examples=200)
@given(types())
def test_every_type_reads_back_from_its_text(type_):
    back = parse_type(format_type(type_))
    assert back == type_
    assert hash(back) == hash(type_)
    assert same_type(back, type_)
