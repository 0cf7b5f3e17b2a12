"""Rules of a deployment: which failure has which policy."""

import pytest

from executor.durable.retry import (
    DEFAULT_POLICY,
    NEVER,
    Chosen,
    RetryPolicy,
    TransientAnswer,
    TransientError,
)
from executor.durable.retry_rules import (
    RULES_MAX,
    RetryRule,
    RetryRules,
    joined,
    recorded_retry_rules,
    refuse_unmatched,
    split,
)
from executor.errors import UsageError

CHARGE = "demo:bank/api.charge"
READ = "wasi:io/streams.[method]input-stream.read"
HANDLE = "wasi:http/outgoing-handler.handle"
OWN = RetryPolicy(attempts_max=7)


def chosen(failure, *rules, function=CHARGE):
    """The name of the rule that is chosen; "own" and "never" where none is."""
    recorded = recorded_retry_rules([RetryRule(name=name, **when) for name, when in rules])
    found = RetryRules(recorded).choose(function, failure, OWN)
    if found.rule:
        assert found.policy == DEFAULT_POLICY
        return found.rule
    return {OWN: "own", NEVER: "never"}[found.policy]


@pytest.mark.parametrize(
    ("when", "function", "fits"),
    [
        ({"functions": (CHARGE,)}, CHARGE, True),
        ({"functions": ("demo:bank/api",)}, CHARGE, False),
        ({"functions": ("demo:bank/*",)}, CHARGE, True),
        ({"functions": ("*.charge",)}, CHARGE, True),
        ({"functions": ("demo:*.ch*ge",)}, CHARGE, True),
        ({"functions": ("demo:bank/*",)}, "demo:bankers/api.charge", False),
        ({"functions": ("demo:bank?api.charge",)}, CHARGE, False),
        ({"functions": ("demo.bank/*",)}, CHARGE, False),
        ({"functions": ("x", "demo:bank/*")}, CHARGE, True),
        ({"functions": (READ,)}, READ, True),
        ({"functions": ("*.[method]input-stream.*",)}, READ, True),
        ({"functions": ("*",)}, "", True),
        ({"functions": ("demo:bank/*",)}, "", False),
    ],
)
def test_a_function_fits_by_its_name_in_which_a_star_stands_for_anything(when, function, fits):
    found = chosen(TransientError("busy"), ("rule", when), function=function)
    assert found == ("rule" if fits else "own")


@pytest.mark.parametrize(
    ("errors", "failure", "fits"),
    [
        (("busy",), TransientError("The peer is BUSY now"), True),
        (("Busy NOW",), TransientError("The peer is busy now"), True),
        (("busy",), TransientError("away"), False),
        (("away", "busy"), TransientError("busy"), True),
        (("rate-limited",), TransientError("busy", kind="rate-limited"), True),
        (("RATE-limited",), TransientError("busy", kind="rate-limited"), True),
        (("rate",), TransientError("busy", kind="rate-limited"), False),
        (("guest-trap",), TransientError("unreachable", kind="guest-trap"), True),
        (("none.",), TransientError("none at all"), False),
    ],
)
def test_an_error_fits_by_its_kind_or_a_part_of_its_text(errors, failure, fits):
    assert chosen(failure, ("rule", {"errors": errors})) == ("rule" if fits else "own")


@pytest.mark.parametrize(
    ("statuses", "status", "fits"),
    [
        ((503,), 503, True),
        (("503",), 503, True),
        (("5xx",), 599, True),
        (("5xx",), 499, False),
        (("50x",), 503, True),
        (("50x",), 513, False),
        ((429, "5xx"), 429, True),
        (("5xx",), None, False),
    ],
)
def test_a_status_fits_by_its_digits(statuses, status, fits):
    failure = TransientError("busy", status=status)
    assert chosen(failure, ("rule", {"statuses": statuses})) == ("rule" if fits else "own")


@pytest.mark.parametrize(
    ("function", "failure", "rule"),
    [
        (HANDLE, TransientError("reset", status=503), "all three"),
        (HANDLE, TransientError("reset", status=404), "first"),
        (HANDLE, TransientError("refused", status=503), "first"),
        (CHARGE, TransientError("reset", status=503), "second"),
        (CHARGE, TransientError("refused"), "own"),
    ],
)
def test_everything_that_a_rule_names_has_to_fit_and_the_first_that_fits_counts(
    function, failure, rule
):
    rules = (
        ("all-three", {"functions": ("wasi:http/*",), "errors": ("reset",), "statuses": ("5xx",)}),
        ("first", {"functions": ("wasi:http/*",)}),
        ("second", {"errors": ("reset",)}),
        ("third", {"errors": ("reset",)}),
    )
    assert chosen(failure, *rules, function=function) == rule.replace(" ", "-")


@pytest.mark.parametrize(
    ("rules", "status", "rule"),
    [
        ((), 503, "never"),
        ((), None, "own"),
        ((("http", {"functions": ("wasi:http/*",)}),), 503, "never"),
        ((("http", {"functions": ("wasi:http/*",)}),), None, "http"),
        ((("busy", {"statuses": ("5xx",)}),), 503, "busy"),
        ((("busy", {"statuses": ("5xx",)}),), 404, "never"),
        ((("busy", {"statuses": ("5xx",)}),), None, "own"),
        (
            (("http", {"functions": ("wasi:http/*",)}), ("busy", {"statuses": (503,)})),
            503,
            "busy",
        ),
    ],
)
def test_an_answer_with_a_status_is_a_failure_only_by_a_rule_that_names_it(rules, status, rule):
    answer = TransientAnswer("an answer", object(), status=status)
    assert chosen(answer, *rules, function=HANDLE) == rule


def test_no_rules_leave_everything_to_the_workers_own_policy():
    assert RetryRules().choose(CHARGE, TransientError("busy"), OWN) == Chosen(OWN)


# -- deploying -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rules", "says"),
    [
        ([RetryRule(name="", errors=("a",))], "a name has 1 to 64"),
        ([RetryRule(name="a b", errors=("a",))], "a name has 1 to 64"),
        ([RetryRule(name="n" * 65, errors=("a",))], "a name has 1 to 64"),
        ([RetryRule(name="all")], "it names no function, error or status"),
        ([RetryRule(name="s", statuses=(200,))], "'200' is no status from 400 to 599"),
        ([RetryRule(name="s", statuses=("503", "5"))], "'5' is no status"),
        ([RetryRule(name="s", statuses=("xxx",))], "'xxx' is no status"),
        ([RetryRule(name="s", errors=("",))], "a function or error has 1 to"),
        ([RetryRule(name="s", functions=("a" * 1_025,))], "a function or error has 1 to"),
        ([RetryRule(name="s", errors=("\ud800",))], "is not Unicode text"),
        ([RetryRule(name="s", errors=("a",), policy=RetryPolicy(attempts_max=0))], "max-attempts"),
        ([RetryRule(name="s", errors=(one,)) for one in "ab"], "two rules are called 's'"),
        ([RetryRule(name=f"r{n}", errors=("a",)) for n in range(RULES_MAX + 1)], "at most 64"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(rules, says):
    with pytest.raises(UsageError, match=says):
        recorded_retry_rules(rules)


def test_the_refusal_names_the_rule():
    with pytest.raises(UsageError) as refused:
        recorded_retry_rules(
            [RetryRule(name="rates", errors=("a",), policy=RetryPolicy(multiplier=-1))]
        )
    assert refused.value.where == "retry rule 'rates'"


def test_one_text_is_one_alternative():
    (rule,) = recorded_retry_rules([RetryRule(name="s", functions="demo:*", statuses="5xx")])
    assert (rule.functions, rule.statuses) == (("demo:*",), ("5xx",))


def test_a_policy_or_a_sequence_of_it_and_rules_is_deployed():
    rules = tuple(RetryRule(name=name, errors=("a",)) for name in "ba")
    assert split(None) == (None, ())
    assert split(OWN) == (OWN, ())
    assert split([]) == (None, ())
    assert split([rules[0], OWN, rules[1]]) == (OWN, rules)
    with pytest.raises(UsageError, match="one policy of its own"):
        split([OWN, *rules, NEVER])
    with pytest.raises(UsageError, match="is made of"):
        split(["max-attempts=3"])


def test_what_is_recorded_can_be_deployed_again():
    rule = RetryRule(
        name="rates",
        functions=("demo:*",),
        errors=("busy",),
        statuses=("429", "5xx"),
        policy=RetryPolicy(attempts_max=9, min_delay_s=0.25),
    )
    recorded = recorded_retry_rules([rule])
    assert joined(None, recorded) == [rule]
    assert recorded_retry_rules(joined(None, recorded)) == recorded


def test_a_function_that_nothing_imports_is_refused():
    def refuse(*functions):
        rules = recorded_retry_rules([RetryRule(name="rates", functions=functions)])
        refuse_unmatched(rules, [CHARGE, READ])

    refuse(CHARGE, "*.[method]*")
    with pytest.raises(UsageError) as refused:
        refuse("demo:bank/*", "demo:bank@1.0.0/*")
    assert refused.value.message == "the component imports no function demo:bank@1.0.0/*"
    assert refused.value.where == "retry rule 'rates'"


# -- failures --------------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf")])
def test_a_pause_is_a_time(seconds):
    with pytest.raises(ValueError, match="no time to wait"):
        TransientError("busy", retry_after_s=seconds)


def test_a_failure_that_was_made_without_its_constructor_is_one():
    class Busy(TransientError):
        def __init__(self):
            pass

    failure = Busy()
    assert chosen(failure, ("rule", {"statuses": (503,)})) == "own"
    assert (failure.kind, failure.retry_after_s) == ("", 0)
