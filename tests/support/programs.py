"""What the tests of the executor run: guests, the peers they talk to, and what is asked of them.

| program | guest            | what it shows                                             |
|---------|------------------|-----------------------------------------------------------|
| adder   | WAT              | state in memory, no host calls                            |
| charger | WAT              | remote writes                                             |
| clocks  | WAT              | recorded readings of clocks and random numbers            |
| sleeper | WAT              | a wait in a pollable                                      |
| tracer  | WAT              | a span, its trace, and its end when it is dropped         |
| teller  | WAT              | log messages, its configuration                           |
| relay   | WAT              | one remote call of any size in the guest's result         |
| starter | WAT              | a host call while the component is instantiated           |
| counter | C                | remote writes, clock and random mixed                     |
| printer | C                | output                                                    |
| scribe  | C                | files, and a wait between two writes                      |
| types   | C                | a value of every WIT type, and host resources             |
| order   | Python           | everything that a language's runtime asks of its host     |
| trip    | JavaScript       | remote writes, and others that make up for them           |
"""

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import trio

from executor import Err, Ok, host_function
from executor.durable.definition import HostFunctionRow, Local, Recorded
from executor.host.interface import InterfaceTable, host_interface
from executor.wasm.wit import parse_interface
from guests import recipes
from tests.support import guests
from tests.support.resource_guest import RESOURCES
from tests.support.wat_guests import MEMORY, TELLER, TRACER

RELAY = (
    b"""
(component
  (import "demo:relay/peer" (instance $peer
    (export "call" (func (param "text" string) (result (result string (error string)))))))
"""
    + MEMORY
    + b"""
  (core func $call (canon lower (func $peer "call")
    (memory $mem) (realloc $realloc) string-encoding=utf8))
  (core module $Main
    (import "memory" "memory" (memory 1))
    (import "memory" "reset" (func $reset))
    (import "peer" "call" (func $call (param i32 i32 i32)))
    (global $count (mut i32) (i32.const 0))
    (func (export "relay") (param $at i32) (param $length i32) (result i32)
      (call $call (local.get $at) (local.get $length) (i32.const 32))
      (global.set $count (i32.add (global.get $count) (i32.const 1)))
      (i32.const 32))
    (func (export "relayed") (param i32) (call $reset))
    (func (export "count") (result i32) (global.get $count)))
  (core instance $main (instantiate $Main
    (with "memory" (instance $memory))
    (with "peer" (instance (export "call" (func $call))))))
  (func $relay (param "text" string) (result (result string (error string)))
    (canon lift (core func $main "relay") (memory $mem) (realloc $realloc)
      (post-return (core func $main "relayed")) string-encoding=utf8))
  (func $count (result u32) (canon lift (core func $main "count")))
  (instance $api (export "relay" (func $relay)) (export "count" (func $count)))
  (export "demo:relay/api" (instance $api)))
"""
)
"""`relay: func(text: string) -> result<string, string>` asks the peer and answers what it answered;
`count: func() -> u32`, how often that came to an end."""

STARTER = b"""
(component
  (import "wasi:random/random@0.2.0" (instance $random
    (export "get-random-u64" (func (result u64)))))
  (core func $random-u64 (canon lower (func $random "get-random-u64")))
  (core module $Main
    (import "host" "random" (func $random (result i64)))
    (global $drawn (mut i64) (i64.const 0))
    (func $begin (global.set $drawn (call $random)))
    (start $begin)
    (func (export "drawn") (result i64) (global.get $drawn)))
  (core instance $main (instantiate $Main
    (with "host" (instance (export "random" (func $random-u64))))))
  (func $drawn (result u64) (canon lift (core func $main "drawn")))
  (instance $api (export "drawn" (func $drawn)))
  (export "demo:starter/api" (instance $api)))
"""
"""`drawn: func() -> u64`: the random number that was drawn while it was instantiated."""

EXITER = b"""
(component
  (import "wasi:cli/exit@0.2.0" (instance $exit
    (export "exit" (func (param "status" (result))))
    (export "exit-with-code" (func (param "status-code" u8)))))
  (core func $exit (canon lower (func $exit "exit")))
  (core func $code (canon lower (func $exit "exit-with-code")))
  (core module $Main
    (import "host" "exit" (func $exit (param i32)))
    (import "host" "code" (func $code (param i32)))
    (func (export "leave") (param i32) (call $exit (local.get 0)))
    (func (export "exit") (param i32) (call $code (local.get 0)))
    (func (export "stay") (result i32) (i32.const 7)))
  (core instance $main (instantiate $Main
    (with "host" (instance (export "exit" (func $exit)) (export "code" (func $code))))))
  (func $leave (param "status" (result)) (canon lift (core func $main "leave")))
  (func $exit-code (param "code" u8) (canon lift (core func $main "exit")))
  (func $stay (result u32) (canon lift (core func $main "stay")))
  (instance $api
    (export "leave" (func $leave)) (export "exit" (func $exit-code))
    (export "stay" (func $stay)))
  (export "demo:exiter/api" (instance $api)))
"""
"""`leave: func(status: result)`, `exit: func(code: u8)`: both end the worker; `stay` answers 7."""

BROKEN = b"""
(component
  (core module $Main (func $begin unreachable) (start $begin)
    (func (export "get") (result i32) (i32.const 1)))
  (core instance $main (instantiate $Main))
  (func $get (result u32) (canon lift (core func $main "get")))
  (instance $api (export "get" (func $get)))
  (export "demo:broken/api" (instance $api)))
"""
"""Traps while it is instantiated."""


CALL = "call: func(text: string) -> result<string, string>"
PEER = "demo:relay/peer"


class Bank:
    """A peer that honours idempotency keys: a key that it has seen gets the answer that it got."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        """The key of every request, in order."""
        self.answers: dict[str, Any] = {}

    def functions(self) -> list[Callable[..., Any]]:
        signature = "charge: func(who: string, cents: u64) -> result<string, string>"

        @host_function("demo:bank/api", signature, type="write-remote")
        async def charge(call, who, cents):
            return self._charge(call, who, cents)

        @host_function("demo:orders/bank", signature, type="write-remote")
        async def charge_order(call, who, cents):
            return self._charge(call, who, cents)

        return [charge, charge_order, peer(self._call)]

    def _charge(self, call, who: str, cents: int) -> Any:
        self.asked.append(call.key)
        answer = Err("no money") if who == "poor" else Ok(f"ref-{len(self.answers)}-{cents}")
        return self.answers.setdefault(call.key, answer)

    def _call(self, call, text: str) -> Any:
        self.asked.append(call.key)
        return self.answers.setdefault(call.key, Ok(text.upper()))


class Gate:
    """A peer that answers when it is told to."""

    def __init__(self, type="write-remote"):  # noqa: A002
        self.entered = trio.Event()
        self.go = trio.Event()
        self.keys = []
        self.cancelled = 0

        @host_function(PEER, CALL, type=type)
        async def call(call, text):
            self.keys.append(call.key)
            self.entered.set()
            try:
                await self.go.wait()
            except trio.Cancelled:
                self.cancelled += 1
                raise
            return Ok(f"{text}!")

        self.call = call


def peer(answer, type="write-remote"):  # noqa: A002
    """The peer of the relay: what it answers, or raises, is the test's."""

    @host_function(PEER, CALL, type=type)
    async def call(call, text):
        return answer(call, text)

    return call


def echo(type="write-remote"):  # noqa: A002
    return peer(lambda call, text: Ok(text), type)


class Program(NamedTuple):
    """One guest and a run of it: what is asked of one worker, in order."""

    name: str
    wasm: Callable[[], bytes]
    calls: Sequence[tuple[str, Sequence[object]]]


def item(sku: str, cents: int) -> dict[str, object]:
    return {"sku": sku, "quantity": 1, "cents": cents}


def leg(place: str, cents: int, payer: str = "ann") -> dict[str, object]:
    return {"place": place, "payer": payer, "cents": cents}


def order(number: str, customer: str, *cents: int) -> dict[str, object]:
    return {"id": number, "customer": customer, "items": [item(f"s{c}", c) for c in cents]}


POINT = {"x": -1, "y": 0.5}
SAMPLE = {
    "flag": True,
    "tiny": -128,
    "letter": "🜃",
    "wide": 2**63,
    "label": "é",
    "raw": b"\x00\xff",
    "at": POINT,
}
TYPES_CALLS: Sequence[tuple[str, Sequence[object]]] = (
    ("nothing", ()),
    ("of-u64", (2**64 - 1,)),
    ("of-s64", (-(2**63),)),
    ("of-f32", (math.nan,)),
    ("of-f64", (-0.0,)),
    ("of-char", ("\U0010ffff",)),
    ("of-string", ("é🜃\0",)),
    ("of-bytes", (bytes(range(256)),)),
    ("of-samples", ([SAMPLE, SAMPLE | {"flag": False}],)),
    ("of-tuple", ((1, "two", 3.0),)),
    ("of-color", ("green",)),
    ("of-seats", (["seat1", "seat17"],)),
    ("of-option-string", ("",)),
    ("of-result", (Err("no"),)),
    ("of-result-bare", (Ok(),)),
    ("tokens", ("a",)),
    ("keep", ("x",)),
    ("keep", ("y",)),
    ("kept", ()),
)

PROGRAMS = {
    program.name: program
    for program in (
        Program("adder", lambda: guests.ADDER, (("add", (5,)), ("add", (6,)), ("get", ()))),
        Program("charger", lambda: guests.CHARGER, (("charge-many", (3,)), ("charge-many", (2,)))),
        Program("clocks", lambda: guests.CLOCKS, (("read", (2,)), ("read", (1,)))),
        Program("sleeper", lambda: guests.SLEEPER, (("sleep", (3_000_000,)), ("sleep", (0,)))),
        Program(
            "relay",
            lambda: RELAY,
            (("relay", ("é",)), ("relay", ("x" * 70_000,)), ("count", ())),
        ),
        Program(
            "teller",
            lambda: TELLER,
            (
                ("log", ("warn", "disk", "nearly full")),
                ("tell", ("currency",)),
                ("log", ("info", "", "é")),
            ),
        ),
        Program(
            "resources",
            RESOURCES.encode,
            (
                ("counter.new", (777,)),
                ("many", (2,)),
                ("counter.merge", (1, 3)),
                ("counter.drop", (2,)),
                ("counter.get", (4,)),
            ),
        ),
        Program("tracer", lambda: TRACER, (("trace", ("first",)), ("trace", ("second",)))),
        Program("starter", lambda: STARTER, (("drawn", ()), ("drawn", ()))),
        Program(
            "counter",
            guests.counter_component,
            (("add", (2,)), ("charge-many", ("ann", 2)), ("charge-many", ("poor", 1)), ("get", ())),
        ),
        Program(
            "printer",
            guests.printer_component,
            (("print", ("one",)), ("warn", ("two",)), ("write", (b"\xff\xfe",)), ("print", ("é",))),
        ),
        Program(
            "scribe",
            guests.scribe_component,
            (
                ("make-directory", ("notes",)),
                ("write-and-wait", ("notes/a", "one ", 1_000_000, "two")),
                ("link", ("notes/a", "latest")),
                ("write", ("missing/b", "lost")),
                ("write", ("latest", "é")),
            ),
        ),
        Program("types", guests.types_component, TYPES_CALLS),
        Program(
            "order",
            guests.order_component,
            (
                ("place", (order("o1", "ann", 100, 250),)),
                ("place", (order("o2", "poor", 10),)),
                ("status", ("o2",)),
                ("ledger", ()),
            ),
        ),
        Program(
            "trip",
            guests.trip_component,
            (
                ("book", ("ann", [leg("Oslo", 100), leg("Rome", 250)])),
                ("book", ("bob", [leg("Oslo", 10), leg("Rome", 20), leg("Mars", 1, "poor")])),
                ("booked", ("ann",)),
                ("totals", ()),
            ),
        ),
    )
}


@cache
def mirror() -> InterfaceTable:
    """The interface that the types guest imports: it answers what it is given."""
    text = (recipes.GUESTS / "types" / "wit" / "types.wit").read_text()
    kinds, body = (block(text, name) for name in ("kinds", "mirror"))
    types = parse_interface(f"interface demo:types/kinds {{{kinds}\n}}").types
    declared = (
        f"interface demo:types/mirror {{{body.replace('use kinds.', 'use demo:types/kinds.')}\n}}"
    )
    names = parse_interface(declared, uses=types).functions
    own = {row.name: row for row in token_rows()}
    rows = [
        own.get(name, Recorded(name=name, function_type="read-local", action=mirrored))
        for name in names
    ]
    return host_interface(declared, "", rows, uses=types)


def mirrored(_state: Any, *values: object) -> object:
    return values[0] if values else None


def token_rows() -> list[HostFunctionRow]:
    """A token is a label in the worker's own table of handles."""

    def label(state: Any, mine: int) -> str:
        return state.handles.get(mine, str)

    def observed(state: Any, _answer: object, text: str) -> int:
        return state.handles.add(text)

    return [
        Recorded(
            name="[constructor]token",
            function_type="read-local",
            action=lambda _state, text: len(text),
            answer="u32",
            observe=observed,
        ),
        Recorded(name="[method]token.label", function_type="read-local", action=label),
        Local(
            "[method]token.absorb",
            lambda state, mine, other: f"{label(state, mine)}+{state.handles.drop(other)}",
        ),
        Local(
            "[static]token.join",
            lambda state, left, right: state.handles.add(
                f"{label(state, left)}&{label(state, right)}"
            ),
        ),
        Local("of-own", lambda state, token: state.handles.add(state.handles.drop(token))),
        Recorded(name="of-borrow", function_type="read-local", action=label),
    ]


def block(text: str, interface: str) -> str:
    """What stands between the braces of one interface of the file."""
    start = text.index("{", text.index(f"interface {interface} ")) + 1
    return text[start : text.index("\n}", start)]
