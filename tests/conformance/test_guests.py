"""The guests alone, on Wasmtime's own Python binding: what they do without the executor.

So a guest that is wrong is found here, and not taken for a fault of the executor.
"""

import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from wasmtime import Config, Engine, Store, Trap, WasiConfig, WasmtimeError, _ffi
from wasmtime.component import Component, Linker, Record, ResourceHost, ResourceType, Variant

from tests.support import guests

TOKEN = 1
Interfaces = dict[str, dict[str, Callable[..., Any]]]


class Guest:
    """One instance, its exports of one interface callable by name."""

    def __init__(
        self, wasm: bytes, interface: str, host: Interfaces, wasi: WasiConfig | None = None
    ) -> None:
        config = Config()
        # With it, Wasmtime 50.0 fails every call that lends two handles to the host.
        _ffi.wasmtime_config_concurrency_support_set(config.ptr(), False)
        engine = Engine(config)
        linker = Linker(engine)
        self.store = Store(engine)
        if wasi is not None:
            linker.add_wasip2()
            self.store.set_wasi(wasi)
        with linker.root() as root:
            for name, functions in host.items():
                with root.add_instance(name) as instance:
                    if name == "demo:types/mirror":
                        instance.add_resource("token", ResourceType.host(TOKEN), drop_token)
                    for function, call in functions.items():
                        instance.add_func(function, call)
        self.instance = linker.instantiate(self.store, Component(engine, wasm))
        self.interface = self.instance.get_export_index(self.store, interface)

    def call(self, name: str, *arguments: Any) -> Any:
        index = self.instance.get_export_index(self.store, name, self.interface)
        assert index is not None, name
        function = self.instance.get_func(self.store, index)
        assert function is not None, name
        return function(self.store, *arguments)


def drop_token(_store: Any, rep: int) -> None:
    del TOKENS[rep]


TOKENS: dict[int, str] = {}


def record(**fields: Any) -> Record:
    made = Record()
    for name, value in fields.items():
        setattr(made, name.replace("_", "-"), value)
    return made


def plain(value: Any) -> Any:
    match value:
        case Record():
            return {name: plain(field) for name, field in vars(value).items()}
        case Variant():
            return (value.tag, plain(value.payload))
        case list() | tuple():
            return [plain(item) for item in value]
        case set():
            return sorted(value)
        case bytes() | bytearray():
            return list(value)
        case float():
            return "nan" if math.isnan(value) else value
        case _:
            return value


def bank(asked: list[tuple[str, int]]) -> dict[str, Callable[..., Any]]:
    def charge(_store: Any, who: str, cents: int) -> Variant:
        if who == "poor":
            return Variant("err", "no money")
        asked.append((who, cents))
        return Variant("ok", f"ref-{len(asked)}")

    return {"charge": charge}


CLOCKS_AND_RANDOM: Interfaces = {
    "wasi:clocks/wall-clock@0.2.0": {"now": lambda _store: record(seconds=7, nanoseconds=8)},
    "wasi:clocks/monotonic-clock@0.2.0": {"now": lambda _store: 9},
    "wasi:random/random@0.2.0": {"get-random-u64": lambda _store: 2**64 - 1},
}


@pytest.mark.parametrize(
    "wasm", [guests.ADDER, guests.counter_component()], ids=["adder", "counter"]
)
def test_a_count_lives_in_memory_and_a_failure_ends_the_instance(wasm: bytes) -> None:
    interface = "demo:adder/api" if wasm is guests.ADDER else "demo:counter/api"
    host: Interfaces = {} if wasm is guests.ADDER else {"demo:bank/api": bank([])}
    guest = Guest(wasm, interface, host | ({} if wasm is guests.ADDER else CLOCKS_AND_RANDOM))
    assert [guest.call("add", 2), guest.call("add", 3), guest.call("get")] == [2, 5, 5]
    with pytest.raises((Trap, WasmtimeError)):
        guest.call("fail")
    with pytest.raises((Trap, WasmtimeError)):
        guest.call("get")


def test_the_counter_charges_and_reads_clock_and_random_after_each_charge() -> None:
    asked: list[tuple[str, int]] = []
    host = CLOCKS_AND_RANDOM | {"demo:bank/api": bank(asked)}
    guest = Guest(guests.counter_component(), "demo:counter/api", host)
    assert guest.call("charge-many", "ada", 2) == [
        "ref-1 18446744073709551615 7",
        "ref-2 18446744073709551615 7",
    ]
    assert guest.call("charge-many", "poor", 1) == ["refused: no money"]
    assert len(guest.call("charge-many", "ada", 1000)) == 1000
    assert guest.call("charge-many", "ada", 0) == []
    assert asked[:3] == [("ada", 1), ("ada", 2), ("ada", 1)]
    assert guest.call("get") == len(asked) == 1002


def test_the_charger_charges_and_counts_over_invocations() -> None:
    asked: list[tuple[str, int]] = []
    guest = Guest(guests.CHARGER, "demo:charger/api", {"demo:bank/api": bank(asked)})
    assert [guest.call("charge-many", 3), guest.call("charge-many", 5000)] == [3, 5003]
    assert asked[:4] == [("wat", 1), ("wat", 2), ("wat", 3), ("wat", 1)]


def test_the_digest_of_the_clocks_depends_on_every_answer() -> None:
    guest = Guest(guests.CLOCKS, "demo:clocks/api", CLOCKS_AND_RANDOM)
    seen = {guest.call("read", 1) for _ in range(4)}
    assert len(seen) == 4
    for name, function in (
        ("wasi:clocks/wall-clock@0.2.0", {"now": lambda _s: record(seconds=7, nanoseconds=9)}),
        ("wasi:clocks/monotonic-clock@0.2.0", {"now": lambda _s: 10}),
        ("wasi:random/random@0.2.0", {"get-random-u64": lambda _s: 0}),
    ):
        other = Guest(guests.CLOCKS, "demo:clocks/api", CLOCKS_AND_RANDOM | {name: function})
        assert other.call("read", 1) not in seen


def test_the_sleeper_waits_and_says_how_long() -> None:
    guest = Guest(guests.SLEEPER, "demo:sleeper/api", {}, WasiConfig())
    assert guest.call("sleep", 2_000_000) >= 2_000_000


def test_the_printer_writes_lines_to_its_streams(tmp_path: Path) -> None:
    out, err = tmp_path / "out", tmp_path / "err"
    wasi = WasiConfig()
    wasi.stdout_file = str(out)
    wasi.stderr_file = str(err)
    guest = Guest(guests.printer_component(), "demo:printer/api", {}, wasi)
    assert [guest.call("print", "a"), guest.call("warn", "b"), guest.call("print", "é")] == [
        1,
        2,
        3,
    ]
    guest.call("write", b"x" * 10_000)
    assert out.read_text() == "a\né\n" + "x" * 10_000
    assert err.read_text() == "b\n"


def test_the_scribe_writes_files(tmp_path: Path) -> None:
    wasi = WasiConfig()
    wasi.preopen_dir(str(tmp_path), "/")
    guest = Guest(guests.scribe_component(), "demo:scribe/api", {}, wasi)

    def made(name: str, *arguments: Any) -> str:
        answer = guest.call(name, *arguments)
        return "ok" if answer is None else str(answer)

    assert made("make-directory", "notes") == "ok"
    assert made("write-and-wait", "notes/a", "one ", 1_000, "two") == "ok"
    assert made("link", "notes/a", "latest") == "ok"
    assert (tmp_path / "latest").read_text() == "one two"
    assert made("resize", "latest", 3) == "ok"
    assert (tmp_path / "notes" / "a").read_text() == "one"
    assert made("remove", "notes/a") == "ok"
    assert made("write", "missing/b", "") == "no-entry"
    with pytest.raises(WasmtimeError, match="unreachable"):
        guest.call("write-and-trap", "c", "kept")
    assert (tmp_path / "c").read_text() == "kept"


def test_the_approval_waits_for_the_promise_that_it_made(tmp_path: Path) -> None:
    wasi = WasiConfig()
    wasi.stdout_file = str(tmp_path / "out")
    uuid = record(high_bits=1, low_bits=2**64 - 1)
    worker = record(component_id=record(uuid=uuid), worker_name="wörker")
    promise = record(worker_id=worker, oplog_idx=4)
    asked: list[Any] = []

    def answering(value: Any) -> Callable[..., Any]:
        def call(_store: Any, *arguments: Any) -> Any:
            asked.append([plain(argument) for argument in arguments])
            return value

        return call

    answers = {
        "get-oplog-index": 2,
        "set-oplog-index": None,
        "create-promise": promise,
        "await-promise": b"yes",
        "poll-promise": None,
        "complete-promise": True,
        "delete-promise": None,
    }
    host: Interfaces = {
        "golem:api/host@1.1.6": {name: answering(value) for name, value in answers.items()}
    }
    guest = Guest(guests.approval_component(), "demo:approval/workflow", host, wasi)
    assert guest.call("request", "a bridge") == ("a bridge", "yes", 1)
    assert guest.call("request", "") == ("", "yes", 2)
    said = "a bridge waits for promise 4\n waits for promise 4\n"
    assert (tmp_path / "out").read_text() == said
    assert guest.call("remind", "water", 0) == "water"
    assert (tmp_path / "out").read_text() == f"{said}water\n"
    assert plain(guest.call("create-again")) == plain(guest.call("create")) == plain(promise)
    del asked[:]
    assert bytes(guest.call("await", promise)) == b"yes"
    assert guest.call("poll", promise) is None
    assert guest.call("complete", promise, b"v") is True
    guest.call("delete", promise)
    assert asked == [[plain(promise), *more] for more in ([], [], [list(b"v")], [])]


def test_the_courier_hears_that_it_has_no_network() -> None:
    guest = Guest(guests.courier_component(), "demo:courier/post", {}, WasiConfig())
    assert guest.call("dial", 1) == "access-denied"
    assert guest.call("ping", 1, "a").payload == "access-denied"
    assert guest.call("ask", "localhost", 1, "a").payload == "permanent-resolver-failure"
    assert guest.call("say", "a").payload == "invalid-state"


def test_the_order_guest_charges_each_item_and_keeps_a_ledger(tmp_path: Path) -> None:
    asked: list[tuple[str, int]] = []
    wasi = WasiConfig()
    wasi.preopen_dir(str(tmp_path), "/")
    wasi.stdout_file = str(tmp_path / "out")
    host: Interfaces = {"demo:orders/bank": bank(asked)}
    guest = Guest(guests.order_component(), "demo:orders/workflow", host, wasi)
    items = [record(sku=f"sku-{n}", quantity=n, cents=100) for n in range(1, 6)]

    receipt = plain(guest.call("place", record(id="o1", customer="ada", items=items)))
    assert receipt["total-cents"] == 1500
    assert receipt["references"] == ["ref-1", "ref-2", "ref-3", "ref-4", "ref-5"]
    assert asked == [("ada", 100), ("ada", 200), ("ada", 300), ("ada", 400), ("ada", 500)]
    again = guest.call("place", record(id="o1", customer="ada", items=items))
    assert plain(again) == receipt
    assert len(asked) == 5

    refused = guest.call("place", record(id="o2", customer="poor", items=items))
    assert refused == "sku-1: no money"
    placed, not_placed = plain(guest.call("orders"))
    assert placed == plain(guest.call("status", "o1"))
    assert (placed["state"], placed["charged-cents"]) == ("placed", 1500)
    assert (not_placed["state"], not_placed["charged-cents"]) == ("refused", 0)
    assert guest.call("status", "o3") is None
    assert guest.call("ledger") == [f"{receipt['placed-at']}\to1\tada\t1500"]
    assert "order o1: item 5 of 5, sku-5, 500 cents\n" in (tmp_path / "out").read_text()


def test_the_trip_guest_books_every_leg_or_pays_back(tmp_path: Path) -> None:
    asked: list[tuple[str, int]] = []
    guest = Guest(
        guests.trip_component(), "demo:trips/workflow", {"demo:bank/api": bank(asked)}, WasiConfig()
    )
    legs = [record(place=f"p{n}", payer="ada", cents=100 * n) for n in range(1, 4)]
    trip = plain(guest.call("book", "ada", legs))
    assert trip["references"] == ["ref-1", "ref-2", "ref-3"]
    assert trip["total-cents"] == 600
    assert re.fullmatch("[0-9A-F]{6}", trip["locator"])
    assert plain(guest.call("book", "ada", legs)) == trip == plain(guest.call("booked", "ada"))
    assert asked == [("ada", 100), ("ada", 200), ("ada", 300)]

    legs.append(record(place="nowhere", payer="poor", cents=1))
    assert guest.call("book", "bob", legs) == "nowhere: no money"
    assert asked[3:6] == [("ada", 100), ("ada", 200), ("ada", 300)]
    assert asked[6:] == [("airline", 300), ("airline", 200), ("airline", 100)]
    assert guest.call("booked", "bob") is None
    assert guest.call("totals") == (1, 600)


POINT = {"x": -1, "y": 0.5}
WIDE = {
    "a": 1, "b": 2, "c": 3, "d": 4, "e": -5, "f": -6, "g": -7, "h": -8, "i": 1.5, "j": 2.5,
    "k": True, "l": "ß", "m": "text", "n": 9, "o": 2**64 - 1, "p": [1, 65535],
}  # fmt: skip


def sample() -> Record:
    return record(
        flag=True, tiny=-128, letter="🜃", wide=2**63, label="é", raw=b"\x00\xff", at=record(**POINT)
    )  # fmt: skip


def values() -> Iterator[tuple[str, Any]]:
    yield from (("of-bool", value) for value in (True, False))
    for bits in (8, 16, 32, 64):
        yield from ((f"of-u{bits}", value) for value in (0, 2**bits - 1))
        yield from ((f"of-s{bits}", value) for value in (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1))
    for bits in (32, 64):
        yield from ((f"of-f{bits}", value) for value in (0.5, -0.0, math.inf, math.nan))
    yield from (("of-char", value) for value in ("a", "\0", "\U0010ffff", "\ue000"))
    yield from (("of-string", value) for value in ("", "é🜃\0"))
    yield from (("of-bytes", value) for value in (b"", bytes(range(256))))
    yield from (("of-numbers", value) for value in ([], [0, 2**64 - 1]))
    yield from (("of-strings", value) for value in ([], ["", "a", "bc"]))
    yield "of-samples", [sample(), sample()]
    yield "of-point", record(**POINT)
    yield "of-sample", sample()
    yield "of-wide", record(**WIDE)
    yield "of-wide", record(**(WIDE | {"n": None}))
    yield "of-tuple", (1, "two", 3.0)
    shapes = [None, 1.5, 2**64 - 1, "n", record(**POINT), [record(**POINT)]]
    yield from (("of-shape", shape) for shape in shapes)
    yield "of-shapes", shapes
    yield from (("of-color", value) for value in ("red", "blue"))
    yield from (("of-rights", value) for value in (set(), {"read", "run"}))
    yield "of-days", {"day1", "day9"}
    yield "of-seats", {"seat1", "seat17"}
    yield from (("of-option", value) for value in (None, 0))
    yield from (("of-option-string", value) for value in (None, ""))
    nested = (Variant("none"), Variant("some", None), Variant("some", 3))
    yield from (("of-nested-option", value) for value in nested)
    yield from (("of-result", value) for value in (7, "no"))
    yield from (("of-result-ok", value) for value in ("yes", None))
    yield from (("of-result-err", value) for value in (None, "green"))
    yield from (("of-result-bare", value) for value in (Variant("ok"), Variant("err")))


def mirror(seen: list[Any]) -> dict[str, Callable[..., Any]]:
    def echo(_store: Any, value: Any) -> Any:
        seen.append(plain(value))
        return value

    def made(store: Any, label: str) -> Any:
        rep = len(seen) + 1
        seen.append(label)
        TOKENS[rep] = label
        return ResourceHost.own(rep, TOKEN).to_any(store)

    def label(store: Any, token: Any) -> str:
        return TOKENS[token.to_host(store).rep]

    def taken(store: Any, token: Any) -> str:
        return TOKENS.pop(token.to_host(store).rep)

    return {
        **{name: echo for name, _ in values()},
        "nothing": lambda _store: seen.append(None),
        "[constructor]token": made,
        "[method]token.label": label,
        "[method]token.absorb": lambda s, mine, theirs: f"{label(s, mine)}+{taken(s, theirs)}",
        "[static]token.join": lambda s, a, b: made(s, f"{label(s, a)}&{label(s, b)}"),
        "of-own": lambda s, token: made(s, taken(s, token)),
        "of-borrow": label,
    }


def test_a_value_of_every_type_comes_back_from_the_mirror_as_it_was() -> None:
    seen: list[Any] = []
    guest = Guest(guests.types_component(), "demo:types/echo", {"demo:types/mirror": mirror(seen)})
    for name, value in values():
        answer = guest.call(name, value)
        assert (name, plain(answer)) == (name, plain(value))
        assert (name, seen.pop()) == (name, plain(value))
    guest.call("nothing")
    assert seen == [None]


def test_tokens_are_lent_given_and_dropped_and_one_is_kept() -> None:
    TOKENS.clear()
    seen: list[Any] = []
    guest = Guest(guests.types_component(), "demo:types/echo", {"demo:types/mirror": mirror(seen)})
    assert guest.call("tokens", "a") == ["a", "a", "a", "a&second", "a&second+second"]
    assert TOKENS == {}
    assert guest.call("kept") is None
    assert [guest.call("keep", "x"), guest.call("keep", "y"), guest.call("kept")] == ["x", "y", "y"]
    assert list(TOKENS.values()) == ["y"]
