"""What the killed processes were doing: a guest, the invocations, and what each must answer.

| scenario | guest          | what is in it                                                        |
|----------|----------------|----------------------------------------------------------------------|
| counter  | counter (C)    | state, remote writes, clock, random; a queue of two                  |
| pair     | counter (C)    | two workers at once                                                  |
| failure  | counter (C)    | a trap after a remote write, and a key that waits behind it          |
| printer  | printer (C)    | output                                                               |
| charger  | charger (WAT)  | remote writes only                                                   |
| flaky    | charger (WAT)  | remote writes that fail once each and are tried again                |
| reader   | charger (WAT)  | the same calls as read-remote: they may be repeated                  |
| clocks   | clocks (WAT)   | recorded reads, whose digest is the state                            |
| sleeper  | sleeper (WAT)  | a timer                                                              |
| keeper   | keeper (C)     | numbers and values in a bucket, an object in a container             |
| talker   | talker (WAT)   | output, and then a long computation                                  |
| exit     | exiter (WAT)   | exits after a remote write                                           |
| order    | order (Python) | remote writes, files, output, clocks, random: 18 MB of interpreter   |
| trip     | trip (JS)      | remote writes, clock and random numbers: 1 MB of interpreter         |
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias

from executor.torture.plan import AnyStep, Invoke, Submit
from tests.support import guests
from tests.support.crash_guests import EXITER, TALKER


class Answer(NamedTuple):
    """What one key was answered with, in the end."""

    text: str
    """The result as WAVE, or the error; the kind of a refusal."""
    exit_code: int | None
    stdout: str
    stderr: str
    references: tuple[str, ...]
    """What the receiver answered to the charges of this invocation, in their order."""


Check: TypeAlias = Callable[[Answer], bool]
"""Whether an answer is right."""


class Scenario(NamedTuple):
    name: str
    component: str
    wasm: Callable[[], bytes]
    steps: tuple[AnyStep, ...]
    """What is only submitted is awaited later, by the same key."""
    checks: Mapping[str, Check]
    """By key: keys are unique over the workers."""
    charges: int
    """Made in an undisturbed run."""
    bank: str = ""
    """The function of `crash_bank` that it is deployed with."""
    across: Callable[[Mapping[str, Answer]], bool] = lambda _: True
    """What must hold between answers."""

    def judge(self, answers: Mapping[tuple[str, str], Answer]) -> Iterator[str]:
        """Everything that is wrong with the answers, by worker and key."""
        by_key = {key: answer for (_, key), answer in answers.items()}
        if set(by_key) != set(self.checks):
            yield f"answered were {sorted(by_key)}, asked for {sorted(self.checks)}"
        for key, answer in by_key.items():
            if key in self.checks and not self.checks[key](answer):
                yield f"the answer to {key} is wrong: {answer}"
        if not self.across(by_key):
            yield f"the answers do not agree: {by_key}"


def invoke(worker: str, key: str, function: str, *arguments: str) -> Invoke:
    return Invoke(worker=worker, function=function, arguments=arguments, key=key)


def submit(worker: str, key: str, function: str, *arguments: str) -> Submit:
    return Submit(worker=worker, function=function, arguments=arguments, key=key)


def says(text: str) -> Check:
    return lambda answer: answer.text == text


def reads(pattern: str) -> Check:
    return lambda answer: re.fullmatch(pattern, answer.text, re.DOTALL) is not None


def charged(count: int) -> Check:
    """The lines of the counter's `charge-many`: each names the receiver's own reference."""

    def check(answer: Answer) -> bool:
        lines = re.findall(r'"(ref-\d+) \d+ \d{10}"', answer.text)
        return len(lines) == count and tuple(lines) == answer.references

    return check


def scenarios() -> dict[str, Scenario]:
    found = (
        counter(),
        pair(),
        failure(),
        printer(),
        charger(),
        charger()._replace(name="flaky", bank="flaky"),
        charger()._replace(name="reader", bank="reading"),
        clocks(),
        sleeper(),
        keeper(),
        talker(),
        exiter(),
        order(),
        trip(),
    )
    return {scenario.name: scenario for scenario in found}


def counter() -> Scenario:
    worker = "counter/alice"
    return Scenario(
        name="counter",
        component="counter",
        wasm=guests.counter_component,
        bank="writing",
        steps=(
            invoke(worker, "five", "add", "5"),
            submit(worker, "bob", "charge-many", '"bob"', "2"),
            submit(worker, "three", "add", "3"),
            invoke(worker, "three", "add", "3"),
            invoke(worker, "bob", "charge-many", '"bob"', "2"),
            invoke(worker, "eve", "charge-many", '"eve"', "1"),
            invoke(worker, "get", "get"),
        ),
        checks={
            "five": says("5"),
            "bob": charged(2),
            "three": says("10"),
            "eve": charged(1),
            "get": says("11"),
        },
        charges=3,
    )


def pair() -> Scenario:
    left, right = "counter/left", "counter/right"
    return Scenario(
        name="pair",
        component="counter",
        wasm=guests.counter_component,
        bank="writing",
        steps=(
            submit(left, "l-2", "charge-many", '"l"', "2"),
            submit(right, "r-4", "add", "4"),
            submit(right, "r-2", "charge-many", '"r"', "2"),
            submit(left, "l-3", "add", "3"),
            invoke(left, "l-2", "charge-many", '"l"', "2"),
            invoke(right, "r-2", "charge-many", '"r"', "2"),
            invoke(left, "l-3", "add", "3"),
            invoke(right, "r-4", "add", "4"),
            invoke(left, "get-l", "get"),
            invoke(right, "get-r", "get"),
        ),
        checks={
            "l-2": charged(2),
            "l-3": says("5"),
            "r-4": says("4"),
            "r-2": charged(2),
            "get-l": says("5"),
            "get-r": says("6"),
        },
        charges=4,
    )


def failure() -> Scenario:
    worker = "counter/fails"
    return Scenario(
        name="failure",
        component="counter",
        wasm=guests.counter_component,
        bank="writing",
        steps=(
            submit(worker, "charge", "charge-many", '"x"', "1"),
            submit(worker, "fail", "fail"),
            submit(worker, "behind", "add", "1"),
            invoke(worker, "charge", "charge-many", '"x"', "1"),
            invoke(worker, "fail", "fail"),
            invoke(worker, "behind", "add", "1"),
            invoke(worker, "charge", "charge-many", '"x"', "1"),
        ),
        checks={
            "charge": charged(1),
            "fail": reads("guest-trap: .*"),
            "behind": says("previous-failed"),
        },
        charges=1,
    )


def printer() -> Scenario:
    worker = "printer/one"

    def prints(text: str, stdout: str, stderr: str) -> Check:
        return lambda answer: (answer.text, answer.stdout, answer.stderr) == (text, stdout, stderr)

    return Scenario(
        name="printer",
        component="printer",
        wasm=guests.printer_component,
        steps=(
            invoke(worker, "first", "print", '"first"'),
            invoke(worker, "second", "warn", '"second"'),
            invoke(worker, "third", "print", '"third"'),
            invoke(worker, "hi", "write", "[104, 105]"),
        ),
        checks={
            "first": prints("1", "first\n", ""),
            "second": prints("2", "", "second\n"),
            "third": prints("3", "third\n", ""),
            "hi": prints("", "hi", ""),
        },
        charges=0,
    )


def charger() -> Scenario:
    worker = "charger/one"
    return Scenario(
        name="charger",
        component="charger",
        wasm=lambda: guests.CHARGER,
        bank="writing",
        steps=(
            invoke(worker, "two", "charge-many", "2"),
            invoke(worker, "one", "charge-many", "1"),
            invoke(worker, "none", "charge-many", "0"),
        ),
        checks={"two": says("2"), "one": says("3"), "none": says("3")},
        charges=3,
    )


def keeper() -> Scenario:
    """Each step counts once, though a write that was lost is made again."""
    worker = "keeper/one"
    return Scenario(
        name="keeper",
        component="keeper",
        wasm=guests.keeper_component,
        steps=(
            invoke(worker, "three", "count-up", '"n"', "3"),
            invoke(worker, "two", "count-up", '"n"', "2"),
            invoke(worker, "store", "store", '"o"', "[1, 2, 3]", "4"),
            invoke(worker, "sum", "sum", '"o"'),
            invoke("keeper/other", "look", "look", '"counts"', '"last"'),
        ),
        checks={
            "three": says("ok(3)"),
            "two": says("ok(5)"),
            "store": says("ok"),
            "sum": says("ok((12, 24))"),
            "look": says('ok(some("5"))'),
        },
        charges=0,
    )


def clocks() -> Scenario:
    worker = "clocks/one"
    return Scenario(
        name="clocks",
        component="clocks",
        wasm=lambda: guests.CLOCKS,
        steps=(
            invoke(worker, "two", "read", "2"),
            invoke(worker, "one", "read", "1"),
            invoke(worker, "none", "read", "0"),
        ),
        checks={"two": reads(r"\d+"), "one": reads(r"\d+"), "none": reads(r"\d+")},
        across=lambda answers: answers["one"].text == answers["none"].text,
        charges=0,
    )


SLEEP_NS: Final = 50_000_000


def sleeper() -> Scenario:
    worker = "sleeper/one"

    def slept(answer: Answer) -> bool:
        return answer.text.isdigit() and int(answer.text) >= SLEEP_NS

    return Scenario(
        name="sleeper",
        component="sleeper",
        wasm=lambda: guests.SLEEPER,
        steps=(
            invoke(worker, "first", "sleep", str(SLEEP_NS)),
            invoke(worker, "second", "sleep", str(SLEEP_NS)),
            invoke(worker, "none", "sleep", "0"),
        ),
        checks={"first": slept, "second": slept, "none": reads(r"\d+")},
        charges=0,
    )


TALKER_TURNS: Final = 300_000_000
"""Longer than output may wait for its commit: the output is then the last that is committed."""


def talker() -> Scenario:
    worker = "talker/one"

    def said(text: str) -> Check:
        return lambda answer: (answer.text, answer.stdout) == (text, "said\n")

    return Scenario(
        name="talker",
        component="talker",
        wasm=lambda: TALKER,
        steps=(
            invoke(worker, "long", "say", str(TALKER_TURNS)),
            invoke(worker, "short", "say", "1"),
            invoke(worker, "last", "say", "0"),
        ),
        checks={"long": said("1"), "short": said("2"), "last": said("3")},
        charges=0,
    )


def exiter() -> Scenario:
    worker = "exiter/one"
    return Scenario(
        name="exit",
        component="exiter",
        wasm=lambda: EXITER,
        bank="writing",
        steps=(
            invoke(worker, "two", "add", "2"),
            submit(worker, "leave", "leave"),
            submit(worker, "behind", "add", "1"),
            invoke(worker, "leave", "leave"),
            invoke(worker, "behind", "add", "1"),
        ),
        checks={
            "two": says("2"),
            "leave": lambda answer: answer.exit_code == 1,
            "behind": says("previous-failed"),
        },
        charges=1,
    )


def order() -> Scenario:
    worker = "orders/ann"
    items = '{sku: "tea", quantity: 2, cents: 450}, {sku: "cup", quantity: 1, cents: 1200}'
    large = f'{{id: "large", customer: "ann", items: [{items}]}}'
    small = '{id: "small", customer: "ann", items: [{sku: "pin", quantity: 1, cents: 5}]}'
    empty = '{id: "empty", customer: "ann", items: []}'

    def receipt(order: str, cents: int, *bought: str) -> Check:
        def check(answer: Answer) -> bool:
            references = ", ".join(f'"{reference}"' for reference in answer.references)
            pattern = (
                rf'ok\({{order: "{order}", customer: "ann", total-cents: {cents}, '
                rf'references: \[{references}\], confirmation: "[0-9a-f-]{{45}}", '
                rf"placed-at: \d{{10}}}}\)"
            )
            printed = "".join(
                f"order {order}: item {number} of {len(bought)}, {item} cents\n"
                for number, item in enumerate(bought, 1)
            )
            last = rf"order {order}: placed, {cents} cents, \d+\.\d+ s\n"
            return bool(
                re.fullmatch(pattern, answer.text)
                and re.fullmatch(re.escape(printed) + last, answer.stdout)
            )

        return check

    def ledger_agrees(answers: Mapping[str, Answer]) -> bool:
        rows = []
        for key, cents in (("large", 2100), ("small", 5)):
            placed_at = re.search(r"placed-at: (\d+)", answers[key].text)
            assert placed_at is not None
            rows.append(rf'"{placed_at[1]}\t{key}\tann\t{cents}"')
        return answers["ledger"].text == f"[{', '.join(rows)}]"

    def placed(order: str, cents: int) -> str:
        return f'{{id: "{order}", customer: "ann", state: placed, charged-cents: {cents}}}'

    return Scenario(
        name="order",
        component="orders",
        wasm=guests.order_component,
        bank="ordering",
        steps=(
            invoke(worker, "large", "place", large),
            submit(worker, "small", "place", small),
            submit(worker, "empty", "place", empty),
            invoke(worker, "small", "place", small),
            invoke(worker, "empty", "place", empty),
            invoke(worker, "orders", "orders"),
            invoke(worker, "ledger", "ledger"),
        ),
        checks={
            "large": receipt("large", 2100, "tea, 900", "cup, 1200"),
            "small": receipt("small", 5, "pin, 5"),
            "empty": says('err("an order needs at least one item")'),
            "orders": says(f"[{placed('large', 2100)}, {placed('small', 5)}]"),
            "ledger": lambda answer: answer.text.startswith("["),
        },
        across=ledger_agrees,
        charges=3,
    )


def trip() -> Scenario:
    worker = "trips/agency"
    legs = [("Oslo", 100), ("Rome", 250)]
    shown = ", ".join(
        f'{{place: "{place}", payer: "ann", cents: {cents}}}' for place, cents in legs
    )

    def booked(answer: Answer) -> bool:
        references = ", ".join(f'"{reference}"' for reference in answer.references)
        pattern = (
            rf"ok\({{legs: \[{re.escape(shown)}\], references: \[{references}\], "
            rf'total-cents: 350, booked-at: \d{{13}}, locator: "[0-9A-F]{{6}}"}}\)'
        )
        return re.fullmatch(pattern, answer.text) is not None

    def agrees(answers: Mapping[str, Answer]) -> bool:
        return answers["booked"].text == answers["ann"].text.replace("ok(", "some(", 1)

    return Scenario(
        name="trip",
        component="trips",
        wasm=guests.trip_component,
        bank="writing",
        steps=(
            invoke(worker, "ann", "book", '"ann"', f"[{shown}]"),
            submit(worker, "bob", "book", '"bob"', "[]"),
            invoke(worker, "bob", "book", '"bob"', "[]"),
            invoke(worker, "booked", "booked", '"ann"'),
            invoke(worker, "totals", "totals"),
        ),
        checks={
            "ann": booked,
            "bob": says('err("a trip needs at least one leg")'),
            "booked": lambda answer: answer.text.startswith("some("),
            "totals": says("(1, 350)"),
        },
        across=agrees,
        charges=2,
    )
