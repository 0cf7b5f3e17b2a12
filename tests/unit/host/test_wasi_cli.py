import pytest

from executor.durable.reasons import Exited
from executor.wasm.values import Err, Ok, Variant
from tests.support.host_calls import Left


def test_the_environment_and_arguments_come_in_their_order(make_guest):
    guest = make_guest(environment=[("B", "1"), ("A", "2")], arguments=["first", "-x"])
    assert guest.call("wasi:cli/environment.get-environment") == [("B", "1"), ("A", "2")]
    assert guest.call("wasi:cli/environment.get-arguments") == ["first", "-x"]
    assert guest.call("wasi:cli/environment.initial-cwd") == "/"


@pytest.mark.parametrize(
    ("function", "argument", "code"),
    [
        ("exit", Ok(None), 0),
        ("exit", Err(None), 1),
        ("exit-with-code", 0, 0),
        ("exit-with-code", 42, 42),
    ],
)
def test_an_exit_leaves_the_guest_with_its_code(guest, function, argument, code):
    with pytest.raises(Left) as left:
        guest.call(f"wasi:cli/exit.{function}", argument)
    assert left.value.reason == Exited(code)


def test_each_write_to_an_output_is_one_log_entry(guest):
    out = guest.call("wasi:cli/stdout.get-stdout")
    err = guest.call("wasi:cli/stderr.get-stderr")
    stream = "wasi:io/streams.[method]output-stream"
    guest.ok(f"{stream}.blocking-write-and-flush", out, b"hello ")
    guest.ok(f"{stream}.write", err, b"\xff\x00")
    guest.ok(f"{stream}.write", out, b"")
    guest.ok(f"{stream}.flush", out)
    guest.ok(f"{stream}.write-zeroes", out, 2)
    assert guest.session.logged == [
        ("stdout", b"hello "),
        ("stderr", b"\xff\x00"),
        ("stdout", b"\0\0"),
    ]
    guest.drop("wasi:io/streams", "output-stream", out)
    guest.drop("wasi:io/streams", "output-stream", err)
    assert len(guest.state.handles) == 0


def test_standard_input_is_at_its_end(guest):
    stdin = guest.call("wasi:cli/stdin.get-stdin")
    stream = "wasi:io/streams.[method]input-stream"
    for function in ("read", "blocking-read", "skip", "blocking-skip"):
        assert guest.err(f"{stream}.{function}", stdin, 10) == Variant("closed")
    pollable = guest.call(f"{stream}.subscribe", stdin)
    assert guest.call("wasi:io/poll.[method]pollable.ready", pollable) is True
    guest.drop("wasi:io/streams", "input-stream", stdin)


@pytest.mark.parametrize("name", ["stdin", "stdout", "stderr"])
def test_there_is_no_terminal(guest, name):
    assert guest.call(f"wasi:cli/terminal-{name}.get-terminal-{name}") is None
