"""`--retry`: policies and rules, as they are read and written."""

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from executor.cli.retry_text import retry_option, retry_text
from executor.durable.retry import NEVER, RetryPolicy, recorded_policy
from executor.durable.retry_rules import RetryRule, recorded_rule

TEXTS = st.text('ab*,|"\\ =:é\n', min_size=1, max_size=8)
STATUSES = st.sampled_from(["503", "5xx", "40x"])
FACTORS = st.integers(0, 10**6).map(lambda thousandths: thousandths / 1_000)


@st.composite
def policies(draw):
    delays_ns = sorted(draw(st.tuples(st.integers(0, 10**15), st.integers(0, 10**10))))
    return RetryPolicy(
        attempts_max=draw(st.integers(1, 2**32 - 1)),
        min_delay_s=delays_ns[0] / 10**9,
        max_delay_s=delays_ns[1] / 10**9,
        multiplier=draw(FACTORS),
        max_jitter_factor=draw(FACTORS),
    )


@st.composite
def rules(draw):
    def alternatives(texts):
        return tuple(draw(st.lists(texts, max_size=3)))

    return RetryRule(
        name=draw(st.sampled_from(["rates", "0", "a.b_c-d"])),
        functions=(*alternatives(TEXTS), "demo:rates/*"),
        errors=alternatives(TEXTS),
        statuses=alternatives(STATUSES),
        policy=draw(policies()),
    )


@given(policies() | rules() | st.just(NEVER))
def test_what_is_written_reads_back_as_itself(retry):
    assert recorded(retry_option(retry_text(retry))) == recorded(retry)


def recorded(retry):
    """Times to the nanosecond, as workers keep them."""
    return recorded_rule(retry) if isinstance(retry, RetryRule) else recorded_policy(retry)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        (
            "rates:function=demo:rates/*,error=busy,status=429|5xx,max-attempts=10",
            RetryRule(
                name="rates",
                functions=("demo:rates/*",),
                errors=("busy",),
                statuses=("429", "5xx"),
                policy=RetryPolicy(attempts_max=10),
            ),
        ),
        ("gone:status=410,never", RetryRule(name="gone", statuses=("410",), policy=NEVER)),
        (" a : error = x y | z ", RetryRule(name="a", errors=("x y", "z"))),
        (
            r'a:error="no, or \"none\"|\\"|b,max-delay=2m',
            RetryRule(
                name="a",
                errors=(r'no, or "none"|' + "\\", "b"),
                policy=RetryPolicy(max_delay_s=120),
            ),
        ),
        ('a:error="x=1"', RetryRule(name="a", errors=("x=1",))),
        ("a:error=x=1:2", RetryRule(name="a", errors=("x=1:2",))),
        (r"a:error=C:\x", RetryRule(name="a", errors=(r"C:\x",))),
    ],
)
def test_a_rule_has_a_name_predicates_and_a_policy(text, rule):
    assert retry_option(text) == rule


def test_never_is_one_attempt():
    assert retry_option("never") == NEVER
    assert NEVER.attempts_max == 1


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "column 1: '' is none of max-attempts, min-delay, max-delay, multiplier, jitter"),
        ("max-attempts=3,tries=3", "column 16: 'tries=3' is none of max-attempts"),
        ("max-attempts=3,", "column 16: '' is none of max-attempts"),
        ("rates:", "column 7: '' is none of function, error, status, max-attempts"),
        ("rates: tries=3", "column 8: 'tries=3' is none of function, error"),
        ("function=demo:*", "column 1: function is for a rule, which has a name: NAME:function="),
        ("a:error=x,error=y", "column 11: error is given twice"),
        ("a:jitter=1,jitter=2", "column 12: jitter is given twice"),
        ("a:error=x,never,jitter=1", "column 11: never stands without fields of a policy"),
        ('a:error="x,never', "column 9: a quote has no end"),
        ('a:error=x|y "z"', 'column 11: y "z" is quoted in part'),
        ("a:error=x,min-delay=5", "column 11: '5' is not a duration, as 100ms, 1.5s or 2m, for mi"),
        ("a:error=\ud800", "is not Unicode text"),
    ],
)
def test_an_error_says_at_which_column_of_which_field(text, says):
    with pytest.raises(click.BadParameter) as refused:
        retry_option(text)
    assert says in refused.value.message
