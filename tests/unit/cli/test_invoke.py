import pytest

from executor.errors import (
    BadArguments,
    Divergence,
    GuestTrap,
    InvocationInterrupted,
    KeyConflict,
    PreviousFailed,
    StoreError,
)
from executor.records import ErrorRecord, Invocation
from executor.requests import WaveArguments
from tests.support.fake_executor import GENERATED_KEY

ADD = "demo:counter/api.{add}"


def completed(key="k1", **fields):
    shape = {"result": 5, "value": 5, "wave": "5", "attempts": 1}
    return Invocation(
        worker="counter/alice", function=ADD, key=key, status="completed", **{**shape, **fields}
    )


def failed(kind, message="it broke", **fields):
    return Invocation(
        worker="counter/alice",
        function=ADD,
        key="k1",
        status="failed",
        error=ErrorRecord(kind=kind, message=message, where="counter/alice", hint="look"),
        attempts=1,
        **fields,
    )


def test_the_result_is_printed_as_wave_and_nothing_else_is(shem, store):
    store.outcomes["k1"] = completed(wave='"grüß"')
    assert shem("invoke", "counter/alice", "add", "5", "--key", "k1") == (0, '"grüß"\n', "")


def test_json_has_exactly_the_fields_of_an_invocation(shem, store):
    store.outcomes["k1"] = completed(
        result={"ok": [b"\x00\xff", float("inf"), 2**64 - 1]}, stdout="hello\n", stderr="warn\n"
    )
    ran = shem("invoke", "counter/alice", "add", "5", "--key", "k1", "--json")
    assert ran.code == 0
    assert ran.json == {
        "worker": "counter/alice",
        "function": ADD,
        "key": "k1",
        "status": "completed",
        "result": {"ok": [{"base64": "AP8="}, "inf", 2**64 - 1]},
        "wave": "5",
        "error": None,
        "attempts": 1,
        "deduplicated": False,
        "stdout": "hello\n",
        "stderr": "warn\n",
    }
    assert ran.stderr == ""


def test_options_follow_arguments_and_negative_numbers_are_arguments(shem, store):
    store.outcomes["k1"] = completed()
    ran = shem(
        "invoke", "counter/alice", "add", "-5", "--key", "k1", "-1.5e3", "--env", "A=b=c",
        "-inf", "-.5", '"-x"', "--timeout", "3", "--arg", "counter", "--arg", "-v",
        "--allow-net", "*",
    )  # fmt: skip
    assert ran.code == 0, ran.stderr
    [submit, wait] = store.calls
    assert submit == (
        "submit",
        "counter/alice",
        "add",
        WaveArguments(("-5", "-1.5e3", "-inf", "-.5", '"-x"')),
        "k1",
        {"A": "b=c"},
        ("counter", "-v"),
        ("*",),
        True,
    )
    assert wait == ("wait", "counter/alice", "k1", 3.0)


def test_a_key_may_look_like_a_negative_number_and_everything_after_dashes_is_an_argument(
    shem, store
):
    store.outcomes["-5"] = completed(key="-5")
    assert shem("invoke", "--key", "-5", "counter/alice", "add", "--", "-6", "--json").code == 0
    assert store.calls[0][3:5] == (WaveArguments(("-6", "--json")), "-5")


def test_an_unknown_option_is_refused_and_not_taken_for_an_argument(shem, store):
    ran = shem("invoke", "counter/alice", "add", "--kye", "k1")
    assert ran.code == 2
    assert ran.stdout == ""
    assert ran.stderr.startswith("shem: No such option '--kye'")
    assert ran.stderr.endswith("see `shem invoke --help`\n")
    assert ran.stderr.count("\n") == 1
    assert store.calls == []


def test_a_usage_error_after_json_is_one_object_on_stderr(shem):
    ran = shem("invoke", "--json", "counter/alice")
    assert (ran.code, ran.stdout) == (2, "")
    assert ran.error == {
        "kind": "usage",
        "message": "Missing argument 'FUNCTION'",
        "where": "shem invoke",
        "hint": "see `shem invoke --help`",
    }


def test_a_generated_key_is_told_on_stderr_before_the_run(shem, store, capfdbinary):
    seen = []

    async def look():
        seen.append(capfdbinary.readouterr().err)

    store.while_waiting = look
    store.outcomes[GENERATED_KEY] = completed(key=GENERATED_KEY)
    ran = shem("invoke", "counter/alice", "add", "5")
    assert (ran.code, ran.stdout) == (0, "5\n")
    assert seen == [f"key: {GENERATED_KEY}\n".encode()]
    assert store.calls[0][-1] is False, "it is run by who waits for it, and not before"
    store.outcomes["k1"] = completed()
    assert shem("invoke", "counter/alice", "add", "5", "--key", "k1").stderr == ""


def test_a_guest_failure_is_an_error_line_and_exit_1(shem, store):
    store.outcomes["k1"] = failed("guest-trap", "unreachable\nat add")
    ran = shem("invoke", "counter/alice", "add", "5", "--key", "k1")
    assert ran == (1, "", "shem: unreachable; at add: counter/alice: look\n")


def test_with_json_a_guest_failure_is_in_the_object_and_not_on_stderr(shem, store):
    store.outcomes["k1"] = failed("guest-error", stderr="Traceback\n")
    ran = shem("invoke", "counter/alice", "add", "5", "--key", "k1", "--json")
    assert ran.code == 1
    assert ran.json["status"] == "failed"
    assert ran.json["result"] is None
    assert ran.json["wave"] == ""
    assert ran.json["stderr"] == "Traceback\n"
    assert ran.json["error"] == {
        "kind": "guest-error",
        "message": "it broke",
        "where": "counter/alice",
        "hint": "look",
    }
    assert ran.stderr == ""


def test_exit_zero_is_done_and_another_exit_code_is_a_failure(shem, store):
    store.outcomes["k1"] = completed(result=None, wave="", exit_code=0)
    ran = shem("invoke", "tool/a", "run", "--key", "k1", "--json")
    assert (ran.code, ran.json["result"]) == (0, {"exit": 0})
    assert shem("invoke", "tool/a", "run", "--key", "k1") == (0, "", "")
    store.outcomes["k1"] = failed("guest-exit", "exit 3", exit_code=3)
    ran = shem("invoke", "tool/a", "run", "--key", "k1", "--json")
    assert (ran.code, ran.json["result"], ran.json["error"]["kind"]) == (
        1,
        {"exit": 3},
        "guest-exit",
    )


def test_a_returned_err_is_a_result_and_exit_0(shem, store):
    store.outcomes["k1"] = completed(result={"err": "no money"}, wave='err("no money")')
    assert shem("invoke", "b/a", "pay", "--key", "k1") == (0, 'err("no money")\n', "")


def test_a_function_without_a_result_prints_nothing(shem, store):
    store.outcomes["k1"] = completed(result=None, wave="")
    assert shem("invoke", "b/a", "reset", "--key", "k1") == (0, "", "")
    assert shem("invoke", "b/a", "reset", "--key", "k1", "--json").json["result"] is None


def test_pending_after_the_timeout_is_done(shem, store):
    store.outcomes["k1"] = Invocation(worker="a/b", function=ADD, key="k1", status="pending")
    assert shem("invoke", "a/b", "add", "--key", "k1", "--timeout", "0.1") == (
        0,
        "",
        "pending: k1\n",
    )


def test_no_wait_only_accepts(shem, store):
    store.outcomes[GENERATED_KEY] = Invocation(
        worker="a/b", function=ADD, key=GENERATED_KEY, status="pending"
    )
    ran = shem("invoke", "a/b", "add", "1", "--no-wait", "--json")
    assert ran.code == 0
    assert ran.stderr == f"key: {GENERATED_KEY}\n"
    assert (ran.json["status"], ran.json["result"], ran.json["wave"]) == ("pending", None, "")
    assert store.calls[0][-1] is False, "nothing runs"
    assert store.calls[-1] == ("invocation", "a/b", GENERATED_KEY)


def test_a_known_key_says_that_nothing_ran(shem, store):
    store.known_keys.add("k1")
    store.outcomes["k1"] = completed()
    assert shem("invoke", "a/b", "add", "5", "--key", "k1", "--json").json["deduplicated"] is True


@pytest.mark.parametrize(
    ("refusal", "code", "kind"),
    [
        (BadArguments("expected u32 at column 1", where="argument 1"), 2, "bad-arguments"),
        (KeyConflict("k1 was used with other arguments", where="a/b"), 4, "key-conflict"),
        (StoreError("disk full", kind="disk-full"), 5, "disk-full"),
    ],
)
def test_a_refused_acceptance_is_an_error_on_stderr(shem, store, refusal, code, kind):
    store.refusal = refusal
    ran = shem("invoke", "a/b", "add", "x", "--key", "k1", "--json")
    assert (ran.code, ran.stdout, ran.error["kind"]) == (code, "", kind)
    plain = shem("invoke", "a/b", "add", "x", "--key", "k1")
    assert plain.code == code
    assert plain.stderr.startswith(f"shem: {refusal.message}")


def test_a_worker_that_failed_before_fails_the_invocation(shem, store):
    store.refusal = PreviousFailed("trapped: unreachable", where="a/b", hint="delete it")
    ran = shem("invoke", "a/b", "add", "5", "--key", "k2", "--json")
    assert (ran.code, ran.stderr) == (1, "")
    assert (ran.json["status"], ran.json["key"]) == ("failed", "k2")
    assert ran.json["error"]["kind"] == "previous-failed"
    assert shem("invoke", "a/b", "add", "5", "--key", "k2") == (
        1,
        "",
        "shem: trapped: unreachable: a/b: delete it\n",
    )


@pytest.mark.parametrize(
    ("stopped", "code", "status"),
    [
        (InvocationInterrupted("interrupted"), 130, "pending"),
        (StoreError("accepted as k1", kind="disk-full"), 5, "pending"),
        (Divergence(worker="a/b", index=7, recorded="x", requested="y"), 5, "pending"),
        (GuestTrap("unreachable"), 1, "failed"),
    ],
)
def test_what_stops_the_waiting_after_the_acceptance_is_told_with_the_key(
    shem, store, stopped, code, status
):
    store.outcomes["k1"] = stopped
    store.known_keys.add("k1")
    ran = shem("invoke", "a/b", "add", "5", "--key", "k1", "--json")
    assert (ran.code, ran.stderr) == (code, "")
    assert (ran.json["key"], ran.json["status"]) == ("k1", status)
    assert (ran.json["attempts"], ran.json["stdout"]) == (1, "begun\n")
    assert ran.json["deduplicated"] is True
    assert ran.json["error"]["kind"] == stopped.kind


def test_guest_output_goes_to_stderr_as_it_commits_with_json_too(shem, store, capfdbinary):
    shown = []

    async def run():
        [(_, options)] = store.opened
        write = options["on_output"]
        write("a/b", "stdout", "grüß\n".encode())
        write("a/b", "info", b"INFO  a message\n")
        write("a/b", "stderr", b"\xff\n")
        shown.append(capfdbinary.readouterr().err)

    store.while_waiting = run
    store.outcomes["k1"] = completed()
    ran = shem("invoke", "a/b", "add", "5", "--key", "k1", "--json")
    assert (ran.code, ran.stderr) == (0, "")
    assert shown == ["grüß\nINFO  a message\n".encode() + b"\xff\n"]


def test_ctrl_c_ends_the_command_with_130(shem, store):
    store.outcomes["k1"] = KeyboardInterrupt()
    ran = shem("invoke", "a/b", "add", "5", "--key", "k1")
    assert (ran.code, ran.stdout) == (130, "")
    assert ran.stderr.startswith("shem: interrupted: ")
    assert shem("invoke", "a/b", "add", "5", "--key", "k1", "--json").error["kind"] == "interrupted"


def test_a_bad_crash_point_is_refused_before_anything_is_opened(shem, store):
    for point in ("append", "append:0", "before-result:", "commit:x", "never", "append:1 "):
        ran = shem("invoke", "a/b", "add", "5", "--crash-at", point)
        assert (ran.code, ran.stdout) == (2, "")
        assert "is not a crash point" in ran.stderr
    assert store.opened == []


def test_a_bad_environment_is_a_usage_error(shem):
    ran = shem("invoke", "a/b", "add", "--env", "novalue")
    assert ran.code == 2
    assert "'novalue' is not of the form K=V" in ran.stderr
