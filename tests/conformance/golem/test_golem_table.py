"""The table of Golem's behaviours is true of the tests: what it names is there."""

import re
from collections import Counter
from pathlib import Path

TESTS = Path(__file__).resolve().parents[2]
ROW = re.compile(r"\| (?P<behaviour>.*?) \| (?P<how>[a-z: ]+?) \|(?P<where>.*)\|")
HOWS = ("yes", "own", "other")
WHYS = ("calls", "updates", "forks", "snapshots", "ephemeral", "absent", "requests", "never")
NO_GUEST = {"test_golem_table.py", "test_golem_torture.py", "test_golem_wrapping.py"}


def rows() -> list[re.Match[str]]:
    text = Path(__file__).with_name("README.md").read_text().split("\n## ", 1)[1]
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    found = [ROW.fullmatch(line) for line in lines if " how | " not in line]
    assert None not in found, [line for line in lines if not ROW.fullmatch(line)]
    return [row for row in found if row is not None]


def named(row: re.Match[str]) -> set[str]:
    return set(re.findall(r"`(test_\w+)`", row["where"]))


def functions_in(paths: list[Path]) -> set[str]:
    return {name for path in paths for name in re.findall(r"def (test_\w+)\(", path.read_text())}


def test_every_behaviour_has_a_test_that_exists_or_a_reason() -> None:
    existing = functions_in(list(TESTS.rglob("test_*.py")))
    for row in rows():
        assert named(row) <= existing, row["behaviour"]
        if row["how"] in HOWS:
            assert named(row), row["behaviour"]
        else:
            assert row["how"] in {f"no: {why}" for why in WHYS}, row["behaviour"]
    print(Counter(row["how"] for row in rows()))


def test_every_test_of_golems_guests_is_in_the_table() -> None:
    here = [path for path in Path(__file__).parent.glob("test_*.py") if path.name not in NO_GUEST]
    in_table = set().union(*(named(row) for row in rows()))
    assert functions_in(here) - in_table == set()
