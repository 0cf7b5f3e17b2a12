"""Values of random types through a guest and back, compared with wasmtime-py's own conversions."""

import ctypes
import random

import pytest
from wasmtime import _ffi as wasmtime_ffi
from wasmtime import component as wasmtime_component

from executor.wasm import ffi
from executor.wasm.abi import compile_lift, compile_lower
from executor.wasm.host_function import HostFunction
from executor.wasm.instance import Returned
from executor.wasm.types import (
    PRIMITIVES,
    U8,
    EnumType,
    FlagsType,
    FuncType,
    ListType,
    OptionType,
    Primitive,
    RecordType,
    ResultType,
    TupleType,
    VariantType,
    nests_option,
)
from executor.wasm.values import Err, Ok, Some, Variant
from executor.wasm.wit import parse_type
from tests.support.guest_text import identity_guest, random_type, random_value
from tests.support.machine import host_interface, machine
from tests.support.wit_values import exact

SEEDS = [1, 2, 3]
TYPES_A_SEED = 40
VALUES_A_TYPE = 4


@pytest.mark.parametrize("seed", SEEDS)
def test_any_value_goes_through_a_guest_and_back_unchanged(seed):
    print("seed", seed)
    rnd = random.Random(seed)
    seen = []

    def keep(_state, value):
        seen.append(value)
        return value

    with machine() as made:
        for type_, text in guests(rnd):
            function = HostFunction(name="f", type=FuncType((("x", type_),), type_), call=keep)
            linker = made.linker(text, host_interface(function))
            assert linker.component.problems([host_interface(function)]) == ()
            instance = made.start(linker)
            for _ in range(VALUES_A_TYPE):
                value = random_value(rnd, type_)
                outcome = made.call(instance, "run", 1, value)
                assert isinstance(outcome, Returned), (type_, value, outcome)
                assert exact(outcome.value) == exact(value), type_
                assert exact(seen.pop()) == exact(value), type_


@pytest.mark.parametrize("seed", SEEDS)
def test_any_value_is_what_wasmtime_py_makes_of_it(seed):
    print("seed", seed)
    rnd = random.Random(seed)
    with machine() as made:
        for type_, text in guests(rnd):
            component = made.component(text)
            run = component.wasmtime_component.type.exports(component.wasmtime_engine)["run"].ty
            theirs = run.result
            for _ in range(VALUES_A_TYPE):
                value = random_value(rnd, type_)
                assert exact(lowered_by_us_lifted_by_them(type_, theirs, value)) == exact(value)
                if not puzzles_wasmtime_py(type_):
                    lifted = lowered_by_them_lifted_by_us(type_, theirs, value)
                    assert exact(lifted) == exact(value), type_


WIDE = ", ".join(f"f{n}: {name}" for n, name in enumerate(PRIMITIVES))
MANY_FLAGS = ", ".join(f"g{n}" for n in range(32))
MANY_CASES = ", ".join(f"e{n}" for n in range(300))
EVERY_KIND = [
    *PRIMITIVES,
    *(f"list<{name}>" for name in PRIMITIVES),
    "list<list<list<u16>>>",
    "list<tuple<char, f32>>",
    "list<option<result<string, list<u8>>>>",
    f"record {{ {WIDE} }}",
    f"record {{ only: record {{ only: tuple<record {{ {WIDE} }}> }} }}",
    f"tuple<{', '.join(['u64'] * 17)}>",
    f"tuple<{', '.join(['string'] * 40)}>",
    "flags { g0 }",
    f"flags {{ {MANY_FLAGS} }}",
    "enum { e0 }",
    f"enum {{ {MANY_CASES} }}",
    f"variant {{ {MANY_CASES}, last(string) }}",
    "variant { a(u8), b(u64), c(f32), d(f64), e(string), f, g(list<u8>), h(char), i(s8) }",
    "variant { a(variant { b(f32), c(u64), d }), e(option<f64>), f(result<s8, string>) }",
    "variant { a(tuple<f32, u64>), b(tuple<u64, f32, u8>), c(record { x: f64, y: string }) }",
    "option<option<option<bool>>>",
    "option<result>",
    "result",
    "result<string>",
    "result<_, u8>",
    "result<result<_, f32>, result<u64>>",
]
"""Also what is passed in memory, one way or both, and payloads that share their flat values."""


@pytest.mark.parametrize("text", EVERY_KIND)
def test_a_type_of_every_kind_is_what_wasmtime_py_makes_of_it(text):
    type_ = parse_type(text)
    rnd = random.Random(text)
    values = [random_value(rnd, type_) for _ in range(12)]
    function = HostFunction(
        name="f", type=FuncType((("x", type_),), type_), call=lambda _state, value: value
    )
    with machine() as made:
        guest = identity_guest(type_)
        linker = made.linker(guest, host_interface(function))
        instance = made.start(linker)
        component = made.component(guest)
        run = component.wasmtime_component.type.exports(component.wasmtime_engine)["run"].ty
        for value in values:
            outcome = made.call(instance, "run", 2, value)
            assert exact(outcome.value) == exact(value)
            assert exact(lowered_by_us_lifted_by_them(type_, run.result, value)) == exact(value)
            if not puzzles_wasmtime_py(type_):
                lifted = lowered_by_them_lifted_by_us(type_, run.result, value)
                assert exact(lifted) == exact(value)


def guests(rnd):
    found = 0
    while found < TYPES_A_SEED:
        type_ = random_type(rnd)
        text = identity_guest(type_)
        if text is not None:
            found += 1
            yield type_, text


def lowered_by_us_lifted_by_them(type_, theirs, value):
    slot = wasmtime_ffi.wasmtime_component_val_t()
    compile_lower(type_, {})(value, ctypes.addressof(slot), None)
    return from_theirs(type_, theirs, theirs.convert_from_c(slot))


def lowered_by_them_lifted_by_us(type_, theirs, value):
    slot = wasmtime_ffi.wasmtime_component_val_t()
    theirs.convert_to_c(None, to_theirs(type_, theirs, value), ctypes.pointer(slot))
    try:
        return compile_lift(type_, {})(ctypes.addressof(slot), None)
    finally:
        ffi.value_delete(ctypes.addressof(slot))


def puzzles_wasmtime_py(type_):
    """It takes a bool for an int, and cannot lower every case of a variant within a variant."""
    text = repr(type_)
    variants = sum(text.count(name) for name in ("VariantType(", "OptionType(", "ResultType("))
    return "'bool'" in text or variants > 1


class InOrder(set):
    """Wasmtime-py wants a set; this one is read in the order of the type."""

    def __iter__(self):
        return iter(sorted(super().__iter__(), key=lambda name: int(name[1:])))


def cases_of(type_):
    match type_:
        case VariantType(cases):
            return dict(cases)
        case OptionType(payload):
            return {"none": None, "some": payload}
        case ResultType(ok, err):
            return {"ok": ok, "err": err}
    raise TypeError(type_)


def case_and_payload(type_, value):
    match type_, value:
        case VariantType(), Variant(case, payload):
            return case, payload
        case ResultType(), Ok(payload):
            return "ok", payload
        case ResultType(), Err(payload):
            return "err", payload
        case OptionType(), None:
            return "none", None
        case OptionType(), _:
            return "some", value.value if nests_option(type_) else value
    raise TypeError(type_)


def to_theirs(type_, theirs, value):
    match type_:
        case ListType(element) if element != U8:
            return [to_theirs(element, theirs.element, item) for item in value]
        case TupleType(elements):
            parts = zip(elements, theirs.elements, value, strict=True)
            return tuple(to_theirs(*part) for part in parts)
        case RecordType(fields):
            record = wasmtime_component.Record()
            for (name, of), (_, their) in zip(fields, theirs.fields, strict=True):
                setattr(record, name, to_theirs(of, their, value[name]))
            return record
        case FlagsType():
            return InOrder(value)
        case VariantType() | OptionType() | ResultType():
            case, payload = case_and_payload(type_, value)
            their = dict(theirs._cases())[case]
            if their is not None:
                payload = to_theirs(cases_of(type_)[case], their, payload)
            return wasmtime_component.Variant(case, payload) if theirs._tagged() else payload
    return value


def from_theirs(type_, theirs, value):
    match type_:
        case ListType(element) if element != U8:
            return [from_theirs(element, theirs.element, item) for item in value]
        case TupleType(elements):
            parts = zip(elements, theirs.elements, value, strict=True)
            return tuple(from_theirs(*part) for part in parts)
        case RecordType(fields):
            return {
                name: from_theirs(of, their, getattr(value, name))
                for (name, of), (_, their) in zip(fields, theirs.fields, strict=True)
            }
        case FlagsType(names):
            return [name for name in names if name in value]
        case VariantType() | OptionType() | ResultType():
            return variant_from_theirs(type_, theirs, value)
        case EnumType() | Primitive() | ListType():
            return value
    raise TypeError(type_)


def variant_from_theirs(type_, theirs, value):
    if theirs._tagged():
        case, payload = value.tag, value.payload
    else:
        case, payload = untagged_case(theirs, value), value
    of = cases_of(type_)[case]
    if of is not None:
        payload = from_theirs(of, dict(theirs._cases())[case], payload)
    match type_:
        case VariantType():
            return Variant(case, payload)
        case ResultType():
            return Ok(payload) if case == "ok" else Err(payload)
    if case == "none":
        return None
    return Some(payload) if nests_option(type_) else payload


def untagged_case(theirs, value):
    """The case whose Python classes hold the value; `None` is the case without a payload."""
    for case, their in theirs._cases():
        classes = {type(None)}
        if their is not None:
            classes = set()
            their.add_classes(classes)
        if type(value) in classes or (object in classes and value is None):
            return case
    raise TypeError(value)
