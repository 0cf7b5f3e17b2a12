"""What a component imports and exports, and what of it a host does not satisfy."""

import pytest

from executor.errors import ComponentRejected, InternalError
from executor.wasm.host_function import HostFunction
from executor.wasm.instance import Raised, Returned
from executor.wasm.types import BorrowType, OwnType
from executor.wasm.wit import parse_interface
from tests.support.machine import host_function, host_interface, machine

POLL = """(import "wasi:io/poll@{version}" (instance $poll{n}
    (export "pollable" (type $p (sub resource)))
    (export "[method]pollable.ready" (func (param "self" (borrow $p)) (result bool)))
    (export "poll" (func (param "in" (list (borrow $p))) (result (list u32))))))
  (alias export $poll{n} "pollable" (type $p{n}))
  (import "wasi:clocks/monotonic-clock@{version}" (instance $clock{n}
    (export "pollable" (type $q (eq $p{n})))
    (export "subscribe-duration" (func (param "when" u64) (result (own $q))))))
  (core func $make{n} (canon lower (func $clock{n} "subscribe-duration")))
  (core func $ready{n} (canon lower (func $poll{n} "[method]pollable.ready")))
  (core func $drop{n} (canon resource.drop $p{n}))"""

RUN = """(core module $m
    (import "h" "make0" (func $make0 (param i64) (result i32)))
    (import "h" "ready0" (func $ready0 (param i32) (result i32)))
    (import "h" "drop0" (func $drop0 (param i32)))
    (import "h" "make1" (func $make1 (param i64) (result i32)))
    (import "h" "ready1" (func $ready1 (param i32) (result i32)))
    (import "h" "drop1" (func $drop1 (param i32)))
    (func (export "run") (result i32) (local $a i32) (local $b i32)
      (local.set $a (call $make0 (i64.const 20)))
      (local.set $b (call $make1 (i64.const 30)))
      (i32.add (call $ready0 (local.get $a)) (call $ready1 (local.get $b)))
      (call $drop0 (local.get $a)) (call $drop1 (local.get $b))))
  (core instance $i (instantiate $m (with "h" (instance
    (export "make0" (func $make0)) (export "ready0" (func $ready0)) (export "drop0" (func $drop0))
    (export "make1" (func $make1)) (export "ready1" (func $ready1)) (export "drop1" (func $drop1))
  ))))
  (func (export "run") (result u32) (canon lift (core func $i "run")))"""

TWO_VERSIONS = f"""(component
  {POLL.format(version="0.2.0", n=0)}
  {POLL.format(version="0.2.9", n=1)}
  {RUN})"""

POLL_WIT = """interface wasi:io/poll@0.2.0 {
  resource pollable { ready: func() -> bool; }
  poll: func(in: list<borrow<pollable>>) -> list<u32>;
}"""


class Pollables:
    def __init__(self):
        self.deadlines = []
        self.dropped = []

    def subscribe(self, when):
        self.deadlines.append(when)
        return len(self.deadlines) - 1

    def ready(self, number):
        return self.deadlines[number] > 25

    def poll(self, numbers):
        return [index for index, number in enumerate(numbers) if self.ready(number)]


def poll_interface(versions="0.2", **changed):
    wit = parse_interface(POLL_WIT)
    calls = {"[method]pollable.ready": Pollables.ready, "poll": Pollables.poll}
    return host_interface(
        *(
            HostFunction(name=name, type=type_, call=calls[name])
            for name, type_ in wit.functions.items()
        ),
        name=wit.name,
        versions=versions,
        resources=changed.get(
            "resources", {"pollable": lambda state, number: state.dropped.append(number)}
        ),
    )


def clock_interface(signature="func(when: u64) -> pollable", versions="0.2"):
    return host_interface(
        host_function(
            f"subscribe-duration: {signature}",
            Pollables.subscribe,
            uses={"pollable": OwnType("pollable")},
        ),
        name="wasi:clocks/monotonic-clock",
        versions=versions,
    )


@pytest.fixture
def made():
    with machine() as one:
        yield one


def test_imports_and_exports_are_read_with_the_names_of_resources(made):
    component = made.component(TWO_VERSIONS)
    assert component.import_texts == (
        "wasi:io/poll@0.2.0",
        "wasi:clocks/monotonic-clock@0.2.0",
        "wasi:io/poll@0.2.9",
        "wasi:clocks/monotonic-clock@0.2.9",
    )
    assert component.export_texts == ("run: func() -> u32",)
    poll, clock, *_ = component.imports
    assert (poll.name, poll.version, poll.resources) == ("wasi:io/poll", "0.2.0", ("pollable",))
    assert poll.functions["[method]pollable.ready"].params == (("self", BorrowType("pollable")),)
    assert clock.functions["subscribe-duration"].result == OwnType("pollable")


def test_one_host_interface_serves_several_versions_of_its_track_at_once(made):
    host = (poll_interface(), clock_interface())
    assert made.component(TWO_VERSIONS).problems(host) == ()
    state = Pollables()
    instance = made.start(made.linker(TWO_VERSIONS, *host), state)
    assert made.call(instance, "run") == Returned(1)
    assert state.deadlines == [20, 30]
    assert state.dropped == [0, 1]


def test_every_missing_interface_is_named_with_what_is_offered(made):
    component = made.component(TWO_VERSIONS)
    assert component.problems(()) == (
        "wasi:io/poll@0.2.0: this interface is not offered",
        "wasi:clocks/monotonic-clock@0.2.0: this interface is not offered",
        "wasi:io/poll@0.2.9: this interface is not offered",
        "wasi:clocks/monotonic-clock@0.2.9: this interface is not offered",
    )
    offered = "wasi:io/poll@0.3, wasi:io/poll@0.1|0.4"
    host = (poll_interface("0.3"), poll_interface("0.1|0.4"), clock_interface())
    assert component.problems(host) == (
        f"wasi:io/poll@0.2.0: this interface is not offered; offered: {offered}",
        f"wasi:io/poll@0.2.9: this interface is not offered; offered: {offered}",
    )
    with pytest.raises(ComponentRejected) as rejected:
        made.linker(TWO_VERSIONS, *host)
    assert rejected.value.imports == component.problems(host)
    assert "(and 1 more)" in rejected.value.message


def test_every_missing_function_and_resource_is_named(made):
    component = made.component(TWO_VERSIONS)
    bare = host_interface(name="wasi:io/poll", versions="0.2.0")
    host = (bare, poll_interface(), clock_interface())
    assert component.problems(host) == (
        "wasi:io/poll@0.2.0.{pollable}: this resource is not offered",
        "wasi:io/poll@0.2.0.{[method]pollable.ready}: this function is not offered",
        "wasi:io/poll@0.2.0.{poll}: this function is not offered",
    )


def test_a_signature_that_differs_is_shown_as_declared_and_as_wanted(made):
    component = made.component(TWO_VERSIONS)
    host = (poll_interface(), clock_interface("func(when: u32) -> pollable"))
    problems = component.problems(host)
    assert problems[0] == (
        "wasi:clocks/monotonic-clock@0.2.0.{subscribe-duration}: the component wants"
        " func(when: u64) -> own<pollable>, the host has func(when: u32) -> own<pollable>"
    )
    assert len(problems) == 2
    # A linker of a component that was never compared refuses at the call.
    instance = made.start(made.linker(TWO_VERSIONS, *host), Pollables())
    outcome = made.call(instance, "run")
    assert isinstance(outcome, Raised)
    assert isinstance(outcome.error, InternalError)
    assert "the component wants func(when: u64)" in str(outcome.error)


def test_an_import_of_types_only_needs_no_host(made):
    text = """(component
      (import "a:b/types@1.0.0" (instance (type $t u32) (export "t" (type (eq $t)))))
      (core module $m (func (export "run") (result i32) (i32.const 3)))
      (core instance $i (instantiate $m))
      (func (export "run") (result u32) (canon lift (core func $i "run"))))"""
    component = made.component(text)
    assert component.import_texts == ("a:b/types@1.0.0",)
    assert component.problems(()) == ()
    assert made.call(made.start(made.linker(text)), "run") == Returned(3)


def test_a_function_that_the_world_imports_is_bound_from_the_nameless_interface(made):
    text = """(component
      (import "double" (func $double (param "x" u32) (result u32)))
      (core func $double' (canon lower (func $double)))
      (core module $m (import "h" "double" (func $f (param i32) (result i32)))
        (func (export "run") (result i32) (call $f (i32.const 21))))
      (core instance $i (instantiate $m (with "h" (instance (export "double" (func $double'))))))
      (func (export "run") (result u32) (canon lift (core func $i "run"))))"""
    component = made.component(text)
    assert component.import_texts == ("double: func(x: u32) -> u32",)
    assert component.problems(()) == ("double: this function is not offered",)
    host = host_interface(
        host_function("double: func(x: u32) -> u32", lambda _state, x: 2 * x), name=""
    )
    assert made.call(made.start(made.linker(text, host)), "run") == Returned(42)


TWO_RESOURCES = """(import "a:{x}/api" (instance ${x}
    (export "thing" (type $t (sub resource)))
    (export "make" (func (result (own $t))))
    (export "take" (func (param "it" (own $t))))))
  (alias export ${x} "thing" (type $thing-{x}))
  (core func $make-{x} (canon lower (func ${x} "make")))
  (core func $take-{x} (canon lower (func ${x} "take")))
  (core func $drop-{x} (canon resource.drop $thing-{x}))"""


def test_resources_of_one_name_from_two_interfaces_are_two_resources(made):
    text = f"""(component {TWO_RESOURCES.format(x="one")} {TWO_RESOURCES.format(x="two")}
      (core module $m
        (import "h" "make-one" (func $make (result i32)))
        (import "h" "take-two" (func $take (param i32)))
        (import "h" "drop-one" (func $drop (param i32)))
        (func (export "good") (call $drop (call $make)))
        (func (export "bad") (call $take (call $make))))
      (core instance $i (instantiate $m (with "h" (instance
        (export "make-one" (func $make-one)) (export "take-two" (func $take-two))
        (export "drop-one" (func $drop-one))))))
      (func (export "good") (canon lift (core func $i "good")))
      (func (export "bad") (canon lift (core func $i "bad"))))"""
    things = {"thing": OwnType("thing")}
    log = []

    def thing_interface(name):
        return host_interface(
            host_function("make: func() -> thing", lambda _state: 7, uses=things),
            host_function("take: func(it: thing)", lambda *_: log.append("taken"), uses=things),
            name=f"a:{name}/api",
            resources={"thing": lambda _state, number: log.append(f"{name} {number}")},
        )

    linker = made.linker(text, thing_interface("one"), thing_interface("two"))
    assert made.call(made.start(linker), "good") == Returned()
    assert log == ["one 7"]
    outcome = made.call(made.start(linker), "bad")
    assert "handle index" in outcome.message
    assert log == ["one 7"]


def test_exports_of_interfaces_have_paths_and_those_of_toolchains_are_not_shown(made):
    text = """(component
      (core module $m (func (export "f") (result i32) (i32.const 7)))
      (core instance $i (instantiate $m))
      (func $f (result u32) (canon lift (core func $i "f")))
      (func $g (result (result)) (canon lift (core func $i "f")))
      (instance $api (export "get" (func $f)))
      (instance $run (export "run" (func $g)))
      (export "demo:counter/api@0.1.0" (instance $api))
      (export "wasi:cli/run@0.2.3" (instance $run))
      (export "exports" (instance $api))
      (export "init" (func $f))
      (export "get" (func $f)))"""
    component = made.component(text)
    assert [export.path for export in component.exports] == [
        "demo:counter/api.{get}",
        "wasi:cli/run.{run}",
        "get",
    ]
    assert component.export_texts[0] == "demo:counter/api.{get}: func() -> u32"
    assert component.exports[0].version == "0.1.0"
    instance = made.start(made.linker(text))
    assert made.call(instance, "get") == Returned(7)


def test_of_several_versions_of_an_interface_each_is_its_own(made):
    text = """(component
      (core module $m
        (func (export "one") (result i32) (i32.const 1))
        (func (export "two") (result i32) (i32.const 2)))
      (core instance $i (instantiate $m))
      (func $one (result u32) (canon lift (core func $i "one")))
      (func $two (result u32) (canon lift (core func $i "two")))
      (instance $old (export "get" (func $one)))
      (instance $new (export "get" (func $two)))
      (export "demo:counter/api@1.0.0" (instance $old))
      (export "demo:counter/api@2.0.0" (instance $new))
      (export "demo:counter/other@2.0.0" (instance $new)))"""
    old, new, other = made.component(text).exports
    assert [old.path, new.path, other.path] == [
        "demo:counter/api@1.0.0.{get}",
        "demo:counter/api@2.0.0.{get}",
        "demo:counter/other.{get}",
    ]


def test_an_export_that_needs_a_stream_is_not_shown(made):
    text = """(component
      (type $s (stream u8))
      (core module $m (func (export "f") (result i32) (i32.const 7))
        (func (export "g") (param i32)))
      (core instance $i (instantiate $m))
      (func (export "f") (result u32) (canon lift (core func $i "f")))
      (func (export "g") (param "x" $s) (canon lift (core func $i "g"))))"""
    assert [export.name for export in made.component(text).exports] == ["f"]
