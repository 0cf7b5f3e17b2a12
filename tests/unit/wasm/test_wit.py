import contextlib
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from executor.errors import UsageError
from executor.wasm.types import (
    STRING,
    U8,
    U32,
    U64,
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
)
from executor.wasm.wit import parse_function, parse_interface, parse_type
from tests.support.wit_values import functions

STREAMS = """
package wasi:io@0.2.3;

/// Input and output /* not a comment inside a comment */
@since(version = 0.2.0)
interface streams {
    @since(version = 0.2.0)
    use error.{error};
    use poll.{pollable as ready-thing,};

    // used before it is declared
    type outcome = result<tuple<list<u8>, stream-status>, stream-error>;

    @unstable(feature = fancy)
    variant stream-error {
        last-operation-failed(error),
        closed,
    }
    enum stream-status { open, ended, }
    flags path-flags { symlink-follow }
    record limits { %type: string, most: option<u64> }

    resource input-stream {
        constructor(path: string);
        @since(version = 0.2.0)
        read: func(len: u64) -> outcome;
        subscribe: func() -> ready-thing;
        /* a static /* nested comment */ function */
        open: static func(at: path-flags, limits: limits) -> result<input-stream>;
    }
    resource bare;
    resource fallible { constructor() -> result<fallible, stream-error>; }
    splice: func(from-there: borrow<input-stream>, whole: bare);
}
"""


def test_an_interface_gives_its_functions_by_their_component_model_names():
    streams = parse_interface(STREAMS)
    error = VariantType(
        (("last-operation-failed", OwnType("error")), ("closed", None)), "stream-error"
    )
    status = EnumType(("open", "ended"), "stream-status")
    limits = RecordType((("type", STRING), ("most", OptionType(U64))), "limits")
    self_ = ("self", BorrowType("input-stream"))
    assert (streams.name, streams.version) == ("wasi:io/streams", "0.2.3")
    assert streams.resources == ("input-stream", "bare", "fallible")
    assert streams.functions == {
        "[constructor]input-stream": FuncType((("path", STRING),), OwnType("input-stream")),
        "[method]input-stream.read": FuncType(
            (self_, ("len", U64)), ResultType(TupleType((ListType(U8), status)), error)
        ),
        "[method]input-stream.subscribe": FuncType((self_,), OwnType("pollable")),
        "[static]input-stream.open": FuncType(
            (("at", FlagsType(("symlink-follow",), "path-flags")), ("limits", limits)),
            ResultType(OwnType("input-stream")),
        ),
        "[constructor]fallible": FuncType((), ResultType(OwnType("fallible"), error)),
        "splice": FuncType(
            (("from-there", BorrowType("input-stream")), ("whole", OwnType("bare")))
        ),
    }
    assert streams.types["limits"] == limits
    assert streams.types["ready-thing"] == OwnType("pollable")


def test_an_interface_may_carry_its_full_name_itself():
    poll = parse_interface(
        "interface wasi:io/poll@0.2.0 { use wasi:io/error@0.2.0.{error}; resource pollable"
        " { ready: func() -> bool; } poll: func(in: list<borrow<pollable>>) -> list<u32>; }"
    )
    assert (poll.name, poll.version) == ("wasi:io/poll", "0.2.0")
    assert list(poll.functions) == ["[method]pollable.ready", "poll"]
    draft = parse_interface("interface a:b/c@0.2.0-rc.1 { use d:e/f@0.2.0-draft.{g}; }")
    assert draft.version == "0.2.0-rc.1"
    assert draft.types == {"g": OwnType("g")}


def test_used_types_are_taken_from_the_interface_that_declares_them():
    clock = parse_interface("interface wall-clock { record datetime { seconds: u64 } }")
    files = parse_interface(
        "interface types { use clocks.{datetime as moment}; now: func() -> moment; }", clock.types
    )
    assert files.functions["now"].result == RecordType((("seconds", U64),), "datetime")


def test_a_function_is_read_with_its_name():
    assert parse_function("charge: func(who: string, cents: u64) -> result<string, string>;") == (
        "charge",
        FuncType((("who", STRING), ("cents", U64)), ResultType(STRING, STRING)),
    )
    assert parse_function("%list: func(a: own<x>, b: borrow<y>,)") == (
        "list",
        FuncType((("a", OwnType("x")), ("b", BorrowType("y")))),
    )
    assert parse_function("f: func(p: point)", {"point": U32}) == ("f", FuncType((("p", U32),)))


def test_types_without_a_name_stand_where_a_type_stands():
    assert parse_type("list<record { a: u8, b: variant { x, y(u8) } }>") == ListType(
        RecordType((("a", U8), ("b", VariantType((("x", None), ("y", U8))))))
    )


REFUSED_TYPES = {
    "u3": (1, 1, 'unknown type "u3"'),
    "list<u8": (1, 8, 'expected ">", found the end'),
    "list<u8, 4>": (1, 8, "lists of fixed length cannot be linked"),
    "stream<u8>": (1, 1, "stream belongs to WASI 0.3 and cannot be linked"),
    "record {}": (1, 8, "a record has at least one member"),
    "record {\n  a: u8,\n  a: u8 }": (3, 3, '"a" is there twice'),
    "record { type: u8 }": (1, 10, 'the keyword "type": write %type'),
    "enum { aB }": (1, 8, '"aB" is no identifier'),
    "tuple<>": (1, 7, 'expected a type, found ">"'),
    "u8 u8": (1, 4, 'expected the end, found "u8"'),
    "": (1, 1, "expected a type, found the end"),
    "list<?>": (1, 6, "unexpected character '?'"),
    "u8 /* x": (1, 4, "this comment is never closed"),
    "flags { " + ", ".join(f"x{n}" for n in range(33)) + " }": (
        1,
        7,
        "flags have at most 32 members",
    ),
    "list<" * 101 + "u8" + ">" * 101: (1, 501, "types nest at most 100 deep"),
}


@pytest.mark.parametrize("text", REFUSED_TYPES, ids=lambda text: text[:24])
def test_a_refused_type_says_line_and_column(text):
    line, column, message = REFUSED_TYPES[text]
    with pytest.raises(UsageError, match=re.escape(message)) as refused:
        parse_type(text)
    assert refused.value.message.startswith(f"WIT line {line}, column {column}: ")


REFUSED_INTERFACES = {
    "a: async func();": "async functions belong to WASI 0.3",
    "a: func() -> borrow<r>; resource r;": "a function cannot give a borrow",
    "a: func(); a: func();": '"a" is declared twice',
    "type a = u8; record a { b: u8 }": '"a" is declared twice',
    "a: func(); type a = u8;": '"a" is declared twice',
    "resource r { a: func(); a: func(); }": '"[method]r.a" is declared twice',
    "type a = list<b>; type b = option<a>;": 'the type "a" contains itself',
    "a: func(x: borrow<nothing>);": 'unknown resource "nothing"',
    "type n = u8; a: func(x: borrow<n>);": '"n" is no resource',
    "a: func()": 'expected ";", found the end',
    "a: func() b: func();": 'expected ";", found "b"',
    "a: func(x: nothing);": 'unknown type "nothing"',
    "unused: func(); type x = nothing;": 'unknown type "nothing"',
}


@pytest.mark.parametrize("body", REFUSED_INTERFACES)
def test_an_interface_that_means_nothing_is_refused(body):
    with pytest.raises(UsageError, match=re.escape(REFUSED_INTERFACES[body])):
        parse_interface(f"interface i {{ {body} }}")


@pytest.mark.parametrize("text", ["interface i {", "interface i { type a = u8", "world w {}", ""])
def test_an_interface_that_is_cut_off_is_refused(text):
    with pytest.raises(UsageError, match="expected"):
        parse_interface(text)


def test_brackets_without_end_are_refused_however_deep():
    with pytest.raises(UsageError, match=r'expected "\)", found the end'):
        parse_interface("interface i { a: func" + "(" * 10_000)


def test_types_that_nest_through_their_names_are_bounded_too():
    chain = "".join(f"type t{n} = list<t{n + 1}>; " for n in range(500))
    with pytest.raises(UsageError, match="types nest at most 100 deep"):
        parse_interface(f"interface i {{ {chain} type t500 = u8; }}")


WORDS = "a b u8 list < > ( ) { } , ; : = -> . / @ func interface record resource use type own"


def parse_body(text):
    return parse_interface("interface i { " + text)


@pytest.mark.parametrize("read", [parse_type, parse_function, parse_interface, parse_body])
@settings(deadline=None, max_examples=150)
@given(st.lists(st.sampled_from(WORDS.split()), max_size=15))
def test_no_text_does_worse_than_to_be_refused(read, words):
    with contextlib.suppress(UsageError):
        read(" ".join(words))


@settings(deadline=None, max_examples=150)
@given(functions())
def test_every_function_reads_back_from_its_text(type_):
    assert parse_function(format_function("f", type_)) == ("f", type_)
    interface = parse_interface(f"interface i {{ {format_function('f', type_)}; }}")
    assert interface.functions == {"f": type_}
