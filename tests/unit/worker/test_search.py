"""The search language: what a query says, and which entries it matches."""

import random
from contextlib import suppress

import msgspec
import pytest

from executor.errors import UsageError
from executor.records import OplogRecord
from executor.worker.search import LENGTH_MAX, And, Field, Not, Or, Term, matches, parse
from oplog.entry import (
    CancelPendingInvocation,
    Create,
    End,
    Error,
    Failure,
    InvocationFinished,
    InvocationStarted,
    Log,
    NoOp,
    Outcome,
    PendingInvocation,
    Raw,
    Start,
    Suspend,
)

AT_NS = 1_700_000_000_123_456_789


def record(entry, index=7, hidden=False):
    return OplogRecord(index=index, entry=entry, hidden=hidden)


def raw(value):
    return Raw(msgspec.msgpack.encode(value))


ITEM = {"product-id": "G1001", "name": "Mud Golem", "price": 11.5, "quantity": 10}
ADD_ITEM = InvocationStarted(
    at=AT_NS, key="order-17", function="golem:it/api.{add-item}", arguments=raw([ITEM])
)
NOW = Start(
    at=AT_NS, function="wasi:clocks/wall-clock.now", function_type="read-local", request=raw([])
)
LINE = Log(at=AT_NS, level="stderr", text="Added Item G1002")


def found(text, entry, **more):
    return matches(parse(text), record(entry, **more))


# -- the language ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("a", Term("a")),
        ("  a\t", Term("a")),
        ("a b", And((Term("a"), Term("b")))),
        ("a AND b", And((Term("a"), Term("b")))),
        ("a OR b c", Or((Term("a"), And((Term("b"), Term("c")))))),
        ("(a OR b) c", And((Or((Term("a"), Term("b"))), Term("c")))),
        ("NOT a b", And((Not(Term("a")), Term("b")))),
        ("NOT NOT a", Term("a")),
        ("NOT (a OR b)", Not(Or((Term("a"), Term("b"))))),
        ("a and or not", And((Term("a"), Term("and"), Term("or"), Term("not")))),
        ('"a OR b"', Term("a OR b", exact=True)),
        (r'"say \"hi\" \\"', Term('say "hi" \\', exact=True)),
        (r"a\ b \(c\) \AND", And((Term("a b"), Term("(c)"), Term("AND")))),
        ("k:v", Field(("k",), Term("v"), whole=Term("k:v"))),
        ("a.B:v:w", Field(("a", "b"), Term("v:w"), whole=Term("a.B:v:w"))),
        (r"a\:b", Term("a:b")),
        (":b", Term(":b")),
        ('k:"v w"', Field(("k",), Term("v w", exact=True))),
        ("k:(a OR NOT b)", Field(("k",), Or((Term("a"), Not(Term("b")))))),
        ('a"b"c', And((Term("a"), Term("b", exact=True), Term("c")))),
    ],
)
def test_a_query_is_read_as_it_is_written(text, query):
    assert parse(text) == query


@pytest.mark.parametrize(
    ("text", "column", "why"),
    [
        ("", 1, "the query ends where a term is expected"),
        ("   ", 4, "the query ends where a term is expected"),
        ("a OR", 5, "the query ends where a term is expected"),
        ("a AND OR b", 7, "there is `OR` where a term is expected"),
        ("OR a", 1, "there is `OR` where a term is expected"),
        ("a NOT", 6, "the query ends where a term is expected"),
        ("a ()", 4, "there is `)` where a term is expected"),
        ("a (b", 3, "this `(` is not closed"),
        ("a b) c", 4, "this `)` closes nothing"),
        ('ab "cd', 4, "this quote is not closed"),
        ("ab\\", 3, "nothing follows this `\\`"),
        ("a level:", 9, "`level:` is followed by no value"),
        ("level: a", 7, "`level:` is followed by no value"),
        ("level:)", 7, "`level:` is followed by no value"),
        ("(" * 65 + "a" + ")" * 65, 65, "parentheses nest at most 64 deep"),
    ],
)
def test_a_query_that_makes_no_sense_is_refused_at_its_column(text, column, why):
    with pytest.raises(UsageError) as refused:
        parse(text)
    assert (refused.value.message, refused.value.where) == (why, f"search, column {column}")


def test_an_endless_query_is_refused():
    with pytest.raises(UsageError, match=f"at most {LENGTH_MAX} characters"):
        parse("a " * LENGTH_MAX)


def test_any_text_is_a_query_or_a_refusal():
    seed = random.randrange(2**32)
    print("seed", seed)
    generator = random.Random(seed)
    for _ in range(5_000):
        text = "".join(generator.choices('ab:."\\() ANDORT\n😀', k=generator.randrange(12)))
        with suppress(UsageError):
            found(text, ADD_ITEM)


# -- what matches ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "entry"),
    [
        ("G1001", ADD_ITEM),
        ("g100", ADD_ITEM),
        ("product-id:G1001", ADD_ITEM),
        ("PRODUCT-ID:g1001", ADD_ITEM),
        ("arguments.product-id:G1001", ADD_ITEM),
        ("arguments:(product-id:G1001 quantity:10)", ADD_ITEM),
        ("arguments:G1001", ADD_ITEM),
        ("quantity:10", ADD_ITEM),
        ("price:11.5", ADD_ITEM),
        ("11.50", ADD_ITEM),
        ("order-17", ADD_ITEM),
        ("key:order", ADD_ITEM),
        ("golem:it/api.{add-item}", ADD_ITEM),
        ("add-item", ADD_ITEM),
        ("invocation-started", ADD_ITEM),
        ("exported-function", ADD_ITEM),
        ("kind:invocation-started", ADD_ITEM),
        ('"Mud Golem"', ADD_ITEM),
        ('name:"Mud"', ADD_ITEM),
        ("mud NOT water", ADD_ITEM),
        ("water OR mud", ADD_ITEM),
        ("imported-function", NOW),
        ("start", NOW),
        ("wasi:clocks/wall-clock.now", NOW),
        ("function:wall-clock", NOW),
        ("function_type:read-local", NOW),
        ("level:stderr", LINE),
        ("log G1002", LINE),
        ("at:2023-11-14T22:13", LINE),
        ("index:7", LINE),
        ("hint:true hidden:false", LINE),
        ("noop", NoOp(at=1)),
        ("true", End(at=1, start_index=1, response=raw({"ok": True}))),
        ("ok:true", End(at=1, start_index=1, response=raw({"ok": True}))),
        ("body", End(at=1, start_index=1, response=raw({"ok": b"a body\xff"}))),
        ("start_index:1", End(at=1, start_index=1)),
        ("env.currency:EUR", Create(at=1, name="a/b", component="a", env={"CURRENCY": "EUR"})),
        ("env.A.B:x", Create(at=1, name="a/b", component="a", env={"A.B": "x"})),
        (
            "kind:guest-trap",
            InvocationFinished(
                at=1, outcome=Outcome(failure=Failure(kind="guest-trap", message=""))
            ),
        ),
        ("error_kind:transient", Error(at=1, retry_from=3, kind="transient")),
        ("retry_at:2023", Error(at=1, retry_from=3, kind="transient", retry_at=AT_NS)),
        ("wake_at:2023", Suspend(at=1, wake_at=AT_NS)),
        ("cancel-invocation", CancelPendingInvocation(at=1, key="k")),
        ('key:""', CancelPendingInvocation(at=1, key="k")),
        ("at:5", PendingInvocation(at=1, key="k", function="f", arguments=raw([{"at": 5}]))),
    ],
)
def test_an_entry_is_found(text, entry):
    assert found(text, entry)


@pytest.mark.parametrize(
    ("text", "entry"),
    [
        ("G1003", ADD_ITEM),
        ("name:G1001", ADD_ITEM),
        ("product-id.arguments:G1001", ADD_ITEM),
        ("quantity:1", ADD_ITEM),
        ("1", InvocationStarted(at=1, key="k", function="f", arguments=raw([10, 11]))),
        ('"mud golem"', ADD_ITEM),
        ('"order-17 "', ADD_ITEM),
        ("NOT mud", ADD_ITEM),
        ("mud water", ADD_ITEM),
        ("invocation", ADD_ITEM),
        ("imported-function", ADD_ITEM),
        ("imported-function", End(at=1, start_index=1)),
        ("kind:add-item", ADD_ITEM),
        ("level:stdout", LINE),
        ("2023", LINE),
        ("7", LINE),
        ("false", LINE),
        ("key:7", LINE),
        ("1", End(at=1, start_index=2, response=raw(True))),
        ('key:""', LINE),
    ],
)
def test_an_entry_that_says_something_else_is_not_found(text, entry):
    assert not found(text, entry)
