import pytest


@pytest.mark.parametrize(
    ("arguments", "call", "status"),
    [
        (("interrupt",), ("interrupt", "counter/alice"), "interrupted"),
        (("resume",), ("resume", "counter/alice", True), "idle"),
        (("cancel", "k2"), ("cancel", "counter/alice", "k2"), "running"),
        (("delete",), ("delete", "counter/alice"), "deleted"),
    ],
)
def test_a_command_of_the_owner_answers_what_was_done(shem, store, alice, arguments, call, status):
    command, *rest = arguments
    ran = shem(command, "counter/alice", *rest, "--json")
    assert ran.json == {"worker": "counter/alice", "done": True, "status": status}
    assert store.calls == [call]
    assert shem(command, "counter/alice", *rest) == (0, f"counter/alice: {status}\n", "")
    assert shem(command, "counter/bob", *rest).code == 3
