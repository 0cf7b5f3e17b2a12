"""The receiver of the crash tests."""

import json
from pathlib import Path

import httpx

from tests.support.receiver import Receiver, Request


def post(receiver: Receiver, key: str, body: str) -> str:
    answer = httpx.post(receiver.url + "charge", headers={"idempotency-key": key}, content=body)
    assert answer.status_code == 200
    return str(answer.json()["reference"])


def test_a_key_gets_the_same_reference_again_and_every_request_is_counted(tmp_path: Path) -> None:
    with Receiver.start(tmp_path) as receiver:
        assert receiver.counts() == {}
        assert [post(receiver, key, "7") for key in ("a", "b", "a")] == ["ref-1", "ref-2", "ref-1"]
        assert receiver.counts() == {"a": 2, "b": 1}
        assert receiver.requests()[0] == Request("a", "/charge", "7")


def test_what_was_answered_is_in_the_file_after_the_receiver_is_killed(tmp_path: Path) -> None:
    with Receiver.start(tmp_path) as receiver:
        post(receiver, "a", "1")
        receiver.process.kill()
        receiver.process.wait()
        assert [json.loads(line)["key"] for line in receiver.log.read_text().splitlines()] == ["a"]
    with Receiver.start(tmp_path) as receiver:
        assert post(receiver, "a", "1") == "ref-1"
        assert post(receiver, "c", "1") == "ref-2"
        assert receiver.counts() == {"a": 2, "c": 1}
