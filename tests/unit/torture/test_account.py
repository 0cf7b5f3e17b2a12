from executor.torture.account import Label, Reference, account_of
from executor.torture.plan import Call, Ended, Files, Found, Opened, Outcome, Refused

ANSWER = Label("key k of w/a", "answer")


def differences(reference, text):
    return [str(found) for found in reference.differences({ANSWER: text})]


def agreed(*texts):
    first, *others = texts
    reference = Reference({ANSWER: first})
    for text in others:
        reference.add({ANSWER: text})
    return reference


def test_what_every_undisturbed_run_says_has_to_be_said():
    reference = agreed('ok("paid", 12)', 'ok("paid", 12)')
    assert differences(reference, 'ok("paid", 12)') == []
    assert differences(reference, 'ok("paid", 13)') == [
        'key k of w/a: answer is ok("paid", 13); undisturbed it is ok("paid", 12)'
    ]


def test_a_word_in_which_undisturbed_runs_differ_may_be_any_and_the_rest_may_not():
    reference = agreed(
        '{id: "o-1", at: 2024-01-31T10:00:00.5Z}', '{id: "o-1", at: 2025-03-03T11:01:01.7Z}'
    )
    assert differences(reference, '{id: "o-1", at: 1999-12-31T00:00:00Z}') == []
    assert differences(reference, '{id: "o-2", at: 1999-12-31T00:00:00Z}') != []
    assert reference.not_compared() == ['key k of w/a: answer, in part: {id: "o-1", at: *}']


def test_a_text_of_another_shape_in_each_run_is_not_compared_at_all():
    reference = agreed("[1, 2]", "[1]")
    assert differences(reference, "[]") == []
    assert reference.not_compared() == ["key k of w/a: answer, at all"]
    reference.add({ANSWER: "[1, 2]"})
    assert differences(reference, "anything") == []


def test_something_more_or_less_is_a_difference_and_an_effect_is_lost_or_duplicated():
    first, second = (Label("key k of w/a", f"effect {n}") for n in (1, 2))
    reference = Reference({first: "bank.charge [1] -> 1"})
    reference.add({first: "bank.charge [1] -> 1"})
    [lost] = reference.differences({})
    assert (lost.lost, lost.duplicated) == (True, False)
    assert str(lost) == "key k of w/a: effect 1 is missing; undisturbed it is bank.charge [1] -> 1"
    account = {first: "bank.charge [1] -> 1", second: "bank.charge [1] -> 1"}
    [more] = reference.differences(account)
    assert (more.lost, more.duplicated) == (False, True)


def test_what_only_some_undisturbed_runs_have_may_be_there_or_not():
    reference = Reference({ANSWER: "1"})
    reference.add({})
    assert list(reference.differences({})) == []
    assert list(reference.differences({ANSWER: "2"})) == []
    reference = Reference({})
    reference.add({ANSWER: "1"})
    assert list(reference.differences({ANSWER: "2"})) == []


def found(*calls, status="idle", pending=0, rolled_back=False):
    return Found(
        worker="w/a", id="00", entries=("e",), calls=calls, status=status, pending=pending,
        rolled_back=rolled_back, verified=True,
    )  # fmt: skip


def call(index, **fields):
    return Call(
        index=index, key=str(index), invocation="k", function="bank.charge", type="write-remote",
        request=f"[{index}]", response="1", **fields,
    )  # fmt: skip


def test_an_account_is_of_the_last_process_and_of_calls_that_count():
    events = (
        Opened(),
        Outcome(worker="w/a", key="k", status="completed", wave="old"),
        Opened(),
        Outcome(worker="w/a", key="k", status="completed", wave="told", resumed=True),
        Outcome(worker="w/a", key="k", status="completed", wave="new", stdout="said"),
        Refused(worker="w/a", key="l", kind="previous-failed", message="m"),
        found(call(3, hidden=True), call(5), call(7)),
        Files(worker="w/a", texts={"/ledger": "paid 12"}),
        Ended(),
    )
    assert account_of(events) == {
        ANSWER: "new",
        Label("key k of w/a", "stdout"): "said",
        Label("key k of w/a", "stderr"): "",
        Label("key l of w/a", "answer"): "refused, previous-failed",
        Label("key k of w/a", "effect 1"): "bank.charge [5] -> 1",
        Label("key k of w/a", "effect 2"): "bank.charge [7] -> 1",
        Label("w/a", "file /ledger"): "paid 12",
        Label("w/a", "status"): "idle",
        Label("w/a", "waiting invocations"): "0",
    }


def test_what_waits_behind_a_failure_is_a_matter_of_time():
    assert Label("w/a", "waiting invocations") not in account_of(
        (Opened(), found(status="failed", pending=1))
    )


def test_output_of_attempts_that_were_rolled_back_stays_and_is_not_compared():
    said = Outcome(worker="w/a", key="k", status="completed", stdout="said said")
    account = account_of((Opened(), said, found(rolled_back=True)))
    assert account[Label("key k of w/a", "stdout")] is None
    reference = Reference({Label("key k of w/a", "stdout"): "said"})
    assert not [d for d in reference.differences(account) if d.label.what == "stdout"]


def test_failures_exits_and_results_are_answers():
    def answer(**fields):
        return account_of((Opened(), Outcome(worker="w/a", key="k", **fields)))[ANSWER]

    assert answer(status="failed", error="guest-trap: trapped") == "guest-trap: trapped"
    assert answer(status="failed", error="guest-exit: 3", exit_code=3) == "exit 3"
    assert answer(status="completed") == ""
    assert answer(status="pending") == "pending"


def test_in_how_many_pieces_a_body_comes_is_no_matter():
    def found(*pieces):
        calls = tuple(
            Call(index=n, key="d", invocation="k", function=function, type="read-remote")
            for n, function in enumerate(("wasi:http/outgoing-handler.handle", *pieces), 3)
        )
        return Found(worker="w/a", id="00", entries=(), calls=calls, verified=True)

    read = "wasi:io/streams.[method]input-stream.blocking-read"
    reference = Reference(account_of((Opened(), found(read))))
    assert list(reference.differences(account_of((Opened(), found(read, read, read))))) == []
    assert list(reference.differences(account_of((Opened(), found("a.b", read))))) != []
