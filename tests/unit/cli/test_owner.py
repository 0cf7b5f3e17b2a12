import pytest


@pytest.mark.parametrize(
    ("arguments", "call", "status"),
    [
        (("interrupt",), ("interrupt", "counter/alice"), "interrupted"),
        (("resume",), ("resume", "counter/alice", True), "idle"),
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


def test_a_cancelled_key_is_told_by_its_name_and_the_worker_by_its_status(shem, store, alice):
    assert shem("cancel", "counter/alice", "k\n2") == (0, "counter/alice: k\\n2 cancelled\n", "")
    assert store.calls == [("cancel", "counter/alice", "k\n2")]
    told = shem("cancel", "counter/alice", "k2", "--json").json
    assert told == {"worker": "counter/alice", "done": True, "status": "running"}
