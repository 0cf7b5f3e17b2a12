"""The examples of the wasm-wave crate's README and of its tests, and what Shem adds."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from executor.errors import BadArguments
from executor.wasm.check import canonical
from executor.wasm.types import INTEGER_RANGES
from executor.wasm.values import Err, Ok, Some, Variant
from executor.wasm.wave import format_result, format_wave, parse_arguments, parse_wave
from executor.wasm.wit import parse_function, parse_type
from tests.support.wit_values import exact, typed_values, types

BASIC = "record { required: u8, optional: option<u8> }"
ALL_OPTIONAL = "record { a: option<u8>, b: option<u8> }"
KEYWORDS = "enum { true, false, some, none, ok, err, inf, nan }"
KEYWORD_FIELDS = (
    "record { true: bool, false: bool, some: option<u8>, none: option<u8>,"
    " ok: result, err: result, inf: f32, nan: f32 }"
)
RESPONSE = "variant { empty, body(list<u8>), err(string) }"
PERMISSIONS = "flags { read, write, exec }"

README = [
    ("bool", "true", True),
    ("bool", "false", False),
    ("u8", "123", 123),
    ("s8", "-9", -9),
    ("f64", "3.14", 3.14),
    ("f64", "6.022e+23", 6.022e23),
    ("f64", "nan", math.nan),
    ("f32", "inf", math.inf),
    ("f64", "-inf", -math.inf),
    ("char", "'x'", "x"),
    ("char", "'☃'", "☃"),
    ("char", r"'\''", "'"),
    ("char", r"'\u{0}'", "\0"),
    ("string", r'"abc\t123"', "abc\t123"),
    ("string", '"👋 Hello, world! 👋"', "👋 Hello, world! 👋"),
    ("tuple<string, u8>", '("abc", 123)', ("abc", 123)),
    ("tuple<u8, string>", '(123, "abc",)', (123, "abc")),
    ("list<u16>", "[1, 2, 3]", [1, 2, 3]),
    ("list<char>", "[]", []),
    ("list<char>", "['a', 'b', 'c',]", ["a", "b", "c"]),
    ("list<u8>", "[79, 75]", b"OK"),
    (
        "record { field-a: u8, field-b: string }",
        '{field-a: 1, field-b: "two"}',
        {"field-a": 1, "field-b": "two"},
    ),
    (BASIC, "{required: 123}", {"required": 123, "optional": None}),
    (BASIC, "{required: 123, optional: none,}", {"required": 123, "optional": None}),
    (ALL_OPTIONAL, "{:}", {"a": None, "b": None}),
    (ALL_OPTIONAL, "{a: none}", {"a": None, "b": None}),
    ("variant { days(u8), forever }", "days(30)", Variant("days", 30)),
    ("variant { days(u8), forever }", "forever", Variant("forever")),
    (RESPONSE, "empty", Variant("empty")),
    (RESPONSE, "body([79, 75])", Variant("body", b"OK")),
    (RESPONSE, '%err("oops")', Variant("err", "oops")),
    ("enum { south, west }", "west", "west"),
    ("enum { ok, not-found }", "%ok", "ok"),
    ("enum { ok, not-found }", "not-found", "not-found"),
    ("option<string>", '"flat some"', "flat some"),
    ("option<string>", 'some("explicit some")', "explicit some"),
    ("option<string>", "none", None),
    ("result<string, string>", '"flat ok"', Ok("flat ok")),
    ("result<string, string>", 'ok("explicit ok")', Ok("explicit ok")),
    ("result<string, string>", 'err("oops")', Err("oops")),
    ("result<u8>", "123", Ok(123)),
    ("result<_, string>", "ok", Ok()),
    ("result", "ok", Ok()),
    ("result", "err", Err()),
    (PERMISSIONS, "{write, read,}", ["read", "write"]),
    (PERMISSIONS, "{ write, }", ["write"]),
    (PERMISSIONS, "{}", []),
    ("string", '"""\nA single line\n"""', "A single line"),
    (
        "string",
        '"""\n    Indentation determined\n      by ending delimiter\n  """',
        "  Indentation determined\n    by ending delimiter",
    ),
    (
        "string",
        (
            '"""\n  Must escape carriage return at end of line: \\r\n'
            '  Must break up double quote triplets: ""\\""\n  """'
        ),
        'Must escape carriage return at end of line: \r\nMust break up double quote triplets: """"',
    ),
]

ACCEPTED = [
    ("list<char>", r"""['\\', '\'', '\"', '\t', '\n', '\r']""", ["\\", "'", '"', "\t", "\n", "\r"]),
    ("list<char>", r"['x', '\u{78}', '\u{000078}']", ["x", "x", "x"]),
    ("list<char>", r"""['"', '\"', '\u{22}']""", ['"', '"', '"']),
    ("list<f32>", "[0, 0.0, 0e0, 0.0e0, 0e-1, 0e+1, 0.000e100]", [0.0] * 7),
    ("list<f64>", "[-3.1415, -100000, -0.0e-0]", [-3.1415, -100000.0, -0.0]),
    ("f32", "3.4028234664e38", 3.4028234663852886e38),
    ("f32", "3.4028234664e39", math.inf),
    ("f32", "1.4012984643e-45", 1.401298464324817e-45),
    ("f32", "1.4012984643e-46", 0.0),
    ("enum { left, right }", "%left", "left"),
    (BASIC, "{ optional: some(2), required: 1, }", {"required": 1, "optional": 2}),
    (ALL_OPTIONAL, "{ : }", {"a": None, "b": None}),
    (ALL_OPTIONAL, "{b:some(2),a:1}", {"a": 1, "b": 2}),
    (
        KEYWORD_FIELDS,
        "{true: true, false: false, %some: some(1), ok: ok, err: err, inf: inf, nan: nan}",
        {"true": True, "false": False, "some": 1, "none": None}
        | {"ok": Ok(), "err": Err(), "inf": math.inf, "nan": math.nan},
    ),
    ("string", r'"\\\'\"\t\n\r"', "\\'\"\t\n\r"),
    ("string", r'"☃\u{2603}\u{002603}"', "☃☃☃"),
    ("string", '"""\n"""', ""),
    ("string", '"""\r\nwindows\r\nlines\r\n"""', "windows\nlines"),
    ("string", '"""\n\nleading and trailing\n\n"""', "\nleading and trailing\n"),
    ("option<option<u8>>", "none", None),
    ("option<option<u8>>", "some(none)", Some(None)),
    ("option<option<u8>>", "some(5)", Some(5)),
    ("option<result<u8>>", "some(5)", Ok(5)),
    ("option<enum { none }>", "%none", "none"),
    ("result<option<u8>>", "ok(none)", Ok(None)),
    ("result<enum { ok }>", "%ok", Ok("ok")),
    ("own<thing>", "7", 7),
    (
        BASIC,
        " // one\n{ // two\n required: 1, // three\n}\n// four",
        {"required": 1, "optional": None},
    ),
    ("tuple<enum { HTTP-3, a1-2b }>", "(HTTP-3)", ("HTTP-3",)),
    ("enum { color-42-2A-5d, other }", "color-42-2A-5d", "color-42-2A-5d"),
    ("record { red: s32, a-2B: bool }", "{ %a-2B: true, %red: 0 }", {"red": 0, "a-2B": True}),
    (
        "list<variant { true(u8), false, inf(u8), nan, some(u8), none, ok(u8), err }>",
        "[%true(1), %false, %inf(1), %nan, %some(1), %none, %ok(1), %err]",
        [
            Variant("true", 1),
            Variant("false"),
            Variant("inf", 1),
            Variant("nan"),
            Variant("some", 1),
            Variant("none"),
            Variant("ok", 1),
            Variant("err"),
        ],
    ),
    ("s8", "-0", 0),
]


@pytest.mark.parametrize(("type_", "text", "value"), README + ACCEPTED)
def test_text_is_read_as_the_value_and_printed_text_reads_back(type_, text, value):
    type_ = parse_type(type_)
    parsed = parse_wave(type_, text)
    assert exact(parsed) == exact(value)
    assert exact(parse_wave(type_, format_wave(type_, parsed))) == exact(value)


@pytest.mark.parametrize("case", ["true", "false", "some", "none", "ok", "err", "inf", "nan"])
def test_a_case_named_like_a_keyword_needs_its_percent_sign(case):
    type_ = parse_type(KEYWORDS)
    assert parse_wave(type_, f"%{case}") == case
    assert format_wave(type_, case) == f"%{case}"
    with pytest.raises(BadArguments) as refused:
        parse_wave(type_, case)
    assert refused.value.hint == f"the case is written %{case}"


REJECTED = {
    "char": [
        "''",
        "'ab'",
        r"'\n\n'",
        r"'\z'",
        r"'\x1f'",
        r"'\u1f'",
        r"'\u{1f'",
        r"'\u{}'",
        r"'\u{x}'",
        r"'\u{12345678}'",
        r"'\u{110000}'",
        r"'\u{D800}'",
        "'",
        "x'",
        "'x",
        r"'\'",
        "'''",
        "'\n'",
    ],
    "string": [
        r'"\u{d800}"',
        r'"\u{ffffffff}"',
        r'"\u{-1}"',
        r'"\u{+1}"',
        '"""',
        '"\\"',
        '"\n"',
        '""""""',
        '""" """',
        '""""\n"""',
        '"""\n""',
        '"""\n""""',
        '"""extra\n"""',
        '"""\nextra"""',
        '"""\n  """\n  """',
        '"""\n  Between """ words\n  """',
        '"""\n\\u{d800}\n"""',
        '"""\n\\j\n"""',
        '"""\n  a\n b\n  """',
        "hello",
        '"a" "b"',
        '"\udcff"',
    ],
    KEYWORDS: ["other", "true", "{}"],
    PERMISSIONS: [
        "{read, read}",
        "{read, write, read}",
        "{read, execute}",
        "{,}",
        "{read write}",
        "read",
        "{read",
        "{:}",
    ],
    "f32": [
        "-nan",
        "NaN",
        "infinity",
        "-Infinity",
        "INFINITY",
        "INF",
        "-INF",
        "Inf",
        ".5",
        "1.",
        "01",
        "+1",
    ],
    "u8": ["256", "-1", "1.0", "1e2", "01", "1_0", "0x1", "true", "", "1 2", "9" * 5000, "²"],
    "list<string>": [r'["\u{0}",,]', '[,"a"]', "[,]", "[)", "(]", "{]", "[}", '["a" "b"]', '["a"'],
    "option<u8>": [
        "some",
        "some()",
        "some(some)",
        "some(some(0))",
        "none()",
        "none(0)",
        "some(none)",
        "%none",
        "some(0",
        "some 0",
    ],
    "option<option<u8>>": ["5", "some", "%some(none)"],
    "option<result<u8>>": ["5", "ok(5)"],
    "result<option<u8>>": ["5", "none"],
    BASIC: [
        "// {required: 1}",
        "{required: 1 // }",
        "{\n// required: 1,\noptional: none,\n}",
        "{\nrequired: 1,\n//}\n",
        "{optional: none}",
        "{required: 0, required: 0}",
        "{required: 0,, }",
        "{, required: 0}",
        "{required: 0, optional: 1, optional: 2}",
        "{}",
        "{:}",
        "{required 0}",
        "{required: 0",
        "{required: 0 optional: 1}",
        "{required: 0, other: 1}",
        "{: }}",
        "[]",
        "{required}",
    ],
    ALL_OPTIONAL: ["{}", "{", "{:"],
    "result<u8>": ["ok", "ok()", "o(0)", "err(0)", "err()"],
    "result<_, u8>": ["err", "err()", "e(0)", "ok(0)", "5"],
    "result": ["ok()", "o(0)", "ok(0)", "err(0)", "{}"],
    "tuple<u8, u8>": ["()", "(1)", "(1,)", "(1,2,3)", "(1 2)", "[1, 2]", "(,)", "(1,2"],
    "variant { some(u8) }": ["some(1)"],
    "variant { days(u8), forever }": ["days", "days()", "forever()", "forever(1)", "day(1)", "1"],
    "own<thing>": ["-1", "thing(1)", "1.5"],
}


@pytest.mark.parametrize(
    ("type_", "text"), [(type_, text) for type_, texts in REJECTED.items() for text in texts]
)
def test_text_that_is_no_such_value_is_refused_at_a_column(type_, text):
    with pytest.raises(BadArguments) as refused:
        parse_wave(parse_type(type_), text, "argument 1")
    assert refused.value.column >= 1
    assert f"column {refused.value.column}: " in refused.value.message
    assert refused.value.where == "argument 1"


MESSAGES = [
    ("u32", "    x", 5, 'column 5: expected u32, found "x"', "u32"),
    ("u8", "300", 1, 'column 1: expected u8 (0 to 255), found "300"', "u8 (0 to 255)"),
    ("u8", "1 @", 3, 'column 3: expected the end, found "@"', "the end"),
    ("list<u8>", "[1, 'x']", 5, "column 5: expected u8, found 'x'", "u8"),
    ("list<string>", '["a", 5]', 7, 'column 7: expected string, found "5"', "string"),
    ("bool", "", 1, "column 1: expected bool, found the end", "bool"),
    (BASIC, "{\n  required: x }", 13, 'line 2, column 13: expected u8, found "x"', "u8"),
    (
        BASIC,
        "{optional: 1}",
        1,
        "column 1: the field required is missing: expected required: u8",
        "required: u8",
    ),
    ("string", '"a\\q"', 3, r"""column 3: expected an escape: \" \' \\ \t \n \r or \u{…}""", ""),
]


@pytest.mark.parametrize(("type_", "text", "column", "message", "expected"), MESSAGES)
def test_a_refusal_says_column_expected_type_and_what_was_found(
    type_, text, column, message, expected
):
    with pytest.raises(BadArguments) as refused:
        parse_wave(parse_type(type_), text)
    assert (refused.value.column, refused.value.message) == (column, message)
    assert refused.value.expected == expected


def test_a_refusal_hints_at_what_was_probably_meant():
    hints = [
        ("string", "hello", 'a string stands in double quotes: "text"'),
        (ALL_OPTIONAL, "{}", "a record without fields is written {:}"),
        ("enum { red, green }", "gren", "did you mean green?"),
        (BASIC, "{require: 1}", "did you mean required?"),
    ]
    for type_, text, hint in hints:
        with pytest.raises(BadArguments) as refused:
            parse_wave(parse_type(type_), text)
        assert refused.value.hint == hint


PRINTED = [
    ("string", "\\'\"\t\n\r", r'"\\\'\"\t\n\r"'),
    ("string", "\0\x7f\u200d\u0301☃ 🌊", r'"\u{0}\u{7f}\u{200d}\u{301}☃ 🌊"'),
    ("char", "'", r"'\''"),
    ("list<u8>", b"\x00\xff", "[0, 255]"),
    ("list<f32>", [0.0, -0.0, -100000.0, 0.10000000149011612], "[0, -0, -100000, 0.1]"),
    ("f32", 3.4028234663852886e38, "340282350000000000000000000000000000000"),
    ("f32", 1.401298464324817e-45, "0.000000000000000000000000000000000000000000001"),
    ("f32", 16777216.0, "16777216"),
    ("f64", 1e300, "1" + "0" * 300),
    ("f64", 1.5e-7, "0.00000015"),
    ("list<f64>", [math.nan, math.inf, -math.inf], "[nan, inf, -inf]"),
    (BASIC, {"required": 1, "optional": 2}, "{required: 1, optional: some(2)}"),
    (BASIC, {"required": 1, "optional": None}, "{required: 1}"),
    (ALL_OPTIONAL, {"a": None, "b": None}, "{:}"),
    (RESPONSE, Variant("err", "x"), '%err("x")'),
    (RESPONSE, Variant("empty"), "empty"),
    (PERMISSIONS, ["read", "exec"], "{read, exec}"),
    ("option<option<u8>>", Some(None), "some(none)"),
    ("result<u8, string>", Err("no"), 'err("no")'),
    ("result", Ok(), "ok"),
    ("tuple<bool, s8>", (True, -1), "(true, -1)"),
    ("borrow<thing>", 7, "7"),
    ("u64", 2**64 - 1, "18446744073709551615"),
]


@pytest.mark.parametrize(("type_", "value", "text"), PRINTED)
def test_a_value_is_printed_as_wasmtime_prints_it(type_, value, text):
    assert format_wave(parse_type(type_), value) == text


def test_a_function_without_result_prints_nothing():
    assert format_result(parse_function("f: func()")[1], None) == ""
    assert format_result(parse_function("f: func() -> option<u8>")[1], None) == "none"


def test_arguments_are_one_text_each_and_options_at_the_end_may_be_left_out():
    _, f = parse_function("f: func(a: u8, b: option<u8>, c: option<u8>)")
    assert parse_arguments(f, ["1"]) == [1, None, None]
    assert parse_arguments(f, ["1", "some(2)"]) == [1, 2, None]
    assert parse_arguments(f, ["1", "none", "3"]) == [1, None, 3]
    with pytest.raises(BadArguments, match=r"takes 3 arguments, 0 given \(missing: a\)") as refused:
        parse_arguments(f, [], "api.f")
    assert refused.value.where == "api.f"
    with pytest.raises(BadArguments, match=r"takes 3 arguments, 4 given \(1 too many\)"):
        parse_arguments(f, ["1", "2", "3", "4"])
    with pytest.raises(BadArguments) as refused:
        parse_arguments(f, ["1", "x"], "f")
    assert refused.value.where == "f: argument 2 (b)"


@pytest.mark.parametrize("name", INTEGER_RANGES)
def test_an_integer_is_read_up_to_both_ends_of_its_range(name):
    type_ = parse_type(name)
    for value in INTEGER_RANGES[name]:
        assert parse_wave(type_, str(value)) == value
    for value in (INTEGER_RANGES[name][0] - 1, INTEGER_RANGES[name][1] + 1):
        with pytest.raises(BadArguments, match="column 1: expected"):
            parse_wave(type_, str(value))


@settings(deadline=None, max_examples=400)
@given(typed_values())
def test_every_printed_value_reads_back_as_itself(typed):
    type_, value = typed
    text = format_wave(type_, value)
    assert "\n" not in text
    back = parse_wave(type_, text)
    assert exact(back) == exact(value)
    assert exact(canonical(type_, back)) == exact(back)


@settings(deadline=None, max_examples=300)
@given(types(), st.text("(){}[],:%'\"\\/-. \n\r01eanosmkr{}u", max_size=12))
def test_no_text_does_worse_than_to_be_refused(type_, text):
    column = 1
    try:
        value = parse_wave(type_, text)
    except BadArguments as refused:
        column = refused.column
    else:
        assert exact(canonical(type_, value)) == exact(value)
    assert 1 <= column <= len(text) + 1


@settings(deadline=None, max_examples=300)
@given(typed_values(), st.data())
def test_a_printed_value_with_one_character_changed_is_another_value_or_refused(typed, data):
    type_, value = typed
    text = format_wave(type_, value)
    place = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(st.sampled_from("(){}[],:%'\"\\ 0-x"))
    try:
        parsed = parse_wave(type_, text[:place] + other + text[place + 1 :])
    except BadArguments:
        return
    assert exact(canonical(type_, parsed)) == exact(parsed)
