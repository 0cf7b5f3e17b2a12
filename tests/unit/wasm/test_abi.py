"""One value at a time: what crosses, what is refused, and what it costs in memory."""

import ctypes
import gc
import time
from pathlib import Path

import pytest

from executor.wasm import ffi
from executor.wasm.abi import compile_lift, compile_lower
from executor.wasm.abi_mismatch import explain_mismatch
from executor.wasm.host_function import HostFunction
from executor.wasm.instance import Raised, Returned
from executor.wasm.types import FuncType
from executor.wasm.values import Err, Ok, Some, Variant
from executor.wasm.wit import parse_type
from tests.support.guest_text import identity_guest
from tests.support.machine import host_interface, machine

NESTED = parse_type(
    "record { name: string, items: list<record { id: u32, tag: option<string> }>,"
    " state: variant { idle, failed(string) }, rights: flags { r, w, x },"
    " outcome: result<u64, string> }"
)
NESTED_VALUE = {
    "name": "n" * 50,
    "items": [{"id": i, "tag": None if i % 2 else "x" * 20} for i in range(10)],
    "state": Variant("failed", "boom"),
    "rights": ["r", "x"],
    "outcome": Err("bad"),
}

WRONG = [
    ("u8", 256, "$: expected u8, got 256 (int)"),
    ("u32", -1, "$: expected u32, got -1 (int)"),
    ("u32", True, "$: expected u32, got True (bool)"),
    ("u32", "1", "$: expected u32, got '1' (str)"),
    ("s8", 128, "$: expected s8, got 128 (int)"),
    ("s64", 1 << 63, f"$: expected s64, got {1 << 63} (int)"),
    ("f64", "x", "$: expected f64, got 'x' (str)"),
    ("bool", 1, "$: expected bool, got 1 (int)"),
    ("char", "ab", "$: expected char, got 'ab' (str)"),
    ("char", "\ud800", "$: expected char, got '\\ud800' (str)"),
    ("string", "a\udfff", "$: expected string, got 'a\\udfff' (str)"),
    ("string", b"a", "$: expected string, got b'a' (bytes)"),
    ("list<u8>", [1, 2], "$: expected bytes for list<u8>, got [1, 2] (list)"),
    ("list<string>", "ab", "$: expected list<string>, got 'ab' (str)"),
    ("list<string>", ["a", 2], "$[1]: expected string, got 2 (int)"),
    ("tuple<u8, u8>", (1,), "$: expected tuple<u8, u8>, got (1,) (tuple)"),
    ("record { a: u8 }", {}, "$: expected record { a: u8 }, but field 'a' is missing"),
    ("record { a: u8 }", {"a": 1, "b": 2}, "$: expected record { a: u8 }, which has no field 'b'"),
    ("record { a: list<u16> }", {"a": [1, "x"]}, "$.a[1]: expected u16, got 'x' (str)"),
    ("enum { red }", "blue", "$: expected enum { red }, got 'blue' (str)"),
    ("enum { red }", ["red"], "$: expected enum { red }, got ['red'] (list)"),
    ("flags { r }", ["w"], "$: expected flags { r }, got ['w'] (list)"),
    ("variant { a(u8) }", Variant("a", "x"), "$.a: expected u8, got 'x' (str)"),
    ("variant { a }", Variant("a", 1), "$.a: expected no payload, got 1 (int)"),
    ("variant { a }", Variant("b"), "expected variant { a }"),
    ("variant { a }", "a", "$: expected variant { a }, got 'a' (str)"),
    ("option<u8>", Some(1), "$: expected u8"),
    ("option<option<u8>>", 1, "$: expected option<option<u8>>, got 1 (int)"),
    ("option<option<u8>>", Some(300), "$.some: expected u8, got 300 (int)"),
    ("result<u8>", 1, "$: expected result<u8>, got 1 (int)"),
    ("result<_, string>", Err(1), "$.err: expected string, got 1 (int)"),
    ("result<_, string>", Ok(1), "$.ok: expected no payload, got 1 (int)"),
]


@pytest.mark.parametrize(("type_text", "value", "why"), WRONG)
def test_a_wrong_value_is_refused_with_its_path_and_can_be_dropped(type_text, value, why):
    type_ = parse_type(type_text)
    with pytest.raises((TypeError, LookupError, ValueError)):
        lower_and_drop(type_, value)
    assert why in explain_mismatch(type_, value)


@pytest.mark.parametrize(("type_text", "value", "why"), WRONG)
def test_a_wrong_answer_is_raised_with_its_path_and_aborts_nothing(type_text, value, why):
    type_ = parse_type(type_text)
    text = identity_guest(type_)
    function = HostFunction(
        name="f", type=FuncType((("x", type_),), type_), call=lambda _state, _x: value
    )
    with machine() as made:
        instance = made.start(made.linker(text, host_interface(function)))
        outcome = made.call(instance, "run", 1, GOOD[type_text])
        assert isinstance(outcome, Raised)
        assert isinstance(outcome.error, TypeError)
        assert str(outcome.error).startswith("t:host/api.f answered with a wrong value: ")
        assert why in str(outcome.error)


GOOD = {
    "u8": 1,
    "u32": 1,
    "s8": 1,
    "s64": 1,
    "f64": 1.0,
    "bool": True,
    "char": "a",
    "string": "a",
    "list<u8>": b"a",
    "list<string>": ["a"],
    "tuple<u8, u8>": (1, 2),
    "record { a: u8 }": {"a": 1},
    "record { a: list<u16> }": {"a": [1]},
    "enum { red }": "red",
    "flags { r }": ["r"],
    "variant { a(u8) }": Variant("a", 1),
    "variant { a }": Variant("a"),
    "option<u8>": 1,
    "option<option<u8>>": Some(1),
    "result<u8>": Ok(1),
    "result<_, string>": Err("a"),
}


@pytest.mark.parametrize(
    ("type_text", "value"),
    [
        ("f32", float("inf")),
        ("list<u8>", bytes(range(256)) * 256),
        ("list<u8>", bytearray(b"ab")),
        ("list<u16>", (1, 2)),
        ("f64", 3),
        ("string", ""),
        ("list<list<u8>>", [b"", b"a"]),
    ],
)
def test_a_value_of_a_near_kind_is_taken(type_text, value):
    type_ = parse_type(type_text)
    assert list_of(copied(type_, value)) == list_of(value)


def test_empty_sequences_and_nested_options_keep_their_shape():
    for type_text, value in [
        ("list<u8>", b""),
        ("list<string>", []),
        ("option<option<u8>>", None),
        ("option<option<u8>>", Some(None)),
        ("option<option<u8>>", Some(7)),
        ("result", Ok()),
        ("result", Err()),
        ("flags { a, b }", []),
    ]:
        assert copied(parse_type(type_text), value) == value


def test_a_failed_lowering_frees_everything_it_made():
    wrong = {**NESTED_VALUE, "items": [*NESTED_VALUE["items"][:5], {"id": 1, "tag": "\ud800"}]}
    for _ in range(1_000):
        with pytest.raises(UnicodeEncodeError):
            lower_and_drop(NESTED, wrong)
    before = resident_bytes()
    for _ in range(20_000):
        with pytest.raises(UnicodeEncodeError):
            lower_and_drop(NESTED, wrong)
    assert resident_bytes() - before < 4 << 20


def test_a_million_calls_leave_no_memory_behind():
    type_ = parse_type("string")
    value = "x" * 40
    function = HostFunction(
        name="f", type=FuncType((("x", type_),), type_), call=lambda _state, x: x
    )
    with machine() as made:
        instance = made.start(made.linker(identity_guest(type_), host_interface(function)))
        assert made.call(instance, "run", 20_000, value) == Returned(value)
        before = resident_bytes()
        started = time.perf_counter()
        assert made.call(instance, "run", 1_000_000, value) == Returned(value)
        spent = time.perf_counter() - started
        growth = resident_bytes() - before
    print(f"{spent:.2f} us a call, {growth >> 10} KiB more after 1,000,000 calls")
    assert growth < 8 << 20


def test_calls_into_the_guest_leave_no_memory_behind():
    function = HostFunction(
        name="f", type=FuncType((("x", NESTED),), NESTED), call=lambda _state, x: x
    )
    with machine() as made:
        instance = made.start(made.linker(identity_guest(NESTED), host_interface(function)))
        for _ in range(300):
            made.call(instance, "run", 1, NESTED_VALUE)
        before = resident_bytes()
        for _ in range(5_000):
            assert made.call(instance, "run", 1, NESTED_VALUE) == Returned(NESTED_VALUE)
        growth = resident_bytes() - before
    print(f"{growth >> 10} KiB more after 5,000 calls")
    assert growth < 4 << 20


def lower_and_drop(type_, value):
    memory = (ctypes.c_char * ffi.VALUE_BYTES)()
    at = ctypes.addressof(memory)
    try:
        compile_lower(type_, {})(value, at, None)
    finally:
        ffi.value_delete(at)


def copied(type_, value):
    memory = (ctypes.c_char * (2 * ffi.VALUE_BYTES))()
    first = ctypes.addressof(memory)
    second = first + ffi.VALUE_BYTES
    compile_lower(type_, {})(value, first, None)
    ffi.value_clone(first, second)
    ffi.value_delete(first)
    lifted = compile_lift(type_, {})(second, None)
    ffi.value_delete(second)
    return lifted


def list_of(value):
    return list(value) if isinstance(value, list | tuple | bytes | bytearray) else value


def resident_bytes():
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
