"""A value of every WIT type crosses the executor's own boundary four times and is what it was.

The guest passes what it is given on to the imported mirror and answers with the mirror's answer, so
each value is lowered into the guest, lifted out of it, lowered into it and lifted again.
"""

import math
import queue
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from executor.wasm.engine import Engine
from executor.wasm.host_function import HostFunction, HostInterface
from executor.wasm.instance import Instance, Returned
from executor.wasm.lane import Lanes
from executor.wasm.linker import Linker
from executor.wasm.values import Err, Ok, Some, Variant
from executor.wasm.wit import parse_interface
from guests import recipes
from tests.support.guests import types_component

TIMEOUT_S = 30
POINT = {"x": -1, "y": 0.5}
SAMPLE = {
    "flag": True, "tiny": -128, "letter": "🜃", "wide": 2**63, "label": "é",
    "raw": b"\x00\xff", "at": POINT,
}  # fmt: skip
WIDE = {
    "a": 1, "b": 2, "c": 3, "d": 4, "e": -5, "f": -6, "g": -7, "h": -8, "i": 1.5, "j": 2.5,
    "k": True, "l": "ß", "m": "text", "n": 9, "o": 2**64 - 1, "p": [1, 65535],
}  # fmt: skip
SHAPES = [
    Variant("empty"), Variant("circle", 1.5), Variant("weight", 2**64 - 1), Variant("named", "n"),
    Variant("box", POINT), Variant("chain", [POINT, POINT]),
]  # fmt: skip
VALUES: dict[str, list[Any]] = {
    "of-bool": [True, False],
    "of-u8": [0, 255],
    "of-u16": [0, 2**16 - 1],
    "of-u32": [0, 2**32 - 1],
    "of-u64": [0, 2**64 - 1],
    "of-s8": [-128, 127],
    "of-s16": [-(2**15), 2**15 - 1],
    "of-s32": [-(2**31), 2**31 - 1],
    "of-s64": [-(2**63), 2**63 - 1],
    "of-f32": [0.5, -0.0, math.inf, -math.inf],
    "of-f64": [0.1, -0.0, math.inf, 5e-324],
    "of-char": ["a", "\0", "\U0010ffff", "\ue000"],
    "of-string": ["", "é🜃\0", "x" * 70_000],
    "of-bytes": [b"", bytes(range(256))],
    "of-numbers": [[], [0, 2**64 - 1]],
    "of-strings": [[], ["", "a", "bc"]],
    "of-samples": [[], [SAMPLE, SAMPLE | {"flag": False}]],
    "of-point": [POINT],
    "of-sample": [SAMPLE],
    "of-wide": [WIDE, WIDE | {"n": None}],
    "of-tuple": [(1, "two", 3.0)],
    "of-shape": SHAPES,
    "of-shapes": [[], SHAPES],
    "of-color": ["red", "green", "blue"],
    "of-rights": [[], ["read", "run"], ["read", "write", "run"]],
    "of-days": [["day1", "day9"]],
    "of-seats": [["seat1", "seat17"]],
    "of-option": [None, 0],
    "of-option-string": [None, ""],
    "of-nested-option": [None, Some(None), Some(3)],
    "of-result": [Ok(7), Err("no")],
    "of-result-ok": [Ok("yes"), Err()],
    "of-result-err": [Ok(), Err("green")],
    "of-result-bare": [Ok(), Err()],
}


class Mirror:
    """The imported interface, and every value it was shown; tokens are numbered labels."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.tokens: dict[int, str] = {}
        self.made = 0

    def echo(self, value: Any) -> Any:
        self.seen.append(value)
        return value

    def make(self, label: str) -> int:
        self.made += 1
        self.tokens[self.made] = label
        return self.made

    def drop(self, _state: Any, token: int) -> None:
        del self.tokens[token]

    def interface(self) -> HostInterface:
        folder = recipes.GUESTS / "types" / "wit"
        text = (folder / "types.wit").read_text()
        kinds, mirror = (block(text, name) for name in ("kinds", "mirror"))
        types = parse_interface(f"interface demo:types/kinds {{{kinds}\n}}").types
        body = mirror.replace("use kinds.", "use demo:types/kinds.")
        wit = parse_interface(f"interface demo:types/mirror {{{body}\n}}", uses=types)
        calls: dict[str, Callable[..., Any]] = {
            "nothing": lambda _state: None,
            "[constructor]token": lambda _state, label: self.make(label),
            "[method]token.label": lambda _state, mine: self.tokens[mine],
            "[method]token.absorb": lambda _state, mine, other: (
                f"{self.tokens[mine]}+{self.tokens.pop(other)}"
            ),
            "[static]token.join": lambda _state, left, right: self.make(
                f"{self.tokens[left]}&{self.tokens[right]}"
            ),
            "of-own": lambda _state, token: self.make(self.tokens.pop(token)),
            "of-borrow": lambda _state, token: self.tokens[token],
        }
        return HostInterface(
            name="demo:types/mirror",
            functions=tuple(
                HostFunction(
                    name=name,
                    type=function,
                    call=calls.get(name, lambda _state, value: self.echo(value)),
                )
                for name, function in wit.functions.items()
            ),
            resources={"token": self.drop},
        )


def block(text: str, interface: str) -> str:
    """What stands between the braces of one interface of the file."""
    start = text.index("{", text.index(f"interface {interface} ")) + 1
    return text[start : text.index("\n}", start)]


class Guest:
    def __init__(self, mirror: Mirror, lanes: Lanes) -> None:
        engine = Engine.open()
        component = engine.load(engine.compile(types_component()))
        linker = Linker(engine, component, (mirror.interface(),))
        self.exports = {export.name: export for export in component.exports}
        self.instance = Instance(linker, lanes.assign(), None)
        assert self._wait(self.instance.start) == Returned()

    def call(self, name: str, *arguments: Any) -> Any:
        outcome = self._wait(
            lambda done: self.instance.call(self.exports[name], list(arguments), done)
        )
        assert isinstance(outcome, Returned), (name, outcome)
        return outcome.value

    def _wait(self, begin: Any) -> Any:
        outcomes: queue.SimpleQueue[Any] = queue.SimpleQueue()
        begin(outcomes.put)
        return outcomes.get(timeout=TIMEOUT_S)


@pytest.fixture
def mirror() -> Mirror:
    return Mirror()


@pytest.fixture
def guest(mirror: Mirror) -> Iterator[Guest]:
    lanes = Lanes(Engine.open().increment_epoch, 1)
    made = Guest(mirror, lanes)
    yield made
    made.instance.close()
    lanes.close()


def same(left: Any, right: Any) -> bool:
    """Equal, and equal in type: `repr` tells True from 1, -0.0 from 0.0."""
    return bool(left == right) and repr(left) == repr(right)


def test_the_guest_has_a_value_here_for_each_of_its_functions(guest: Guest) -> None:
    assert set(guest.exports) - {"nothing", "tokens", "keep", "kept"} == set(VALUES)


def test_a_value_of_every_type_is_what_it_was(guest: Guest, mirror: Mirror) -> None:
    assert guest.call("nothing") is None
    for name, values in VALUES.items():
        for value in values:
            answer = guest.call(name, value)
            assert same(answer, value), (name, answer, value)
            assert same(mirror.seen.pop(), value), (name, value)
    assert math.isnan(guest.call("of-f32", math.nan))
    assert math.isnan(guest.call("of-f64", math.nan))


def test_tokens_are_lent_given_and_dropped_and_one_is_kept(guest: Guest, mirror: Mirror) -> None:
    assert guest.call("tokens", "a") == ["a", "a", "a", "a&second", "a&second+second"]
    assert mirror.tokens == {}
    assert guest.call("kept") is None
    assert [guest.call("keep", "x"), guest.call("keep", "y"), guest.call("kept")] == ["x", "y", "y"]
    assert list(mirror.tokens.values()) == ["y"]
